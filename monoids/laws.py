"""The laws are functions of a monoid and some of its elements that return the two sides of an equation.

``LAWS`` is the catalogue. ``assert_monoid_laws`` tries each on examples drawn by Hypothesis and raises the first
that is broken, with its smallest counterexample:

    class TestLongest:
        def test_laws(self):
            assert_monoid_laws(Longest(), strategies.text())
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky

from monoids import encoding
from monoids.monoid import Columns, Group, Monoid, arrow_column, repeat
from monoids.record import RecordMonoid

Sides = tuple[Any, Any]
M = Monoid[Any]


class LawViolation(AssertionError):
    """A monoid breaks a law: ``law`` its name, ``bindings`` the counterexample."""

    def __init__(self, message: str, law: str, bindings: dict[str, Any]) -> None:
        super().__init__(message)
        self.law = law
        self.bindings = bindings


# The laws. The names of their arguments say what is drawn for them: see ``_draws``.


def no_mutation(monoid: M, a: Any, b: Any) -> Sides:
    before = copy.deepcopy((a, b, monoid.identity))
    monoid.combine(a, b)
    monoid.present(a)
    if isinstance(monoid, Group):
        monoid.inverse(a)
    return before, (a, b, monoid.identity)


def left_identity(monoid: M, a: Any) -> Sides:
    return monoid.combine(monoid.identity, a), a


def right_identity(monoid: M, a: Any) -> Sides:
    return monoid.combine(a, monoid.identity), a


def associativity(monoid: M, a: Any, b: Any, c: Any) -> Sides:
    return monoid.combine(monoid.combine(a, b), c), monoid.combine(a, monoid.combine(b, c))


def commutativity(monoid: M, a: Any, b: Any) -> Sides:
    return monoid.combine(a, b), monoid.combine(b, a)


def idempotence(monoid: M, a: Any) -> Sides:
    return monoid.combine(a, a), a


def inverse(monoid: Group[Any], a: Any) -> Sides:
    there, back = monoid.combine(a, monoid.inverse(a)), monoid.combine(monoid.inverse(a), a)
    return (there, back), (monoid.identity, monoid.identity)


def reached_associativity(monoid: M, p: Any, q: Any, r: Any) -> Sides:
    return associativity(monoid, p, q, r)


def any_tree(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    return _tree(monoid, elements, cuts), reduce(monoid.combine, elements)


def fold_is_combine(monoid: M, elements: list[Any]) -> Sides:
    return monoid.fold(elements), reduce(monoid.combine, elements)


def serializer_round_trip(monoid: M, a: Any) -> Sides:
    return monoid.decode(monoid.encode(a)), a


def serializer_homomorphism(monoid: M, a: Any, b: Any) -> Sides:
    stored = [monoid.decode(monoid.encode(element)) for element in (a, b)]
    return monoid.combine(*stored), monoid.combine(a, b)


def canonical_bytes(monoid: M, a: Any, b: Any, c: Any) -> Sides:
    left, right = associativity(monoid, a, b, c)
    if monoid.commutative:
        right = monoid.combine(monoid.combine(b, c), a)
    return (monoid.encode(left), _stored(monoid, left)), (monoid.encode(right), _stored(monoid, right))


def lift_columns(monoid: M, xs: list[Any]) -> Sides:
    return monoid.unpack(monoid.lift_columns(xs)), [monoid.lift(x) for x in xs]


def lift_arrow(monoid: M, xs: list[Any]) -> Sides:
    column = _arrow(xs)
    if column is None:
        return None, None
    lifted = [monoid.lift(x) for x in column.to_pylist()]
    sliced = pa.concat_arrays([column, column]).slice(len(xs))
    ways = (column, sliced, pa.chunked_array([column.slice(0, 1), column.slice(1)]))
    return [monoid.unpack(monoid.lift_rows(way, len(xs))) for way in ways], [lifted] * len(ways)


def lift_constant(monoid: M, xs: list[Any]) -> Sides:
    return monoid.unpack(monoid.lift_rows(xs[0], len(xs))), [monoid.lift(xs[0])] * len(xs)


def reduce_columns(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    starts = _starts(len(elements), cuts)
    stops = [*starts[1:], len(elements)]
    reduced = monoid.reduce_sorted(monoid.pack(elements), np.array(starts, np.int64))
    return monoid.unpack(reduced), [reduce(monoid.combine, elements[i:j]) for i, j in zip(starts, stops)]


def reduce_constant(monoid: M, a: Any, cuts: list[int]) -> Sides:
    rows = len(cuts) + 1
    starts = _starts(rows, cuts)
    sizes = np.diff([*starts, rows])
    reduced = monoid.reduce_sorted(repeat(monoid.pack([a]), rows), np.array(starts, np.int64))
    return monoid.unpack(reduced), [reduce(monoid.combine, [a] * size) for size in sizes]


def reduce_cells(monoid: M, elements: list[Any], cuts: list[int]) -> Sides:
    cells = np.array([(row * 5 + sum(cuts)) % (len(cuts) + 2) for row in range(len(elements))], np.int64)
    counts = np.bincount(cells, minlength=len(cuts) + 3)
    held = np.flatnonzero(counts)
    reduced = monoid.reduce_cells(monoid.pack(elements), cells, counts, held)
    if reduced is None:
        return None, None
    rows = [[element for element, at in zip(elements, cells) if at == cell] for cell in held]
    return monoid.unpack(reduced), [reduce(monoid.combine, of_cell) for of_cell in rows]


def present_columns(monoid: M, elements: list[Any]) -> Sides:
    columns = monoid.pack(elements)
    shown = {name: column.to_pylist() for name, column in monoid.present_fields(columns).items()}
    types = {name: column.type for name, column in monoid.present_fields(columns).items()}
    return (shown, types), (_presented(monoid, elements), monoid.output_fields())


def arrow_round_trip(monoid: M, elements: list[Any]) -> Sides:
    arrays = monoid.to_arrow(monoid.pack([*elements, *elements]))
    sliced = [array.slice(len(elements)) for array in arrays]
    both = [monoid.unpack(monoid.from_arrow(way)) for way in (arrays, sliced)]
    return (both, [array.type for array in arrays]), ([[*elements, *elements], elements], monoid.schema.types)


@dataclass(frozen=True)
class Law:
    """``formula``: its two sides in words; ``function``: gives them; ``applies``: to which monoids."""

    name: str
    formula: str
    function: Callable[..., Sides]
    applies: Callable[[M], bool]


def _always(monoid: M) -> bool:
    return True


def _commutes(monoid: M) -> bool:
    return monoid.commutative


def _is_idempotent(monoid: M) -> bool:
    return monoid.idempotent


def _is_exact(monoid: M) -> bool:
    return monoid.exact


def _is_group(monoid: M) -> bool:
    return isinstance(monoid, Group)


_ASSOCIATIVITY = "combine(combine({0}, {1}), {2}) == combine({0}, combine({1}, {2}))"

LAWS: tuple[Law, ...] = (
    Law("no mutation", "operands before == operands after combine, present, inverse", no_mutation, _always),
    Law("left identity", "combine(identity, a) == a", left_identity, _always),
    Law("right identity", "combine(a, identity) == a", right_identity, _always),
    Law("associativity", _ASSOCIATIVITY.format("a", "b", "c"), associativity, _always),
    Law("commutativity", "combine(a, b) == combine(b, a)", commutativity, _commutes),
    Law("idempotence", "combine(a, a) == a", idempotence, _is_idempotent),
    Law("inverse", "combine(a, inverse(a)), combine(inverse(a), a) == identity, identity", inverse, _is_group),
    Law("reached associativity", _ASSOCIATIVITY.format("p", "q", "r"), reached_associativity, _is_group),
    Law("any tree", "the fold as any tree == the fold from the left", any_tree, _always),
    Law("fold", "fold(elements) == the fold from the left", fold_is_combine, _always),
    Law("serializer round trip", "decode(encode(a)) == a", serializer_round_trip, _always),
    Law("serializer homomorphism", "combine of decoded a, b == combine(a, b)", serializer_homomorphism, _always),
    Law("canonical bytes", "bytes of a + b + c == bytes of it in another order", canonical_bytes, _is_exact),
    Law("columnar lift", "unpack(lift_columns(xs)) == [lift(x) for x in xs]", lift_columns, _always),
    Law("columnar lift of Arrow", "unpack(lift_rows(Arrow xs)) == [lift(x) for x in xs]", lift_arrow, _always),
    Law("columnar lift of one value", "unpack(lift_rows(x, n)) == [lift(x)] * n", lift_constant, _always),
    Law("columnar reduce", "reduce_sorted(pack(elements)) == the fold of each segment", reduce_columns, _always),
    Law("columnar reduce of one value", "reduce_sorted(n times a) == folds of n times a", reduce_constant, _always),
    Law("columnar reduce by cells", "reduce_cells(pack(elements)) == the fold of each cell", reduce_cells, _commutes),
    Law("columnar present", "present_columns(pack(elements)) == each presented", present_columns, _always),
    Law("columnar round trip", "from_arrow(to_arrow(columns)) == columns", arrow_round_trip, _always),
)


def assert_monoid_laws(monoid: M, inputs: st.SearchStrategy[Any], *, examples: int = 200) -> None:
    """Raise ``LawViolation`` for the first law of the catalogue that ``monoid`` breaks.

    ``inputs``: draws what ``lift`` takes; let it draw None too if None may come. ``examples``: how many each law
    is tried on, the same every time. A monoid that is not exact is compared within a rounding error. TypeError
    for wrong arguments.
    """
    if not isinstance(monoid, Monoid):
        raise TypeError(f"assert_monoid_laws takes a monoid first, such as Sum(), not {monoid!r}")
    if not isinstance(inputs, st.SearchStrategy):
        raise TypeError(
            "assert_monoid_laws takes a Hypothesis strategy of inputs of lift second, such as"
            f" strategies.integers(), not {inputs!r}"
        )
    if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
        raise TypeError(f"examples= is a number of examples, 1 or more, not {examples!r}")
    drawn = _drawn(inputs, examples)
    for law in LAWS:
        if not law.applies(monoid):
            continue
        for example in drawn:
            violation = _violation(law, monoid, example)
            if violation is not None:
                smallest = _smallest(law, monoid, inputs) or violation
                raise smallest from smallest.__cause__


def _drawn(inputs: st.SearchStrategy[Any], examples: int) -> list[dict[str, Any]]:
    """Examples for every argument of every law: drawing costs more than trying."""
    drawn: list[dict[str, Any]] = []
    _explore(st.fixed_dictionaries(_draws(inputs)), drawn.append, examples, Phase.generate)
    return drawn


def _smallest(law: Law, monoid: M, inputs: st.SearchStrategy[Any]) -> LawViolation | None:
    """The violation with the smallest operands; None if the monoid does not break the law every time."""
    found: list[LawViolation] = []

    def holds(example: dict[str, Any]) -> None:
        violation = _violation(law, monoid, example)
        if violation is not None:
            found.append(violation)
            raise violation from violation.__cause__

    draws = _draws(inputs)
    own = {name: draws[name] for name in _arguments(law)}
    try:
        _explore(st.fixed_dictionaries(own), holds, 200, Phase.generate, Phase.shrink)
    except (LawViolation, Flaky):
        # Hypothesis ends with the smallest; or, if the law breaks now and then, with one that was seen.
        return found[-1]
    return None


def _explore(strategy: st.SearchStrategy[Any], function: Callable[[Any], None], examples: int, *phases: Phase) -> None:
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def explored(example: Any) -> None:
        function(example)

    explored()


def _arguments(law: Law) -> list[str]:
    return list(inspect.signature(law.function).parameters)[1:]


def _violation(law: Law, monoid: M, example: dict[str, Any]) -> LawViolation | None:
    bindings = {name: example[name] for name in _arguments(law)}
    try:
        values = {name: _value(monoid, value) for name, value in bindings.items()}
        left, right = law.function(monoid, **values)
        if _same(left, right) if monoid.exact else _close(left, right, _bound(monoid, bindings)):
            return None
    except Exception as error:
        violation = LawViolation(
            _head(law, monoid, bindings) + f"\n  raises {type(error).__name__}: {error}", law.name, bindings
        )
        violation.__cause__ = error
        return violation
    sides = law.formula.split(" == ")
    shown = f"\n  {sides[0]}: {left!r}\n  {sides[1]}: {right!r}"
    return LawViolation(_head(law, monoid, bindings) + shown, law.name, bindings)


def _head(law: Law, monoid: M, bindings: dict[str, Any]) -> str:
    shown = "".join(f"\n  {name} = {value!r}" for name, value in bindings.items())
    return f"{monoid!r} breaks {law.name!r}: {law.formula}{shown}"


# What is drawn.


@dataclass(frozen=True)
class _Reached:
    """An element as it was reached: lifted inputs, each combined or, where ``back``, its inverse combined."""

    steps: Sequence[tuple[Any, bool]]

    def __repr__(self) -> str:
        terms = [f"inverse(lift({x!r}))" if back else f"lift({x!r})" for x, back in self.steps]
        return reduce(lambda a, b: f"combine({a}, {b})", terms)

    def element(self, monoid: M) -> Any:
        return reduce(monoid.combine, [self._term(monoid, x, back) for x, back in self.steps])

    def _term(self, monoid: M, x: Any, back: bool) -> Any:
        lifted = monoid.lift(copy.deepcopy(x))
        return monoid.inverse(lifted) if back and isinstance(monoid, Group) else lifted


def _draws(inputs: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    """For each name of a law's argument the strategy that draws it."""
    combined = st.lists(inputs, min_size=1, max_size=3).map(_combined)
    inverted = st.lists(st.tuples(inputs, st.booleans()), min_size=1, max_size=3).map(_Reached)
    return {
        **dict.fromkeys(("a", "b", "c"), combined),
        **dict.fromkeys(("p", "q", "r"), inverted),
        "elements": st.lists(inputs, min_size=1, max_size=8).map(_overlapping),
        "xs": st.lists(inputs, min_size=1, max_size=8),
        "cuts": st.lists(st.integers(0, 7), max_size=8),
    }


def _combined(xs: list[Any]) -> _Reached:
    return _Reached([(x, False) for x in xs])


def _overlapping(xs: list[Any]) -> list[_Reached]:
    """As many elements as inputs, of one and of two inputs in turn."""
    return [_combined(xs[row : row + 1 + row % 2]) for row in range(len(xs))]


def _value(monoid: M, drawn: Any) -> Any:
    if isinstance(drawn, _Reached):
        return drawn.element(monoid)
    if isinstance(drawn, list) and drawn and isinstance(drawn[0], _Reached):
        return [reached.element(monoid) for reached in drawn]
    return copy.deepcopy(drawn)


def _tree(monoid: M, elements: list[Any], cuts: list[int]) -> Any:
    """The fold that combines, for each cut, the two neighbours there, then what is left from the right."""
    level = list(elements)
    for cut in cuts:
        if len(level) > 1:
            at = cut % (len(level) - 1)
            level[at : at + 2] = [monoid.combine(level[at], level[at + 1])]
    return reduce(lambda right, left: monoid.combine(left, right), reversed(level))


def _starts(rows: int, cuts: list[int]) -> list[int]:
    return sorted({0, *(cut % rows for cut in cuts)})


def _arrow(xs: list[Any]) -> pa.Array | None:
    """Inputs as an Arrow array, None if Arrow has no type for them."""
    try:
        return pa.array(xs)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _stored(monoid: M, element: Any) -> bytes:
    columns: Columns = monoid.pack([element])
    batch = pa.record_batch(monoid.to_arrow(columns), schema=monoid.schema)
    return bytes(batch.serialize())


def _presented(monoid: M, elements: list[Any]) -> dict[str, list[Any]]:
    """What ``present_fields`` is to show, from ``present`` alone."""
    if not isinstance(monoid, RecordMonoid):
        return {"value": _shown(monoid, elements)}
    return {
        name: _shown(part, [element[index] for element in elements])
        for index, (name, part) in enumerate(monoid.fields.items())
    }


def _shown(monoid: M, elements: list[Any]) -> list[Any]:
    if isinstance(monoid, RecordMonoid):
        fields = _presented(monoid, elements)
        return [dict(zip(fields, row)) for row in zip(*fields.values())]
    presented = [monoid.present(element) for element in elements]
    if monoid.output_type is None:
        return [encoding.to_json(value) for value in presented]
    return list(arrow_column(presented, monoid.output_type).to_pylist())


# How two sides are compared.


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return type(left) is type(right) and left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, (tuple, list)) and type(left) is type(right):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if left != left and right != right:
        return isinstance(left, float) and isinstance(right, float)
    return type(left) is type(right) and bool(left == right)


def _close(left: Any, right: Any, bound: float) -> bool:
    if isinstance(left, (tuple, list)) and type(left) is type(right):
        return len(left) == len(right) and all(_close(a, b, bound) for a, b in zip(left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_close(value, right[key], bound) for key, value in left.items())
    if isinstance(left, float) and isinstance(right, float):
        return _same(left, right) or bound == math.inf or abs(left - right) <= bound
    return _same(left, right)


def _bound(monoid: M, bindings: dict[str, Any]) -> float:
    """A rounding error that sums of these inputs may have: terms * 64 * epsilon * the sum of their magnitudes."""
    drawn = [
        item
        for name, value in bindings.items()
        if name != "cuts"
        for item in (value if isinstance(value, list) else [value])
    ]
    inputs = [x for item in drawn for x in ([x for x, _ in item.steps] if isinstance(item, _Reached) else [item])]
    sizes = [size for x in inputs for size in _magnitudes(monoid.lift(copy.deepcopy(x)))]
    return 64 * (len(sizes) + 1) * float(np.finfo(float).eps) * sum(sizes)


def _magnitudes(element: Any) -> list[float]:
    if isinstance(element, float):
        return [abs(element)] if math.isfinite(element) else []
    if isinstance(element, dict):
        element = list(element.values())
    if isinstance(element, (tuple, list)):
        return [size for item in element for size in _magnitudes(item)]
    return []
