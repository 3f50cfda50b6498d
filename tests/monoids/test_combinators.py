"""dual and contramap: what the laws do not reach."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from monoids import (
    Count,
    Group,
    ListConcat,
    Max,
    Monoid,
    Sum,
    contramap,
    dual,
    option,
)


class Path(Monoid[tuple[str, ...]]):
    """A monoid of a user's: scalar, not commutative, and lifting None is not its identity."""

    identity = ()

    def combine(self, a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
        return a + b

    def lift(self, value: Any) -> tuple[str, ...]:
        return (str(value),)


class Signed(Group[tuple[int, ...]]):
    """A free group, which does not commute: a word of letters, -n the inverse of n."""

    identity = ()

    def combine(self, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
        while a and b and a[-1] == -b[0]:
            a, b = a[:-1], b[1:]
        return a + b

    def inverse(self, a: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(-letter for letter in reversed(a))

    def lift(self, value: Any) -> tuple[int, ...]:
        return () if value is None else (value,)


def test_dual_reads_backwards() -> None:
    """Segment by segment, and only within them."""
    monoid = dual(ListConcat(int))
    columns = monoid.lift_columns(pa.array([1, 2, None, 3, 4, 5]))
    assert monoid.unpack(monoid.reduce_sorted(columns, np.array([0, 2, 3]))) == [(2, 1), (), (5, 4, 3)]
    a, b = monoid.lift(1), monoid.lift(2)
    assert monoid.combine(a, b) == ListConcat(int).combine(b, a) == monoid.fold([a, b])


def test_dual_of_cells() -> None:
    """A monoid that reduces cells by itself is given its rows from the last to the first."""

    class Ordered(Count):
        commutative = False

        def reduce_cells(self, columns: Any, cells: Any, counts: Any, held: Any) -> Any:
            first = np.zeros(len(counts), np.int64)
            first[cells[::-1]] = columns[0][::-1]
            return (first[held],)

    columns, cells = (np.array([1, 2, 3, 4]),), np.array([0, 2, 0, 2])
    counts = np.bincount(cells)
    (first,) = Ordered().reduce_cells(columns, cells, counts, np.array([0, 2]))
    assert first.tolist() == [1, 2]
    reduced = dual(Ordered()).reduce_cells(columns, cells, counts, np.array([0, 2]))
    assert reduced is not None and reduced[0].tolist() == [3, 4]


def test_dual_of_what_needs_none() -> None:
    """What commutes is its own dual, and two turns are none."""
    total, words = Sum(), ListConcat(str)
    assert dual(total) is total and dual(dual(words)) is words
    assert dual(words).fingerprint() != words.fingerprint() and repr(dual(words)) == "dual(ListConcat(str))"
    twisted = dual(Signed())
    assert isinstance(twisted, Group) and not isinstance(dual(words), Group)
    word = twisted.combine(twisted.lift(1), twisted.lift(2))
    assert word == (2, 1) and twisted.combine(word, twisted.inverse(word)) == ()


def test_contramap_prepares_and_presents() -> None:
    """Each input before, the sum after; None before and after ``prepare`` contributes nothing."""
    words = contramap(str.split, Count(), lambda n: f"{n} lines", name="lines")
    assert words.present(words.fold([words.lift("a b"), words.lift(None)])) == "1 lines"
    odd = contramap(lambda n: n if n % 2 else None, Path(), len, name="odd", output_type=pa.int64())
    assert odd.lift(2) == odd.lift(None) == ()
    columns = odd.reduce_sorted(odd.lift_columns(pa.array([1, 2, None, 5])), np.array([0]))
    assert odd.unpack(columns) == [("1", "5")]
    shown = odd.present_columns(columns)
    assert shown.to_pylist() == [2] and shown.type == pa.int64()
    assert words.present_columns(words.pack([3])).to_pylist() == ['"3 lines"']


def test_contramap_of_columns_calls_no_prepare() -> None:
    """A Python call for every row is what ``columns`` is there to avoid; it sees neither nulls nor dictionaries."""
    seen: list[pa.Array] = []

    def lengths(texts: pa.Array) -> pa.Array:
        seen.append(texts)
        return pc.utf8_length(texts)

    def refuse(text: str) -> int:
        raise AssertionError(text)

    monoid = contramap(refuse, Sum(), columns=lengths)
    texts = pa.array(["a", None, "ccc"])
    for column in (texts, pa.chunked_array([texts[:1], texts[1:]]), texts.dictionary_encode()):
        assert monoid.unpack(monoid.lift_rows(column, 3)) == [1, 0, 3]
    assert [array.to_pylist() for array in seen] == [["a", "ccc"]] * 3
    assert monoid.unpack(monoid.lift_columns(pa.nulls(2))) == [0, 0]
    numbers = np.array([1, 2])
    columns = contramap(abs, Sum(), columns=lambda array: array).lift_columns(numbers)
    numbers[:] = 9
    assert columns[0].tolist() == [1, 2]


@pytest.mark.parametrize("returned", [lambda array: array[1:], lambda array: 3, lambda array: array.to_pylist()])
def test_columns_of_another_length_are_refused(returned: Any) -> None:
    """Rows would be given to other keys."""
    with pytest.raises(ValueError, match="was given an Arrow array of 2 rows and returned"):
        contramap(abs, Sum(), columns=returned).lift_columns(pa.array([1, 2]))


def test_contramap_of_rows_with_fields() -> None:
    """Columns by name are rows for ``prepare``, as for a record."""
    total = contramap(lambda row: row["price"] * row["pieces"], Sum(), name="revenue")
    given: Mapping[str, Any] = {"price": pa.array([2, 3]), "pieces": 10}
    assert total.unpack(total.lift_rows(given, 2)) == [20, 30]
    one = {"price": 2, "pieces": 1}
    assert total.unpack(total.lift_rows(one, 2)) == [2, 2] == total.unpack(total.lift_rows(pa.scalar(one), 2))
    with pytest.raises(ValueError, match="field 'price' was given a column of 2 values for 3 rows"):
        total.lift_rows(given, 3)


def test_contramap_is_known_by_name_and_version() -> None:
    """A checkpoint outlives the code object: the same function in another process, or pickled, is the same monoid."""
    monoid = contramap(len, Sum())
    assert monoid.fingerprint() == cloudpickle.loads(cloudpickle.dumps(monoid)).fingerprint()
    shouted = contramap(lambda text: len(text) + 1, Sum(), name="shout")
    assert cloudpickle.loads(cloudpickle.dumps(shouted)).lift("ab") == 3
    prints = [
        monoid.fingerprint(),
        contramap(len, Sum(), version=2).fingerprint(),
        contramap(len, Count()).fingerprint(),
        contramap(len, Sum(), name="length").fingerprint(),
        Sum().fingerprint(),
    ]
    assert len({str(each) for each in prints}) == 5
    assert repr(contramap(len, Sum())) == "contramap(len, Sum())"
    assert repr(shouted).endswith("<lambda>, Sum(), name='shout')")
    known = {"name": "n", "version": 2, "columns": pc.binary_length, "output_type": pa.string()}
    assert repr(contramap(len, Sum(), str, **known)) == (
        "contramap(len, Sum(), str, name='n', version=2, columns=binary_length, output_type=string)"
    )


def test_contramap_of_a_group_is_one() -> None:
    """Sliding windows subtract what leaves them."""
    monoid = contramap(len, Sum())
    assert isinstance(monoid, Group) and not isinstance(contramap(len, Max()), Group)
    assert monoid.combine(monoid.lift("abc"), monoid.inverse(monoid.lift("a"))) == 2
    assert contramap(len, ListConcat(int)).commutative is False and contramap(len, Max()).idempotent


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"prepare": lambda x: x}, "give name="),
        ({"prepare": partial(max, 1)}, "give name="),
        ({"prepare": 3}, "prepare is 3: give a function"),
        ({"prepare": None}, "prepare is None: give a function"),
        ({"prepare": len, "present": "x"}, "present is 'x': give a function"),
        ({"prepare": len, "columns": 1}, "columns is 1: give a function"),
        ({"prepare": len, "version": 0}, "version=0: write an integer"),
        ({"prepare": len, "version": True}, "version=True: write an integer"),
        ({"prepare": len, "output_type": pa.int64()}, "is the Arrow type of what present returns"),
        ({"prepare": len, "present": str, "output_type": int}, "is the Arrow type of what present returns"),
        ({"prepare": len, "monoid": Sum}, r"if it returns a monoid, write Sum"),
    ],
)
def test_contramap_refuses_wrong_arguments(arguments: dict[str, Any], fault: str) -> None:
    """At once, not with the first message."""
    with pytest.raises(TypeError, match=fault):
        contramap(**{"monoid": Sum(), **arguments})


@pytest.mark.parametrize("combinator", [option, dual])
def test_combinators_take_monoids(combinator: Any) -> None:
    """A class is not one."""
    with pytest.raises(TypeError, match=r"write Count\(\)"):
        combinator(Count)
