"""Killed between effect and mark, each mode of a queue shows what it says: at-least-once repeats and loses nothing,
at-most-once loses and repeats nothing, exactly-once neither."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from monoids import Bag
from persistent import Dedupe, NonWindowState, PersistentTask, Pipeline, RabbitQueueSource, SegmentedLog
from tests.integration.places import AWAY
from tests.servers.drivers import Driver
from tests.servers.queues import fresh_queue, ready, send_rows, wait_for
from tests.servers.rabbit import RabbitServer

_RECORDS = 400
_PREFETCH = 30
_DEATHS = 3


class Numbers(PersistentTask):
    """Every number, with how often it counted."""

    key = ()

    def persistent_state(self) -> Any:
        return NonWindowState(Bag(int))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


class DyingLog(SegmentedLog):
    """A journal whose writer dies with its process at its first messages: before they are written, when those of the
    at-most-once mode are acknowledged; or after it, when those of the others are not."""

    dies_before = False

    def writer(self) -> Any:
        writer, dies_before = super().writer(), self.dies_before
        append = writer.append_many

        def append_many(records: Any, *args: Any, **options: Any) -> Any:
            if records and dies_before:
                os.kill(os.getpid(), signal.SIGKILL)
            written = append(records, *args, **options)
            if records:
                os.kill(os.getpid(), signal.SIGKILL)
            return written

        writer.append_many = append_many  # type: ignore[method-assign]
        return writer


@dataclass(frozen=True)
class Order:
    """A run over the queue, in ``folder``. ``dies``: between effect and mark."""

    url: str
    queue: str
    folder: str
    acknowledge: str
    deduplicated: bool
    dies: bool

    @property
    def options(self) -> dict[str, Any]:
        """Of ``run``."""
        return {}

    def pipeline(self) -> Pipeline:
        """The job."""
        journal = (DyingLog if self.dies else SegmentedLog)(f"{self.folder}/journal")
        if isinstance(journal, DyingLog):
            journal.dies_before = self.acknowledge == "at-most-once"
        source = RabbitQueueSource(
            self.url,
            self.queue,
            journal=journal,
            acknowledge=self.acknowledge,
            prefetch=_PREFETCH,
            schema={"n": "int64"},
            connect_timeout=AWAY,
        )
        dedupe = Dedupe.by_id("_message_id", within="1 day") if self.deduplicated else None
        return Pipeline(
            source=source, task=Numbers(), checkpoint=f"{self.folder}/checkpoint", step_rows=40, dedupe=dedupe
        )


def play(rabbit: RabbitServer, order: Order) -> Counter[int]:
    """How often each number counted, after runs that die and one that does not."""
    for _ in range(_DEATHS):
        assert answer_of(Order(**{**order.__dict__, "dies": True})) == "killed"
        held = "the broker has not found out yet"
        wait_for(lambda: consumers(rabbit, order.queue) == 0, held)
    assert answer_of(order) == ""
    wait_for(lambda: ready(rabbit, order.queue) == 0, "something is left")
    return Counter(
        {pair["value"]: pair["count"] for row in order.pipeline().state().to_pylist() for pair in row["value"]}
    )


def answer_of(order: Order) -> str:
    """How a run in a process of its own has ended."""
    driver = Driver("embedded", Path(order.folder) / "driver.log")
    try:
        driver.begin(order)
        answer = driver.answer(120)
        return f"{answer.error}: {answer.text}" if answer.error not in ("", "killed") else answer.error
    finally:
        driver.end()


def consumers(rabbit: RabbitServer, queue: str) -> int:
    with rabbit.connect() as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.consumer_count)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize(
    ("acknowledge", "deduplicated", "repeats", "loses"),
    [
        ("journal", True, False, False),
        ("checkpoint", True, False, False),
        ("journal", False, True, False),
        ("checkpoint", False, True, False),
        ("at-most-once", False, False, True),
    ],
    ids=["exactly-once", "exactly-once-checkpoint", "at-least-once", "at-least-once-checkpoint", "at-most-once"],
)
def test_a_mode_shows_what_it_says(
    rabbit: RabbitServer, kind: str, acknowledge: str, deduplicated: bool, repeats: bool, loses: bool, tmp_path: Path
) -> None:
    """A guarantee that says more than holds is believed; one that says less is not worth its price."""
    queue = fresh_queue(rabbit, kind)
    send_rows(rabbit, queue, [{"n": n} for n in range(_RECORDS)])
    folder = tmp_path / uuid.uuid4().hex
    folder.mkdir()
    found = play(rabbit, Order(rabbit.url(), queue, str(folder), acknowledge, deduplicated, False))
    assert found and found.keys() <= set(range(_RECORDS))
    assert (max(found.values()) > 1) == repeats, found
    assert (len(found) < _RECORDS) == loses, found
