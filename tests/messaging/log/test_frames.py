"""A frame proves every byte of itself, in its own place."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.messaging.log.frames import Kind, durable_beyond, encode, frame_at, frames, seed_of

SEED = seed_of("log", 1)


def encoded(records: list[bytes], *, seed: int = SEED, mark: bytes = b"", durable: int = 0, **more: Any) -> bytes:
    times = np.arange(len(records), dtype=np.int64) + 5
    column = pa.array(records, pa.binary())
    place = {"entry": 3, "number": 7, **more}
    return b"".join(encode(Kind.DATA, seed, durable=durable, times=times, records=column, mark=mark, **place))


def at(data: bytes, start: int = 0, seed: int = SEED) -> Any:
    return frame_at(pa.py_buffer(data), memoryview(data), seed, start)


@given(st.lists(st.binary(max_size=20), max_size=6), st.binary(max_size=9))
def test_what_is_written_is_read(records: list[bytes], mark: bytes) -> None:
    """Each of its parts has its own length, and one byte too far is another record."""
    data = encoded(records, mark=mark)
    frame = at(data)
    buffer = pa.py_buffer(data)
    assert frame.records(buffer).to_pylist() == records and frame.mark(buffer) == mark
    assert frame.times(buffer).tolist() == list(range(5, 5 + len(records)))
    assert (frame.entry, frame.number, frame.count, frame.stop) == (3, 7, len(records), len(data))
    assert len(data) % 8 == 0


def test_a_slice_of_a_column_is_written_without_its_neighbours() -> None:
    """Offsets of a slice do not begin at 0."""
    column = pa.array([b"a", b"bc", b"def", b"g"], pa.binary()).slice(1, 2)
    data = b"".join(encode(Kind.DATA, SEED, entry=0, number=0, durable=0, times=[1, 2], records=column))
    assert at(data).records(pa.py_buffer(data)).to_pylist() == [b"bc", b"def"] and b"g" not in data[64:]


def test_every_flipped_bit_is_seen() -> None:
    """A frame with a wrong byte would be a record that nobody wrote."""
    data = encoded([b"abc", b""], mark=b"m")
    for place in range(len(data)):
        for bit in range(8):
            assert at(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]) is None, (place, bit)


def test_a_frame_counts_in_its_own_place_alone() -> None:
    """A file that is put under the name of another would stand in for it."""
    data = encoded([b"abc"])
    assert at(data, seed=seed_of("log", 2)) is None and at(data, seed=seed_of("other", 1)) is None


@pytest.mark.parametrize("size", [0, 8, 63, 64, 70])
def test_a_torn_frame_is_none(size: int) -> None:
    """A write that was interrupted leaves the beginning."""
    assert at(encoded([b"abcdefg"])[:size]) is None


@pytest.mark.parametrize("offsets", [[0, 9, 4], [0, -1, 4], [1, 3, 4], [0, 3, 400], [0, 3, -8]])
def test_offsets_that_lead_elsewhere_are_not_followed(offsets: list[int]) -> None:
    """A CRC proves what was written, and not that it makes sense: a wrong offset would read outside of the file."""
    data = bytearray(encoded([b"abc", b"d"]))
    assert np.frombuffer(data, np.int32, 3, 80).tolist() == [0, 3, 4]
    data[80:92] = np.array(offsets, np.int32).tobytes()
    data[56:64] = zlib.crc32(data[64:], zlib.crc32(data[:56], SEED)).to_bytes(8, "little")
    assert at(bytes(data)) is None


def test_frames_end_before_the_first_that_is_not_whole() -> None:
    """What is behind it has no place."""
    one, two = encoded([b"one"]), encoded([b"two"])
    buffer = pa.py_buffer(one + two + two[:-1])
    assert [frame.start for frame in frames(buffer, SEED)] == [0, len(one)]


def test_what_is_behind_a_broken_place_tells_what_was_durable() -> None:
    """Damage in what was acknowledged would be taken for an interrupted write, and cut off."""
    broken, later = encoded([b"one"])[:-8], encoded([b"two"], durable=64)
    assert durable_beyond(pa.py_buffer(broken + later), SEED, 0) == 64
    assert durable_beyond(pa.py_buffer(broken + b"PLG\x01" + bytes(80)), SEED, 0) == 0
    assert durable_beyond(pa.py_buffer(broken + encoded([b"two"], durable=9, seed=1)), SEED, 0) == 0
