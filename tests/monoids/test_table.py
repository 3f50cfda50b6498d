"""Tables are summed up by columns as dictionaries are one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Max, Monoid, Sum, record
from monoids import table as table_module
from monoids.column import Ragged, concat
from monoids.ordered import IntegerKeys, Ordered
from monoids.table import Table, group_entries, identity_rows
from monoids.values import ALL_KINDS, value_type

INTEGERS = Ordered(value_type("Table", int, ALL_KINDS))
TEXTS = Ordered(value_type("Table", str, ALL_KINDS))
HASHES = IntegerKeys(np.dtype(np.uint64))


class Dictionary(Table[dict[Any, Any]]):
    """The plainest table: a Python dict of key to element."""

    identity: dict[Any, Any] = {}

    def combine(self, a: dict[Any, Any], b: dict[Any, Any]) -> dict[Any, Any]:
        assert self.inner is not None
        total = dict(a)
        for key, element in b.items():
            total[key] = self.inner.combine(total[key], element) if key in total else element
        kept = sorted(key for key, element in total.items() if element != self.inner.identity)[: self.entries_max]
        return {key: total[key] for key in kept}

    def entries(self, element: dict[Any, Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        return list(element), list(element.values())

    def of_entries(self, keys: Sequence[Any], inner: Sequence[Any]) -> dict[Any, Any]:
        return dict(zip(keys, inner))


WIDE = st.sampled_from([-(2**63), -1, 0, 1, 2, 3, 2**40, 2**63 - 1]) | st.integers(-(2**63), 2**63 - 1)
NONZERO = st.integers(-3, 3).filter(bool)
TABLES = [
    (Dictionary(INTEGERS, Sum()), st.integers(0, 5), NONZERO),
    (Dictionary(INTEGERS, Sum()), WIDE, NONZERO),
    (Dictionary(TEXTS, Max(str)), st.text(max_size=2), st.text(max_size=2)),
    (Dictionary(HASHES, record(a=Sum(), b=Sum())), st.integers(0, 2**64 - 1), st.tuples(NONZERO, NONZERO)),
    (Dictionary(INTEGERS, Max(), entries_max=2), WIDE, st.integers(-3, 3)),
]


@pytest.mark.parametrize(("monoid", "keys", "values"), TABLES, ids=["small", "wide", "text", "record", "bounded"])
@pytest.mark.parametrize("cells", [True, False], ids=["cells", "sorted"])
@given(data=st.data())
def test_sums_by_column_are_those_of_dictionaries(
    monoid: Dictionary, keys: Any, values: Any, cells: bool, data: st.DataObject
) -> None:
    """The tables of a million keys are only ever summed by column."""
    with pytest.MonkeyPatch.context() as patch:
        if not cells:
            patch.setattr(table_module, "fits_cells", lambda size, rows: False)
        element = st.dictionaries(keys, values, max_size=monoid.entries_max or 4)
        elements = [{key: e[key] for key in sorted(e)} for e in data.draw(st.lists(element, min_size=1, max_size=6))]
        segments = np.array([data.draw(st.integers(0, 2)) for _ in elements], np.int64)
        expected: list[dict[Any, Any]] = [{}, {}, {}]
        for at, one in zip(segments.tolist(), elements):
            expected[at] = monoid.combine(expected[at], one)
        (table,) = monoid.pack(elements)
        assert monoid.unpack((table,)) == elements
        merged = monoid.merge(table, segments, 3)
        assert [list(e.items()) for e in monoid.unpack((merged,))] == [list(e.items()) for e in expected]
        arrays = monoid.to_arrow((merged,))
        assert [array.type for array in arrays] == monoid.schema.types
        twice = pa.concat_arrays([arrays[0], arrays[0]]).slice(len(arrays[0]))
        assert monoid.unpack(monoid.from_arrow([twice])) == expected


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**64 - 1) | st.integers(0, 3)), max_size=30),
    st.sampled_from([0, 30, 60]),
)
def test_entries_are_grouped_as_sorted_pairs(rows: list[tuple[int, int]], shift: int) -> None:
    """Codes that differ only below what fits into a packed word must not become one entry."""
    codes = np.array([code >> shift for _, code in rows], np.uint64)
    segments = np.array([segment for segment, _ in rows], np.int64)
    order, starts = group_entries(segments, codes, 64 - shift, 1 << 20)
    pairs = list(zip(segments.tolist(), codes.tolist(), range(len(rows))))
    assert order.tolist() == [number for *_, number in sorted(pairs)]
    ordered = sorted(pairs)
    assert starts.tolist() == [i for i in range(len(rows)) if i == 0 or ordered[i][:2] != ordered[i - 1][:2]]


def test_segment_and_code_wider_than_a_word_are_sorted_twice() -> None:
    """Bits cut off would bring different entries together."""
    codes = np.array([(1 << 63) + 5, (1 << 63) + 2, (1 << 63) + 5, 7], np.uint64)
    order, starts = group_entries(np.array([1, 1, 1, 2]), codes, 64, 1 << 30)
    assert order.tolist() == [1, 0, 2, 3] and starts.tolist() == [0, 1, 3]


def test_entries_in_order_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read from a file is in order; to sort it again costs more than reading it."""
    monkeypatch.setattr(table_module, "stable_order", None)
    order, starts = group_entries(np.array([0, 0, 1]), np.array([3, 3, 1], np.uint64), 2, 2)
    assert order.tolist() == [0, 1, 2] and starts.tolist() == [0, 2]


def test_entries_at_the_identity_vanish() -> None:
    """Otherwise equal elements have different bytes, depending on what was taken back."""
    monoid = Dictionary(INTEGERS, Sum())
    columns = concat([monoid.pack([{1: 5, 2: 1}]), monoid.pack([{1: -5}])])
    (summed,) = monoid.reduce_sorted(columns, np.array([0]))
    assert monoid.unpack((summed,)) == [{2: 1}]
    assert summed.entries == 1


@pytest.mark.parametrize(
    ("monoid", "elements"),
    [
        (Sum(), [0, 1, 0]),
        (Max(), [None, 1, None]),
        (Max(str), [None, "", None]),
        (record(a=Sum(), b=Max()), [(0, None), (0, 1), (0, None)]),
    ],
)
def test_identity_rows(monoid: Monoid[Any], elements: list[Any]) -> None:
    """What is nothing must be known of every kind of column."""
    assert identity_rows(monoid, monoid.pack(elements)).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("arrays", "hint"),
    [
        ([[(2, 1), (1, 1)]], "not in key order"),
        ([[(1, 1), (1, 1)]], "not in key order"),
        ([None], "an element is null"),
    ],
)
def test_foreign_tables_are_refused(arrays: Any, hint: str) -> None:
    """A table out of order is summed up wrongly, and silently."""
    monoid = Dictionary(INTEGERS, Sum())
    type_ = monoid.schema.field(0).type
    rows = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in arrays]
    with pytest.raises(ValueError, match=hint):
        monoid.from_arrow([pa.array(rows, type_)])


def test_too_many_entries_are_refused() -> None:
    """A sketch longer than its bound comes from elsewhere."""
    narrow, wide = Dictionary(INTEGERS, Sum(), entries_max=1), Dictionary(INTEGERS, Sum())
    arrays = wide.to_arrow(wide.pack([{1: 1, 2: 1}]))
    with pytest.raises(ValueError, match="more than 1 entries"):
        narrow.from_arrow(arrays)
    assert len(wide.from_arrow(arrays)[0]) == 1


def test_rows_without_a_value_have_no_entry() -> None:
    """None contributes nothing."""
    monoid = Dictionary(INTEGERS, Sum())
    lifted = monoid.single(np.array([7, 8]), np.array([False, True]), (np.array([1, 2]),))
    assert monoid.unpack(lifted) == [{}, {8: 2}]
    (whole,) = monoid.single(np.array([7, 8]), None, (np.array([1, 2]),))
    assert isinstance(whole, Ragged) and monoid.unpack((whole,)) == [{7: 1}, {8: 2}]
