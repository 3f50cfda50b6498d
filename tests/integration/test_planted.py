"""Sentences of the protocol, each broken on purpose: the story that it is there for ends wrong, and is seen to.

A story is told twice over a real server: with the connector as it is, and with the mutant, of which it must complain.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from monoids import Sum
from persistent import KafkaSource, NonWindowState, PersistentTask, Pipeline, PostgresSink, WindowState, tumbling
from persistent.connect import offsets
from persistent.connect.marked import SinkMark
from persistent.connect.postgres.session import Session
from persistent.connect.sink import OutputBatch, Retreat
from persistent.errors import SourceChanged
from persistent.storage import MemoryStorage
from tests.servers.shared import shared_kafka
from tests.servers.suites import PostgresSuite

Story = Callable[[Any, Path, pytest.MonkeyPatch], None]


class ByPage(PersistentTask):
    """The sum of n by page."""

    key = "page"

    def __init__(self, state: Any = None) -> None:
        self.state = state or NonWindowState(Sum())

    def persistent_state(self) -> Any:
        return self.state

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def produced(topic: str, *records: tuple[int, int], transaction: str | None = None, abort: bool = False) -> None:
    """Append (partition, ts) of page "a", each with n = 1."""
    values = [(at, json.dumps({"page": "a", "n": 1, "ts": ts}).encode()) for at, ts in records]
    shared_kafka().produce(topic, values, transaction=transaction, abort=abort)


def job(source: type[KafkaSource], topic: str, storage: MemoryStorage, state: Any = None, **options: Any) -> Pipeline:
    made = source(shared_kafka().bootstrap, topic, timestamp="ts", timestamp_unit="ms", **options)
    return Pipeline(source=made, task=ByPage(state), checkpoint=storage, discard_closed=True)


def total(pipeline: Pipeline) -> int:
    return sum(row["value"] for row in pipeline.state().to_pylist())


# -- marks of a sink ---------------------------------------------------------------------------------------------


class MarkGoesBack(PostgresSink):
    """After a rollback the mark is that of the batch that stays."""

    def retract(self, retreat: Retreat) -> None:
        super().retract(retreat)
        assert retreat.first is not None
        self._set(retreat.first - 1)

    def deliver(self, batch: OutputBatch) -> None:
        found = self._session.transact("read", self._mark)
        if found is not None and found.number < batch.before:
            self._set(batch.before)
        super().deliver(batch)

    def _set(self, number: int) -> None:
        statement = f"UPDATE {self._marks} SET number = {number}"
        self._session.transact("break", lambda session: session.execute(statement))


class AnyMark(PostgresSink):
    """Moves the mark from wherever it stands, so that who slept publishes after a retraction."""

    def _move(self, session: Session, prior: SinkMark | None, mark: SinkMark, **more: Any) -> None:
        super()._move(session, self._mark(session), mark, **more)


class TwoTransactions(PostgresSink):
    """Commits the rows, then the mark."""

    def _move(self, session: Session, prior: SinkMark | None, mark: SinkMark, **more: Any) -> None:
        session.execute("COMMIT")
        session.execute("BEGIN")
        super()._move(session, prior, mark, **more)


def _told_by_suite(rule: str) -> Story:
    def story(made: type[PostgresSink], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        class Suite(PostgresSuite):
            sink = made
            kills_one_in = 2

        getattr(Suite(), rule)(folder)

    return story


# -- splits, idle time and topics of a source --------------------------------------------------------------------


class EndsAtMarker(KafkaSource):
    """A split ends where an offset has no record."""

    def _messages(self, partition: str, start: int, *more: Any) -> Iterator[list[Any]]:
        for found in super()._messages(partition, start, *more):
            whole = [one for number, one in enumerate(found) if one.offset() == start + number]
            yield whole
            start += len(whole)
            if len(whole) < len(found):
                return


def markers(made: type[KafkaSource], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = shared_kafka().create(1)
    produced(topic, *[(0, ts) for ts in range(5)], transaction="a")
    produced(topic, *[(0, ts) for ts in range(7)], transaction="a", abort=True)
    produced(topic, *[(0, ts) for ts in range(4)], transaction="b")
    one = job(made, topic, MemoryStorage(uuid.uuid4().hex))
    one.run(engine="embedded")
    assert total(one) == 9, "records behind a marker are lost"


class CountsAway(KafkaSource):
    """A partition is idle by when any driver last saw it move."""

    seen: dict[str, float] = {}

    def __init__(self, *words: Any, **more: Any) -> None:
        super().__init__(*words, **more)
        self._plans._caught_up_s = CountsAway.seen
        self._plans._idle = self._away  # type: ignore[method-assign]

    def _away(self, caught_up: set[str]) -> set[str]:
        now = offsets.monotonic_s()
        CountsAway.seen.update({one: CountsAway.seen.get(one, now) for one in caught_up})
        return {one for one in caught_up if (now - CountsAway.seen[one]) * 1_000 >= 60_000}


def idle(made: type[KafkaSource], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(offsets, "monotonic_s", lambda: now[0])
    CountsAway.seen.clear()
    topic, storage = shared_kafka().create(2), MemoryStorage(uuid.uuid4().hex)
    state = WindowState(Sum(), tumbling("10 ms"))
    produced(topic, (0, 5), (1, 7))
    job(made, topic, storage, state, idle_timeout="1 min").run(engine="embedded")
    # No driver runs for an hour. Then partition 0 is ahead, and 1 has something to say a moment later.
    now[0] += 3_600
    produced(topic, *[(0, ts) for ts in range(100, 200, 10)])
    again = job(made, topic, storage, state, idle_timeout="1 min")
    again.run(engine="embedded")
    produced(topic, (1, 8))
    again.run(engine="embedded")
    assert again.late().num_rows == 0, "a record is late because nobody was there to read it"


class NeverConfirms(KafkaSource):
    """The topic is not looked at again before the commit."""

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Nothing."""


def made_again(made: type[KafkaSource], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = shared_kafka()
    topic = kafka.create(1)
    produced(topic, *[(0, ts) for ts in range(3)])

    class Swapped(made):  # type: ignore[misc,valid-type]
        def read(self, split: Any, recorded: Mapping[str, Any]) -> Iterator[Any]:
            kafka.delete(topic)
            kafka.create(1, topic)
            produced(topic, *[(0, ts) for ts in range(50)])
            return super().read(split, recorded)

        def _require_there(self, *words: Any) -> None:
            """Nothing: the new topic has enough records."""

    one = job(Swapped, topic, MemoryStorage(uuid.uuid4().hex))
    with pytest.raises(SourceChanged, match="was deleted and created again"):
        one.run(engine="embedded")
    assert total(one) == 0, "records of another topic were counted"


_OF_MARKS = r"a reader sees|are missing|Fenced|beyond|a revision above"
"""Which of these is said depends on who comes first."""
SENTENCES: dict[str, tuple[Story, type[Any], type[Any], str]] = {
    "marks never decrease": (
        _told_by_suite("test_a_driver_that_slept_publishes_nothing_taken_back"),
        PostgresSink,
        MarkGoesBack,
        _OF_MARKS,
    ),
    "who slept publishes nothing after a retraction": (
        _told_by_suite("test_a_driver_that_slept_publishes_nothing_taken_back"),
        PostgresSink,
        AnyMark,
        _OF_MARKS,
    ),
    "rows and mark are one transaction": (
        _told_by_suite("test_killed_anywhere_and_resumed"),
        PostgresSink,
        TwoTransactions,
        _OF_MARKS,
    ),
    "a split ends at or beyond its end, not at a marker": (
        markers,
        KafkaSource,
        EndsAtMarker,
        "behind a marker are lost",
    ),
    "idle counts only while this driver ran": (idle, KafkaSource, CountsAway, "late because nobody was there"),
    "the topic is looked at again before the commit": (
        made_again,
        KafkaSource,
        NeverConfirms,
        "of another topic were counted",
    ),
}
"""What the protocol says, its story, the connector, the mutant, and the complaint."""


@pytest.mark.parametrize(("story", "honest", "mutant", "complaint"), SENTENCES.values(), ids=SENTENCES)
def test_a_broken_sentence_is_found(
    story: Story, honest: type[Any], mutant: type[Any], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A story that ends well whatever the connector does proves nothing about it."""
    story(honest, tmp_path / "honest", monkeypatch)
    with pytest.raises(Exception, match=complaint):
        story(mutant, tmp_path / "mutant", monkeypatch)
