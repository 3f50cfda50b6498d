"""A segment gives what was acknowledged, and says so where it cannot."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from persistent.errors import CorruptLog
from persistent.messaging.log.frames import Kind, encode, seed_of
from persistent.messaging.log.segments import Segment, SoFar, head, seal

SEED = seed_of("log", 4)


def entry(number: int, *, durable: int = 0, text: bytes = b"text") -> bytes:
    column = pa.array([text], pa.binary())
    times = np.array([number], np.int64)
    parts = encode(Kind.DATA, SEED, entry=number, number=10 + number, durable=durable, times=times, records=column)
    return b"".join(parts)


def note(durable: int) -> bytes:
    return b"".join(encode(Kind.NOTE, SEED, entry=1, number=11, durable=durable))


HEAD = head("log", 4, 2, SoFar(0, 10, 0, b"", 99), each=True)
LAZY = head("log", 4, 2, SoFar(0, 10, 0, b"", 99), each=False)


def segment(data: bytes, *, sealed: bool = False) -> Segment:
    return Segment(pa.py_buffer(data), "log", 4, sealed, "place")


def sealed(data: bytes, entries: int = 1, *, last: bool = False) -> bytes:
    return data + seal("log", 4, SoFar(entries, 10 + entries, 5, b"mark"), len(data), last=last)


def numbers(found: Segment) -> list[int]:
    return [frame.number for frame in found.entries()]


def test_readers_see_what_is_noted() -> None:
    """What is not synced may be gone after a loss of power, and a reader cannot forget it."""
    first = HEAD + entry(0)
    assert numbers(segment(first)) == []
    assert numbers(segment(first + note(len(first)))) == [10]
    assert numbers(segment(first + note(len(first)) + entry(1))) == [10]
    lazy = LAZY + entry(0)
    assert numbers(segment(lazy)) == []
    assert numbers(segment(lazy + note(0))) == [10] == numbers(segment(lazy + note(0) + entry(1)))


def test_an_interrupted_write_is_no_damage() -> None:
    """A log would be lost with its last, half-written entry."""
    first = HEAD + entry(0)
    whole = first + note(len(first))
    for torn in (entry(1)[:30], bytes(100), entry(1)[:70] + bytes(26) + entry(2)):
        assert numbers(segment(whole + torn)) == [10]
        assert segment(whole + torn).kept(b"").size == len(whole)


def test_damage_in_what_was_acknowledged_is_an_error() -> None:
    """It would be cut off as if it had been interrupted."""
    first = HEAD + entry(0)
    for data in (first + note(len(first)), first + entry(1, durable=len(first))):
        broken = data[: len(HEAD) + 70] + b"!" + data[len(HEAD) + 71 :]
        with pytest.raises(CorruptLog, match=f"place: damaged at or after byte {len(HEAD)} of {len(data)}"):
            numbers(segment(broken))
        with pytest.raises(CorruptLog):
            segment(b"!" + data[1:]).begun  # noqa: B018


def test_a_segment_without_a_head_has_not_begun() -> None:
    """A writer that was killed at its first write must not stop the next."""
    assert not segment(HEAD[:40]).begun and not segment(b"").begun and segment(HEAD).begun


def test_what_a_writer_has_left_is_kept_where_it_is_whole() -> None:
    """Its acknowledgement may have been under way when it died."""
    data = HEAD + entry(0) + entry(1)
    kept = segment(data + entry(2)[:20]).kept(b"before")
    assert (kept.size, kept.so_far, kept.ended) == (len(data), SoFar(2, 12, 1, b"before", 99), False)
    assert kept.is_worth and not segment(HEAD).kept(b"").is_worth
    assert segment(data + seal("log", 4, SoFar(2, 12), len(data), last=True)).kept(b"").ended


def test_every_byte_of_a_sealed_segment_counts() -> None:
    """It is never torn: whatever is wrong there is damage."""
    data = sealed(HEAD + entry(0))
    assert numbers(segment(data, sealed=True)) == [10]
    for at in range(len(data)):
        broken = segment(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], sealed=True)
        with pytest.raises(CorruptLog):
            list(broken.entries())
    for size in range(len(data)):
        with pytest.raises(CorruptLog):
            list(segment(data[:size], sealed=True).entries())


def test_a_seal_says_what_came_before() -> None:
    """The next writer goes on from there."""
    found = segment(sealed(HEAD + entry(0), last=True), sealed=True).seal
    assert (found.kind, found.entry, found.number, found.last) == (Kind.LAST, 1, 11, 5)
    assert found.mark(pa.py_buffer(sealed(HEAD + entry(0), last=True))) == b"mark"


def test_an_entry_that_two_writers_wrote_is_damage() -> None:
    """Each frame is whole, and one of two entries with the same number would be passed over in silence."""
    for sealed in (False, True):
        data, so_far = head("log", 1, 1, SoFar(), each=True), SoFar()
        for text in (b"one", b"two", b"two again"):
            entry = 0 if text == b"one" else 1
            number = entry
            parts = encode(
                Kind.DATA,
                seed_of("log", 1),
                entry=entry,
                number=number,
                durable=0,
                times=[7],
                records=pa.array([text], pa.binary()),
                last=7,
            )
            data += b"".join(bytes(part) for part in parts)
        so_far = SoFar(2, 2, 7)
        whole = data + seal("log", 1, so_far, len(data), last=False) if sealed else data
        segment = Segment(pa.py_buffer(whole), "log", 1, sealed, "s/1")
        with pytest.raises(CorruptLog, match="s/1: damaged at or after byte"):
            list(segment.entries(whole=True))
