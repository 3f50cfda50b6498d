"""The plugin gives pytest one item for each public monoid of a package and each law that applies to it.

    pytest --monoid-laws=PACKAGE [--monoid-laws-examples=N] [-k associativity]

The items are named ``PACKAGE::Sum()::associativity``. Without paths on the command line no other test is collected. A
monoid that cannot be tested is an item that fails and says what to write. ``pytest_monoids`` loads this module if the
option is given.

The package is read with its modules, except those whose name begins with an underscore, and in each the public names
(``__all__`` if it exists):

    an instance of a monoid       is tested
    a class of monoids            is tested as constructed without arguments, unless an instance is tested anyway
    LAWFUL                        a list of monoids, or pairs of a monoid and a strategy of its inputs
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import strategies as st

from monoids.laws.catalogue import Law
from monoids.laws.check import LawViolation, Trial
from monoids.laws.strategies import inputs_for
from monoids.monoid import Monoid, check

_FRAMES = 3


class PackageOfMonoids(pytest.Collector):
    """All public monoids of one package."""

    def collect(self) -> Iterator[MonoidUnderLaws]:
        """One collector for each monoid."""
        for public in public_monoids(self.name):
            yield MonoidUnderLaws.from_parent(self, name=public.title, found=public)


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


def checked(trial: Trial, law: Law, untried: Sequence[str]) -> None:
    """Test one law. Skip the item if the law cannot be tested, or was tested on too few examples and is one of
    ``untried``."""
    __tracebackhide__ = True
    _skip_untried(trial, law)
    if law.name in untried and trial.violation(law) is None:
        _skip_untried(trial, law)
    trial.check(law)


def _skip_untried(trial: Trial, law: Law) -> None:
    __tracebackhide__ = True
    if untried := trial.untried(law):
        pytest.skip(untried)


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
        checked(self.trial, self.law, self.config.getoption("monoid_laws_untried"))

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
            collected = [item for monoid in collector.collect() for item in monoid.collect()]
        except (ImportError, TypeError) as error:
            raise pytest.UsageError(f"--monoid-laws={package}: {error}") from error
        if not collected:
            raise pytest.UsageError(f"--monoid-laws={package}: it has no public monoid")
        items += collected
        session.testscollected = len(items)
        report = pytest.CollectReport(package, "passed", None, [*collected])
        config.hook.pytest_collectreport(report=report)


@dataclass(frozen=True)
class PublicMonoid:
    """A public monoid; ``title`` is as a user writes it. Without ``monoid`` or ``inputs``, ``fault`` says what is
    missing."""

    title: str
    monoid: Monoid[Any] | None = None
    inputs: st.SearchStrategy[Any] | None = None
    fault: str = ""


def public_monoids(package: str) -> list[PublicMonoid]:
    """The public monoids of an importable package or module. ImportError if there is no such module.

    >>> sorted(found.title for found in public_monoids("monoids.numbers.booleans"))
    ['All()', 'Any()', 'CountIf()']
    """
    modules = list(_modules(package))
    lawful = {id(module.LAWFUL): (module, module.LAWFUL) for module in modules if hasattr(module, "LAWFUL")}
    pairs = [_pair(module, item) for module, items in lawful.values() for item in items]
    named = {id(value): value for module in modules for _, value in _public(module) if isinstance(value, Monoid)}
    listed = {id(monoid) for monoid, _ in pairs}
    pairs += [(value, None) for value in named.values() if id(value) not in listed]
    candidates = [_with_inputs(monoid, inputs) for monoid, inputs in pairs]
    known = [monoid for monoid, _ in pairs]
    classes = {value: None for module in modules for _, value in _public(module) if _is_monoid_class(module, value)}
    candidates += [_of_class(cls) for cls in classes if not any(isinstance(monoid, cls) for monoid in known)]
    return [
        PublicMonoid(title, candidate.monoid, candidate.inputs, candidate.fault)
        for title, candidate in zip(titles([candidate.title for candidate in candidates]), candidates)
    ]


def titles(texts: Sequence[str]) -> list[str]:
    """The names of monoids in tests: as a user writes them, numbered where two are written the same.

    >>> titles(["Sum()", "Sum(float)", "Sum()"])
    ['Sum()', 'Sum(float)', 'Sum() 2']
    """
    seen: dict[str, int] = {}
    named = []
    for text in texts:
        title = text if len(text) <= _TITLE_MAX else text[: _TITLE_MAX - 3] + "..."
        seen[title] = seen.get(title, 0) + 1
        named.append(title if seen[title] == 1 else f"{title} {seen[title]}")
    return named


_TITLE_MAX = 80


def _modules(package: str) -> Iterator[ModuleType]:
    try:
        module = importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"{error}: run the command in the folder that holds it, or add that folder to PYTHONPATH"
        ) from error
    except Exception as error:
        raise ImportError(f"{package} cannot be imported: {type(error).__name__}: {error}") from error
    yield module
    if not hasattr(module, "__path__"):
        return
    for info in pkgutil.iter_modules(module.__path__):
        if not info.name.startswith("_"):
            yield from _modules(f"{package}.{info.name}")


def _public(module: ModuleType) -> list[tuple[str, Any]]:
    names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
    return [(name, getattr(module, name)) for name in names]


def _is_monoid_class(module: ModuleType, value: Any) -> bool:
    """Whether it is a class of monoids defined in this module that does not leave ``combine`` to its subclasses."""
    return (
        inspect.isclass(value)
        and issubclass(value, Monoid)
        and value.__module__ == module.__name__
        and not value.__name__.startswith("_")
        and value.combine is not Monoid.combine
        and not inspect.isabstract(value)
    )


def _pair(module: ModuleType, item: Any) -> tuple[Monoid[Any], st.SearchStrategy[Any] | None]:
    monoid, inputs = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
    if not isinstance(monoid, Monoid) or not (inputs is None or isinstance(inputs, st.SearchStrategy)):
        raise TypeError(
            f"{module.__name__}.LAWFUL holds {item!r}: write monoids, or pairs of a monoid and a strategy, as in "
            "LAWFUL = [(Longest(), strategies.text())]"
        )
    return monoid, inputs


def _with_inputs(monoid: Monoid[Any], inputs: st.SearchStrategy[Any] | None) -> PublicMonoid:
    try:
        check(monoid)
    except TypeError as error:
        return PublicMonoid(f"{type(monoid).__name__}()", fault=str(error))
    try:
        return PublicMonoid(repr(monoid), monoid, inputs_for(monoid) if inputs is None else inputs)
    except TypeError as error:
        module = type(monoid).__module__
        fault = f"{error}; or in {module}: LAWFUL = [({monoid!r}, strategies.text())]"
        return PublicMonoid(repr(monoid), monoid, fault=fault)


def _of_class(cls: type[Monoid[Any]]) -> PublicMonoid:
    try:
        monoid = cls()
    except Exception as error:
        name = cls.__name__
        fault = (
            f"{name} needs arguments ({type(error).__name__}: {error}), so no instance of it is "
            f"tested: write in {cls.__module__}: LAWFUL = [({name}(...), strategies.text())]"
        )
        return PublicMonoid(f"{name}()", fault=fault)
    return _with_inputs(monoid, None)
