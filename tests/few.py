"""A few of many cases are for ``make test``; all of them are for ``make check``, but for the longest rows of cases: it
tries a share of each that its seed draws, so that a few runs try them all. ``make check CASES=all`` tries them at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def one_in(count: int, cases: Iterable[Any]) -> list[Any]:
    """Every so-many-th case, from the first; the others are for ``make check``."""
    return [case if number % count == 0 else checked(case) for number, case in enumerate(cases)]


def only(is_chosen: Callable[[Any], object], cases: Iterable[Any]) -> list[Any]:
    """The chosen cases; the others are for ``make check``."""
    return [case if is_chosen(case) else checked(case) for case in cases]


def paired(*axes: Iterable[Any]) -> list[Any]:
    """Every combination of the axes, the last of which is no longer than any other. Of three axes any two values meet
    in a chosen one, of two every value is in one; the others are for ``make check``."""
    numbered = [list(enumerate(axis)) for axis in axes]
    cases = []
    for places in product(*numbered):
        (*before, last), case = (number for number, _ in places), tuple(value for _, value in places)
        cases.append(case if last == sum(before) % len(numbered[-1]) else checked(case))
    return cases


def share(count: int, cases: Iterable[T]) -> list[T]:
    """Every so-many-th case, from one that the seed of ``make check`` draws; all where the environment says
    ``CASES=all``."""
    found = list(cases)
    return found if os.environ.get("CASES") == "all" else found[int(os.environ.get("SEED", 0)) % count :: count]


def turn(place: int, of: int) -> pytest.MarkDecorator:
    """One of several long tests that show much the same: ``make check`` runs one of them, which its seed draws."""
    return pytest.mark.turn(place, of)


def has_turn(place: int, of: int) -> bool:
    """Whether this run is the turn of that one. Without a seed, and where all cases are wanted, it always is."""
    seed = os.environ.get("SEED")
    return not seed or os.environ.get("CASES") == "all" or int(seed) % of == place


def checked(case: Any) -> Any:
    """A case for ``make check``."""
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.check)


def examples(count: int) -> int:
    """How many examples Hypothesis tries: a fifth where the environment says ``EXAMPLES=few``, as for ``make test``."""
    return max(count // 5, 10) if os.environ.get("EXAMPLES") == "few" else count
