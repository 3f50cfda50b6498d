"""Frames: what is said comes through as it was, and nothing else is taken for it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from persistent.messaging.topic.messages import ASK_MAX, Ask, Gone, Have, Hello, Leave, Refusal, Sent, Standing
from persistent.messaging.topic.wire import (
    RECEIVER_HEARS_BYTES_MAX,
    SENDER_HEARS_BYTES_MAX,
    VERSION,
    Frames,
    Garbled,
    decode,
    encode,
)
from persistent.topic import TopicMessage

S = "0123456789abcdef" * 2
SAID: list[Any] = [
    Hello("clicks é", 2**32 - 1, 2**31),
    Standing(S, 3, 2**40, True),
    Standing(S, 0, 0, False, True, 9),
    Sent(S, 7, -5, b"\x00payload"),
    Sent(S, 2**62, 1, b"", True),
    Gone(S, 9),
    Ask(S, 4, 4 + ASK_MAX),
    Have(S, 5),
    Refusal("no"),
    Leave(),
]


def test_the_delivery_asks_for_the_gap_first() -> None:
    """What fills a gap was sent again too: asked in the other order it would be taken for late join."""
    said = {
        (again, gap): TopicMessage("s", 0, 0, b"", again, gap).delivery
        for again, gap in ((False, False), (True, False), (True, True))
    }
    assert list(said.values()) == ["live", "late-join", "retransmit"]


@pytest.mark.parametrize("pieces", [1, 3, 1_000])
def test_what_is_said_comes_through(pieces: int) -> None:
    """A connection cuts bytes anywhere."""
    frames, data, found = Frames(RECEIVER_HEARS_BYTES_MAX), b"".join(map(encode, SAID)), []
    for start in range(0, len(data), pieces):
        found += frames.feed(data[start : start + pieces])
    assert found == SAID


def test_a_length_is_checked_before_anything_is_kept() -> None:
    """Whoever dials the port could fill the memory; the first words of a browser are a length too."""
    for data in (b"GET / HTTP/1.1\r\n\r\n", (SENDER_HEARS_BYTES_MAX + 1).to_bytes(4, "little"), b"\xff" * 64):
        with pytest.raises(Garbled, match="the limit is"):
            Frames(SENDER_HEARS_BYTES_MAX).feed(data)


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "nothing"),
        (b"\x09", "kind 9"),
        (encode(Hello("t"))[4:].replace(b"PTOP", b"HTTP"), "unknown magic number"),
        (b"\x01PTOP" + (VERSION + 1).to_bytes(2, "little") + bytes(9), f"the receiver {VERSION + 1}: update"),
        (b"\x01PTOP\x01\x00" + bytes(8) + b"\xff\xfe", "not UTF-8"),
        (encode(Hello("t" * 1_025))[4:], "1,025 bytes"),
        (encode(Gone(S, 9))[4:-1], "not at least"),
        (encode(Gone(S, 9))[4:] + b"x", "1 bytes too many"),
        (encode(Gone(S, 2**63))[4:], "63 bits"),
        (encode(Have(S, 1))[4:] + b"x", "too many"),
        (encode(Leave())[4:] + b"x", "too many"),
        (encode(Ask(S, 5, 5))[4:], "at most 1,024"),
        (encode(Ask(S, 9, 5))[4:], "at most 1,024"),
        (encode(Ask(S, 0, ASK_MAX + 1))[4:], "at most 1,024"),
        (encode(Ask(S, 0, 5))[4:] + b"x", "too many"),
        (encode(Standing(S, 5, 4, True))[4:], "next message 4"),
        (encode(Standing(S, 1, 2, True))[4:-5] + b"\x02" + bytes(4), "impossible standing"),
        (encode(Standing(S, 1, 2, True))[4:] + b"\x00", "too many"),
        (encode(Sent(S, 1, 2, b""))[4:-1] + b"\x07", "of an unknown kind"),
        (encode(Sent(S, 2**63, 2, b""))[4:], "63 bits"),
    ],
)
def test_what_does_not_fit_is_refused(frame: bytes, why: str) -> None:
    """A frame half understood would be a message that nobody sent."""
    with pytest.raises(Garbled, match=why):
        decode(frame)


def test_garbage_is_never_a_crash() -> None:
    """Anything may come over a port; no other error may reach the loop that serves the others."""
    drawn = random.Random(1)
    whole = b"".join(map(encode, SAID))
    for _ in range(3_000):
        data = bytearray(whole)
        for _ in range(drawn.randrange(1, 4)):
            data[drawn.randrange(len(data))] = drawn.randrange(256)
        try:
            Frames(4_096).feed(bytes(data))
        except Garbled:
            continue
