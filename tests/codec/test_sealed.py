"""A sealed file is as many messages as its rows ask for, of which no more is read than a range of hashes wants."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from persistent.codec import sealed
from persistent.codec.sealed import open_sealed, read_index, seal
from persistent.errors import CorruptCheckpoint
from tests.codec.files import MAGIC


def numbers(count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(count), pa.int64())})


def test_a_batch_is_as_large_as_it_may_be() -> None:
    """Readers refuse a larger one; smaller ones make more requests of every range."""
    assert sealed.BATCH_ROWS_MAX == 65_536
    data, sha256 = seal([numbers(65_537)], None, ())
    index = read_index(pa.py_buffer(data), sha256, "place")
    assert [(batch.rows, batch.first) for batch in index.batches] == [(65_536, 0), (1, 0)]
    _, batches = open_sealed(pa.py_buffer(data), index, "place")
    assert pa.Table.from_batches(batches) == pa.Table.from_batches([numbers(65_537)])


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> pa.Buffer:
    """A file of three batches, that begin with the hashes 4, 6 and 8."""
    monkeypatch.setattr(sealed, "BATCH_ROWS_MAX", 2)
    hashes = np.array([4, 5, 6, 7, 8, 9], np.uint64)
    return pa.py_buffer(seal([numbers(6)], hashes, ())[0])


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (0, sealed.HASH_LIMIT, [0, 2, 4]),
        (7, 8, [2]),
        (7, 9, [2, 4]),
        (6, 8, [0, 2]),
        (9, sealed.HASH_LIMIT, [4]),
        (0, 4, [0]),
        (0, 1, [0]),
        (5, 6, [0]),
    ],
)
def test_no_other_batches_are_read_than_a_range_may_need(three: pa.Buffer, low: int, high: int, found: Any) -> None:
    """A batch more in every run of every shard; one less loses rows: a hash may begin in the batch before."""
    index = read_index(three, None, "place")
    _, batches = open_sealed(three, index, "place", low, high)
    assert [batch.column(0)[0].as_py() for batch in batches] == found


@pytest.mark.parametrize("size", range(16))
def test_what_is_too_short_for_a_trailer_is_refused(size: int) -> None:
    """A torn write: what stands before the file would be read."""
    with pytest.raises(CorruptCheckpoint, match=rf"place: truncated, or not a run \({size} bytes\)"):
        read_index(pa.py_buffer((b"\x00" * 16 + MAGIC)[-size:] if size else b""), None, "place")


def test_a_trailer_alone_is_refused() -> None:
    """It names an index that is not there."""
    with pytest.raises(CorruptCheckpoint, match="place: its index claims to be longer than the file"):
        read_index(pa.py_buffer(b"\x00" * 8 + MAGIC), None, "place")


def test_any_pane_of_64_bits_is_in_an_index() -> None:
    """State without an end has the lowest of all panes; a clock may be anywhere."""
    panes = [-(1 << 63), -1, 0, (1 << 63) - 1]
    for given in (panes, panes[::-1], []):
        data, sha256 = seal([numbers(1)], None, given)
        assert read_index(pa.py_buffer(data), sha256, "place").panes == given


COLUMNS = {
    "whole numbers": pa.array([1, 2, 3, 4, 5]),
    "whole numbers with nulls": pa.array([1, 2, None, 4, 5]),
    "small numbers": pa.array([1, 2, 3, 4, 5], pa.int32()),
    "as many bytes as twice the rows": pa.array([1, 2, 3, 4, 5, 6], pa.int32()),
    "days": pa.array([datetime.date(2020, 1, day) for day in range(1, 6)]),
    "flags": pa.array([True, False, True, True, True]),
    "decimals": pa.array([1, 2, 3, 4, 5], pa.int64()).cast(pa.decimal128(20, 0)),
    "text": pa.array(["a", "bc", "def", "g", "h"]),
    "lists": pa.array([[1], [2, 3], [4], [], [5]]),
}


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_stored_without_its_neighbours(name: str, start: int) -> None:
    """The same state, cut from other rows, would have other bytes; and rows of other keys would be in its file."""
    column = COLUMNS[name].slice(start, 3)
    cut = pa.record_batch([column], ["x"])
    alone = pa.record_batch([pa.array(column.to_pylist(), column.type)], ["x"])
    assert seal([cut], None, ()) == seal([alone], None, ())
