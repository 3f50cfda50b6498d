"""The plugin gives pytest one item for each public monoid of a package and each law that applies to it.

    pytest --monoid-laws=PACKAGE [--monoid-laws-examples=N] [-k associativity]

The items are named ``PACKAGE::Sum()::associativity``. Without paths on the command line no other test is collected. A
monoid that cannot be tested is an item that fails and says what to write. ``pytest_monoids`` loads this module if the
option is given.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monoids.laws.catalogue import Law
from monoids.laws.check import LawViolation, Trial
from monoids.laws.decorators import checked
from monoids.laws.discovery import PublicMonoid, public_monoids

_FRAMES = 3


class PackageOfMonoids(pytest.Collector):
    """All public monoids of one package."""

    def collect(self) -> Iterator[MonoidUnderLaws]:
        """One collector for each monoid."""
        for found in public_monoids(self.name):
            yield MonoidUnderLaws.from_parent(self, name=found.title, found=found)


class MonoidUnderLaws(pytest.Collector):
    """One monoid. Its examples are drawn once and dropped after its last law."""

    def __init__(self, found: PublicMonoid, **options: Any) -> None:
        super().__init__(**options)
        self.found = found

    def collect(self) -> Iterator[pytest.Item]:
        """One item for each law; one failing item if the monoid cannot be tested."""
        if self.found.fault or self.found.monoid is None:
            yield Untried.from_parent(self, name="instance and inputs", fault=self.found.fault)
            return
        examples = self.config.getoption("monoid_laws_examples")
        try:
            trial = Trial(self.found.monoid, self.found.inputs, examples=examples)
        except TypeError as error:
            yield Untried.from_parent(self, name="usable", fault=str(error))
            return
        for law in trial.laws:
            yield LawOfMonoid.from_parent(self, name=law.name, trial=trial, law=law)


class _Item(pytest.Item):
    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.nodeid


class LawOfMonoid(_Item):
    """One law on one monoid."""

    def __init__(self, trial: Trial, law: Law, **options: Any) -> None:
        super().__init__(**options)
        self.trial = trial
        self.law = law

    def runtest(self) -> None:
        """Test it on all examples."""
        checked(self.trial, self.law)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The violation as text; if the monoid raised, with the place."""
        if not isinstance(excinfo.value, LawViolation):
            return super().repr_failure(excinfo, style)
        cause = excinfo.value.__cause__
        where = "".join(traceback.format_exception(cause, limit=-_FRAMES, chain=False)) if cause else ""
        return f"{excinfo.value}\n\n{where}".rstrip()


class Untried(_Item):
    """A monoid that cannot be tested."""

    def __init__(self, fault: str, **options: Any) -> None:
        super().__init__(**options)
        self.fault = fault

    def runtest(self) -> None:
        """Fail."""
        raise LawViolation(self.fault, "", {})

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The sentence that says what to write."""
        return str(excinfo.value)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add the items of all requested packages, before -k selects any."""
    folder = str(config.invocation_params.dir)
    if folder not in sys.path:
        # As "python -m pytest" does.
        sys.path.insert(0, folder)
    for package in config.getoption("monoid_laws"):
        if not package:
            raise pytest.UsageError("--monoid-laws=PACKAGE: name a package or module that can be imported")
        try:
            collector = PackageOfMonoids.from_parent(session, name=package, nodeid=package)
            found = [item for monoid in collector.collect() for item in monoid.collect()]
        except (ImportError, TypeError) as error:
            raise pytest.UsageError(f"--monoid-laws={package}: {error}") from error
        if not found:
            raise pytest.UsageError(f"--monoid-laws={package}: it has no public monoid")
        items += found
        session.testscollected = len(items)
        report = pytest.CollectReport(package, "passed", None, [*found])
        config.hook.pytest_collectreport(report=report)
