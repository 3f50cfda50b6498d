"""Mappings: what the laws do not reach."""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monoids import Bag, Count, Group, ListConcat, Max, Mean, Monoid, SetUnion, Sum, encoding, mapping, option, record
from monoids.column import ArrowColumn


def test_mapping_keys_are_told_apart_by_type() -> None:
    """As keys of a state are; a Python dict would keep whichever came first."""
    monoid = mapping(Sum())
    one, true, real = (monoid.lift({key: 1}) for key in (1, True, 1.0))
    together = monoid.combine(monoid.combine(one, true), real)
    assert len(together) == 3
    assert monoid.encode(together) == monoid.encode(monoid.combine(real, monoid.combine(true, one)))
    assert monoid.present(together) == {1: 3}
    assert monoid.present(monoid.lift({("a", None): 2, b"k": 3, None: 1})) == {None: 1, ("a", None): 2, b"k": 3}
    columns = monoid.reduce_sorted(monoid.lift_columns([{1: 1}, {True: 1}, {1.0: 1}]), np.array([0]))
    assert monoid.unpack(columns) == [together]


def test_entry_at_the_identity_is_no_entry() -> None:
    """Else taking everything back would not give the empty mapping."""
    monoid = mapping(Sum())
    assert isinstance(monoid, Group)
    some = monoid.lift({"a": 2, "b": -1, "c": 0})
    assert len(some) == 2
    assert monoid.combine(some, monoid.inverse(some)) == {} == monoid.fold([some, monoid.inverse(some)])
    (table,) = monoid.reduce_sorted(monoid.pack([some, monoid.inverse(some)]), np.array([0]))
    assert table.entries == 0 == len(table.columns[0])


def test_rounding_leaves_an_entry() -> None:
    """Whether it is there must not depend on the order of adding; an input of nothing makes none."""
    monoid = mapping(Sum(float))
    assert not isinstance(monoid, Group)
    some, none = monoid.lift({"a": 1.0}), monoid.lift({"a": None, "b": 0.0})
    assert none == {} == monoid.unpack(monoid.lift_columns([{"a": None, "b": 0.0}]))[0]
    assert monoid.present(monoid.combine(some, monoid.lift({"a": -1.0}))) == {"a": 0.0}
    (reduced,) = monoid.unpack(monoid.reduce_sorted(monoid.lift_columns([{"a": 1.0}, {"a": -1.0}]), np.array([0])))
    assert monoid.present(reduced) == {"a": 0.0}


def test_mapping_traits_and_nesting() -> None:
    """Traits come from the inner monoid."""
    assert not isinstance(mapping(Max()), Group) and mapping(Max()).idempotent
    assert not mapping(Mean()).exact and not mapping(ListConcat(int)).commutative
    deep = mapping(record(n=Count(), tags=mapping(SetUnion(str))))
    element = deep.lift({"a": {"n": 1, "tags": {"x": "y"}}})
    assert deep.decode(deep.encode(element)) == element
    assert deep.present(element) == {"a": {"n": 1, "tags": {"x": ["y"]}}}
    assert deep.present_columns(deep.pack([element])).to_pylist() == ['{"a":{"n":1,"tags":{"x":["y"]}}}']


@pytest.mark.parametrize("value", [1, "a", ["a"], [["a", 1]], [("a", 1, 2)], ("a", 1)])
def test_mapping_takes_mappings(value: Any) -> None:
    """Word count with the word where the mapping should be."""
    for attempt in (mapping(Count()).lift, lambda value: mapping(Count()).lift_list([value])):
        with pytest.raises(TypeError, match=r"mapping\(Count\(\)\) takes mappings of key to value"):
            attempt(value)
    with pytest.raises(TypeError, match=r"takes columns of mappings \(Arrow map or struct\), not "):
        mapping(Count()).lift_columns(pa.array([value if isinstance(value, (int, str)) else "a"]))


def test_mapping_folds_in_linear_time_and_changes_nothing() -> None:
    """A copy of the total for every message would be quadratic."""
    monoid = mapping(Count())
    elements = [monoid.lift({str(row % 5000): 1}) for row in range(20_000)]
    before = [dict(element) for element in elements]
    total = monoid.fold(elements)
    assert len(total) == 5000 and set(total.values()) == {4}
    assert elements == before


def test_mapping_refuses_what_is_no_monoid() -> None:
    """At construction."""
    with pytest.raises(TypeError, match=r"write Count\(\)"):
        mapping(Count)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"mapping\(list\): write one of .*str"):
        mapping(Count(), key=list)


@pytest.mark.parametrize(
    ("monoid", "value"),
    [
        (mapping(Count()), 3),
        (mapping(Count()), {"a": b"i\x01\x01"}),
        (mapping(Count()), {b"a": b"i\x01\x01"}),
        (mapping(Count()), {encoding.encode("a"): 1}),
        (mapping(Count()), {encoding.encode("a"): encoding.encode(0)}),
        (mapping(Count()), {encoding.encode("a"): b"?"}),
        (mapping(Count(), key=int), {True: encoding.encode(1)}),
        (mapping(Count(), key=float), {-0.0: encoding.encode(1)}),
        (mapping(Count(), key=int), {"a": encoding.encode(1)}),
    ],
)
def test_bytes_of_something_else_are_no_mapping(monoid: Monoid[Any], value: Any) -> None:
    """Equal mappings have equal bytes: no entry at the identity, no key that is written another way."""
    with pytest.raises(ValueError, match="encod"):
        monoid.decode(encoding.encode(value))


ROWS = [{"a": 1, "b": None}, None, {"a": 0, "b": 5}, {"a": 7, "b": -2}]
PAIRS = [None if row is None else list(row.items()) for row in ROWS]
STRUCTS = pa.array(ROWS)
MAPS = pa.array(PAIRS, pa.map_(pa.string(), pa.int64()))


@pytest.mark.parametrize("monoid", [mapping(Sum()), mapping(Sum(), key=str)], ids=repr)
@pytest.mark.parametrize(
    "column",
    [
        ROWS,
        np.array(ROWS, object),
        STRUCTS,
        MAPS,
        pa.concat_arrays([STRUCTS, STRUCTS])[4:],
        pa.concat_arrays([MAPS, MAPS])[4:],
        pa.chunked_array([STRUCTS[:1], STRUCTS[1:]]),
        pa.chunked_array([MAPS[:3], MAPS[3:]]),
    ],
    ids=lambda column: str(getattr(column, "type", type(column).__name__)),
)
def test_every_column_of_mappings_is_lifted(monoid: Monoid[Any], column: Any) -> None:
    """Null is no mapping, a null item no contribution; slices and chunks begin where they begin."""
    expected = [monoid.lift(row) for row in ROWS]
    assert [len(element) for element in expected] == [1, 0, 1, 2]
    assert monoid.unpack(monoid.lift_columns(column)) == expected


def test_a_slice_of_maps_begins_where_it_begins() -> None:
    """Arrow keeps the entries before it."""
    monoid = mapping(Sum())
    for column in (MAPS[2:], STRUCTS[2:]):
        assert monoid.unpack(monoid.lift_columns(column)) == [monoid.lift(row) for row in ROWS[2:]]
    other = pa.array([[("x", 1)], [("y", 2)], [("z", 3)]], MAPS.type)
    assert monoid.unpack(monoid.lift_columns(other[1:2])) == [monoid.lift({"y": 2})]


def test_a_null_map_that_has_entries_has_none() -> None:
    """Arrow may leave entries under a null."""
    maps = pa.MapArray.from_arrays(
        pa.array([0, 1, 2, 3], pa.int32()),
        pa.array(["a", "b", "c"]),
        pa.array([1, 2, 3]),
        mask=pa.array([False, True, False]),
    )
    monoid = mapping(Sum())
    assert [monoid.present(e) for e in monoid.unpack(monoid.lift_columns(maps))] == [{"a": 1}, {}, {"c": 3}]


def test_no_rows_and_no_columns() -> None:
    """An empty batch, and one of nulls without a type."""
    monoid = mapping(Sum(), key=str)
    assert len(monoid.lift_columns(MAPS[:0])[0]) == 0 == len(monoid.lift_columns([])[0])
    for nothing in (pa.nulls(2), pa.array([{}, None]), [{}, None]):
        columns = monoid.lift_columns(nothing)
        assert monoid.unpack(columns) == [{}, {}]
        assert monoid.unpack(monoid.reduce_sorted(columns, np.array([0]))) == [{}]


def test_a_key_that_comes_twice_in_a_map_is_summed() -> None:
    """An Arrow map may repeat a key, and a dict may hold NaN twice; the last would silently win."""
    twice = pa.array([[("a", 1), ("b", 5), ("a", 2)], [("a", 3), ("a", -3)]], pa.map_(pa.string(), pa.int64()))
    monoid = mapping(Sum())
    for column in (twice, twice.to_pylist()):
        shown = [monoid.present(element) for element in monoid.unpack(monoid.lift_columns(column))]
        assert shown == [{"a": 3, "b": 5}, {}] == [monoid.present(monoid.lift(pairs)) for pairs in twice.to_pylist()]
    holes = {float("nan"): 1, math.nan: 2}
    for by in (mapping(Sum()), mapping(Sum(), key=float)):
        assert list(by.lift(holes).values()) == [3] == list(by.unpack(by.lift_columns([holes]))[0].values())


def test_items_may_be_columns_beside_values_for_every_row() -> None:
    """As the fields of a record are."""
    monoid = mapping(Sum())
    lifted = monoid.lift_rows({"a": pa.array([1, 0, 3]), "b": 5}, 3)
    assert [monoid.present(e) for e in monoid.unpack(lifted)] == [{"a": 1, "b": 5}, {"b": 5}, {"a": 3, "b": 5}]
    assert monoid.unpack(monoid.lift_rows({"a": 1}, 2)) == [monoid.lift({"a": 1})] * 2
    for value in (MAPS[0], STRUCTS[0]):
        assert monoid.unpack(monoid.lift_rows(value, 2)) == [monoid.lift({"a": 1})] * 2
    with pytest.raises(ValueError, match="key 'a' was given a column of 3 values for 2 rows"):
        monoid.lift_rows({"a": np.arange(3), "b": 1}, 2)


@given(st.lists(st.tuples(st.integers(0, 4), st.dictionaries(st.integers(-2, 2), st.integers(-3, 3))), min_size=1))
def test_grouped_columns_are_dicts_of_sums(rows: list[tuple[int, dict[int, int]]]) -> None:
    """The table of all groups' keys, compared with dicts of sums."""
    rows.sort(key=lambda row: row[0])
    groups = sorted({group for group, _ in rows})
    sums: dict[int, dict[int, int]] = {group: defaultdict(int) for group in groups}
    for group, entries in rows:
        for key, value in entries.items():
            sums[group][key] += value
    expected = [{key: total for key, total in sorted(sums[group].items()) if total} for group in groups]
    for monoid in (mapping(Sum()), mapping(Sum(), key=int)):
        columns = monoid.lift_columns([entries for _, entries in rows])
        reduced = monoid.reduce_sorted(columns, np.searchsorted([group for group, _ in rows], groups))
        assert [monoid.present(element) for element in monoid.unpack(reduced)] == expected


def test_a_key_has_its_inputs_in_their_order() -> None:
    """An inner monoid that does not commute would see another history."""
    monoid = mapping(ListConcat(int))
    rows = [{f"key{(row * row) % 7}": row, "all": row} for row in range(200)]
    columns = monoid.reduce_sorted(monoid.lift_columns(rows), np.array([0, 50]))
    for element, span in zip(monoid.unpack(columns), (rows[:50], rows[50:])):
        kept = monoid.present(element)
        assert kept["all"] == [row["all"] for row in span]
        assert kept["key1"] == [row["key1"] for row in span if "key1" in row]
    assert monoid.reduce_cells(monoid.lift_columns(rows), np.zeros(200, np.int64), np.array([200]), np.array([0]))


def test_keys_are_bytes_in_a_column_and_no_objects() -> None:
    """A Python object for each key is what a table is there to avoid."""
    (table,) = mapping(Sum()).lift_columns(MAPS)
    keys, values = table.columns
    assert isinstance(keys, ArrowColumn) and keys.array.type == pa.binary()
    assert values.dtype == np.int64
    (typed,) = mapping(Sum(), key=int).lift_columns([{3: 1}])
    assert typed.columns[0].dtype == np.int64


def test_typed_keys_are_shown_as_an_arrow_map() -> None:
    """A reader of the output file gets numbers by key rather than JSON."""
    monoid = mapping(record(n=Count(), tags=SetUnion(str)), key=datetime)
    instant = datetime(2024, 1, 1, tzinfo=UTC)
    (total,) = monoid.unpack(monoid.lift_columns([{instant: {"n": 1, "tags": "x"}}]))
    assert monoid.present(total) == {instant: {"n": 1, "tags": ["x"]}}
    shown = monoid.present_columns(monoid.pack([total, {}]))
    assert shown.type == monoid.output_type and pa.types.is_map(shown.type)
    assert shown.to_pylist() == [[(instant, {"n": 1, "tags": ["x"]})], []]
    assert mapping(mapping(Count()), key=str).output_type is None
    assert mapping(record(m=mapping(Count())), key=str).output_type is None
    assert mapping(option(Bag(int)), key=str).output_type == pa.map_(pa.string(), Bag(int).output_type)


def test_typed_keys_are_of_their_type() -> None:
    """And a checkpoint of one type of key is not read as another's."""
    monoid = mapping(Sum(), key=str)
    assert repr(monoid) == "mapping(Sum(), key=str)" and repr(mapping(Sum(), key=int)) == "mapping(Sum(), key=int)"
    for attempt in (monoid.lift, lambda value: monoid.lift_columns([value])):
        for key in (3, None):
            with pytest.raises(TypeError, match=r"mapping\(Sum\(\), key=str\) takes strings, not"):
                attempt({key: 1})
    assert mapping(Sum(), key=float).lift({1: 2, math.nan: 3, -0.0: 4}) == {1.0: 2, math.nan: 3, 0.0: 4}
    prints = [m.fingerprint() for m in (mapping(Sum()), monoid, mapping(Sum(), key=int), mapping(Max(), key=str))]
    assert len({str(each) for each in prints}) == 4


def test_stored_entries_are_checked() -> None:
    """A null key, or keys out of order, cannot be of this monoid."""
    monoid = mapping(Sum(), key=int)
    type_ = monoid.schema.field(0).type
    for entries, fault in (
        ([{"key": 2, "value": 1}, {"key": 1, "value": 1}], "not in key order"),
        ([{"key": 1, "value": 1}, {"key": 1, "value": 1}], "not in key order"),
    ):
        with pytest.raises(ValueError, match=fault):
            monoid.from_arrow([pa.array([entries], type_)])


@pytest.mark.parametrize(
    ("monoid", "rows", "fault"),
    [
        (mapping(Sum()), [[{"key": encoding.encode("a"), "value": 0}]], "an entry holds the identity"),
        (mapping(Max(), key=str), [[{"key": b"a", "value": None}]], "an entry holds the identity"),
        (mapping(SetUnion(int), key=int), [[{"key": 1, "value": [2]}, {"key": 2, "value": []}]], "holds the identity"),
        (mapping(record(a=Sum(), b=Max())), [[{"key": encoding.encode(1), "a": 0, "b": None}]], "holds the identity"),
        (mapping(Sum()), [[{"key": b"zz", "value": 1}]], "is not as this monoid writes it"),
        (mapping(Sum(), key=str), [[{"key": b"\xff", "value": 1}]], "not UTF-8"),
    ],
)
def test_stored_entries_of_another_hand_are_refused(monoid: Any, rows: Any, fault: str) -> None:
    """Equal mappings have equal bytes in a file, and every key can be presented."""
    with pytest.raises(ValueError, match=fault):
        monoid.from_arrow([pa.array(rows, monoid.schema.field(0).type)])


def test_an_entry_at_zero_is_kept_where_rounding_decides() -> None:
    """Whether a sum of floats is exactly 0 depends on the order of its inputs."""
    monoid = mapping(Sum(float))
    columns = monoid.pack([{encoding.encode("a"): 0.0}])
    assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(columns))) == [{encoding.encode("a"): 0.0}]


def test_a_field_may_be_called_key() -> None:
    """Two fields of one name are refused by readers of Arrow and Parquet."""
    monoid = mapping(record(key=Sum(), value=Max()))
    names = [field.name for field in monoid.schema.field(0).type.value_type]
    assert len(set(names)) == len(names) == 3
    element = monoid.lift({"a": {"key": 2, "value": 3}})
    assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(monoid.pack([element])))) == [element]


def test_keys_that_read_alike_are_both_presented() -> None:
    """A reader of JSON keeps one of two entries with one name."""
    monoid = mapping(Count())
    assert monoid.present_columns(monoid.lift_columns([{1: 1, "1": 1, "a": 1}])).to_pylist() == [
        '[["1",1],["a",1],[1,1]]'
    ]
