"""A snapshot does not change with its original."""

from __future__ import annotations

import collections
import datetime
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids.monoid import Monoid
from monoids.scalars import snapshot


@dataclass
class Reading:
    values: list[int] = field(default_factory=lambda: [1])


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1},
        {"a": {"b": [1]}},
        [1, [2]],
        ([1], 2),
        {1},
        bytearray(b"x"),
        np.arange(2),
        np.zeros(()),
        Reading(),
        collections.defaultdict(list, a=[1]),
        collections.Counter("a"),
        collections.deque([1]),
    ],
    ids=str,
)
def test_what_can_change_is_copied(value: Any) -> None:
    """A value that a task uses again would count as its last one."""
    taken = snapshot(value)
    assert type(taken) is type(value) and repr(taken) == repr(value) and taken is not value
    before = repr(taken)
    inner = value[0] if isinstance(value, tuple) else value
    if isinstance(inner, dict):
        inner.update(a=7)
    elif isinstance(inner, np.ndarray):
        inner += 1
    elif isinstance(inner, Reading):
        inner.values.append(7)
    else:
        inner.clear()
    assert repr(taken) == before != repr(value)


@pytest.mark.parametrize(
    "value",
    [None, True, 1, 1.5, "a", b"a", (1, ("a",)), frozenset({1}), datetime.date(2024, 1, 1), np.int64(1), pa.scalar(1)],
    ids=str,
)
def test_what_cannot_change_is_not_copied(value: Any) -> None:
    """Updates by numbers would be slower for nothing."""
    assert snapshot(value) is value


def test_what_cannot_be_copied_is_refused_in_words() -> None:
    """It would count as whatever it holds later."""
    with pytest.raises(TypeError, match=r"can change later, and cannot be copied.*give its plain values"):
        snapshot(threading.Lock())


class Merging(Monoid[dict[str, int]]):
    """Its elements are the dicts that it is given."""

    identity: dict[str, int] = {}

    def combine(self, a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
        return {**a, **b}


@pytest.mark.parametrize("column", [list, lambda values: np.array(values, object)], ids=["list", "array"])
def test_elements_are_not_the_inputs_of_a_column(column: Any) -> None:
    """A dict that is changed after ``update_batch`` would change the state."""
    value = {"a": 1}
    lifted, one = Merging().lift_columns(column([value])), Merging().lift_rows(value, 1)
    value["a"] = 2
    assert Merging().unpack(lifted) == Merging().unpack(one) == [{"a": 1}]
