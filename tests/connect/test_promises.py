"""A pipeline guarantees the weakest of its parts, each with its reason; the page says what the parts say."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import (
    Dedupe,
    FileSink,
    FileSource,
    InvalidPipeline,
    KafkaSink,
    KafkaSource,
    LogSink,
    LogSource,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    RabbitQueueSink,
    RabbitQueueSource,
    RabbitStreamSink,
    RabbitStreamSource,
    TopicSource,
)
from persistent.connect.promises import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    Guarantee,
    Promise,
    guarantee_of,
)
from persistent.storage import MemoryStorage
from tests.connect.ledger import Ledger, LedgerSink
from tests.topics import Topic
from tests.topics import TopicSource as Topics

ROOT = Path(__file__).parents[2]
REPLAYS = Promise(EXACTLY_ONCE, "it replays")


class Visits(PersistentTask):
    """Visits."""

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class Asking(MemorySink):
    """A sink that may be asked again."""

    def guarantee(self) -> Promise:
        return Promise(AT_LEAST_ONCE, "it is asked again after a crash")


def connectors(folder: Path) -> list[Any]:
    return [
        FileSource(folder, timestamp="ts"),
        KafkaSource("localhost:9092", "clicks"),
        LogSource(folder / "log"),
        TopicSource("127.0.0.1:7000", "clicks", journal=folder / "journal"),
        MemorySource([{"ts": 1}]),
        RabbitQueueSource("amqp://localhost", "views", journal=folder / "journal"),
        RabbitStreamSource("localhost:5552", "clicks"),
        FileSink(folder / "out"),
        KafkaSink("localhost:9092", "visits"),
        LogSink(folder / "log"),
        MemorySink(),
        RabbitQueueSink("amqp://localhost", "visits"),
        RabbitStreamSink("localhost:5552", "visits"),
    ]


def test_the_weakest_part_decides() -> None:
    """A chain is no stronger; and whoever asks wants to know which link it is."""
    here = Promise(EXACTLY_ONCE, "it is in memory", "this process lives")
    asked = Promise(AT_LEAST_ONCE, "it is asked again")
    assert guarantee_of({"source": REPLAYS, "sink": REPLAYS}) == "exactly-once: source: it replays; sink: it replays"
    assert (
        guarantee_of({"source": REPLAYS, "checkpoint": here})
        == "exactly-once while this process lives: it is in memory"
    )
    assert guarantee_of({"checkpoint": here, "sink": asked}) == "at-least-once: it is asked again"
    assert guarantee_of({"source": REPLAYS}, "of half of it").endswith("it replays; of half of it")
    assert guarantee_of({"source": REPLAYS, "sink": asked}).parts == {"source": REPLAYS, "sink": asked}


def test_a_pipeline_says_why() -> None:
    """Part by part: what is not exactly-once can then be replaced."""
    source, storage = MemorySource([{"ts": 1}]), MemoryStorage(uuid.uuid4().hex)
    sure = Pipeline(source=source, task=Visits(), checkpoint=storage, sink=MemorySink()).guarantee()
    assert isinstance(sure, Guarantee) and sure.startswith("exactly-once while this process lives")
    assert list(sure.parts) == ["source", "checkpoint", "sink"] and sure.parts["source"] == source.guarantee()
    asking = {"source": source, "task": Visits(), "checkpoint": storage, "sink": Asking()}
    assert Pipeline(**asking, require="at-least-once").guarantee() == "at-least-once: it is asked again after a crash"
    with pytest.raises(InvalidPipeline, match="this pipeline is at-least-once: it is asked again after a crash"):
        Pipeline(**asking, require="exactly-once")


def test_a_part_that_says_nothing_keeps_its_contract() -> None:
    """A user's own source is held to what every source has to do."""
    for part in (Topics(Topic()), LedgerSink(Ledger())):
        assert part.guarantee().level == EXACTLY_ONCE


def test_the_page_says_what_the_parts_say(tmp_path: Path) -> None:
    """A table of promises that nobody keeps would be believed."""
    (tmp_path / "a.jsonl").write_text('{"ts":1}\n')
    page = (ROOT / "docs" / "guarantees.md").read_text()
    rows = [
        f"| `{type(one).__name__}` | {one.guarantee().level} | {one.guarantee().reason} |"
        for one in connectors(tmp_path)
    ]
    assert [row for row in rows if row not in page] == []


def test_what_may_lose_and_what_may_repeat_together_promise_nothing() -> None:
    """ "At-most-once" of a chain whose end repeats would be believed."""
    lost, asked = Promise(AT_MOST_ONCE, "it is dropped"), Promise(AT_LEAST_ONCE, "it is asked again")
    assert guarantee_of({"source": lost, "sink": REPLAYS}) == "at-most-once: it is dropped"
    assert guarantee_of({"source": lost, "sink": asked}) == (
        "neither at-least-once nor at-most-once: source: at-most-once: it is dropped; "
        "sink: at-least-once: it is asked again"
    )


def test_a_queue_is_exactly_once_with_dedupe(tmp_path: Path) -> None:
    """A crash before the acknowledgement journals twice; who asks for exactly-once must not get that unseen."""

    def guarantee(acknowledge: str, dedupe: Any) -> Guarantee:
        source = RabbitQueueSource("amqp://localhost", "q", journal=tmp_path / "j", acknowledge=acknowledge)
        return Pipeline(source=source, task=Visits(), checkpoint=tmp_path / "c", dedupe=dedupe).guarantee()

    by_id = Dedupe.by_id("_message_id")
    for acknowledge in ("journal", "checkpoint"):
        assert guarantee(acknowledge, None).startswith("at-least-once: a message is journaled twice")
        assert guarantee(acknowledge, by_id).startswith("exactly-once")
    for dedupe in (None, by_id):
        assert guarantee("at-most-once", dedupe).startswith("at-most-once: a message is acknowledged before it is")
    source = RabbitQueueSource("amqp://localhost", "q", journal=tmp_path / "j")
    with pytest.raises(InvalidPipeline, match=r"require='exactly-once', but this pipeline is at-least-once"):
        Pipeline(source=source, task=Visits(), checkpoint=tmp_path / "c", require="exactly-once")
