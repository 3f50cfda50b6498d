"""A sender and its receivers over TCP, in one process: what is published arrives, whoever else dials the port."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from persistent.errors import InvalidPipeline, Refused, SourceError
from persistent.messaging.topic.messages import Hello, Refusal, Sent, Standing
from persistent.messaging.topic.ordering import NOT_RETAINED
from persistent.messaging.topic.wire import PAYLOAD_BYTES_MAX, RECEIVER_HEARS_BYTES_MAX, Frames, encode
from persistent.topic import (
    JoinOptions,
    MessagesLost,
    Retain,
    SessionBegan,
    SessionEnded,
    TopicMessage,
    TopicPlace,
    TopicReceiver,
    TopicSender,
)

ALL = Retain("1 h", bytes_max=1 << 30)
QUICK = JoinOptions(discovery="100 ms", attempts=100_000, retry="50 ms")


def until(is_so: Callable[[], Any]) -> None:
    """Wait for something that comes for certain; the time limit of the test ends it otherwise."""
    while not is_so():
        time.sleep(0.005)


def payloads(events: Any) -> list[bytes]:
    return [event.payload for event in events if isinstance(event, TopicMessage)]


def taken(receiver: TopicReceiver, count: int) -> list[Any]:
    """The next events, up to so many messages."""
    found: list[Any] = []
    while count:
        new = receiver.take(most=count)
        count -= len(payloads(new))
        found += new
    return found


def dialled(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_retained_then_live_to_several_receivers_then_the_end() -> None:
    """One that was there before, one that comes late, and one that wants the live ones alone."""
    with TopicSender("t", retain=ALL) as sender, TopicReceiver(sender.address, "t", QUICK) as early:
        until(lambda: sender.receivers == 1)
        assert [sender.publish(b"%d" % number) for number in range(3)] == [0, 1, 2]
        with (
            TopicReceiver(sender.address, "t", QUICK) as late,
            TopicReceiver(sender.address, "t", JoinOptions(late=False)) as live,
        ):
            until(lambda: sender.receivers == 3)
            assert {event.delivery for event in taken(late, 3)[1:]} == {"late-join"}
            sender.publish(b"3")
            assert payloads(taken(live, 1)) == [b"3"] and taken(late, 1)[0].delivery == "live"
            closing = threading.Thread(target=sender.close)
            closing.start()
            for receiver in (late, live):
                assert list(receiver.until_end()) == [SessionEnded(sender.session, 4, True)]
            began, *messages, ended = early.until_end()
            assert began == SessionBegan(sender.session, 0, 0) and ended == SessionEnded(sender.session, 4, True)
            assert {event.delivery for event in messages} == {"live"} and payloads(messages) == [b"0", b"1", b"2", b"3"]
            closing.join()


def test_a_sender_may_start_later() -> None:
    """It is looked for as long as it takes; here it takes the port that it had before."""
    with TopicSender("t") as first:
        address = first.address
    with TopicReceiver(address, "t", QUICK) as receiver:
        assert receiver.take("100 ms") == []
        port = int(address.rpartition(":")[2])
        with TopicSender("t", port=port, retain=ALL) as sender:
            sender.publish(b"one")
            assert payloads(taken(receiver, 1)) == [b"one"]


def test_no_sender_is_an_error_in_words() -> None:
    """A loop that ends without one would look as if everything had come."""
    with TopicSender("t") as gone:
        address = gone.address
    options = JoinOptions(discovery="10 ms", attempts=3)
    said = "no sender of the topic 't' answered in 3 attempts"
    with TopicReceiver(address, "t", options) as receiver, pytest.raises(SourceError, match=said):
        list(receiver)


def test_it_goes_on_after_a_connection_that_broke_and_after_a_restart() -> None:
    """The gap is asked for; a new session begins with its first message."""
    sender = TopicSender("t", retain=ALL)
    port = int(sender.address.rpartition(":")[2])
    with TopicReceiver(sender.address, "t", QUICK) as receiver:
        sender.publish(b"0")
        taken(receiver, 1)
        receiver._thread.call(receiver._hang_up)
        sender.publish(b"1")
        sender.publish(b"2")
        assert payloads(taken(receiver, 2)) == [b"1", b"2"]
        sender.close("30 s")
        with TopicSender("t", port=port, retain=ALL) as other:
            other.publish(b"new")
            ended, began, message = taken(receiver, 1)
            assert ended == SessionEnded(sender.session, 3, True) and began.session == other.session == message.session


def test_a_loop_that_ends_leaves_the_rest_to_the_next_one() -> None:
    """It fetches many events at once; those behind a ``break``, or behind the end of a session, were gone."""
    first = TopicSender("t", retain=ALL)
    port = int(first.address.rpartition(":")[2])
    with TopicReceiver(first.address, "t", QUICK) as receiver:
        until(lambda: first.receivers)
        first.publish(b"0")
        first.close("30 s")
        with TopicSender("t", port=port, retain=ALL) as second:
            for number in range(1, 7):
                second.publish(b"%d" % number)
            until(lambda: len(receiver._events) == 10)
            assert payloads(receiver.until_end()) == [b"0"]
            for event in receiver:
                if isinstance(event, TopicMessage):
                    break
            assert event.payload == b"1" and not receiver.has_ended
            assert payloads(receiver.take(most=2)) == [b"2", b"3"]
            assert next(iter(receiver)).payload == b"4"
            receiver.close()
            assert not receiver.has_ended and payloads(receiver) == [b"5", b"6"] and receiver.has_ended


def test_who_goes_on_from_a_place_gets_the_rest_alone() -> None:
    """Another process may have had what was before."""
    with TopicSender("t", retain=ALL) as sender:
        for number in range(5):
            sender.publish(b"%d" % number)
        with TopicReceiver(sender.address, "t", QUICK, place=TopicPlace(sender.session, 3)) as receiver:
            assert payloads(taken(receiver, 2)) == [b"3", b"4"]


def test_a_receiver_that_takes_slowly_loses_nothing_and_holds_nobody_up() -> None:
    """What does not fit its backlog it asks for; while it does not take, no time passes for it."""
    count = 30_000
    options = JoinOptions(retry="50 ms", timeout="5 s", cache=100)
    with (
        TopicSender("t", retain=ALL, backlog_bytes=64 << 10) as sender,
        TopicReceiver(sender.address, "t", options) as receiver,
    ):
        until(lambda: sender.receivers)
        for number in range(count):
            sender.publish(b"%d" % number + bytes(100))
        until(lambda: receiver._is_paused)
        found = taken(receiver, count)
        assert not [event for event in found if isinstance(event, MessagesLost)]
        assert [int(payload.rstrip(b"\0")) for payload in payloads(found)] == list(range(count))
        assert sender.dropped and not sender.forced


class AlwaysRoom:
    """A connection whose other end reads everything at once; what is slow is the thread that writes."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        time.sleep(0.002)


@pytest.mark.timeout(60)
def test_a_publisher_at_full_speed_does_not_outrun_receivers_that_keep_up() -> None:
    """Without retention, what found no room was lost, although every connection had room."""
    with TopicSender("t") as sender:
        ends = [dialled(sender.address) for _ in range(3)]
        for end in ends:
            end.sendall(encode(Hello("t")))
        until(lambda: sender.receivers == 3)
        for link in sender._links.values():
            link.transport = AlwaysRoom(link.transport)  # type: ignore[assignment]
        for _ in range(600):
            sender.publish(bytes(64 << 10))
        assert sender.dropped == 0
        sender.close("0 s")
        for end in ends:
            end.close()


@pytest.mark.timeout(60)
def test_a_receiver_that_does_not_read_does_not_hold_the_publisher() -> None:
    """Its connection has no room: however much waits for it, the others go on."""
    with TopicSender("t") as sender:
        end = dialled(sender.address)
        end.sendall(encode(Hello("t")))
        until(lambda: sender.receivers)
        while not sender.dropped:
            sender.publish(bytes(64 << 10))
        sender.close("0 s")
        end.close()


def test_a_sender_without_retention_has_its_losses_told() -> None:
    """By range, with the reason: a slow receiver of a sender that retains nothing misses something."""
    with TopicSender("t", backlog_bytes=1) as sender, TopicReceiver(sender.address, "t", QUICK) as receiver:
        until(lambda: sender.receivers)
        found: list[Any] = []
        while not sender.dropped:
            sender.publish(bytes(10 << 20))
            sender.publish(b"passed over")
        while not any(isinstance(event, MessagesLost) for event in found):
            found += receiver.take()
        lost = next(event for event in found if isinstance(event, MessagesLost))
        assert (lost.session, lost.reason) == (sender.session, NOT_RETAINED) and len(lost) <= sender.dropped


def test_large_and_empty_messages() -> None:
    """The largest there is fits, and one more byte is refused before it is sent to anyone."""
    with TopicSender("t", retain=ALL, backlog_bytes=1 << 30) as sender:
        with pytest.raises(TypeError, match="a message is bytes, not str: encode it first"):
            sender.publish("text")  # type: ignore[arg-type]
        with pytest.raises(Refused, match="at most 16,776,192 bytes"):
            sender.publish(bytes(PAYLOAD_BYTES_MAX + 1))
        sender.publish(b"")
        sender.publish(bytes(PAYLOAD_BYTES_MAX))
        with TopicReceiver(sender.address, "t", QUICK) as receiver:
            assert [len(payload) for payload in payloads(taken(receiver, 2))] == [0, PAYLOAD_BYTES_MAX]


@pytest.mark.parametrize(
    ("time_ms", "error"), [(1.5e12, TypeError), ("now", TypeError), (True, TypeError), (2**63, ValueError)]
)
def test_a_time_that_does_not_fit_is_refused(time_ms: Any, error: type[Exception]) -> None:
    """It was numbered, could not be encoded, and took along what was published before and after it."""
    with TopicSender("t", retain=ALL) as sender, TopicReceiver(sender.address, "t", QUICK) as receiver:
        with pytest.raises(error, match="milliseconds since 1970"):
            sender.publish(b"bad", time=time_ms)
        assert sender.publish(b"early", time=-(2**63)) == 0
        assert [event.time for event in taken(receiver, 1)[1:]] == [-(2**63)]


def test_the_size_of_a_message_is_that_of_its_bytes() -> None:
    """The length of a view of wider items is not: a message that is too large would end every connection."""
    with TopicSender("t", retain=ALL) as sender, pytest.raises(Refused, match="this one 24,000,000"):
        sender.publish(memoryview(array("q", bytes(24_000_000))))


def test_a_port_in_use_is_said() -> None:
    """Two senders at one port would be two sessions that take turns."""
    with TopicSender("t") as sender, pytest.raises(InvalidPipeline, match="Another sender may be running there"):
        TopicSender("t", port=int(sender.address.rpartition(":")[2]))
    with pytest.raises(Refused, match="the sender was closed"):
        sender.publish(b"late")
    with pytest.raises(InvalidPipeline, match="give Retain"):
        TopicSender("t", retain="1 h")  # type: ignore[arg-type]


def test_a_receiver_of_another_topic_is_refused_in_words() -> None:
    """It would count what it never asked for."""
    said = "publishes the topic 'clicks', not 'orders'"
    with (
        TopicSender("clicks") as sender,
        TopicReceiver(sender.address, "orders") as receiver,
        pytest.raises(SourceError, match=said),
    ):
        receiver.take("30 s")


def test_a_receiver_has_not_ended_before_its_failure_was_taken() -> None:
    """A loop that took nothing, and then looked whether more may come, ended as if all were well."""
    with TopicSender("other") as sender, TopicReceiver(sender.address, "t") as receiver:
        until(lambda: receiver._end is not None)
        assert not receiver.has_ended
        for _ in range(2):
            with pytest.raises(SourceError, match="publishes the topic 'other'"):
                receiver.take()
            assert receiver.has_ended


def test_garbage_on_the_port_is_hung_up_on_and_the_others_are_served() -> None:
    """Scanners dial everything, and some never say a word."""
    with TopicSender("t", retain=ALL) as sender, TopicReceiver(sender.address, "t", QUICK) as receiver:
        silent = dialled(sender.address)
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 10_000, encode(Standing("0" * 32, 0, 0, True))[:9]):
            with dialled(sender.address) as other:
                other.sendall(garbage)
                other.shutdown(socket.SHUT_WR)
                while other.recv(4_096):
                    pass
        sender.publish(b"one")
        assert payloads(taken(receiver, 1)) == [b"one"] and sender.refused == 2
        silent.close()


def test_a_receiver_of_another_version_is_told_so() -> None:
    """Silence would look like a sender that is away."""
    with TopicSender("t") as sender, dialled(sender.address) as other:
        hello = bytearray(encode(Hello("t")))
        hello[9] = 2
        other.sendall(hello)
        frames, said = Frames(RECEIVER_HEARS_BYTES_MAX), []
        while data := other.recv(4_096):
            said += frames.feed(data)
        assert isinstance(said[-1], Refusal) and "version 1 of the protocol, the receiver 2" in said[-1].reason


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", encode(Sent("0" * 32, 0, 0, b""))[:-1] + b"\x09"])
def test_a_port_where_something_else_listens_is_said(answer: bytes) -> None:
    """Looked for again, it would be there again."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as connection:
                connection.recv(1_024)
                connection.sendall(answer)
                connection.recv(1_024)

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with TopicReceiver(address, "t") as receiver, pytest.raises(SourceError, match="not a sender of this release"):
            receiver.take("30 s")


def test_a_stopped_process_has_not_waited() -> None:
    """After a pause of a minute, everything that was asked for before it would count as lost."""
    with TopicSender("t") as sender, TopicReceiver(sender.address, "t") as receiver:
        until(lambda: sender.receivers)
        with receiver._changed:
            before = receiver._now()
            receiver._looked_s -= 60
            assert receiver._now() - before <= 1_100


@pytest.mark.timeout(60)
def test_who_has_left_is_not_waited_for() -> None:
    """A sender waits for receivers that lost their connection; one that was closed does not return."""
    sender = TopicSender("t", retain=ALL)
    sender.publish(b"0")
    with TopicReceiver(sender.address, "t", QUICK):
        until(lambda: sender.receivers)
    until(lambda: not sender.receivers)
    sender.close("1 h")


@pytest.mark.timeout(60)
def test_who_leaves_while_much_is_sent_is_not_waited_for() -> None:
    """The connection was reset below what the sender was writing, and its last message was lost with it: the sender
    waited for a return."""
    for _ in range(20):
        sender = TopicSender("t", retain=ALL)
        for _ in range(200):
            sender.publish(bytes(10_000))
        with TopicReceiver(sender.address, "t", QUICK) as receiver:
            taken(receiver, 1)
        sender.close("1 h")


def test_a_sender_that_does_not_hang_up_holds_up_nobody() -> None:
    """A receiver that leaves waits for the sender, which may be suspended, but not for long."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        receiver = TopicReceiver(f"127.0.0.1:{port}", "t", QUICK)
        connection, _ = server.accept()
        with connection:
            until(lambda: connection.recv(1))
            began = time.monotonic()
            receiver.close()
            assert time.monotonic() - began < 10


def test_the_end_waits_for_a_receiver_that_is_dialling_again() -> None:
    """Its connection broke a moment before; the sender ended at once, and took with it what the receiver lacked."""
    sender = TopicSender("t", retain=ALL)
    for number in range(500):
        sender.publish(b"%d" % number)
    with TopicReceiver(sender.address, "t", replace(QUICK, window=1, attempts=50)) as receiver:
        found = taken(receiver, 1)
        receiver._thread.call(receiver._hang_up)
        until(lambda: not sender.receivers)
        sender.close("1 min")
        found += receiver.until_end()
    assert len(payloads(found)) == 500 and found[-1] == SessionEnded(sender.session, 500, True)


def test_a_receiver_does_not_take_itself_for_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever dials a port of this machine long enough meets itself, if nobody listens: it would hold the port that the
    sender needs."""
    real = asyncio.BaseEventLoop.create_connection

    def from_there(loop: Any, protocol: Any, host: str, port: int) -> Any:
        return real(loop, protocol, host, port, local_addr=(host, port))

    with TopicSender("t") as gone:
        address = gone.address
    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", from_there)
    with TopicReceiver(address, "t", JoinOptions(discovery="200 ms", attempts=100_000)) as receiver:
        until(lambda: receiver.tries > 2)
        for _ in range(100):
            try:
                TopicSender("t", port=int(address.rpartition(":")[2])).close()
                break
            except InvalidPipeline:
                time.sleep(0.05)
        else:
            raise AssertionError("the port is taken")


@pytest.mark.timeout(60)
def test_closing_while_dialling_says_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A task that was left behind is reported on stderr, at some time later: it looks like a fault."""
    dialling = threading.Event()

    async def never(*more: Any) -> None:
        dialling.set()
        await asyncio.sleep(3_600)

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", never)
    with TopicReceiver("127.0.0.1:9", "t"):
        dialling.wait()
    gc.collect()
    assert caplog.records == []


def test_a_closed_receiver_ends_its_loop() -> None:
    """Whoever waits in another thread goes home."""
    with TopicSender("t") as sender:
        receiver = TopicReceiver(sender.address, "t")
        until(lambda: sender.receivers)
        threading.Timer(0.05, receiver.close).start()
        assert [type(event) for event in receiver] == [SessionBegan]
        until(lambda: not sender.receivers)
        receiver.close()


def test_a_connection_that_comes_while_the_sender_closes_is_ended() -> None:
    """It stayed open until it was collected, and its receiver waited for an answer."""
    for _ in range(10):
        sender = TopicSender("t")
        with dialled(sender.address) as end:
            sender.close()
            end.settimeout(10)
            with contextlib.suppress(ConnectionResetError):
                assert end.recv(1) == b""


@pytest.mark.timeout(60)
def test_an_interrupted_close_still_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The port was held as long as the process lived, and a second close did nothing."""
    sender = TopicSender("t", retain=ALL)

    def interrupted(*more: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(sender._sending, "is_received", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sender.close("1 h")
    sender.close()
    TopicSender("t", port=int(sender.address.rpartition(":")[2])).close()
    with pytest.raises(Refused, match="was closed"):
        sender.publish(b"late")


@pytest.mark.timeout(60)
def test_a_refused_connection_whose_other_end_does_not_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """There was never room for the farewell, so it stood for ever, with all that waited for it."""
    monkeypatch.setattr("persistent.messaging.topic.sending.FAREWELL_MS", 100)
    with TopicSender("t") as sender, dialled(sender.address) as end:
        end.sendall(encode(Hello("t")))
        until(lambda: sender.receivers)
        while not sender.dropped:
            sender.publish(bytes(64 << 10))
        end.sendall(b"\xff" * 100)
        until(lambda: sender.refused and not sender._links)
