"""Examples are values for the arguments of laws, drawn from the inputs of ``lift``.

    a, b, c     elements: one to three lifted inputs, combined; occasionally the identity
    p, q, r     elements of a group: some of the lifted inputs inverted before they are combined
    elements    up to eight elements, neighbours overlapping, the identity among them
    xs          up to eight inputs
    column      up to eight inputs of one type, as an Arrow array
    cuts        up to eight small integers: where to cut, what to take

Rows are also tested by the thousand: a few of them, repeated. Odd inputs, such as NaN and the least number, each serve
once as a, b and c, and as an element; and sums of elements are also tested on a hundred inputs.

Hypothesis draws the ``xs`` of each example. The other values are chosen from all drawn inputs by arithmetic, because
drawing costs far more than testing. A counterexample is shrunk by drawing only its own values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st

from monoids.laws.budget import BudgetSpent
from monoids.laws.terms import ArrowInputs, ElementTerm, Inputs, Repeated, inputs_in, smaller, value_of

__all__ = [
    "ElementTerm",
    "Example",
    "draws",
    "examples_of",
    "inputs_in",
    "joined_examples",
    "long",
    "smaller",
    "value_of",
    "wide",
]


Example = Mapping[str, Any]
"""Argument name to drawn value."""

ROWS_MAX = 8
WIDE_ROWS = 120
LONG_ROWS = 2_100
"""More than the 1,024 rows, groups or cells at which a kernel may change its method."""


def draws(inputs: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """For each argument name, the strategy that draws it on its own."""
    many = st.lists(inputs, min_size=1, max_size=ROWS_MAX)
    return {
        **dict.fromkeys("abc", st.lists(inputs, max_size=3).map(_combined)),
        **dict.fromkeys("pqr", st.lists(st.tuples(inputs, st.booleans()), max_size=3).map(tuple).map(ElementTerm)),
        "elements": st.lists(st.lists(inputs, max_size=2).map(_combined), min_size=1, max_size=ROWS_MAX).map(tuple),
        "xs": many.map(tuple).map(Inputs),
        "column": many.map(_of_one_type),
        "cuts": _CUTS.map(tuple),
    }


def examples_of(
    inputs: st.SearchStrategy[Any], count: int, check_budget: Callable[[], None] = lambda: None
) -> list[Example]:
    """Examples with a value for every argument of every law, the same in every process.

    ``check_budget`` is called between them: once it raises BudgetSpent, no more follow.
    """
    many = st.lists(inputs, min_size=1, max_size=ROWS_MAX)
    rows: list[list[Any]] = []

    def take(drawn: tuple[list[Any], ...]) -> None:
        rows.extend(drawn)
        # Hypothesis draws the smallest first, such as None alone.
        if len(rows) > _ROWS_LEAST:
            check_budget()

    with suppress(BudgetSpent):
        # Several at a time, because starting Hypothesis costs more than continuing.
        explore(st.tuples(*[many] * _AT_ONCE), take, -(-count // _AT_ONCE))
    rows = rows[:count]
    pool = [x for xs in rows for x in xs]
    odd = _odd(pool)
    return [_with_odd(_example(index, xs, pool), index, odd) for index, xs in enumerate(rows)]


def joined_examples(examples: Sequence[Example], name: str, size: int) -> Iterator[Example]:
    """The rows of ``name``, joined from ``size`` examples at a time, with cuts in the same places."""
    for _, alike in groupby(sorted(examples, key=lambda example: _kind(example[name])), lambda each: _kind(each[name])):
        those = list(alike)
        for at in range(0, len(those), size):
            part = those[at : at + size]
            whole = _join([example[name] for example in part])
            if isinstance(whole, ArrowInputs) and whole.array() is None:
                yield from part
            else:
                yield {name: whole, "cuts": _shifted_cuts(part, name)}


def long(examples: Sequence[Example], name: str) -> Iterator[Example]:
    """A few of the rows of ``name``, repeated: first in short segments, then in long ones."""
    xs = [x for example in examples for x in example["xs"].xs]
    few = xs[:: max(1, len(xs) // _ROWS_FEW)][:_ROWS_FEW]
    rows: Any = Inputs(tuple(few)) if name == "xs" else _overlapping(few, 0)
    if name == "column":
        rows = _of_most_common_type(few)
        if rows is None:
            return
    row_count = len(rows) if isinstance(rows, tuple) else len(rows.xs)
    for step in (2, LONG_ROWS // 3):
        yield {name: Repeated(rows, -(-LONG_ROWS // row_count)), "cuts": range(0, LONG_ROWS, step)}


def wide(examples: Sequence[Example]) -> Iterator[Example]:
    """Many inputs, as distinct as possible, every third of them twice; or sorted, so that sums grow large."""
    inputs_by_text = {repr(x): x for example in examples for x in example["xs"].xs}
    distinct = list(inputs_by_text.values())
    for size, in_order in ((WIDE_ROWS // 3, False), (WIDE_ROWS, True), (WIDE_ROWS, False)):
        sample = distinct[:: max(1, len(distinct) // size)][:size]
        full = (sample * -(-size // len(sample)))[:size]
        rows = _sorted(full) if in_order else [x for at, x in enumerate(full) for _ in range(1 + (at % 3 == 0))]
        numbers = _numbers(size)
        yield {
            "elements": tuple(_combined([x]) for x in rows),
            "cuts": tuple(next(numbers) % len(rows) for _ in range(len(rows) // 2)),
        }


# Internals.

_AT_ONCE = 4
_ROWS_FEW = 48
_ROWS_LEAST = 20
_ODD_MAX = 12
_ODD_TURNS = 4
_CUTS = st.lists(st.integers(0, ROWS_MAX - 1), max_size=ROWS_MAX)


def _of_most_common_type(xs: Sequence[Any]) -> ArrowInputs | None:
    """The inputs of the most frequent type that Arrow has arrays for; None if there are none."""
    kinds = Counter(type(x) for x in xs if x is not None)
    columns = (ArrowInputs(tuple(x for x in xs if x is None or type(x) is kind)) for kind, _ in kinds.most_common())
    return next((column for column in columns if column.array() is not None), None)


def _kind(drawn: Any) -> str:
    """The type of the values in a column. Anything else may be joined freely."""
    if not isinstance(drawn, ArrowInputs):
        return ""
    return next((type(x).__name__ for x in drawn.xs if x is not None), "")


def _join(parts: Sequence[Any]) -> Any:
    """``elements``, ``xs`` or ``column`` of several examples, concatenated."""
    if isinstance(parts[0], tuple):
        return tuple(item for part in parts for item in part)
    return type(parts[0])(tuple(x for part in parts for x in part.xs))


def _shifted_cuts(examples: Sequence[Example], name: str) -> tuple[int, ...]:
    """The cuts of each example, shifted to where its rows are now, and a cut before them."""
    cuts: list[int] = []
    start = 0
    for example in examples:
        drawn = example[name]
        rows = len(drawn if isinstance(drawn, tuple) else drawn.xs)
        cuts += [start, *(start + cut % rows for cut in example["cuts"])]
        start += rows
    return tuple(cuts)


def _example(index: int, xs: list[Any], pool: Sequence[Any]) -> Example:
    numbers = _numbers(index)

    def some() -> list[Any]:
        """None to three inputs, three of four from this example, so that equal and close ones meet."""
        size = (0, 1, 1, 1, 2, 2, 3, 3)[next(numbers) % 8]
        wheres = [xs if next(numbers) % 4 else pool for _ in range(size)]
        return [where[next(numbers) % len(where)] for where in wheres]

    return {
        **{name: _combined(some()) for name in "abc"},
        **{name: ElementTerm(tuple((x, next(numbers) % 2 == 1) for x in some())) for name in "pqr"},
        "elements": _overlapping(xs, index),
        "xs": Inputs(tuple(xs)),
        "column": _of_one_type(xs),
        "cuts": tuple(next(numbers) % ROWS_MAX for _ in range(next(numbers) % (ROWS_MAX + 1))),
    }


def _odd(pool: Sequence[Any]) -> list[Any]:
    """Inputs that a ``combine`` is likely to forget: None, and of each type the numbers that compare or add oddly, and
    the least and greatest value."""
    odd: list[Any] = [x for x in pool if x is None or (type(x) is float and (not math.isfinite(x) or x == 0))]
    for kind in dict.fromkeys(map(type, pool)):
        with suppress(Exception):
            alike: list[Any] = [x for x in pool if type(x) is kind and x == x]
            odd += [min(alike), max(alike)]
    return list({repr(x): x for x in odd}.values())[:_ODD_MAX]


def _with_odd(example: Example, index: int, odd: Sequence[Any]) -> Example:
    """The example, in one case of two with an odd input as a, b or c, or among the elements."""
    turn, at = divmod(index // 2, len(odd)) if odd else (_ODD_TURNS, 0)
    if index % 2 or turn >= _ODD_TURNS:
        return example
    alone = _combined([odd[at]])
    if turn < 3:
        return {**example, "abc"[turn]: alone}
    elements = example["elements"]
    return {**example, "elements": (*elements[: at % len(elements)], alone, *elements[at % len(elements) + 1 :])}


def _sorted(xs: list[Any]) -> list[Any]:
    try:
        return sorted(xs)
    except Exception:
        return sorted(xs, key=repr)


def _numbers(seed: int) -> Iterator[int]:
    """Well-mixed integers (SplitMix64), the same for the same seed."""
    state = seed
    while True:
        state = (state + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        yield mixed >> 31


def _combined(xs: Sequence[Any]) -> ElementTerm:
    return ElementTerm(tuple((x, False) for x in xs))


def _overlapping(xs: Sequence[Any], index: int) -> tuple[ElementTerm, ...]:
    """As many elements as inputs, from one and two inputs in turn; one of 16, another in each example, is empty."""
    return tuple(_combined(xs[row : row + 1 + row % 2] if (row + index) % 16 else ()) for row in range(len(xs)))


def _of_one_type(xs: Sequence[Any]) -> ArrowInputs:
    kind = next((type(x) for x in xs if x is not None), type(None))
    return ArrowInputs(tuple(x for x in xs if x is None or type(x) is kind))


def explore(
    strategy: st.SearchStrategy[Any], function: Callable[[Any], None], examples: int, *, shrink: bool = False
) -> None:
    """Call ``function`` with about ``examples`` examples.

    With ``shrink``, an exception of the function is raised again from the smallest example found to raise it.
    """

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        print_blob=False,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def explored(example: Any) -> None:
        function(example)

    explored()
