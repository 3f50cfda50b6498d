"""Monoids as newcomers write them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from monoids import Group, Monoid

INTS = st.integers()


EXAMPLES = 12


def written(
    combine: Callable[[Any, Any], Any],
    identity: Any,
    lift: Callable[[Any], Any] | None = None,
    present: Callable[[Any], Any] | None = None,
    **traits: Any,
) -> Monoid[Any]:
    """A monoid as a beginner writes it: a class with these in its body."""
    body: dict[str, Any] = {"identity": identity, "combine": lambda self, a, b: combine(a, b), **traits}
    if lift is not None:
        body["lift"] = lambda self, x: lift(x)
    if present is not None:
        body["present"] = lambda self, element: present(element)
    made: Monoid[Any] = type("Mine", (Monoid,), body)()
    return made


def add(a: Any, b: Any) -> Any:
    return a + b


def counters(a: dict[Any, int], b: dict[Any, int]) -> dict[Any, int]:
    return {key: a.get(key, 0) + b.get(key, 0) for key in {**a, **b}}


COMMUTES = {"commutative": True, "idempotent": True}


def ends(a: Any) -> Any:
    return a if len(a) <= 30 else a[:15] + a[-14:]


class Slow(Group[int]):
    """Takes its time."""

    identity = 0
    commutative = True
    wrong = False
    seconds = 0.02

    def combine(self, a: int, b: int) -> int:
        time.sleep(self.seconds)
        return a + b + (self.wrong and a > 1)

    def inverse(self, a: int) -> int:
        return -a
