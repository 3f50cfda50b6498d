"""Options: what the laws do not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Bag, Count, Group, Mean, Monoid, SetUnion, Sum, encoding, mapping, option, record


class Path(Monoid[tuple[str, ...]]):
    """A monoid of a user's: scalar, not commutative, and lifting None is not its identity."""

    identity = ()

    def combine(self, a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
        return a + b

    def lift(self, value: Any) -> tuple[str, ...]:
        return (str(value),)


def test_nothing_is_told_apart_from_zero() -> None:
    """That is what an option is for."""
    monoid = option(Sum())
    columns = monoid.lift_columns(pa.array([None, None, 0, None, 3, -3]))
    shown = monoid.present_columns(monoid.reduce_sorted(columns, np.array([0, 2, 4])))
    assert shown.to_pylist() == [None, 0, 0] and shown.type == pa.int64()
    assert [monoid.present(x) for x in ((), monoid.lift(0))] == [None, 0]
    assert not isinstance(monoid, Group)


@pytest.mark.parametrize(
    "column",
    [
        [None, "a", "b"],
        np.array([None, "a", "b"], object),
        pa.array([None, "a", "b"]),
        pa.array(["x", None, "a", "b"])[1:],
        pa.chunked_array([pa.array([None, "a"]), pa.array(["b"])]),
        pa.array([None, "a", "b"]).dictionary_encode(),
    ],
    ids=lambda column: str(getattr(column, "type", type(column).__name__)),
)
def test_none_never_reaches_the_lift_of_the_monoid(column: Any) -> None:
    """A monoid of a user's may make something of None."""
    monoid = option(Path())
    assert monoid.unpack(
        monoid.lift_rows(column, 3) if not isinstance(column, list) else monoid.lift_columns(column)
    ) == [
        (),
        (("a",),),
        (("b",),),
    ]
    assert monoid.lift(None) == ()
    assert monoid.unpack(monoid.lift_columns([None])) == monoid.unpack(monoid.lift_columns(pa.nulls(1))) == [()]


def test_rows_with_fields_are_something() -> None:
    """What the monoid takes as rows, a record of columns or one value for all, its option takes too."""
    monoid = option(record(a=Sum(), b=Count()))
    given = {"a": pa.array([1, None]), "b": None}
    assert monoid.unpack(monoid.lift_rows(given, 2)) == [((1, 0),), ((0, 0),)]
    assert monoid.unpack(monoid.lift_rows({"a": 1}, 2)) == [((1, 0),)] * 2
    assert monoid.unpack(monoid.lift_rows(None, 2)) == monoid.unpack(monoid.lift_rows(pa.scalar(None), 2)) == [()] * 2
    columns = option(Sum()).reduce_sorted(option(Sum()).lift_rows(2, 3), np.array([0, 1]))
    assert option(Sum()).unpack(columns) == [(2,), (4,)]


def test_masked_and_missing_numbers_are_nothing_and_nan_is_something() -> None:
    """NumPy writes nothing in three ways."""
    masked = np.ma.MaskedArray(np.array([1, 2]), [True, False])
    assert option(Sum()).unpack(option(Sum()).lift_columns(masked)) == [(), (2,)]
    times = np.array(["NaT", "2024-01-01"], "M8[us]")
    assert option(Count()).unpack(option(Count()).lift_columns(times)) == [(), (1,)]
    assert option(Count()).unpack(option(Count()).lift_columns(np.array([np.nan]))) == [(1,)]


def test_an_option_is_shown_in_the_type_of_its_monoid_or_as_json() -> None:
    """A column of JSON where a part of it would be."""
    for monoid, values, expected in (
        (option(SetUnion(str)), ["a", None], [["a"], None]),
        (option(Bag(int)), [1, None], [[{"value": 1, "count": 1}], None]),
        (option(record(a=Sum())), [{"a": 1}, None], [{"a": 1}, None]),
        (option(mapping(Sum(), key=str)), [{"a": 1}, None], [[("a", 1)], None]),
        (option(mapping(Sum())), [{"a": 1}, None], ['{"a":1}', "null"]),
        (option(record(a=mapping(Sum()))), [{"a": {"b": 1}}, None], ['{"a":{"b":1}}', "null"]),
    ):
        shown = monoid.present_columns(monoid.lift_columns(values))
        assert shown.to_pylist() == expected and shown.type == (monoid.output_type or pa.string())


def test_an_option_in_an_option_has_its_own_names() -> None:
    """Two columns of one name could not be told apart in a file."""
    monoid = option(option(Mean()))
    assert len(set(monoid.schema.names)) == len(monoid.schema.names) == 4
    elements = [(), ((),), (((1, 2.0),),)]
    assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(monoid.pack(elements)))) == elements
    assert [monoid.decode(monoid.encode(element)) for element in elements] == elements


@pytest.mark.parametrize("value", [3, (1,), (b"i\x01\x01", b"i\x01\x01"), (b"?",), [b"i\x01\x01"]])
def test_bytes_of_something_else_are_no_option(value: Any) -> None:
    """They would be nothing, or something, by chance."""
    with pytest.raises(ValueError, match="encod"):
        option(Sum()).decode(encoding.encode(value))


def test_a_stored_nothing_that_holds_something_is_refused() -> None:
    """It would come to light with the next combine."""
    with pytest.raises(ValueError, match=r"option\(Sum\(\)\): an element marked as nothing holds a value"):
        option(Sum()).from_arrow([pa.array([True, False]), pa.array([1, 1])])
    with pytest.raises(ValueError, match="an element is null"):
        option(Sum()).from_arrow([pa.array([True, None]), pa.array([1, 1])])
