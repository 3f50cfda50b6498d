"""A trial tries the laws on one monoid, and shrinks what breaks one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import Flaky, InvalidArgument, Unsatisfiable

from monoids.laws.catalogue import TOTALITY, Law, laws_of
from monoids.laws.drawing import (
    Example,
    draws,
    elements_of,
    examples_of,
    fresh,
    inputs_in,
    joined,
    long,
    smaller,
    value_of,
)
from monoids.laws.equality import Equality, Scale, exact, magnitudes, statistical, within
from monoids.laws.exploring import explore
from monoids.laws.scalar import NOTHING
from monoids.laws.strategies import inputs_for
from monoids.monoid import Monoid, check

Tried = tuple[Example, dict[str, Any]]
"""An example, and the values made of it so far."""

_ALONE_MAX = 250
_SHOWN_MAX = 2_000
_TOGETHER = 20


class LawViolation(AssertionError):
    """A monoid breaks a law: ``law`` its name, ``bindings`` the counterexample."""

    def __init__(self, message: str, law: str, bindings: dict[str, Any]) -> None:
        super().__init__(message)
        self.law = law
        self.bindings = bindings


def assert_monoid_laws(
    monoid: Monoid[Any],
    inputs: st.SearchStrategy[Any] | None = None,
    *,
    examples: int = 200,
    equality: Equality | None = None,
) -> None:
    """Try each law that applies to ``monoid``; raise LawViolation for the first broken, with its smallest
    counterexample.

    ``inputs`` draws inputs of ``monoid.lift``; left out, it is what ``inputs_for(monoid)`` derives. ``examples`` is
    how often each law is tried; the same are drawn every time. ``equality`` decides whether two sides are the same: by
    default ``exact``, and ``within()`` for a monoid with ``exact = False``. TypeError if the inputs are none
    of the monoid's, or cannot be derived.

    >>> from monoids import Count, Monoid
    >>> assert_monoid_laws(Count())
    >>> class Smaller(Monoid[int]):
    ...     identity = 0
    ...     def combine(self, a: int, b: int) -> int:
    ...         return min(a, b)
    >>> assert_monoid_laws(Smaller())
    Traceback (most recent call last):
    ...
    monoids.laws.check.LawViolation: Smaller() breaks 'left identity': combine(identity, a) == a
      a = lift(1)
      combine(identity, a): 0
      a: 1
    """
    trial = Trial(monoid, inputs, examples=examples, equality=equality)
    for law in trial.laws:
        trial.check(law)


class Trial:
    """One monoid with examples, which are drawn once, for every law. Takes what ``assert_monoid_laws`` takes."""

    def __init__(
        self,
        monoid: Monoid[Any],
        inputs: st.SearchStrategy[Any] | None = None,
        *,
        examples: int = 200,
        equality: Equality | None = None,
    ) -> None:
        if isinstance(monoid, type):
            check(monoid)
        if not isinstance(monoid, Monoid):
            raise TypeError(f"assert_monoid_laws(monoid, inputs) takes a monoid first, such as Sum(), not {monoid!r}")
        if inputs is not None and not isinstance(inputs, st.SearchStrategy):
            raise TypeError(
                f"inputs of {monoid!r}: give a Hypothesis strategy, such as strategies.integers(), not {inputs!r}"
            )
        if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
            raise TypeError(f"examples= is a number of examples, at least 1, not {examples!r}")
        check(monoid)
        _check_equality(equality)
        self.monoid = monoid
        self.inputs = inputs_for(monoid) if inputs is None else inputs
        self.examples = examples
        self.laws = laws_of(monoid)
        self._equality: Equality = equality or (exact if monoid.exact else within())
        self._joined: dict[str, list[Tried]] = {}
        self._repeated: dict[str, list[Tried]] = {}

    def check(self, law: Law) -> None:
        """Raise LawViolation, with the smallest counterexample found, if the monoid breaks the law."""
        __tracebackhide__ = True
        violation = self.violation(law)
        if violation is not None:
            raise violation from violation.__cause__

    def violation(self, law: Law) -> LawViolation | None:
        """The smallest violation of the law that is found; None if it holds for all examples."""
        for example, values in self._plan(law):
            found = self._try(law, example, values)
            if found is not None:
                return self._smallest(law, example) or found
        return None

    # Trying.

    def _plan(self, law: Law) -> Sequence[Tried]:
        """What the law is tried on: each example alone; or some alone, one of five, and the others many at a time.

        Columns cost by the call rather than by the row. Where a rounding error is allowed each example stays alone,
        because the bound of the error grows with the rows.
        """
        if not law.arguments:
            return self._drawn[:1]
        if law.rows is None:
            return self._drawn
        if not (self.monoid.exact or law.exactly):
            return [*self._drawn, *self._long(law)]
        step = max(5, len(self._drawn) // _ALONE_MAX)
        if law.rows not in self._joined:
            others = [example for index, (example, _) in enumerate(self._drawn) if index % step]
            self._joined[law.rows] = [(whole, {}) for whole in joined(others, law.rows, _TOGETHER)]
        return [*self._drawn[::step], *self._joined[law.rows], *self._long(law)]

    def _long(self, law: Law) -> Sequence[Tried]:
        """Thousands of rows, in short segments; of a law with cuts in long ones too, if their sums are defined."""
        if law.rows is None or not law.long:
            return []
        rows = law.rows
        if rows not in self._repeated:
            short, long_ = long([example for example, _ in self._drawn], rows)
            self._repeated[rows] = [(short, {})]
            if self._is_total({rows: short[rows]}):
                self._repeated[rows].append((long_, {}))
        return self._repeated[rows] if "cuts" in law.arguments else self._repeated[rows][:1]

    def _is_total(self, example: Example) -> bool:
        """Whether the elements of an example, and their sum, are defined."""
        try:
            elements = [each for drawn in example.values() for each in elements_of(self.monoid, drawn)]
            if elements:
                TOTALITY.function(self.monoid, elements)
        except Exception:
            return False
        return True

    @cached_property
    def _is_partial(self) -> bool:
        """Whether the monoid breaks the law of totality: then no other is said to be broken for that."""
        return any(self._try(TOTALITY, example, values) for example, values in self._plan(TOTALITY))

    @cached_property
    def _drawn(self) -> list[Tried]:
        """The examples, each with the values that were made of it so far."""
        try:
            examples = examples_of(self.inputs, self.examples)
        except (InvalidArgument, Unsatisfiable) as error:
            raise TypeError(f"{self.monoid!r}: no inputs can be drawn from {self.inputs!r}: {error}") from error
        self._refuse_foreign([x for example in examples for x in example["xs"].xs])
        return [(example, {}) for example in examples]

    def _refuse_foreign(self, xs: Sequence[Any]) -> None:
        """TypeError if ``lift`` takes none of the inputs: then they are meant for another monoid."""
        refused: tuple[Any, Exception] | None = None
        for x in xs:
            try:
                self.monoid.lift(fresh(x))
            except Exception as error:
                refused = refused or (x, error)
            else:
                if x is not None:
                    return
        if refused is not None:
            x, fault = refused
            raise TypeError(
                f"{self.monoid!r}: lift takes none of the inputs that were drawn, such as {x!r}: "
                f"{type(fault).__name__}: {fault}. Give inputs= a strategy of what it lifts"
            ) from fault
        raise TypeError(
            f"{self.monoid!r}: nothing but None is drawn from {self.inputs!r}. Give inputs= a strategy of what it lifts"
        )

    def _try(self, law: Law, example: Example, values: dict[str, Any]) -> LawViolation | None:
        try:
            for name in law.arguments:
                if name not in values:
                    values[name] = value_of(self.monoid, example[name])
            sides = law.function(self.monoid, **{name: _own(name, values[name]) for name in law.arguments})
        except Exception as error:
            return self._raised(law, example, error)
        if sides is NOTHING or self._same(law, example, *sides):
            return None
        shown = "".join(f"\n  {name}: {_side(side)}" for name, side in zip(law.formula.split(" == "), sides))
        return LawViolation(_head(law, self.monoid, example) + shown, law.name, _bindings(law, example))

    def _raised(self, law: Law, example: Example, error: Exception) -> LawViolation | None:
        """A law is broken by what raises where all elements are defined; elsewhere it is the law of totality."""
        bindings = _bindings(law, example)
        if law is not TOTALITY and not self._is_total(bindings):
            if self._is_partial:
                return None
            law = TOTALITY
        head = _head(law, self.monoid, bindings, tuple(bindings))
        raised = LawViolation(f"{head}\n  raises {type(error).__name__}: {error}", law.name, bindings)
        raised.__cause__ = error
        return raised

    def _same(self, law: Law, example: Example, left: Any, right: Any) -> bool:
        equality = self._equality
        if law.exactly and isinstance(equality, (within, statistical)):
            equality = exact
        try:
            return equality(left, right, lambda: self._scale(law, example))
        except Exception as error:
            raise TypeError(
                f"{self.monoid!r}: the sides of {law.name!r}, {_side(left)} and {_side(right)}, cannot be compared "
                f"(equality={equality!r}): {type(error).__name__}: {error}"
            ) from error

    def _scale(self, law: Law, example: Example) -> Scale:
        xs = [x for name in law.arguments for x in inputs_in(example[name])]
        sizes = [size for x in xs for size in magnitudes(self.monoid.lift(fresh(x)))]
        return Scale(len(sizes), sum(sizes), law.depth, self.monoid.present)

    # Shrinking.

    def _smallest(self, law: Law, example: Example) -> LawViolation | None:
        """The violation with the smallest values; None if the monoid does not break the law every time."""
        if not law.arguments:
            return None
        found: list[tuple[Example, LawViolation]] = []

        def holds(drawn: Example) -> None:
            violation = self._try(law, drawn, {})
            if violation is not None:
                found.append((drawn, violation))
                raise violation from violation.__cause__

        strategies = draws(self.inputs)
        try:
            explore(st.fixed_dictionaries({name: strategies[name] for name in law.arguments}), holds, 300, shrink=True)
        except (LawViolation, Flaky):
            # A small one, which may have parts to spare; or, if the law breaks now and then, any that was seen.
            drawn, violation = found[-1]
            return self._shorter(law, drawn) or violation
        return self._shorter(law, example)

    def _shorter(self, law: Law, example: Example) -> LawViolation | None:
        """What is left of a violation after leaving out what is not needed: for one that is rarely drawn."""
        violation = self._try(law, example, {})
        while violation is not None:
            tries = ((less, self._try(law, less, {})) for less in _smaller_examples(law, example))
            less, next_violation = next(((less, seen) for less, seen in tries if seen is not None), (example, None))
            if next_violation is None:
                return violation
            example, violation = less, next_violation
        return None


def _smaller_examples(law: Law, example: Example) -> Iterator[Example]:
    for name in law.arguments:
        for less in smaller(example[name]):
            yield {**example, name: less}


def _own(name: str, value: Any) -> Any:
    """A value that the law may keep; Arrow arrays cannot be changed."""
    return value if name == "column" else fresh(value)


def _check_equality(equality: Any) -> None:
    """TypeError unless it may be called with two sides and a scale."""
    if equality is None:
        return
    asked = "equality= is exact, within(c), statistical(...) or a function of left, right, scale"
    if isinstance(equality, type):
        raise TypeError(f"{asked}, not the class {equality.__name__}: write {equality.__name__}(...)")
    if not callable(equality):
        raise TypeError(f"{asked}, not {equality!r}")
    try:
        inspect.signature(equality).bind(None, None, None)
    except TypeError as error:
        raise TypeError(f"{asked}, not {equality!r}: {error}") from error


def _bindings(law: Law, example: Example) -> dict[str, Any]:
    return {name: example[name] for name in law.arguments}


def _head(law: Law, monoid: Monoid[Any], example: Example, arguments: tuple[str, ...] | None = None) -> str:
    names = law.arguments if arguments is None else arguments
    shown = "".join(f"\n  {name} = {_shown(example[name])}" for name in names)
    return f"{monoid!r} breaks {law.name!r}: {law.formula}{shown}"


def _side(side: Any) -> str:
    """One side as it is printed: of thousands of rows the first and the last."""
    shown = repr(side)
    return shown if len(shown) <= _SHOWN_MAX else f"{shown[: _SHOWN_MAX // 2]} ... {shown[-_SHOWN_MAX // 2 :]}"


def _shown(drawn: Any) -> str:
    return repr(list(drawn)) if isinstance(drawn, tuple) else repr(drawn)
