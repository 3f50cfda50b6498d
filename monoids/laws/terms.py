"""Terms are the values that laws are tested on. They print as code, are rebuilt each time, and shrink."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa

from monoids.laws.equality import exact
from monoids.monoid import Group, Monoid

_ROWS_FEW = 48
_UNCHANGEABLE = frozenset(
    {type(None), bool, int, float, str, bytes, date, datetime, time, timedelta, Decimal, frozenset}
)


@dataclass(frozen=True)
class ElementTerm:
    """An element as an expression: lifted inputs combined in turn, each inverted first if ``back``.

    >>> ElementTerm(((1, False), (2, True))), ElementTerm(())
    (combine(lift(1), inverse(lift(2))), identity)
    """

    steps: tuple[tuple[Any, bool], ...]

    def __repr__(self) -> str:
        terms = [f"inverse(lift({x!r}))" if back else f"lift({x!r})" for x, back in self.steps]
        return reduce(lambda a, b: f"combine({a}, {b})", terms) if terms else "identity"

    def element(self, monoid: Monoid[Any]) -> Any:
        """The element, built anew; without steps, the monoid's identity."""
        if not self.steps:
            return fresh(monoid.identity)
        return reduce(monoid.combine, [_term(monoid, x, back) for x, back in self.steps])


@dataclass(frozen=True)
class Inputs:
    """Inputs as given; none, some or all of them None."""

    xs: tuple[Any, ...]

    def __repr__(self) -> str:
        return repr(list(self.xs))


@dataclass(frozen=True)
class ArrowInputs:
    """Inputs of one Python type, and None, as an Arrow array; no array if Arrow has no type for them."""

    xs: tuple[Any, ...]

    def __repr__(self) -> str:
        return f"pa.array({list(self.xs)!r})"

    def array(self) -> pa.Array | None:
        """The inputs as an Arrow array of the type that Arrow infers."""
        try:
            return pa.array(list(self.xs))
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return None


@dataclass(frozen=True)
class Repeated:
    """Rows, many times over; ``drawn`` is a tuple of elements, Inputs or ArrowInputs.

    >>> Repeated((ElementTerm(((1, False),)),), 1_000)
    [lift(1)] * 1000
    """

    drawn: Any
    times: int

    def __repr__(self) -> str:
        return f"{list(self.drawn) if isinstance(self.drawn, tuple) else self.drawn!r} * {self.times}"


def value_of(monoid: Monoid[Any], drawn: Any) -> Any:
    """The argument of a law for a drawn value."""
    if isinstance(drawn, Repeated):
        rows = value_of(monoid, drawn.drawn)
        if isinstance(rows, pa.Array):
            return pa.concat_arrays([rows] * drawn.times)
        return rows if rows is None else rows * drawn.times
    if isinstance(drawn, range):
        return list(drawn)
    if isinstance(drawn, ElementTerm):
        return drawn.element(monoid)
    if isinstance(drawn, Inputs):
        return fresh(list(drawn.xs))
    if isinstance(drawn, ArrowInputs):
        array = drawn.array()
        return array if array is None or _means(monoid, array, drawn.xs) else None
    if isinstance(drawn, tuple):
        return [value_of(monoid, item) for item in drawn]
    return drawn


def elements_of(monoid: Monoid[Any], drawn: Any) -> list[Any]:
    """The elements in a drawn value, or lifted from it."""
    if isinstance(drawn, Repeated):
        return elements_of(monoid, drawn.drawn) * drawn.times
    if isinstance(drawn, (Inputs, ArrowInputs)):
        return [monoid.lift(fresh(x)) for x in inputs_in(drawn)]
    if isinstance(drawn, tuple) and drawn and isinstance(drawn[0], ElementTerm):
        return list(value_of(monoid, drawn))
    return [value_of(monoid, drawn)] if isinstance(drawn, ElementTerm) else []


def inputs_in(drawn: Any) -> list[Any]:
    """The inputs of ``lift`` in a drawn value."""
    if isinstance(drawn, Repeated):
        return inputs_in(drawn.drawn) * drawn.times
    if isinstance(drawn, ElementTerm):
        return [x for x, _ in drawn.steps]
    if isinstance(drawn, (Inputs, ArrowInputs)):
        return list(drawn.xs)
    if isinstance(drawn, tuple):
        return [x for item in drawn for x in inputs_in(item)]
    return []


def fresh(value: Any) -> Any:
    """A deep copy, fast for plain values; immutable values are not copied."""
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    if kind is tuple:
        copies = [fresh(item) for item in value]
        return value if all(copied is item for copied, item in zip(copies, value)) else tuple(copies)
    if kind is list:
        return [fresh(item) for item in value] if len(value) <= _ROWS_FEW else _fresh_rows(value)
    if kind is dict:
        return {key: fresh(item) for key, item in value.items()}
    if kind is set:
        return set(value)
    return copy.deepcopy(value)


def smaller(drawn: Any) -> Iterator[Any]:
    """The drawn value without a half or a single part, in every way."""
    if isinstance(drawn, Repeated):
        yield from _smaller_repeated(drawn)
    elif isinstance(drawn, range):
        yield from (range(0, stop, drawn.step) for stop in _fewer(drawn.stop, 0))
    elif isinstance(drawn, ElementTerm):
        yield from (ElementTerm(steps) for steps in _less(drawn.steps))
    elif isinstance(drawn, (Inputs, ArrowInputs)):
        yield from (type(drawn)(xs) for xs in _less(drawn.xs) if xs)
    elif isinstance(drawn, tuple):
        yield from (less for less in _less(drawn) if less or isinstance(drawn[0], int))
        for at, item in enumerate(drawn):
            for less in smaller(item):
                yield (*drawn[:at], less, *drawn[at + 1 :])


def _fresh_rows(rows: list[Any]) -> list[Any]:
    """Copies of many elements, most of which occur many times."""
    rows_by_id = {id(row): row for row in rows}
    plain = {key for key, row in rows_by_id.items() if fresh(row) is row}
    return [row if id(row) in plain else fresh(row) for row in rows]


def _term(monoid: Monoid[Any], x: Any, back: bool) -> Any:
    lifted = fresh(monoid.lift(fresh(x)))  # lift may return the identity object itself
    return monoid.inverse(lifted) if back and isinstance(monoid, Group) else lifted


def _means(monoid: Monoid[Any], array: pa.Array, xs: Sequence[Any]) -> bool:
    """Whether the rows equal the inputs. Arrow fills in fields that a mapping omits, turns keys into text, and
    integers beside floats into floats; to some monoids these are other inputs, or none."""
    if not pa.types.is_nested(array.type):
        return True
    others = [(x, y) for x, y in zip(xs, array.to_pylist()) if x is not None and not exact(x, y)]
    try:
        return all(exact(monoid.lift(fresh(x)), monoid.lift(y)) for x, y in others)
    except (TypeError, ValueError, AttributeError):
        return False


def _smaller_repeated(drawn: Repeated) -> Iterator[Repeated]:
    """As many rows of fewer kinds, then fewer rows."""
    rows = drawn.drawn if isinstance(drawn.drawn, tuple) else drawn.drawn.xs
    for less in smaller(drawn.drawn):
        row_count = len(less if isinstance(less, tuple) else less.xs)
        yield Repeated(less, -(-drawn.times * len(rows) // row_count))
    yield from (Repeated(drawn.drawn, times) for times in _fewer(drawn.times, 1))


def _fewer(count: int, least: int) -> Iterator[int]:
    """A half, three quarters, seven eighths and so on of a count, then one less."""
    less = count - least
    while less:
        less //= 2
        yield count - max(1, less)


def _less(items: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    middle = len(items) // 2
    if middle > 1:
        yield items[:middle]
        yield items[middle:]
    for at in range(len(items)):
        yield items[:at] + items[at + 1 :]
