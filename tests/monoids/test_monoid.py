"""A monoid of one's own: the scalar fallback, and the columns that all share."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Count, Group, Max, Monoid, Sum, record
from monoids.column import concat, is_constant, object_column, repeat, take
from monoids.laws.instances import INSTANCES
from monoids.monoid import check, is_column


class Longest(Monoid[str]):
    identity = ""
    calls = 0

    def combine(self, a: str, b: str) -> str:
        type(self).calls += 1
        return b if len(b) > len(a) else a


class Merging(Monoid[dict[str, int]]):
    @property
    def identity(self) -> dict[str, int]:  # type: ignore[override]
        return {}

    def combine(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        return {**a, **b}


class Updating(Merging):
    def combine(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        a.update(b)
        return a


def test_three_lines_are_a_monoid() -> None:
    """This is all that a user has to write."""
    monoid = Longest()
    columns = monoid.lift_columns(pa.array(["a", "ccc", "bb", "d"]))
    reduced = monoid.reduce_sorted(columns, np.array([0, 3]))
    assert monoid.unpack(monoid.from_arrow(monoid.to_arrow(reduced))) == ["ccc", "d"]
    assert monoid.present_columns(reduced).to_pylist() == ['"ccc"', '"d"']
    assert monoid.output_fields() == {"value": pa.string()}
    assert monoid.fingerprint()["name"] == "Longest" and repr(monoid) == "Longest()"
    assert not (monoid.commutative or monoid.idempotent) and monoid.exact


def test_single_rows_are_not_folded() -> None:
    """Most groups of most steps have one row."""
    Longest.calls = 0
    monoid = Longest()
    monoid.reduce_sorted(monoid.pack(["a"] * 100), np.arange(100))
    monoid.reduce_sorted(monoid.pack(["a"] * 5), np.array([0, 1, 3, 4]))
    assert Longest.calls == 1


def test_order_is_kept() -> None:
    """A monoid that does not commute folds from the left."""

    class Joined(Monoid[str]):
        identity = ""

        def combine(self, a: str, b: str) -> str:
            return a + b

    monoid = Joined()
    assert monoid.unpack(monoid.reduce_sorted(monoid.pack(list("abcdef")), np.array([0, 1, 4]))) == ["a", "bcd", "ef"]


def test_combine_that_mutates_is_found() -> None:
    """It would change elements that other panes and keys share."""
    monoid = Updating()
    columns = monoid.pack([{"a": 1}, {"b": 1}, {"c": 1}])
    with pytest.raises(TypeError, match=r"Updating\(\): combine\(a, b\) changes one of its operands.*'return a \| b'"):
        monoid.reduce_sorted(columns, np.array([0, 1]))
    with pytest.raises(TypeError, match="changes one of its operands"):
        both = record(n=Count(), m=monoid)
        both.reduce_sorted(both.lift_list([{"m": {"a": 1}}, {"m": {"b": 1}}]), np.array([0]))
    assert monoid.unpack(monoid.reduce_sorted(columns, np.arange(3))) == monoid.unpack(columns)


def test_combine_that_changes_the_identity_is_found() -> None:
    """A class attribute is one object for all."""

    class Growing(Monoid[list[int]]):
        identity: list[int] = []

        def combine(self, a: list[int], b: list[int]) -> list[int]:
            self.identity.append(1)
            return a + b

    with pytest.raises(TypeError, match="changes one of its operands"):
        Growing().reduce_sorted(Growing().pack([[1], [2]]), np.array([0]))


def incomplete(**attributes: Any) -> Monoid[Any]:
    made = type("Mine", (attributes.pop("parent", Monoid),), attributes)()
    assert isinstance(made, Monoid)
    return made


def add(self: Any, a: Any, b: Any) -> Any:
    return a + b


@pytest.mark.parametrize(
    ("monoid", "message"),
    [
        (Count, r"Count is a class, but a monoid is an instance: write Count\(\)"),
        (3, "3 is not a monoid: use Sum"),
        (incomplete(identity=0), r"Mine does not define combine\(self, a, b\)"),
        (incomplete(combine=add), "Mine has no identity: .*'identity = 0'"),
        (incomplete(combine=add, identity=0, parent=Group), r"Mine does not define inverse\(self, a\)"),
        (incomplete(combine=add, identity=object()), "cannot be encoded: an object of type object has no canonical"),
        (incomplete(combine=add, identity=np.int64(0)), r"cannot be encoded: .*write value.item\(\)"),
        (incomplete(combine=add, identity=0, decode=lambda self, data: 1), "decodes to a different element"),
        (incomplete(combine=add, identity=1), r"combine\(identity, identity\) is not the identity 1"),
    ],
)
def test_unusable_monoids_are_refused_at_construction(monoid: Any, message: str) -> None:
    """Not in the middle of the first step."""
    with pytest.raises(TypeError, match=message):
        check(monoid)


def test_usable_monoids_pass() -> None:
    """And a property serves as the identity."""
    for monoid in (Longest(), Merging(), Sum(), Max(str), record(a=Merging())):
        check(monoid)


def test_take_and_concat_keep_constants() -> None:
    """A count of rows stays free through grouping and merging."""
    columns = (*repeat((np.array([7]),), 4), np.arange(4), *repeat((object_column([[1, 2]]),), 4))
    taken = take(columns, np.array([3, 0]))
    assert [column.tolist() for column in taken] == [[7, 7], [3, 0], [[1, 2], [1, 2]]]
    assert [is_constant(column) for column in taken] == [True, False, True]
    joined = concat([columns, taken])
    assert [len(column) for column in joined] == [6, 6, 6]
    assert [is_constant(column) for column in joined] == [True, False, True]
    other = concat([columns[:1], repeat((np.array([8]),), 2)])
    assert other[0].tolist() == [7, 7, 7, 7, 8, 8]
    assert concat([take(columns, np.zeros(0, np.int64)), columns])[1].tolist() == [0, 1, 2, 3]
    assert all(len(column) == 0 for column in take(columns, np.zeros(0, np.int64)))
    wide = (np.arange(6).reshape(3, 2),)
    assert take(wide, np.array([2]))[0].tolist() == [[4, 5]]
    assert repeat(wide, 2)[0].tolist() == [[0, 1], [0, 1]]


def test_object_columns_hold_any_object() -> None:
    """NumPy would unpack lists and arrays."""
    column = object_column([[1, 2], [3, 4], (5, 6), np.zeros(2), {}])
    assert column.shape == (5,) and column[0] == [1, 2] and column[2] == (5, 6)
    assert object_column([]).shape == (0,)


def test_what_is_a_column() -> None:
    """pyarrow and NumPy arrays are, anything else is one value."""
    assert all(map(is_column, ([1], np.zeros(1), pa.array([1]), pa.chunked_array([[1]]))))
    assert not any(map(is_column, ((1,), {1}, "ab", 1, np.int64(1), np.array(1), pa.scalar(1), None)))
    assert Sum().unpack(Sum().lift_rows(np.array(2), 3)) == [2, 2, 2]
    assert Merging().unpack(Merging().lift_rows({"a": 1}, 2)) == [{"a": 1}] * 2


def test_import_of_monoids_loads_neither_hypothesis_nor_pyspark() -> None:
    """Workers import it in every process."""
    code = "import sys, monoids; print({'hypothesis', 'pyspark', 'persistent', 'pandas'} & set(sys.modules))"
    path = ":".join(filter(None, sys.path))
    ran = subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}, check=True, capture_output=True)
    assert ran.stdout.decode().strip() == "set()"


@pytest.mark.parametrize("monoid", [monoid for monoid, _ in INSTANCES], ids=repr)
def test_columns_of_another_schema_are_refused(monoid: Monoid[Any]) -> None:
    """State of another monoid read as this one's is a wrong number, or an error that names neither."""
    foreign = [pa.array([[["x"]]])] * len(monoid.schema)
    for arrays in (foreign, [], [*foreign, *foreign]):
        with pytest.raises(ValueError, match="these columns belong to another monoid"):
            monoid.from_arrow(arrays)
