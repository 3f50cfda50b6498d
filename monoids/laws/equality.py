"""An equality decides whether the two sides of a law are the same.

    exact              the same types and values all the way down; NaN equals NaN, -0.0 equals 0.0
    within(c)          floats may differ by a rounding error: c * n * epsilon * magnitude
    statistical(...)   presented estimates may differ by the margin of Hoeffding's inequality

A monoid with ``exact = True`` is compared by ``exact``, any other by ``within()``, unless the user says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from types import FunctionType
from typing import Any, Protocol

import numpy as np

EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Scale:
    """The size of the sums in a law.

    ``terms``: how many floats are added. ``magnitude``: the sum of their absolute values. ``depth``: how many lists
    are around the elements in the sides (-1: they hold no elements). ``present``: the monoid's ``present``.
    """

    terms: int
    magnitude: float
    depth: int
    present: Callable[[Any], Any]


class Equality(Protocol):
    """Whether two sides are the same, given the scale of what was added, computed on demand."""

    def __call__(self, left: Any, right: Any, scale: Callable[[], Scale], /) -> bool: ...


def exact(left: Any, right: Any, scale: Callable[[], Scale] | None = None, /) -> bool:
    """The same types and the same values all the way down. NaN equals NaN, -0.0 equals 0.0, 1 is not True.

    Compares inside tuples, lists, dicts, sets, NumPy arrays and dataclasses. TypeError for objects of a class without
    ``__eq__``.

    >>> exact((1, float("nan")), (1, float("nan"))), exact([1], [1.0]), exact(1, True)
    (True, False, False)
    """
    kind = type(left)
    if kind is not type(right):
        return False
    if kind is list or kind is tuple:
        return len(left) == len(right) and all(map(exact, left, right))
    if kind in _PLAIN:
        return bool(left == right)
    return _same(left, right, _identical)


@dataclass(frozen=True)
class within:
    """Floats are equal if they differ by at most ``c * n * epsilon * magnitude``; all else is compared exactly.

    ``n`` is the number of added floats, plus one; ``epsilon`` is 2**-52; ``magnitude`` is the sum of the absolute
    values of the floats in the lifted inputs, plus that of the larger result. Any order of adding n floats errs by at
    most (n - 1) * epsilon * magnitude (Higham, Accuracy and Stability of Numerical Algorithms, 4.2), so c = 1 covers a
    sum; the rest is for arithmetic of several steps. An infinite magnitude allows anything; NaN equals only NaN.

    >>> assert within()(0.1 + 0.2, 0.3, lambda: Scale(2, 0.3, 0, float))
    >>> assert not within()(0.3001, 0.3, lambda: Scale(2, 0.3, 0, float))
    """

    c: float = 64.0

    def __post_init__(self) -> None:
        if not self.c > 0:
            raise ValueError(f"within({self.c!r}): the factor of the error bound is positive, such as within(64)")

    def __call__(self, left: Any, right: Any, scale: Callable[[], Scale], /) -> bool:
        if exact(left, right):
            return True
        sizes = scale()
        return self._close(left, right, self.c * (sizes.terms + 1) * EPSILON, sizes.magnitude)

    def _close(self, left: Any, right: Any, relative: float, magnitude: float) -> bool:
        def close(a: Any, b: Any) -> bool:
            if isinstance(a, complex):
                return close(a.real, b.real) and close(a.imag, b.imag)
            larger = max((abs(x) for x in (a, b) if math.isfinite(x)), default=0.0)
            bound = relative * (magnitude + larger)
            return _identical(a, b) or bound == math.inf or bool(abs(a - b) <= bound)

        return _same(left, right, close)


def hoeffding_margin(span: float, trials: int, failure: float = 1e-9) -> float:
    """How far two means of ``trials`` independent values, from an interval as wide as ``span``, may differ.

    Two such means with equal expectation differ by more than ``span * sqrt(log(2 / failure) / trials)`` with
    probability ``failure`` at most (Hoeffding 1963, theorem 2, on the 2 * trials terms of the difference).

    >>> round(hoeffding_margin(1.0, 10_000), 4)
    0.0463
    """
    if not (span > 0 and trials >= 1 and 0 < failure < 1):
        raise ValueError(
            f"hoeffding_margin({span!r}, {trials!r}, {failure!r}): the span is positive, trials are 1 or more, and "
            "the probability of failure is between 0 and 1"
        )
    return span * math.sqrt(math.log(2 / failure) / trials)


@dataclass(frozen=True)
class statistical:
    """Elements are equal if their estimates differ by at most ``hoeffding_margin(span, trials, failure)``.

    For sketches that draw at random, or whose losses depend on the order of combining: an estimate is the mean of
    ``trials`` independent values, each from an interval as wide as ``span``. ``estimate`` reads it from an element, by
    default ``present``; None, from an element without an estimate, equals only None. ``failure`` bounds the probability
    that one comparison fails by chance: with the default and 200 examples of 40 laws, one run in 100,000 fails. Sides
    that hold no elements (bytes, presented columns) are compared exactly.

    >>> halves = statistical(span=1.0, trials=10_000)
    >>> halves(0.5, 0.51, lambda: Scale(0, 0.0, 0, float)), halves(0.5, 0.6, lambda: Scale(0, 0.0, 0, float))
    (True, False)
    """

    span: float
    trials: int
    failure: float = 1e-9
    estimate: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        hoeffding_margin(self.span, self.trials, self.failure)

    def __call__(self, left: Any, right: Any, scale: Callable[[], Scale], /) -> bool:
        sizes = scale()
        return self._near(left, right, sizes.depth, self.estimate or sizes.present)

    def _near(self, left: Any, right: Any, depth: int, estimate: Any) -> bool:
        if depth < 0:
            return exact(left, right)
        if depth > 0:
            return len(left) == len(right) and all(self._near(a, b, depth - 1, estimate) for a, b in zip(left, right))
        first, second = estimate(left), estimate(right)
        if first is None or second is None:
            return first is None and second is None
        return bool(abs(float(first) - float(second)) <= hoeffding_margin(self.span, self.trials, self.failure))


def magnitudes(element: Any) -> list[float]:
    """The absolute values of the finite floats in an element."""
    if isinstance(element, _FLOATS):
        size: Any = abs(element)
        return [float(size)] if np.isfinite(size) else []
    return [size for item in _items(element) for size in magnitudes(item)]


# Internals.

_PLAIN = frozenset({int, bool, str, bytes, type(None)})
_FLOATS = (float, complex, np.inexact)
Close = Callable[[Any, Any], bool]


def _identical(left: Any, right: Any) -> bool:
    """Equal floats, where NaN equals NaN."""
    return bool(left == right or (left != left and right != right))


def _same(left: Any, right: Any, close: Close) -> bool:
    """The same types all the way down, floats as near as ``close`` allows, all else equal."""
    kind = type(left)
    if kind is not type(right):
        return False
    if isinstance(left, _FLOATS):
        return close(left, right)
    if isinstance(left, (tuple, list)):
        return len(left) == len(right) and all(_same(a, b, close) for a, b in zip(left, right))
    if isinstance(left, dict) and left.keys() == right.keys():
        return all(_same(value, right[key], close) for key, value in left.items())
    if isinstance(left, np.ndarray):
        return _same_arrays(left, right, close)
    if isinstance(left, Decimal):
        return str(left) == str(right) if left.is_nan() or right.is_nan() else left == right
    if _compares_fields(kind):
        return _same(_items(left), _items(right), close)
    if "__eq__" not in {name for each in kind.__mro__[:-1] for name in vars(each)} and left is not right:
        raise TypeError(f"two objects of {kind.__name__} cannot be compared: define __eq__, or make it a @dataclass")
    return bool(left == right) or (isinstance(left, (set, frozenset, dict)) and _same_unordered(left, right, close))


def _same_arrays(left: Any, right: Any, close: Close) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if left.dtype.kind in "Ofc" and not (left.dtype.kind != "O" and np.array_equal(left, right, equal_nan=True)):
        return all(_same(a, b, close) for a, b in zip(left.ravel().tolist(), right.ravel().tolist()))
    return bool(np.array_equal(left, right, equal_nan=left.dtype.kind in "fcmM"))


def _same_unordered(left: Any, right: Any, close: Close) -> bool:
    """Sets and dicts with items that do not equal themselves: each item has a partner in the other."""
    rest = list(right.items() if isinstance(right, dict) else right)
    for item in left.items() if isinstance(left, dict) else left:
        at = next((at for at, partner in enumerate(rest) if _same(item, partner, close)), None)
        if at is None:
            return False
        del rest[at]
    return not rest


def _compares_fields(kind: type) -> bool:
    """Whether its ``__eq__`` is the one that ``@dataclass`` generates."""
    equals: Any = kind.__eq__
    return is_dataclass(kind) and isinstance(equals, FunctionType) and equals.__code__.co_filename == "<string>"


def _items(element: Any) -> list[Any]:
    """The parts of an element: its items, its values, or the fields that are compared."""
    if isinstance(element, dict):
        return list(element.values())
    if isinstance(element, (tuple, list)):
        return list(element)
    if isinstance(element, np.ndarray):
        return list(element.ravel().tolist()) if element.dtype.kind in "fcO" else []
    if is_dataclass(element) and not isinstance(element, type):
        return [getattr(element, each.name) for each in fields(element) if each.compare]
    return []
