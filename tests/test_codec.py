"""A run is read exactly as it was written, all of it or any range of keys, or it is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Max, Mean, SetUnion, Sum, record
from monoids.hashing import key_column
from persistent.codec import (
    KEY_GROUPS,
    Run,
    canonical_json,
    decode_document,
    decode_panes,
    decode_run,
    decode_table,
    encode_document,
    encode_run,
    encode_table,
    groups_of,
)
from persistent.errors import CorruptCheckpoint, StorageError
from persistent.rows import Rows, sum_up

MONOID = record(visits=Count(), total=Sum(), top=Max(str), mean=Mean(), users=SetUnion(int))


def rows_of(number: int, monoid: Any = MONOID, keys: int = 50) -> Rows:
    """The sum of that many updates."""
    ids = [value * 7919 % keys for value in range(number)]
    columns = monoid.lift_list(
        [
            {"visits": 1, "total": value, "top": f"é{value % 9}", "mean": value / 4, "users": value % 5}
            for value in range(number)
        ]
    )
    names = key_column(pa.array([None if value == 3 else f"k{value}" for value in ids], pa.string()))
    return sum_up(monoid, [names], np.arange(number) % 4 * 60_000, columns, 60_000)


def encoded(rows: Rows) -> tuple[bytes, Run]:
    """The bytes of a run, and what a manifest says of it."""
    data, sha256 = encode_run(MONOID, rows, ["page"], np.unique(rows.panes).tolist())
    return data, Run("d/V/x", len(rows), len(data), sha256, 0, 0, KEY_GROUPS, 0, 180_000, 1, 1)


def shown(rows: Rows) -> list[Any]:
    elements = MONOID.unpack(rows.columns)
    keys = rows.keys[0].to_pylist() if rows.keys else []
    return list(zip(rows.hashes.tolist(), keys, rows.panes.tolist(), [MONOID.encode(element) for element in elements]))


def decode(data: bytes, run: Run, low: int = 0, high: int = KEY_GROUPS) -> Rows:
    return decode_run(MONOID, pa.py_buffer(data), run, "place", low, high)


@pytest.mark.parametrize("number", [1, 2, 500])
def test_a_run_is_read_as_it_was_written(number: int) -> None:
    """State that changes on the way through a file is not state."""
    rows = rows_of(number)
    data, run = encoded(rows)
    assert shown(decode(data, run)) == shown(rows)
    assert decode_panes(pa.py_buffer(data), run, "place") == sorted(set(rows.panes.tolist()))


def test_equal_rows_give_equal_bytes() -> None:
    """A step that is repeated must write what it wrote before, or checkpoints cannot be compared."""
    assert encoded(rows_of(500)) == encoded(rows_of(500))
    shuffled = rows_of(500).take(np.arange(len(rows_of(500))))
    assert encoded(shuffled)[0] == encoded(rows_of(500))[0]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, KEY_GROUPS - 1), st.integers(0, KEY_GROUPS), st.integers(0, KEY_GROUPS - 1), st.integers(1, 5))
def test_a_slice_by_key_group_equals_the_filter(a: int, b: int, low: int, batches: int) -> None:
    """A shard that reads a key too many counts it twice; one too few loses it."""
    rows = rows_of(400, keys=200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("persistent.codec._BATCH_ROWS", max(1, len(rows) // batches))
        data, run = encoded(rows)
    run = Run(**{**run.__dict__, "low": low})
    start, stop = (a, b) if a <= b else (b, a)
    groups = groups_of(rows.hashes)
    expected = rows.take(np.flatnonzero((groups >= max(start, low)) & (groups < stop)))
    assert shown(decode(data, run, start, stop)) == shown(expected)


def test_a_key_that_fills_several_batches_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with many panes goes on in the next batch; its hash may be the very border of the range."""
    monkeypatch.setattr("persistent.codec._BATCH_ROWS", 3)
    rows = sum_up(Sum(), [], np.arange(20), Sum().lift_list(list(range(20))), 1)
    for border in (0, 1 << 54, 5 << 54):
        placed = Rows(np.full(20, border, np.uint64), (), rows.panes, rows.columns)
        data, sha256 = encode_run(Sum(), placed, [])
        run = Run("x", 20, len(data), sha256, 0, 0, KEY_GROUPS, 0, 19, 1, 1)
        group = border >> 54
        ranges = ((0, KEY_GROUPS, 20), (group, group + 1, 20), (group + 1, KEY_GROUPS, 0), (0, group, 0))
        for low, high, found in ranges:
            assert len(decode_run(Sum(), pa.py_buffer(data), run, "place", low, high)) == found, (border, low, high)


def test_slices_side_by_side_are_the_whole() -> None:
    """What falls between two shards is lost."""
    rows = rows_of(400, keys=300)
    data, run = encoded(rows)
    for shards in (1, 2, 3, 7, 1024):
        borders = [KEY_GROUPS * shard // shards for shard in range(shards + 1)]
        parts = [row for low, high in pairwise(borders) for row in shown(decode(data, run, low, high))]
        assert parts == shown(rows)


def test_rows_without_keys_are_runs_too() -> None:
    """One state for the whole task has no key columns."""
    rows = sum_up(Sum(), [], np.array([0, 60, 0]), Sum().lift_list([1, 2, 3]), 60)
    data, sha256 = encode_run(Sum(), rows, [])
    run = Run("x", 2, len(data), sha256, 0, 0, KEY_GROUPS, 0, 60, 1, 1)
    read = decode_run(Sum(), pa.py_buffer(data), run, "place")
    assert read.keys == () and read.panes.tolist() == [0, 60] and Sum().unpack(read.columns) == [4, 2]


# -- what is not as it was written ------------------------------------------------------------------------------------


def test_every_flipped_byte_is_refused() -> None:
    """I4: Arrow reads 98 of 100 flipped bits as other values, without a word."""
    data, run = encoded(rows_of(6))
    for place in range(len(data)):
        for bit in range(8):
            check_refused(data, run, place, bit)


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_flipped_bits_of_a_larger_run_are_refused(drawn: st.DataObject) -> None:
    """The same where there are several record batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("persistent.codec._BATCH_ROWS", 30)
        data, run = encoded(rows_of(300))
    check_refused(data, run, drawn.draw(st.integers(0, len(data) - 1)), drawn.draw(st.integers(0, 7)))


def check_refused(data: bytes, run: Run, place: int, bit: int) -> None:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    with pytest.raises(CorruptCheckpoint, match="place"):
        decode(bytes(changed), run)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_a_run_cut_short_or_made_longer_is_refused(drawn: st.DataObject) -> None:
    """A torn write must not be the first half of the state."""
    data, run = encoded(rows_of(100))
    length = drawn.draw(st.integers(0, len(data) - 1))
    for torn in (data[:length], data[length + 1 :], data + data[length:], data[:length] + b"\0" * (len(data) - length)):
        if torn != data:
            with pytest.raises(CorruptCheckpoint, match="place"):
                decode(torn, run)


def test_another_valid_run_is_refused() -> None:
    """Whole, sound, and not the one that was committed."""
    _, run = encoded(rows_of(100))
    other, _ = encoded(rows_of(101))
    with pytest.raises(CorruptCheckpoint, match="index: SHA-256 differs from what was committed"):
        decode(other, run)
    with pytest.raises(CorruptCheckpoint, match="index: SHA-256"):
        decode_panes(pa.py_buffer(other), run, "place")


def test_a_range_verifies_what_it_reads() -> None:
    """Reading a part must not be a way round the check, nor need the rest to be there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("persistent.codec._BATCH_ROWS", 20)
        data, run = encoded(rows_of(400, keys=300))
    group = int(groups_of(decode(data, run).hashes[-1:])[0])
    at = data.index(b"ARROW") if data.startswith(b"ARROW") else len(data) // 8
    changed = bytearray(data)
    changed[at] ^= 1
    with pytest.raises(CorruptCheckpoint):
        decode(bytes(changed), run)
    assert shown(decode(bytes(changed), run, group)) == shown(decode(data, run, group))


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_tables_are_read_as_they_were_written(rows: int) -> None:
    """Listings, late rows and dead letters are read again, years later."""
    table = pa.table({"path": [f"é{n}" for n in range(rows)], "n": pa.array(range(rows), pa.int64())})
    data, sha256 = encode_table(table)
    assert decode_table(pa.py_buffer(data), sha256, "place") == table
    assert decode_table(pa.py_buffer(data), None, "place") == table
    with pytest.raises(CorruptCheckpoint):
        decode_table(pa.py_buffer(data), "0" * 64, "place")


class Uncombined:
    """A table whose chunks do not combine, as those of columns with more than 2 GB of text do not."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.schema = table.schema

    def combine_chunks(self) -> pa.Table:
        return self._table


def test_a_table_in_several_chunks_is_written_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late rows and dead letters after the first 2 GB of text would be lost, though they are counted."""
    monkeypatch.setattr("persistent.codec._BATCH_ROWS", 3)
    chunks = [pa.table({"data": [f"{chunk}-{n}" for n in range(size)]}) for chunk, size in enumerate([4, 1, 7])]
    table = pa.concat_tables(chunks)
    assert table["data"].num_chunks == 3
    data, sha256 = encode_table(Uncombined(table))
    assert decode_table(pa.py_buffer(data), sha256, "place") == table


def test_the_panes_of_a_run_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a million panes would take a second in Python to write, in every step."""
    looked_at: list[Any] = []
    monkeypatch.setattr("persistent.codec._refuse_floats", looked_at.append)
    data, run = encoded(rows_of(500))
    assert not looked_at
    assert shown(decode(data, run)) == shown(rows_of(500))


def test_a_document_too_large_to_be_read_is_not_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put and never read again, it would end the job for good."""
    value = {"spans": ["x" * 100] * 10}
    size = len(encode_document(value))
    monkeypatch.setattr("persistent.codec.DOCUMENT_BYTES_MAX", size)
    assert decode_document(encode_document(value), "place") == value
    monkeypatch.setattr("persistent.codec.DOCUMENT_BYTES_MAX", size - 1)
    with pytest.raises(StorageError, match=f"of {size} bytes is not put: above {size - 1} "):
        encode_document(value)


def test_every_flipped_byte_of_a_table_is_refused() -> None:
    """Also without the hash in a manifest, as late rows are read: against its own index."""
    data, sha256 = encode_table(pa.table({"n": [1, 2, 3]}))
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 4
        with pytest.raises(CorruptCheckpoint, match="place"):
            decode_table(pa.py_buffer(bytes(changed)), sha256, "place")


def test_json_has_one_spelling() -> None:
    """Equal contents must give equal bytes, or two drivers cannot recognise the same plan."""
    assert canonical_json({"b": [1, None, True], "a": "é"}) == r'{"a":"\u00e9","b":[1,null,true]}'
    assert canonical_json({"a": {"d": 1, "c": 2}}) == canonical_json({"a": {"c": 2, "d": 1}})
