"""SetUnion and mapping: what the laws do not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Count, Group, Max, Mean, SetUnion, Sum, mapping, record


def test_set_union_presents_a_sorted_list_of_its_type() -> None:
    """An order of hashing would differ between processes."""
    monoid = SetUnion(int)
    columns = monoid.lift_columns(pa.array([30, None, 4, 30, 200]))
    reduced = monoid.reduce_sorted(columns, np.array([0, 1, 2]))
    assert monoid.unpack(reduced) == [frozenset({30}), frozenset(), frozenset({4, 30, 200})]
    shown = monoid.present_columns(reduced)
    assert shown.to_pylist() == [[30], [], [4, 30, 200]]
    assert shown.type == pa.list_(pa.int64())
    assert monoid.lift(True) == frozenset({1}) and [type(value) for value in monoid.lift(np.int8(1))] == [int]
    with pytest.raises(TypeError, match=r"SetUnion\(int\) takes integers, not 'a' \(str\): write SetUnion\(str\)"):
        monoid.lift("a")


def test_mapping_keys_are_told_apart_by_type() -> None:
    """As keys of a state are; a Python dict would keep whichever came first."""
    monoid = mapping(Sum())
    one, true, real = (monoid.lift({key: 1}) for key in (1, True, 1.0))
    together = monoid.combine(monoid.combine(one, true), real)
    assert len(together) == 3
    assert monoid.encode(together) == monoid.encode(monoid.combine(real, monoid.combine(true, one)))
    assert monoid.present(together) == {1: 3}
    assert monoid.present(monoid.lift({("a", None): 2, b"k": 3})) == {("a", None): 2, b"k": 3}


def test_entry_at_the_identity_is_no_entry() -> None:
    """Else taking everything back would not give the empty mapping."""
    monoid = mapping(Sum())
    assert isinstance(monoid, Group)
    some = monoid.lift({"a": 2, "b": -1, "c": 0})
    assert len(some) == 2
    assert monoid.combine(some, monoid.inverse(some)) == {} == monoid.fold([some, monoid.inverse(some)])


def test_mapping_traits_and_nesting() -> None:
    """Traits come from the inner monoid."""
    assert not isinstance(mapping(Max()), Group) and mapping(Max()).idempotent
    assert not mapping(Mean()).exact
    deep = mapping(record(n=Count(), tags=mapping(SetUnion(str))))
    element = deep.lift({"a": {"n": 1, "tags": {"x": "y"}}})
    assert deep.decode(deep.encode(element)) == element
    assert deep.present(element) == {"a": {"n": 1, "tags": {"x": ["y"]}}}
    assert deep.present_columns(deep.pack([element])).to_pylist() == ['{"a":{"n":1,"tags":{"x":["y"]}}}']


@pytest.mark.parametrize("value", [1, "a", ["a"], [("a", 1)]])
def test_mapping_takes_mappings(value: Any) -> None:
    """Word count with the word where the mapping should be."""
    with pytest.raises(TypeError, match=r"mapping\(Count\(\)\) takes mappings of key to value"):
        mapping(Count()).lift(value)


def test_mapping_folds_in_linear_time_and_changes_nothing() -> None:
    """A copy of the total for every message would be quadratic."""
    monoid = mapping(Count())
    elements = [monoid.lift({str(row % 5000): 1}) for row in range(20_000)]
    before = [dict(element) for element in elements]
    total = monoid.fold(elements)
    assert len(total) == 5000 and set(total.values()) == {4}
    assert elements == before


def test_mapping_refuses_what_is_no_monoid_or_element() -> None:
    """At construction; and corrupt bytes at decoding."""
    with pytest.raises(TypeError, match=r"write Count\(\)"):
        mapping(Count)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not of a mapping"):
        mapping(Count()).decode(Count().encode(3))
