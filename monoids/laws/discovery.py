"""Discovery collects every public monoid of a package, with the inputs that its laws are tested on.

It reads the package and its modules, except those whose name begins with an underscore, and in each the public names
(``__all__`` if it exists):

    an instance of a monoid       is tested
    a class of monoids            is tested as constructed without arguments, unless an instance is tested anyway
    LAWFUL                        a list of monoids, or pairs of a monoid and a strategy of its inputs

A monoid that cannot be tested is listed too, with a sentence that says what to write.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

from monoids.laws.decorators import titles
from monoids.laws.strategies import inputs_for
from monoids.monoid import Monoid, check


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
    found = [_with_inputs(monoid, inputs) for monoid, inputs in pairs]
    known = [monoid for monoid, _ in pairs]
    classes = {value: None for module in modules for _, value in _public(module) if _is_monoid_class(module, value)}
    found += [_of_class(cls) for cls in classes if not any(isinstance(monoid, cls) for monoid in known)]
    return [
        PublicMonoid(title, one.monoid, one.inputs, one.fault)
        for title, one in zip(titles([one.title for one in found]), found)
    ]


# Internals.


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
