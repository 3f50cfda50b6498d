"""A sample is one monoid with the examples drawn for it; it decides which of them each law is tested on."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

from hypothesis import strategies as st
from hypothesis.errors import InvalidArgument, Unsatisfiable

from monoids.laws.budget import BudgetSpent, TrialBudget, budgeted
from monoids.laws.catalogue import TOTALITY, Law
from monoids.laws.equality import exact
from monoids.laws.examples import Example, examples_of, joined_examples, long, wide
from monoids.laws.strategies import inputs_for
from monoids.laws.terms import elements_of, fresh
from monoids.monoid import Monoid, check

Tried = tuple[Example, dict[str, Any]]
"""An example, and the argument values computed from it so far."""

_ALONE_MAX = 250
_TOGETHER = 20
_LIFTED = 50
_FIRST = 5


class Sample:
    """One monoid with ``count`` examples from ``inputs``, or from those derived for it.

    They are drawn on first use. That raises TypeError if none can be drawn, or ``lift`` takes none of them.
    """

    def __init__(
        self, monoid: Monoid[Any], inputs: st.SearchStrategy[Any] | None, count: int, budget: TrialBudget
    ) -> None:
        self.monoid = monoid
        self._inputs = inputs
        self._count = count
        self._budget = budget
        self.budgeted = budgeted(monoid, budget)
        """The monoid as the laws call it: within the budget, and with a serializer if its elements need one."""
        self.unstored = ""
        """Why the laws of storing are not tested; empty if they are."""
        self._joined: dict[str, list[Tried]] = {}
        self._repeated: dict[str, list[Tried]] = {}
        self._pickled_if_needed(lambda: [monoid.identity])
        check(self.budgeted)

    @cached_property
    def inputs(self) -> st.SearchStrategy[Any]:
        """The strategy of inputs. TypeError if it cannot be derived."""
        return inputs_for(self.monoid) if self._inputs is None else self._inputs

    @cached_property
    def drawn(self) -> list[Tried]:
        """The examples, each with the argument values computed from it so far."""
        with self._budget.drawing() as check_budget:
            try:
                examples = examples_of(self.inputs, self._count, check_budget)
            except (InvalidArgument, Unsatisfiable) as error:
                raise TypeError(f"{self.monoid!r}: no inputs can be drawn from {self.inputs!r}: {error}") from error
            xs = [x for example in examples for x in example["xs"].xs]
            with suppress(BudgetSpent):
                check_budget()
                self._refuse_foreign(xs)
            self._pickled_if_needed(lambda: [self.budgeted.lift(fresh(x)) for x in xs[:_LIFTED]])
        return [(example, {}) for example in examples]

    def plan(self, law: Law) -> Sequence[Tried]:
        """The examples that the law is tested on: each alone; or one of five alone, and the others many at a time.

        Columns cost by the call, not by the row. If a rounding error is allowed, each example stays alone, because the
        error bound grows with the rows.
        """
        if not law.arguments:
            return self.drawn[:1]
        if law.wide:
            # Among the first, which have all the time that they need: a busy machine must not cut them off.
            return [*self.drawn[:_FIRST], *self._wide, *self.drawn[_FIRST:]]
        if law.rows is None:
            return self.drawn
        if not (self.monoid.exact or law.exactly):
            return [*self.drawn, *self._long(law)]
        step = max(5, len(self.drawn) // _ALONE_MAX)
        if law.rows not in self._joined:
            others = [example for index, (example, _) in enumerate(self.drawn) if index % step]
            self._joined[law.rows] = [(whole, {}) for whole in joined_examples(others, law.rows, _TOGETHER)]
        return [*self.drawn[::step], *self._joined[law.rows], *self._long(law)]

    def is_total(self, example: Example) -> bool:
        """Whether the elements of an example, and their sum, are defined."""
        try:
            elements = [each for drawn in example.values() for each in elements_of(self.budgeted, drawn)]
            if elements:
                TOTALITY.function(self.budgeted, elements)
        except Exception:
            return False
        return True

    @cached_property
    def _wide(self) -> Sequence[Tried]:
        """A hundred inputs and more, if their sum is defined; empty if rounding errors add up."""
        if not self.monoid.exact:
            return []
        examples = wide([example for example, _ in self.drawn])
        return [(each, {}) for each in examples if self.is_total({"elements": each["elements"]})]

    def _long(self, law: Law) -> Sequence[Tried]:
        """Thousands of rows in short segments; for a law with cuts in long ones too, if their sums are defined."""
        if law.rows is None or not law.long:
            return []
        rows = law.rows
        if rows not in self._repeated:
            # In short segments, then in long ones; neither if no column can hold the inputs.
            repeated: list[Tried] = [(example, {}) for example in long([example for example, _ in self.drawn], rows)]
            self._repeated[rows] = repeated[:1]
            if repeated and self.is_total({rows: repeated[0][0][rows]}):
                self._repeated[rows] = repeated
        return self._repeated[rows] if "cuts" in law.arguments else self._repeated[rows][:1]

    def _pickled_if_needed(self, made: Callable[[], list[Any]]) -> None:
        """Pickle elements of a user's own classes during the trial, and note that they cannot be stored."""
        monoid = self.budgeted
        if monoid.serializer is not None or type(monoid).encode is not Monoid.encode:
            return
        try:
            elements = made()
        except (Exception, BudgetSpent):
            return
        try:
            for element in elements:
                monoid.encode(element)
        except TypeError as error:
            if all(map(_is_pickled, elements)):
                self.budgeted = copy.copy(monoid)
                self.budgeted.serializer = _Pickled()
                self.unstored = (
                    f"{self.monoid!r}: only the laws of sums were tested, not of storing: {error}; or name a serializer"
                    " in it: serializer = persistent.serializers.cloudpickle(key=...)"
                )

    def _refuse_foreign(self, xs: Sequence[Any]) -> None:
        """TypeError if ``lift`` takes none of the inputs: they belong to another monoid."""
        refused: tuple[Any, Exception] | None = None
        for x in xs:
            try:
                self.budgeted.lift(fresh(x))
            except Exception as error:
                refused = refused or (x, error)
            else:
                if x is not None:
                    return
        if refused is not None:
            x, fault = refused
            raise TypeError(
                f"{self.monoid!r}: lift takes none of the drawn inputs, such as {x!r}: "
                f"{type(fault).__name__}: {fault}. Give inputs= a strategy of inputs that it lifts"
            ) from fault
        raise TypeError(
            f"{self.monoid!r}: {self.inputs!r} draws only None. Give inputs= a strategy of inputs that it lifts"
        )


class _Pickled:
    """Replaces the serializer of a monoid that names none, while its laws are tested in this process."""

    name = "pickle"
    version = 1

    def dumps(self, element: Any) -> bytes:
        data = pickle.dumps(element)
        return hashlib.sha256(data).digest() + data

    def loads(self, data: bytes) -> Any:
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            raise ValueError("this serializer did not write these bytes")
        return pickle.loads(data[32:])


def _is_pickled(element: Any) -> bool:
    """Whether an element of a class without an encoding survives pickling."""
    try:
        return exact(pickle.loads(pickle.dumps(element)), element)
    except Exception:
        return False
