"""A decorator and a base class that turn laws into pytest tests, one for each monoid and law."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st

from monoids.laws.catalogue import Law, law_named
from monoids.laws.check import Trial
from monoids.laws.equality import Equality
from monoids.monoid import Monoid

Test = TypeVar("Test", bound=Callable[..., Any])
Case = Monoid[Any] | tuple[Monoid[Any], st.SearchStrategy[Any] | None]
"""A monoid, or a monoid and a strategy of its inputs (None: derived)."""


def monoid_laws(*cases: Case, examples: int | None = None, equality: Equality | None = None) -> Callable[[Test], Test]:
    """Parametrise a test by monoid and law. Its argument ``check`` is a function that tests one law on one monoid.

        @monoid_laws((Longest(), strategies.text()), Sum(), examples=1_000)
        def test_lawful(check):
            check()

    The items are named ``test_lawful[Longest()-associativity]`` and so on; ``examples`` and ``equality`` as in
    ``assert_monoid_laws``.

    >>> from monoids import Count
    >>> @monoid_laws(Count())
    ... def test_lawful(check):
    ...     check()
    >>> test_lawful.pytestmark[0].args[1][0].id
    'Count()-no mutation'
    """
    import pytest

    if not cases:
        raise TypeError("monoid_laws(...) takes monoids, or pairs of a monoid and a strategy: monoid_laws(Sum())")
    trials = [_trial(case, examples, equality) for case in cases]
    checks = [
        pytest.param(_Check(trial, law), id=f"{title}-{law.name}")
        for title, trial in zip(titles([trial.monoid for trial in trials]), trials)
        for law in trial.laws
    ]
    return pytest.mark.parametrize("check", checks)


class MonoidLaws:
    """Inherit from it to get one test for each law that applies to ``monoid``.

        class TestLongest(MonoidLaws):
            monoid = Longest()
            inputs = strategies.text()
            examples = 1_000
            expected_failures = {"commutativity": "the first of two equally long ones wins"}

    A law that is expected to fail but holds fails its test. Defining a class raises TypeError for an expected failure
    of a law that does not exist or does not apply. A class without ``monoid`` is a base for others.

    >>> from monoids import Count
    >>> class TestCount(MonoidLaws):
    ...     monoid = Count()
    >>> TestCount().test_associativity()
    """

    monoid: ClassVar[Monoid[Any]]
    inputs: ClassVar[st.SearchStrategy[Any] | None] = None
    examples: ClassVar[int | None] = None
    equality: ClassVar[Equality | None] = None
    expected_failures: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not hasattr(cls, "monoid"):
            return
        trial = Trial(cls.monoid, cls.inputs, examples=cls.examples, equality=cls.equality)
        _check_expected(cls.__name__, trial, cls.expected_failures)
        for law in trial.laws:
            test = _expected_test(trial, law, cls.expected_failures.get(law.name))
            test.__name__ = f"test_{law.name.replace(' ', '_')}"
            test.__qualname__ = f"{cls.__qualname__}.{test.__name__}"
            test.__doc__ = f"{law.name}: {law.formula}"
            if test.__name__ not in cls.__dict__:
                setattr(cls, test.__name__, test)


def titles(monoids: Sequence[Monoid[Any] | str]) -> list[str]:
    """The names of monoids in tests: as a user writes them, numbered where two are written the same.

    >>> from monoids import Sum
    >>> titles([Sum(), Sum(float), Sum()])
    ['Sum()', 'Sum(float)', 'Sum() 2']
    """
    seen: dict[str, int] = {}
    named = []
    for monoid in monoids:
        shown = monoid if isinstance(monoid, str) else repr(monoid)
        shown = shown if len(shown) <= _TITLE_MAX else shown[: _TITLE_MAX - 3] + "..."
        seen[shown] = seen.get(shown, 0) + 1
        named.append(shown if seen[shown] == 1 else f"{shown} {seen[shown]}")
    return named


def checked(trial: Trial, law: Law) -> None:
    """Test one law, and skip the pytest test if the law was not tested."""
    __tracebackhide__ = True
    _skip_untried(trial, law)
    trial.check(law)


# Internals.

_TITLE_MAX = 80


class _Check:
    """A function that tests one law on one monoid."""

    def __init__(self, trial: Trial, law: Law) -> None:
        self._trial = trial
        self._law = law

    def __call__(self) -> None:
        __tracebackhide__ = True
        checked(self._trial, self._law)

    def __repr__(self) -> str:
        return f"<the law {self._law.name!r} on {self._trial.monoid!r}>"


def _skip_untried(trial: Trial, law: Law) -> None:
    __tracebackhide__ = True
    untried = trial.untried(law)
    if untried:
        import pytest

        pytest.skip(untried)


def _trial(case: Any, examples: int | None, equality: Equality | None) -> Trial:
    monoid, inputs = case if isinstance(case, tuple) and len(case) == 2 else (case, None)
    return Trial(monoid, inputs, examples=examples, equality=equality)


def _check_expected(title: str, trial: Trial, expected: Mapping[str, str]) -> None:
    for name in expected:
        try:
            law = law_named(name)
        except ValueError as error:
            raise TypeError(f"{title}.expected_failures: {error}") from error
        if law not in trial.laws:
            raise TypeError(
                f"{title}.expected_failures: the law {name!r} does not apply to {trial.monoid!r}, which does not "
                f"declare it; the laws that apply: {', '.join(law.name for law in trial.laws)}"
            )


def _expected_test(trial: Trial, law: Law, reason: str | None) -> Callable[[Any], None]:
    def holds(self: Any) -> None:
        __tracebackhide__ = True
        checked(trial, law)

    def fails(self: Any) -> None:
        import pytest

        violation = trial.violation(law)
        if violation is None:
            _skip_untried(trial, law)
            pytest.fail(
                f"{trial.monoid!r}: {law.name!r} holds, but is expected to fail ({reason}): remove it from "
                "expected_failures",
                pytrace=False,
            )
        pytest.xfail(f"{reason}: {str(violation).splitlines()[0]}")

    return holds if reason is None else fails
