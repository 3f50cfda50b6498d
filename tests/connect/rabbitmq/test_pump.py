"""A pump says that all is taken when it is, whatever happens between two of its turns. Its broker is played here, and
its turns are made one by one."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from persistent import Queue, SegmentedLog, Topology
from persistent.connect.rabbitmq import frames as rabbit_frames
from persistent.connect.rabbitmq import pump as rabbit_pump
from persistent.connect.rabbitmq.frames import taken_apart
from persistent.connect.rabbitmq.link import LinkLost, RabbitPlace, patience
from persistent.connect.rabbitmq.pump import _STALLED_LOOKS, AT_MOST_ONCE, CHECKPOINT, JOURNAL, Pump, PumpOrder
from persistent.errors import SourceError, Stopped
from persistent.messaging.log import writer
from persistent.messaging.log.writer import RECORD_BYTES_MAX
from persistent.time.clock import StopRequest, heard


class Broker:
    """A queue of ``bodies`` with one consumer, and the channel and connection to it."""

    def __init__(self, *bodies: bytes, redelivered: bool = False, delivers: bool = True) -> None:
        self.ready = deque(bodies)
        self.redelivered, self.delivers = redelivered, delivers
        self.unacknowledged: dict[int, bytes] = {}
        self.consumers = 0
        self.version = "3.10.0"
        self.channel = self.connection = self
        self._tag = self._prefetch = 0
        self._receive: Callable[..., None] = lambda *message: None

    def basic_qos(self, prefetch_count: int) -> None:
        self._prefetch = prefetch_count

    def add_on_cancel_callback(self, callback: Any) -> None:
        pass

    def basic_consume(self, queue: str, callback: Callable[..., None], arguments: Any) -> str:
        self._receive, self.consumers = callback, self.consumers + 1
        return "consumer"

    def basic_cancel(self, consumer: str) -> None:
        self.consumers -= 1
        self.delivers = False

    def basic_ack(self, tag: int, multiple: bool) -> None:
        assert multiple
        self.unacknowledged = {one: body for one, body in self.unacknowledged.items() if one > tag}

    def queue_declare(self, queue: str, passive: bool) -> Any:
        return SimpleNamespace(method=SimpleNamespace(message_count=len(self.ready), consumer_count=self.consumers))

    def process_data_events(self, time_limit: float) -> None:
        while self.delivers and self.ready and len(self.unacknowledged) < self._prefetch:
            self._tag += 1
            self.unacknowledged[self._tag] = self.ready.popleft()
            method = SimpleNamespace(delivery_tag=self._tag, routing_key="q", redelivered=self.redelivered)
            self._receive(self, method, pika.BasicProperties(), self.unacknowledged[self._tag])


def order(acknowledge: str, prefetch: int, **options: Any) -> PumpOrder:
    waits = patience("100 ms", options.pop("server_away", "100 ms"), "1 ms")
    return PumpOrder(
        place=RabbitPlace("amqp://localhost"),
        queue=Queue("q"),
        declared=False,
        topology=Topology(),
        acknowledge=acknowledge,
        prefetch=prefetch,
        patience=waits,
        consumer_timeout_ms=1_800_000,
        on_event=None,
    )


class Played:
    """A pump at a broker, without its thread."""

    def __init__(self, broker: Broker, acknowledge: str = CHECKPOINT, prefetch: int = 30) -> None:
        self.broker: Any = broker
        self.log = SegmentedLog(f"memory://{uuid.uuid4().hex}")
        self.pump = Pump(order(acknowledge, prefetch), self.log.writer())
        self.pump._begin(self.broker, lambda frame: None)

    def turn(self) -> None:
        self.broker.process_data_events(0)
        self.pump._turn(self.broker)

    def journaled(self) -> list[bytes]:
        frames = [frame for batch in self.log.read() for frame in batch.records.to_pylist()]
        return taken_apart(frames)[1]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_what_was_counted_is_acknowledged_before_the_answer() -> None:
    """All that may be held is held until then: the pump would say that nothing follows, and a drain would end early."""
    one = Played(Broker(*numbers(100)))
    first = one.pump.ask(0)
    one.turn()
    assert one.pump._drained == first and len(one.broker.unacknowledged) == 30
    second = 0
    acknowledge = one.pump._acknowledge_committed

    def and_then_ask(channel: Any, committed: int) -> None:
        # The step is committed just now, and the next one planned.
        nonlocal second
        acknowledge(channel, committed)
        second = second or one.pump.ask(30)

    one.pump._acknowledge_committed = and_then_ask  # type: ignore[method-assign]
    one.turn()
    assert one.pump._drained < second, "it answers what it was not asked yet"
    one.turn()
    assert one.pump._drained < second, "the next ones are on their way"
    one.turn()
    assert one.pump._drained == second and len(one.journaled()) == 60


def test_an_empty_queue_is_drained_once_nothing_is_on_its_way() -> None:
    """A message that is delivered while the pump asks would be missed."""
    one = Played(Broker(b"0"), JOURNAL)
    asked = one.pump.ask(0)
    late = [b"1"]
    declare = one.broker.queue_declare

    def and_then_publish(queue: str, passive: bool) -> Any:
        found = declare(queue, passive)
        one.broker.ready += [late.pop()] if late else []
        return found

    one.broker.queue_declare = and_then_publish
    one.turn()
    assert one.pump._drained < asked
    one.turn()
    assert (one.pump._drained, one.journaled(), one.pump.warnings) == (asked, [b"0", b"1"], {})


def test_only_a_broker_that_keeps_saying_so_keeps_messages_back() -> None:
    """A drain would never end; or it would end because the broker, or this machine, stood still for a while."""
    one = Played(Broker(*numbers(3), delivers=False), JOURNAL)
    asked = one.pump.ask(0)
    for _ in range(_STALLED_LOOKS - 1):
        one.turn()
    assert one.pump._drained < asked and not one.pump.is_held_back
    # Something moves: the count begins again.
    one.broker.delivers = True
    one.broker.ready.append(b"3")
    one.broker.process_data_events(0)
    one.broker.delivers = False
    one.broker.ready.append(b"4")
    for _ in range(_STALLED_LOOKS - 1):
        one.turn()
    assert one.pump._drained < asked
    one.turn()
    assert one.pump._drained == asked and one.pump.is_held_back
    assert "has messages, but none was delivered for 10 s" in one.pump.warnings["stalled"]
    one.broker.delivers = True
    asked = one.pump.ask(0)
    one.turn()
    assert one.pump._drained == asked and not one.pump.is_held_back
    assert len(one.journaled()) == 5


def test_a_step_of_any_length_ends_no_drain() -> None:
    """What may follow after an acknowledgement was not delivered before it: that says nothing of another consumer."""
    one = Played(Broker(*numbers(60)))
    one.pump.ask(0)
    one.turn()
    for _ in range(2 * _STALLED_LOOKS):
        one.turn()
    asked = one.pump.ask(30)
    one.turn()
    one.turn()
    assert one.pump._drained == asked and len(one.journaled()) == 60 and one.pump.warnings == {}


def test_other_consumers_are_told() -> None:
    """They hold messages, or a driver that died does, and the broker does not know yet: the run would seem complete."""
    one = Played(Broker(), JOURNAL)
    one.broker.consumers += 2
    asked = one.pump.ask(0)
    one.turn()
    assert one.pump._drained == asked
    assert "has 2 other consumers" in one.pump.warnings["others"]


@pytest.mark.parametrize(
    ("acknowledge", "journaled", "back"), [(JOURNAL, 5, 0), (AT_MOST_ONCE, 5, 0), (CHECKPOINT, 2, 3)]
)
def test_what_was_delivered_when_a_run_ends(acknowledge: str, journaled: int, back: int) -> None:
    """At-most-once drops what is delivered again: each run would lose what it had not taken yet."""
    one = Played(Broker(*numbers(2)), acknowledge)
    one.turn()
    one.broker.ready += numbers(3)
    one.broker.process_data_events(0)
    one.pump._committed = 2
    one.pump._end(one.broker)
    assert len(one.journaled()) == journaled
    assert len(one.broker.unacknowledged) == back
    assert one.broker.consumers == (acknowledge == CHECKPOINT)


def test_what_is_too_large_stays_in_the_queue() -> None:
    """At-most-once would acknowledge it, and all that was received with it, and journal nothing."""
    one = Played(Broker(b"0", b" " * RECORD_BYTES_MAX), AT_MOST_ONCE)
    with pytest.raises(SourceError, match="stays in the queue"):
        one.turn()
    assert len(one.broker.unacknowledged) == 2 and one.journaled() == []


@pytest.mark.parametrize("acknowledge", [JOURNAL, CHECKPOINT, AT_MOST_ONCE])
def test_messages_beyond_an_entry_are_journaled_in_several(monkeypatch: pytest.MonkeyPatch, acknowledge: str) -> None:
    """``prefetch`` messages can be larger than an entry may be: every run took one message, and was refused."""
    monkeypatch.setattr(writer, "CONTENT_BYTES_MAX", 1_000)
    monkeypatch.setattr(rabbit_frames, "_ENTRY_BYTES", 300)
    bodies = [b"%02d" % number * 25 for number in range(30)]
    one = Played(Broker(*bodies), acknowledge)
    one.turn()
    assert one.journaled() == bodies
    assert len([batch for batch in one.log.read() if len(batch)]) > 3
    assert len(one.broker.unacknowledged) == (30 if acknowledge == CHECKPOINT else 0)
    if acknowledge == CHECKPOINT:
        one.pump.ask(17)
        one.turn()
        assert list(one.broker.unacknowledged.values()) == bodies[17:]


def test_a_connection_that_is_lost_between_two_entries_has_acknowledged_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk slower than the heartbeats of the broker would be given the same messages for ever."""
    monkeypatch.setattr(rabbit_frames, "_ENTRY_BYTES", 300)
    one = Played(Broker(*(b"%02d" % number * 25 for number in range(30))), JOURNAL)
    append, count = one.pump._writer.append_many, 0

    def slow(frames: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            raise LinkLost("heartbeats")
        return append(frames)

    monkeypatch.setattr(one.pump._writer, "append_many", slow)
    with pytest.raises(LinkLost):
        one.turn()
    assert len(one.journaled()) == 30 - len(one.broker.unacknowledged) > 0


@pytest.mark.parametrize("ready", [False, True])
def test_connections_that_are_lost_at_once_are_none(monkeypatch: pytest.MonkeyPatch, ready: bool) -> None:
    """A run would connect again for ever, where something about its connection is wrong."""
    pump = Pump(order(JOURNAL, 10, server_away="200 ms"), SegmentedLog(f"memory://{threading.get_ident()}").writer())

    def consume(link: Any) -> None:
        pump._ready(ready)
        raise LinkLost("reset by peer")

    monkeypatch.setattr(rabbit_pump, "Link", lambda place: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(pump, "_declare", lambda link: None)
    monkeypatch.setattr(pump, "_consume", consume)
    # Ends a pump that does not end by itself.
    timer = threading.Timer(20, pump._stopped.set)
    timer.start()
    try:
        with pytest.raises(SourceError, match=r"no broker has answered for 0\.[12] s: reset by peer"):
            pump._pump()
    finally:
        timer.cancel()


@pytest.mark.parametrize("follow", [False, True])
def test_who_is_asked_to_stop_waits_for_no_broker(follow: bool) -> None:
    """SIGTERM would be heard once the broker is back, or has been away for minutes."""
    pump = Pump(order(JOURNAL, 10), SegmentedLog(f"memory://{uuid.uuid4().hex}").writer())
    pump._note_away("connection refused", 0, 60_000)
    request = StopRequest()
    request.make()
    with heard(request, 0), pytest.raises(Stopped, match=r"queue 'q' at .*: connection refused"):
        pump.wait_until_ready(0) if follow else pump.wait_until_drained(0, 1)


def test_a_broker_that_is_away_is_told_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that waits would look like one that hangs; and a line for each try would hide all others."""
    now = 100.0
    monkeypatch.setattr(rabbit_pump, "monotonic_s", lambda: now)
    pump = Pump(order(JOURNAL, 10), SegmentedLog(f"memory://{uuid.uuid4().hex}").writer())
    pump._note_back()
    for _ in range(11):
        pump._note_away("connection refused", now - 100, 300_000)
        now += 1
    pump._note_back()
    first, *others, last = [record.getMessage() for record in caplog.records]
    assert first.endswith("no broker answers, for 0 s of 5 min: connection refused") and len(others) == 2
    assert last.endswith("the broker answers again")
