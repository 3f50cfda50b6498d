"""A trial tests the laws on one monoid, and shrinks any counterexample."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import Flaky

from monoids.laws import columnar, lifting
from monoids.laws.budget import BudgetSpent, TrialBudget
from monoids.laws.catalogue import NO_MUTATION, TOTALITY, Law, laws_of, place, remedy
from monoids.laws.equality import Equality, Scale, exact, magnitudes, statistical, within
from monoids.laws.examples import Example, draws, explore
from monoids.laws.sample import Sample, Tried
from monoids.laws.scalar import NOTHING
from monoids.laws.terms import fresh, inputs_in, smaller, value_of
from monoids.monoid import Monoid, check

_SHOWN_MAX = 2_000
_ROUNDS = 3
"""Later rounds continue the laws that ran out of time, where they stopped, with the time that is left."""
_LAWS_TOLD = 6
_LEAST = 10
"""A law that was tested on fewer examples is not tried."""
EXAMPLES = 200


class LawViolation(AssertionError):
    """A monoid breaks a law. ``law`` is its name, ``bindings`` the counterexample."""

    def __init__(self, message: str, law: str, bindings: dict[str, Any]) -> None:
        super().__init__(message)
        self.law = law
        self.bindings = bindings


class LawNotTried(AssertionError):
    """A law was tested on fewer than ten examples, for lack of memory or inputs: nothing shows that it holds."""


class LawsWarning(UserWarning):
    """Some laws were tested on only some of the examples, or on none."""


def assert_monoid_laws(
    monoid: Monoid[Any],
    inputs: st.SearchStrategy[Any] | None = None,
    *,
    examples: int | None = None,
    equality: Equality | None = None,
    untried: Sequence[str] = (),
) -> None:
    """Test each law that applies to ``monoid``. Raise LawViolation for the first one broken, with its smallest
    counterexample.

    ``inputs`` draws inputs of ``monoid.lift``; by default ``inputs_for(monoid)`` derives them. ``examples`` is the
    number of examples for each law, the same ones every time; by default 200, or as many as 5 seconds and 500 MB
    allow, and at least ten whatever the clock: a warning says what was not tested. LawNotTried for a law on fewer
    than ten, unless ``untried`` names it. ``equality`` decides whether two sides are the same: by default
    ``exact``, or ``within()`` for a monoid with ``exact = False``. TypeError if ``lift`` takes none of the inputs, or
    they cannot be derived.

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
      the identity must be neutral: combined with any element, it leaves the element unchanged. If some inputs \
are not elements, let lift convert them
    """
    __tracebackhide__ = True
    trial = Trial(monoid, inputs, examples=examples, equality=equality)
    for _ in range(_ROUNDS):
        for law in trial.laws:
            violation = trial.violation(law)
            if violation is not None:
                raise violation from violation.__cause__
    for law in trial.laws:
        trial.require_tried(law, untried)
    trial.warn()


class Trial:
    """One monoid with examples, drawn once, for every law. Takes the arguments of ``assert_monoid_laws``."""

    def __init__(
        self,
        monoid: Monoid[Any],
        inputs: st.SearchStrategy[Any] | None = None,
        *,
        examples: int | None = None,
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
        if examples is not None and (isinstance(examples, bool) or not isinstance(examples, int) or examples < 1):
            raise TypeError(f"examples= is a number of examples, at least 1, not {examples!r}")
        self.monoid = monoid
        self._budget = TrialBudget(limited=examples is None)
        self.examples = examples or EXAMPLES
        self._sample = Sample(monoid, inputs, self.examples, self._budget)
        _check_equality(equality)
        self.inputs = self._sample.inputs
        self.laws = laws_of(monoid)
        self._done: dict[str, int] = {}
        self.tried: dict[str, int] = {}
        """The number of examples each law was tested on. A law with fewer than ``examples`` has no more."""
        self._cut: dict[str, str] = {}
        self._equality: Equality = equality or (exact if monoid.exact else within())

    def check(self, law: Law) -> None:
        """Raise LawViolation, with the smallest counterexample found, if the monoid breaks the law.

        Warns if the law was tested on only some of the examples; LawNotTried if on fewer than ten.
        """
        __tracebackhide__ = True
        violation = self.violation(law)
        if violation is not None:
            raise violation from violation.__cause__
        self.require_tried(law)
        self.warn(law)

    def require_tried(self, law: Law, allowed: Sequence[str] = ()) -> None:
        """LawNotTried if the law was tested on fewer than ten examples, unless its name is allowed."""
        if law.name in self._cut and law.name not in allowed:
            raise LawNotTried(f"{self.monoid!r}: {self._cut[law.name]}; or allow it by name, untried=[{law.name!r}]")

    def violation(self, law: Law) -> LawViolation | None:
        """The smallest violation found; None if the law holds for all examples that were tested."""
        if law is NO_MUTATION:
            return self._mutation
        return None if self._untestable(law) else self._violation(law)

    def untried(self, law: Law) -> str:
        """Why a law was not tested, or cannot be; empty otherwise."""
        return self._untestable(law) or self._cut.get(law.name, "")

    def _untestable(self, law: Law) -> str:
        if law is not NO_MUTATION and self._mutation is not None:
            return "an operand is changed while it is combined: fix 'no mutation' first"
        by_columns = law.function.__module__ in (lifting.__name__, columnar.__name__)
        return self._sample.unstored if by_columns or not law.applies(self._sample.budgeted) else ""

    def warn(self, law: Law | None = None) -> None:
        """Warn which laws, of all or of one, were not tested on all examples, and why."""
        laws = [law] if law is not None else list(self.laws)
        short = {each.name: self.tried.get(each.name, self.examples) for each in laws}
        short = {name: tried for name, tried in short.items() if tried < self.examples}
        if short:
            least = sorted(short.items(), key=lambda item: item[1])
            shortfalls = ", ".join(f"{name!r} {tried}" for name, tried in least[:_LAWS_TOLD])
            others = f" and {len(short) - _LAWS_TOLD} others" if len(short) > _LAWS_TOLD else ""
            complete = f"{len(laws) - len(short)} of {len(laws)} laws were tested on all {self.examples} examples"
            warnings.warn(
                f"{self.monoid!r}: {complete}; on fewer, for lack of {self._budget.lacks}: {shortfalls}{others}."
                f" examples={self.examples} tests all, however long it takes",
                LawsWarning,
                stacklevel=3,
            )
        if self._sample.unstored:
            warnings.warn(self._sample.unstored, LawsWarning, stacklevel=3)

    # Testing.

    @cached_property
    def _mutation(self) -> LawViolation | None:
        return self._violation(NO_MUTATION)

    def _violation(self, law: Law) -> LawViolation | None:
        seen = self._seen(law)
        return None if seen is None else self._smallest(law, *seen)

    def _seen(self, law: Law) -> tuple[Example, LawViolation] | None:
        """An example that breaks the law, among those that the budget allows."""
        drawn = len(self._sample.drawn)
        if self.tried.get(law.name) == self.examples:
            return None
        plan: Sequence[Tried] = ()
        done, planned = self._done.get(law.name, 0), False
        try:
            for part, stop in ((self._budget.least, _LEAST), (self._budget.law, None)):
                with part():
                    plan, planned = self._sample.plan(law), True
                    for example, values in plan[done:stop]:
                        self._budget.check()
                        violation = self._try(law, example, values)
                        if violation is not None:
                            return example, violation
                        done += 1
        except BudgetSpent:
            pass
        self._done[law.name] = done
        if planned and done >= min(_LEAST, len(plan)):
            share = drawn * done // len(plan) if plan else drawn
            self.tried[law.name] = max(share, min(done, drawn))
            self._cut.pop(law.name, None)
        else:
            self.tried[law.name] = 0
            self._cut[law.name] = (
                f"{law.name!r} was tested on {done} examples, fewer than {_LEAST}, for lack of {self._budget.lacks}: "
                "give examples=, or a strategy of smaller inputs"
            )
        return None

    @cached_property
    def _is_partial(self) -> bool:
        """Whether the monoid breaks the law of totality: then no other law is blamed."""
        return any(self._try(TOTALITY, example, values) for example, values in self._sample.drawn)

    def _try(self, law: Law, example: Example, values: dict[str, Any]) -> LawViolation | None:
        try:
            for name in law.arguments:
                if name not in values:
                    values[name] = value_of(self._sample.budgeted, example[name])
            sides = law.function(self._sample.budgeted, **{name: _own(name, values[name]) for name in law.arguments})
        except Exception as error:
            return self._raised(law, example, error)
        if sides is NOTHING or self._same(law, example, *sides):
            return None
        lines = "".join(f"\n  {name}: {_side(side)}" for name, side in zip(law.formula.split(" == "), sides))
        message = _head(law, self.monoid, example) + lines + self._remedy(law, example, sides)
        return LawViolation(message, law.name, _bindings(law, example))

    def _remedy(self, law: Law, example: Example, sides: Sequence[Any]) -> str:
        """The remedy, on a line of its own."""
        close = False
        if self.monoid.exact and self._equality is exact and sides and not law.exactly:
            try:
                close = within()(sides[0], sides[1], lambda: self._scale(law, example))
            except Exception:
                close = False
        advice = remedy(law, sides, [x for name in law.arguments for x in inputs_in(example[name])], close)
        return advice and f"\n  {advice}"

    def _raised(self, law: Law, example: Example, error: Exception) -> LawViolation | None:
        """An exception where all elements are defined breaks the law; elsewhere it breaks the law of totality."""
        bindings = _bindings(law, example)
        if law is not TOTALITY and not self._sample.is_total(bindings):
            if self._is_partial:
                return None
            law = TOTALITY
        head = _head(law, self.monoid, bindings, tuple(bindings))
        where = place(self.monoid, error)
        text = f"{head}\n  raises {type(error).__name__}: {error}" + (where and f"\n  {where}")
        raised = LawViolation(text + self._remedy(law, bindings, ()) if law is TOTALITY else text, law.name, bindings)
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
        sizes = [size for x in xs for size in magnitudes(self._sample.budgeted.lift(fresh(x)))]
        return Scale(len(sizes), sum(sizes), law.depth, self.monoid.present)

    # Shrinking.

    def _smallest(self, law: Law, example: Example, seen: LawViolation) -> LawViolation:
        """The violation with the smallest values; any one seen if it is not reproducible or there is no time."""
        if not law.arguments:
            return seen
        violations: list[tuple[Example, LawViolation]] = [(example, seen)]

        def holds(drawn: Example) -> None:
            self._budget.check()
            violation = self._try(law, drawn, {})
            if violation is not None:
                violations.append((drawn, violation))
                raise violation from violation.__cause__

        strategies = draws(self.inputs)
        try:
            with self._budget.shrinking():
                drawn = st.fixed_dictionaries({name: strategies[name] for name in law.arguments})
                explore(drawn, holds, 300, shrink=True)
        except (LawViolation, Flaky, BudgetSpent):
            # It may be small but still be reducible; if the law breaks only sometimes, any violation seen.
            pass
        return self._shorter(law, *violations[-1])

    def _shorter(self, law: Law, example: Example, violation: LawViolation) -> LawViolation:
        """A violation reduced by omitting unneeded parts. Serves violations that are rarely drawn."""
        try:
            with self._budget.shrinking():
                while True:
                    tries = ((less, self._try(law, less, {})) for less in _smaller_examples(law, example))
                    shorter = next(((less, seen) for less, seen in tries if seen is not None), None)
                    if shorter is None:
                        return violation
                    example, violation = shorter
        except BudgetSpent:
            return violation


def _smaller_examples(law: Law, example: Example) -> Iterator[Example]:
    for name in law.arguments:
        for less in smaller(example[name]):
            yield {**example, name: less}


def _own(name: str, value: Any) -> Any:
    """A copy that the law may change; Arrow arrays are immutable."""
    return value if name == "column" else fresh(value)


def _check_equality(equality: Any) -> None:
    """TypeError unless it can be called with two sides and a scale."""
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
    lines = "".join(f"\n  {name} = {_printed(example[name])}" for name in names)
    return f"{monoid!r} breaks {law.name!r}: {law.formula}{lines}"


def _side(side: Any) -> str:
    """One side for printing; of thousands of rows the first and the last."""
    text = repr(side)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX // 2]} ... {text[-_SHOWN_MAX // 2 :]}"


def _printed(drawn: Any) -> str:
    return _side(list(drawn) if isinstance(drawn, tuple) else drawn)
