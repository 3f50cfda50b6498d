"""Records: fields side by side, each columnar or scalar by itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Count, Group, Max, Mean, Min, Monoid, SetUnion, Sum, mapping, record
from monoids.column import is_constant


class Concatenated(Monoid[str]):
    """A user's monoid whose lift does not take None."""

    identity = ""

    def lift(self, value: str) -> str:
        return value.upper()

    def combine(self, a: str, b: str) -> str:
        return a + b


def plain(monoid: Monoid[Any], rows: list[Any]) -> list[Any]:
    return [monoid.lift(row) for row in rows]


def test_traits_are_the_conjunction() -> None:
    """A record of a group and a maximum cannot be taken back."""
    both = record(a=Max(), b=Count())
    assert not isinstance(both, Group) and both.commutative and not both.idempotent and both.exact
    assert isinstance(record(a=Sum(), b=mapping(Count())), Group)
    assert record(a=Max(), b=SetUnion(str)).idempotent
    assert not record(a=Sum(), b=Mean()).exact
    assert not record(a=Sum(), b=Concatenated()).commutative


def test_fields_are_columns_constants_or_left_out() -> None:
    """This is what update_batch takes."""
    monoid = record(n=Count(), total=Sum(), low=Min(float), text=Concatenated())
    columns = monoid.lift_rows({"total": np.array([1, 2]), "n": 1, "text": pa.array(["a", "b"])}, 2)
    assert monoid.unpack(columns) == [(1, 1, None, "A"), (1, 2, None, "B")]
    assert is_constant(columns[0]) and not is_constant(columns[1]) and is_constant(columns[2])
    assert monoid.unpack(monoid.lift_rows({}, 2)) == [monoid.identity] * 2
    assert monoid.unpack(monoid.lift_rows(None, 2)) == [monoid.identity] * 2
    assert monoid.unpack(monoid.lift_rows({"total": pa.scalar(4), "n": None}, 1)) == [(0, 4, None, "")]


def test_a_list_is_a_column() -> None:
    """As one value for every row it would be counted once a row, or refused."""
    assert mapping(Sum()).unpack(mapping(Sum()).lift_rows({"a": 1}, 2)) == plain(mapping(Sum()), [{"a": 1}] * 2)
    total = record(total=Sum())
    assert total.unpack(total.lift_rows({"total": [1, 2]}, 2)) == plain(total, [{"total": 1}, {"total": 2}])


@pytest.mark.parametrize("given", [np.array([1, 2, 3]), pa.array([1, 2, 3]), pa.chunked_array([[1, 2], [3]])])
def test_lengths_must_agree(given: Any) -> None:
    """Rows must not shift against their timestamps."""
    with pytest.raises(ValueError, match="field 'total' was given a column of 3 values for 4 rows"):
        record(total=Sum()).lift_rows({"total": given}, 4)
    with pytest.raises(ValueError, match="column of 3 values for 4 rows"):
        Sum().lift_rows(given, 4)


def test_lists_of_mappings_equal_the_scalar_lift() -> None:
    """What process_message collects; the fast path and the one with holes."""
    monoid = record(n=Count(), total=Sum(), text=Concatenated())
    full = [{"n": 1, "total": 2, "text": "a"}, {"text": "b", "n": None, "total": None}]
    holes = [{"n": 1}, None, {"text": "c", "total": 5}, {}, {"text": "d"}]
    for rows in (full, holes, [None], [{}], [], full + holes):
        assert monoid.unpack(monoid.lift_list(rows)) == plain(monoid, rows)


def test_struct_arrays_equal_the_scalar_lift() -> None:
    """Nested fields of a file are structs; a null struct contributes nothing."""
    monoid = record(n=Count(), inner=record(total=Sum(), high=Max(str)))
    rows = [
        {"n": 1, "inner": {"total": 3, "high": "x"}},
        {"n": None, "inner": None},
        None,
        {"n": 2, "inner": {"total": 1}},
    ]
    column = pa.array(rows)
    for way in (column, pa.chunked_array([column[:1], column[1:]]), pa.concat_arrays([column, column])[4:]):
        assert monoid.unpack(monoid.lift_rows(way, 4)) == plain(monoid, rows)
    assert record(text=Concatenated()).unpack(
        record(text=Concatenated()).lift_columns(pa.array([None, {"text": "a"}]))
    ) == [
        ("",),
        ("A",),
    ]


@pytest.mark.parametrize(
    "give",
    [
        lambda m: m.lift({"total": 1, "totl": 2}),
        lambda m: m.lift_rows({"totl": np.array([1])}, 1),
        lambda m: m.lift_list([{"total": 1}, {"total": 1, "totl": 2}]),
        lambda m: m.lift_list([{"totl": 1}]),
        lambda m: m.lift_columns(pa.array([{"totl": 1}])),
    ],
)
def test_unknown_field_raises_with_the_known_ones(give: Any) -> None:
    """A misspelt field would silently count nothing."""
    with pytest.raises(ValueError, match="unknown field 'totl': the record's fields are n, total"):
        give(record(n=Count(), total=Sum()))


@pytest.mark.parametrize("given", [3, "n", (("n", 1),)])
def test_what_is_no_mapping_raises(given: Any) -> None:
    """`state.update(t, 1)` on a record."""
    monoid = record(n=Count())
    for give in (monoid.lift, lambda value: monoid.lift_rows(value, 2), lambda value: monoid.lift_list([value])):
        with pytest.raises(TypeError, match=r"a record takes a mapping of its fields \(n\)"):
            give(given)


def test_schema_and_outputs_are_flat_by_name() -> None:
    """State files and sinks have these columns."""
    monoid = record(n=Count(), mean=Mean(), inner=record(a=Max(str), b=Mean()), words=mapping(Sum()))
    assert monoid.schema.names == ["n", "mean.count", "mean.sum", "inner.a", "inner.b.count", "inner.b.sum", "words"]
    assert {name: str(type) for name, type in monoid.output_fields().items()} == {
        "n": "int64",
        "mean": "double",
        "inner": "struct<a: string, b: double>",
        "words": "string",
    }
    rows = [{"n": 1, "mean": 4, "inner": {"a": "x", "b": 1}, "words": {"w": 2}}, {}]
    columns = monoid.lift_list(rows)
    shown = {name: column.to_pylist() for name, column in monoid.present_fields(columns).items()}
    assert shown == {
        "n": [1, 0],
        "mean": [4.0, None],
        "inner": [{"a": "x", "b": 1.0}, {"a": None, "b": None}],
        "words": ['{"w":2}', "{}"],
    }
    assert monoid.present(monoid.lift(rows[0])) == {
        "n": 1,
        "mean": 4.0,
        "inner": {"a": "x", "b": 1.0},
        "words": {"w": 2},
    }
    assert pa.record_batch(monoid.to_arrow(columns), schema=monoid.schema).num_rows == 2


def test_scalar_field_does_not_slow_its_neighbours() -> None:
    """One user-written monoid must not turn the other columns into Python objects."""
    monoid = record(n=Count(), text=Concatenated(), total=Sum(float))
    columns = monoid.lift_rows({"n": 1, "text": "a", "total": np.ones(5)}, 5)
    reduced = monoid.reduce_sorted(columns, np.array([0, 2]))
    assert [column.dtype.kind for column in columns] == [column.dtype.kind for column in reduced] == ["i", "O", "f"]
    assert monoid.unpack(reduced) == [(2, "AA", 2.0), (3, "AAA", 3.0)]


def test_malformed_records_are_refused() -> None:
    """At construction, with the field."""
    with pytest.raises(ValueError, match="at least one field"):
        record()
    with pytest.raises(ValueError, match=r"'a.b' is empty or holds"):
        record(**{"a.b": Count()})
    with pytest.raises(ValueError, match="''"):
        record(**{"": Count()})
    with pytest.raises(TypeError, match=r"field 'n': Count is a class, .*write Count\(\)"):
        record(n=Count)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="field 'n': 0 is not a monoid"):
        record(n=0)  # type: ignore[arg-type]


def test_order_of_fields_is_part_of_the_fingerprint() -> None:
    """Columns are stored in it."""
    assert record(a=Sum(), b=Count()).fingerprint() != record(b=Count(), a=Sum()).fingerprint()
    assert record(a=Sum()).fingerprint() != record(b=Sum()).fingerprint()
    assert record(a=record(b=Sum())).fingerprint() != record(a=record(b=Count())).fingerprint()


def test_element_of_another_record_is_refused() -> None:
    """Corrupt or foreign bytes never become a state."""
    with pytest.raises(ValueError, match="has 2 fields"):
        record(a=Sum()).decode(record(a=Sum(), b=Sum()).encode((1, 2)))
    with pytest.raises(ValueError, match="not of a record"):
        record(a=Sum()).decode(Sum().encode(3))
    with pytest.raises(ValueError, match="corrupt"):
        record(a=Sum()).decode(b"\xff")


def test_nan_in_a_record_is_stored_once() -> None:
    """Canonical bytes hold through the record."""
    monoid = record(low=Min(float))
    assert monoid.encode(monoid.lift({"low": -math.nan})) == monoid.encode(monoid.lift({"low": math.nan}))


def test_stored_columns_of_uneven_lengths_are_refused() -> None:
    """Rows of which a field is missing would be read as those of others."""
    monoid = record(n=Count(), total=Sum())
    with pytest.raises(ValueError, match="its columns differ in length: \\[2, 1\\] rows"):
        monoid.from_arrow([pa.array([1, 2]), pa.array([1])])
