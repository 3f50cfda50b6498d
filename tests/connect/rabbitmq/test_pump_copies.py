"""A message that a broker delivers again counts once, however late it comes. The broker is played here."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from monoids import Bag
from persistent import Dedupe, NonWindowState, PersistentTask, Pipeline, RabbitQueueSource
from persistent.checkpoint.log import Log
from persistent.connect.rabbitmq import pump
from persistent.connect.rabbitmq.link import LinkLost, LinkRefused
from persistent.connect.rabbitmq.pump import CHECKPOINT, JOURNAL
from persistent.errors import SourceError, UserCodeError
from persistent.messaging.log import writer
from persistent.storage import open_storage

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
ALL = 1_000_000


class Messages:
    """A queue with priorities, which outlives its connections. ``hears``: how many more acknowledgements reach it,
    before whoever sends them dies; ``forgets``: whether it loses all of them in the end; ``breaks``: whether the
    connection is lost next."""

    def __init__(self) -> None:
        self.ready: list[tuple[int, int]] = []
        """(-priority, number), the next one first."""
        self.unacknowledged: dict[int, tuple[int, int]] = {}
        self.hears, self.forgets, self.breaks, self.version = ALL, False, False, "3.10.0"
        self._delivered: set[tuple[int, int]] = set()
        self.channel = self.connection = self
        self.consumers = self._tag = self._sent = 0
        self._prefetch = 0
        self._receive: Callable[..., None] = lambda *message: None

    def send(self, count: int, priority: int = 0) -> None:
        self.ready += [(-priority, self._sent + number) for number in range(count)]
        self.ready.sort()
        self._sent += count

    @property
    def once(self) -> dict[int, int]:
        return dict.fromkeys(range(self._sent), 1)

    def basic_qos(self, prefetch_count: int) -> None:
        self._prefetch = prefetch_count

    def add_on_cancel_callback(self, callback: Any) -> None:
        pass

    def basic_consume(self, queue: str, callback: Callable[..., None], arguments: Any) -> str:
        self._receive, self.consumers = callback, self.consumers + 1
        return "consumer"

    def basic_cancel(self, consumer: str) -> None:
        self.consumers = 0

    def basic_ack(self, tag: int, multiple: bool) -> None:
        self.hears -= 1
        if self.hears >= 0 and not self.forgets:
            self.unacknowledged = {one: number for one, number in self.unacknowledged.items() if one > tag}

    def queue_declare(self, queue: str, passive: bool) -> Any:
        if self.hears < 0:
            raise LinkRefused("the driver is dead")
        return SimpleNamespace(method=SimpleNamespace(message_count=len(self.ready), consumer_count=self.consumers))

    def process_data_events(self, time_limit: float) -> None:
        if self.breaks:
            self.breaks = False
            raise LinkLost("reset by peer")
        while self.consumers and self.ready and len(self.unacknowledged) < self._prefetch:
            self._tag += 1
            self.unacknowledged[self._tag] = found = self.ready.pop(0)
            method = SimpleNamespace(delivery_tag=self._tag, routing_key="q", redelivered=found in self._delivered)
            self._delivered.add(found)
            number = found[1]
            self._receive(self, method, pika.BasicProperties(message_id=str(number)), b'{"n": %d}' % number)
        threading.Event().wait(min(time_limit, 0.001))

    def close(self) -> None:
        """The connection is gone: what was not acknowledged comes again."""
        self.ready = sorted((*self.ready, *self.unacknowledged.values()))
        self.unacknowledged, self.consumers = {}, 0


class Numbers(PersistentTask):
    key = ()

    def persistent_state(self) -> Any:
        return NonWindowState(Bag(int))

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    def process_message(self, state: Any, message: Any) -> None:
        if self.fails:
            raise ValueError("not today")
        state.update(message.timestamp, message.value["n"])


class Job:
    """A job over ``queue``, whose runs end as their driver does: by itself, or killed before it acknowledges."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, acknowledge: str, *, step_rows: int = 40) -> None:
        self.queue, self.now = Messages(), DAY
        self._url = f"memory://{uuid.uuid4().hex}-copies"
        self._acknowledge, self._step_rows, self.fails = acknowledge, step_rows, False
        monkeypatch.setattr(pump, "Link", lambda place: self.queue)
        monkeypatch.setattr(writer, "wall_ms", lambda: self.now)

    def run(self, **options: Any) -> Pipeline:
        source = RabbitQueueSource(
            "amqp://localhost",
            "q",
            journal=f"{self._url}-journal",
            schema={"n": "int64"},
            acknowledge=self._acknowledge,
            prefetch=40,
            recovery_interval="1 ms",
        )
        pipeline = Pipeline(
            source=source,
            task=Numbers(fails=self.fails),
            checkpoint=self._url,
            step_rows=self._step_rows,
            dedupe=Dedupe.by_id("_message_id", within="15 min"),
        )
        pipeline.run(engine="embedded", **options)
        return pipeline

    def counted(self) -> dict[int, int]:
        state = self.run().state().to_pylist()
        return {pair["value"]: pair["count"] for row in state for pair in row["value"]}

    def seen_from(self) -> int:
        """The first time of which ids are remembered."""
        newest = Log(open_storage(self._url)).newest()
        assert newest is not None
        (part,) = newest.manifest.sources.values()
        assert part.seen is not None
        return part.seen.expired


@pytest.mark.parametrize("acknowledge", [JOURNAL, CHECKPOINT])
def test_a_message_that_comes_again_after_more_than_within_is_a_copy(
    monkeypatch: pytest.MonkeyPatch, acknowledge: str
) -> None:
    """The driver dies before it acknowledges, and messages of a higher priority move the clock before the copies come:
    40 messages would count as 70."""
    job = Job(monkeypatch, acknowledge)
    job.queue.send(30)
    job.queue.forgets = True
    job.run()
    job.queue.forgets, job.now = False, job.now + 60 * MINUTE
    job.queue.send(40, priority=9)
    assert job.counted() == job.queue.once


def test_a_message_that_comes_again_in_the_connection_after_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that restarts has lost its last acknowledgements; the driver goes on, and the clock with it."""
    job = Job(monkeypatch, JOURNAL, step_rows=10)

    def lose(step: Any) -> None:
        if job.queue.forgets:
            job.queue.forgets, job.now = False, job.now + 60 * MINUTE
            job.queue.send(40, priority=9)
            job.queue.breaks = True

    job.queue.send(30)
    job.queue.forgets = True
    job.run(on_step=lose)
    assert job.counted() == job.queue.once


@pytest.mark.parametrize("acknowledge", [JOURNAL, CHECKPOINT])
@pytest.mark.parametrize("seed", range(8))
def test_every_message_counts_once_in_any_schedule(
    monkeypatch: pytest.MonkeyPatch, acknowledge: str, seed: int
) -> None:
    """Drivers die before or after a checkpoint, stay away for minutes or hours, and newer messages come first."""
    chance = random.Random(seed)
    job = Job(monkeypatch, acknowledge, step_rows=chance.choice([10, 25, 40]))
    for _ in range(8):
        job.queue.send(chance.randrange(60), chance.randrange(3))
        job.queue.hears, job.fails = chance.choice([0, 1, 2, ALL]), chance.random() < 0.3
        with suppress(UserCodeError, SourceError):
            job.run()
        job.now += chance.choice([0, 1, 10, 20, 300]) * MINUTE
    job.queue.hears, job.fails = ALL, False
    assert job.counted() == job.queue.once


@pytest.mark.parametrize("acknowledge", [JOURNAL, CHECKPOINT])
def test_an_id_expires_once_its_acknowledgement_is_confirmed(monkeypatch: pytest.MonkeyPatch, acknowledge: str) -> None:
    """Every id would be remembered for ever, and each step of a job that runs for a year be slower than the last."""
    job = Job(monkeypatch, acknowledge)
    for _ in range(4):
        job.queue.send(30)
        job.run()
        job.now += 60 * MINUTE
    assert job.seen_from() > DAY + 60 * MINUTE
