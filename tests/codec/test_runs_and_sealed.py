"""A run is read exactly as it was written, all of it or any range of keys, or it is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monoids import Count, Max, Mean, SetUnion, Sum, record
from monoids.groupby.summing import GroupSums, group_by
from monoids.hashing import key_column
from persistent.codec import sealed
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.codec.runs import decode_panes, decode_run, encode_run, groups_of, is_wide
from persistent.codec.sealed import read_index
from persistent.errors import CorruptCheckpoint
from tests.codec.files import sealed_of, sha256
from tests.few import examples, one_in

MONOID = record(visits=Count(), total=Sum(), top=Max(str), mean=Mean(), users=SetUnion(int))


def rows_of(number: int, monoid: Any = MONOID, keys: int = 50) -> GroupSums:
    """The sum of that many updates."""
    ids = [value * 7919 % keys for value in range(number)]
    columns = monoid.lift_list(
        [
            {"visits": 1, "total": value, "top": f"é{value % 9}", "mean": value / 4, "users": value % 5}
            for value in range(number)
        ]
    )
    names = key_column(pa.array([None if value == 3 else f"k{value}" for value in ids], pa.string()))
    return group_by(monoid, [names], np.arange(number) % 4 * 60_000, columns, 60_000)


def encoded(rows: GroupSums) -> tuple[bytes, Run]:
    """The bytes of a run, and what a manifest says of it."""
    data, sha256 = encode_run(MONOID, rows, ["page"], np.unique(rows.panes).tolist())
    return data, Run("d/V/x", len(rows), len(data), sha256, 0, 0, KEY_GROUPS, 0, 180_000, 1, 1)


def shown(rows: GroupSums) -> list[Any]:
    elements = MONOID.unpack(rows.columns)
    keys = rows.keys[0].to_pylist() if rows.keys else []
    return list(zip(rows.hashes.tolist(), keys, rows.panes.tolist(), [MONOID.encode(element) for element in elements]))


def decode(data: bytes, run: Run, low: int = 0, high: int = KEY_GROUPS) -> GroupSums:
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


def test_bytes_do_not_depend_on_the_neighbours() -> None:
    """Of equal rows, one cut from many others and one not, the bytes must be equal."""
    monoid, keys = SetUnion(str), (pa.array(["k"]),)
    (many,) = monoid.pack([frozenset({"abc"}), frozenset({"de"}), frozenset({"fg"})])
    (one,) = monoid.pack([frozenset({"de"})])
    rows = [GroupSums(np.zeros(1, np.uint64), keys, np.zeros(1, np.int64), (column,)) for column in (many[1:2], one)]
    cut, alone = (encode_run(monoid, each, ["page"])[0] for each in rows)
    assert cut == alone


@settings(deadline=None, max_examples=examples(60))
@given(st.integers(0, KEY_GROUPS - 1), st.integers(0, KEY_GROUPS), st.integers(0, KEY_GROUPS - 1), st.integers(1, 5))
def test_a_slice_by_key_group_equals_the_filter(a: int, b: int, low: int, batches: int) -> None:
    """A shard that reads a key too many counts it twice; one too few loses it."""
    rows = rows_of(400, keys=200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("persistent.codec.sealed.BATCH_ROWS_MAX", max(1, len(rows) // batches))
        data, run = encoded(rows)
    run = replace(run, low=low)
    start, stop = (a, b) if a <= b else (b, a)
    groups = groups_of(rows.hashes)
    expected = rows.take(np.flatnonzero((groups >= max(start, low)) & (groups < stop)))
    assert shown(decode(data, run, start, stop)) == shown(expected)


def test_a_key_that_fills_several_batches_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with many panes goes on in the next batch; its hash may be the very border of the range."""
    monkeypatch.setattr("persistent.codec.sealed.BATCH_ROWS_MAX", 3)
    rows = group_by(Sum(), [], np.arange(20), Sum().lift_list(list(range(20))), 1)
    for border in (0, 1 << 54, 5 << 54):
        placed = GroupSums(np.full(20, border, np.uint64), (), rows.panes, rows.columns)
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
    rows = group_by(Sum(), [], np.array([0, 60, 0]), Sum().lift_list([1, 2, 3]), 60)
    data, sha256 = encode_run(Sum(), rows, [])
    run = Run("x", 2, len(data), sha256, 0, 0, KEY_GROUPS, 0, 60, 1, 1)
    read = decode_run(Sum(), pa.py_buffer(data), run, "place")
    assert read.keys == () and read.panes.tolist() == [0, 60] and Sum().unpack(read.columns) == [4, 2]


def test_key_groups_are_the_top_bits_of_a_hash() -> None:
    """Part of the format: read by another division, keys are in the group of another shard."""
    assert KEY_GROUPS == 1024
    assert groups_of(np.array([0, (1 << 54) - 1, 1 << 54, (1 << 64) - 1], np.uint64)).tolist() == [0, 0, 1, 1023]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_no_batch_is_empty_but_that_of_no_rows(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A request for nothing in every run of a key."""
    monkeypatch.setattr("persistent.codec.sealed.BATCH_ROWS_MAX", 1)
    rows = group_by(Sum(), [], np.arange(2), Sum().lift_list([5, 6]), 1).slice(0, number)
    data, sha256 = encode_run(Sum(), rows, [])
    assert [batch.rows for batch in read_index(pa.py_buffer(data), sha256, "place").batches] == ([1] * number or [0])
    run = Run("x", number, len(data), sha256, 0, 0, KEY_GROUPS, 0, 1, 1, 1)
    assert decode_run(Sum(), pa.py_buffer(data), run, "place").panes.tolist() == [0, 1][:number]


def test_a_range_without_key_groups_has_no_rows() -> None:
    """A shard above what still counts of a run: not even one batch is decoded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("persistent.codec.sealed.BATCH_ROWS_MAX", 5)
        data, run = encoded(rows_of(400, keys=200))
    rows = decode(data, replace(run, low=KEY_GROUPS - 1), 0, 1)
    assert len(rows) == 0 and rows.keys == ()


# -- what is not as it was written ------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", one_in(2, [5, 1]))
def test_every_flipped_byte_is_refused(every: int) -> None:
    """I4: Arrow reads 98 of 100 flipped bits as other values, without a word."""
    data, run = encoded(rows_of(6))
    for bit in range(0, 8 * len(data), every):
        check_refused(data, run, *divmod(bit, 8))


@settings(deadline=None, max_examples=examples(300))
@given(st.data())
def test_flipped_bits_of_a_larger_run_are_refused(drawn: st.DataObject) -> None:
    """The same where there are several record batches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("persistent.codec.sealed.BATCH_ROWS_MAX", 30)
        data, run = encoded(rows_of(300))
    check_refused(data, run, drawn.draw(st.integers(0, len(data) - 1)), drawn.draw(st.integers(0, 7)))


def check_refused(data: bytes, run: Run, place: int, bit: int) -> None:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    with pytest.raises(CorruptCheckpoint, match="place"):
        decode(bytes(changed), run)


@settings(deadline=None, max_examples=examples(200))
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
        patch.setattr("persistent.codec.sealed.BATCH_ROWS_MAX", 20)
        data, run = encoded(rows_of(400, keys=300))
    group = int(groups_of(decode(data, run).hashes[-1:])[0])
    at = data.index(b"ARROW") if data.startswith(b"ARROW") else len(data) // 8
    changed = bytearray(data)
    changed[at] ^= 1
    with pytest.raises(CorruptCheckpoint):
        decode(bytes(changed), run)
    assert shown(decode(bytes(changed), run, group)) == shown(decode(data, run, group))


def test_the_panes_of_a_run_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a million panes would take a second in Python to write, in every step."""
    looked_at: list[Any] = []
    monkeypatch.setattr("persistent.codec.documents.check_value", looked_at.append)
    data, run = encoded(rows_of(500))
    assert not looked_at
    assert shown(decode(data, run)) == shown(rows_of(500))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rows": 51}, "has 50 rows, but 51 according to its manifest"),
        ({"bytes": 1}, "bytes, but 1 according to its manifest"),
    ],
)
def test_what_the_manifest_says_bounds_what_is_read(changes: dict[str, Any], says: str) -> None:
    """Before anything is made of the bytes."""
    data, run = encoded(rows_of(50))
    run = replace(run, rows=len(decode(data, run)), bytes=len(data))
    says = says.replace("50", str(run.rows)).replace("51", str(run.rows + 1))
    changes = {"rows": run.rows + 1} if "rows" in changes else changes
    with pytest.raises(CorruptCheckpoint, match=says):
        decode(data, replace(run, **changes))


def rows_file(panes: Any = (), **columns: pa.Array) -> tuple[bytes, Run]:
    """A sound file of these columns, and a run that names it."""
    data = sealed_of(
        *[pa.record_batch(columns).schema.serialize().to_pybytes()],
        *[(pa.record_batch(columns).serialize().to_pybytes(), len(next(iter(columns.values()))))],
        panes=list(panes),
    )
    index = data[data.rindex(b'{"batches"') : -16]
    return data, Run("d/V/x", len(next(iter(columns.values()))), len(data), sha256(index), 0, 0, KEY_GROUPS, 0, 0, 1, 1)


HASHES, PANES = pa.array([1, 2], pa.uint64()), pa.array([0, 0])


@pytest.mark.parametrize(
    "columns",
    [
        {"hash": HASHES, "element": PANES},
        {"hash": PANES, "pane": PANES, "element": PANES},
        {"hash": pa.array([1, None], pa.uint64()), "pane": PANES, "element": PANES},
        {"hash": HASHES, "pane": pa.array([0, None]), "element": PANES},
        {"hash": HASHES, "pane": HASHES, "element": PANES},
        {"hash": HASHES, "pane": PANES},
        {"hash": HASHES, "pane": PANES, "element": pa.array(["a", "b"])},
        {"hash": HASHES, "pane": PANES, "element": pa.array([1, None])},
        {"hash": pa.array([2, 1], pa.uint64()), "pane": PANES, "element": PANES},
        {"pane": PANES, "element": PANES},
    ],
    ids=lambda columns: "-".join(f"{name}:{array.type}" for name, array in columns.items()),
)
def test_columns_that_are_no_state_rows_are_refused(columns: dict[str, pa.Array]) -> None:
    """Read as they are, hashes with a null are floats, and rows out of order are not found."""
    data, run = rows_file(**columns)
    with pytest.raises(CorruptCheckpoint, match=r"^place: "):
        decode_run(Sum(), pa.py_buffer(data), run, "place")


class Trusting(type(Sum())):  # type: ignore[misc]
    """A user's monoid, which reads whatever it is given."""

    def from_arrow(self, arrays: Any) -> Any:
        return tuple(np.asarray(array) for array in arrays)


@pytest.mark.parametrize("element", [pa.array([1.0, 2.0]), pa.array([1, None])], ids=["type", "null"])
def test_elements_are_of_the_type_that_their_monoid_says(element: pa.Array) -> None:
    """Not every monoid looks at what it reads: numbers that look right would be its state."""
    data, run = rows_file(hash=HASHES, pane=PANES, element=element)
    with pytest.raises(CorruptCheckpoint, match="place: "):
        decode_run(Trusting(), pa.py_buffer(data), run, "place")
    data, run = rows_file(hash=HASHES, pane=PANES, element=PANES)
    assert len(decode_run(Trusting(), pa.py_buffer(data), run, "place")) == 2


def test_rows_written_by_others_are_read_if_they_are_rows() -> None:
    """The test above would pass for another reason."""
    data, run = rows_file(hash=HASHES, pane=PANES, element=PANES, panes=[0])
    assert len(decode_run(Sum(), pa.py_buffer(data), run, "place")) == 2
    assert decode_panes(pa.py_buffer(data), run, "place") == [0]


@pytest.mark.parametrize(("panes", "says"), [([1 << 63], "beyond 64 bits"), ([2, 1], "ascend"), ([1, 1], "ascend")])
def test_panes_that_are_none_are_refused(panes: list[int], says: str) -> None:
    """Which windows are open is looked up in them by halving."""
    data, run = rows_file(hash=HASHES, pane=PANES, element=PANES, panes=panes)
    with pytest.raises(CorruptCheckpoint, match=says):
        decode_panes(pa.py_buffer(data), run, "place")


def test_a_run_is_as_wide_as_its_widest_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """One total of a million outgrows 64 bits: the pieces of a file have one schema, and no value changes."""
    monkeypatch.setattr(sealed, "BATCH_ROWS_MAX", 2)
    for place in range(5):
        values = [number + (2**70 if number == place else 0) for number in range(5)]
        rows = GroupSums(np.arange(5, dtype=np.uint64), (), np.zeros(5, np.int64), Sum().pack(values))
        data, digest = encode_run(Sum(), rows, ())
        run = Run("d/V/r.arrow", 5, len(data), digest, 0, 0, KEY_GROUPS, 0, 0, 1, 1, wide=True)
        assert Sum().unpack(decode_run(Sum(), pa.py_buffer(data), run, "here").columns) == values
        assert is_wide(Sum(), data)


def test_a_run_of_what_fits_is_not_wide() -> None:
    """A release that does not know wide totals refuses a run that says it is."""
    for monoid in (Sum(), Max()):
        rows = GroupSums(np.zeros(1, np.uint64), (), np.zeros(1, np.int64), monoid.pack([7]))
        assert is_wide(monoid, encode_run(monoid, rows, ())[0]) is False


def test_totals_are_wide_only_where_the_manifest_says_so() -> None:
    """A release that does not know wide totals goes by the manifest; a run that is wider than that is not this one."""
    keys, panes = pa.array(["a"]), np.zeros(1, np.int64)
    rows = group_by(Sum(), [keys], panes, Sum().pack([2**70]), 1)
    data, digest = encode_run(Sum(), rows, ["page"])
    groups = groups_of(rows.hashes)
    said = {"start": 0, "low": 0, "high": KEY_GROUPS, "pane_min": 0, "pane_max": 0, "first": 1, "last": 1}
    assert is_wide(Sum(), data) and len(groups) == 1
    for wide in (True, False):
        run = Run(name="d/V/r.arrow", rows=1, bytes=len(data), sha256=digest, wide=wide, **said)
        if wide:
            assert Sum().unpack(decode_run(Sum(), pa.py_buffer(data), run, "here").columns) == [2**70]
        else:
            with pytest.raises(CorruptCheckpoint, match="its columns are wider than its manifest says"):
                decode_run(Sum(), pa.py_buffer(data), run, "here")
