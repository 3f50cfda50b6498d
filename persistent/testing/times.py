"""User time is the time of day that a task's module reads from Python: here, a chosen time.

It replaces ``time.time()`` and ``time.time_ns()`` everywhere; and these, ``datetime`` and ``date``, under any name in
the modules of the task's classes.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from persistent.task import PersistentTask

_TIME = sys.modules["time"]
_OF_DAY = ("time", "time_ns")
_OTHERS = ("persistent", "monoids", "builtins")


@contextmanager
def user_time(task: PersistentTask, now_ms: int) -> Iterator[None]:
    """While the context is open, it is ``now_ms`` for the task."""
    known = _replacements(now_ms)
    with ExitStack() as restored:
        for name in _OF_DAY:
            _replace(vars(_TIME), name, known[id(getattr(_TIME, name))], restored)
        for names in _globals_of(task):
            for name, value in list(names.items()):
                if id(value) in known:
                    _replace(names, name, known[id(value)], restored)
        yield


def _replace(names: dict[str, Any], name: str, value: Any, restored: ExitStack) -> None:
    restored.callback(names.__setitem__, name, names[name])
    names[name] = value


def _globals_of(task: PersistentTask) -> list[dict[str, Any]]:
    """The global names of the functions of the task's own classes, its key functions included."""
    own = [cls for cls in type(task).__mro__ if cls.__module__.split(".")[0] not in _OTHERS]
    functions = [value for cls in own for value in vars(cls).values()]
    if isinstance(task.key, Mapping):
        functions += task.key.values()
    found = [getattr(function, "__globals__", None) for function in functions]
    return list({id(names): names for names in found if names is not None}.values())


def _replacements(now_ms: int) -> dict[int, Any]:
    """The replacement of each object that reads the time, by its ``id``."""

    def reading(name: str) -> Any:
        return lambda: now_ms * 1_000_000 if name.endswith("_ns") else now_ms / 1_000

    readings = {name: reading(name) for name in _OF_DAY}
    known: dict[int, Any] = {id(getattr(_TIME, name)): value for name, value in readings.items()}
    days = _standing(datetime.datetime, now_ms), _standing(datetime.date, now_ms)
    known |= {id(datetime.datetime): days[0], id(datetime.date): days[1]}
    module = ModuleType("datetime")
    vars(module).update(vars(datetime), datetime=days[0], date=days[1])
    known[id(datetime)] = module
    return known


def _standing(kind: type[Any], now_ms: int) -> type[Any]:
    """``datetime`` or ``date`` that always read ``now_ms``; true values are instances too."""

    class Meta(type(kind)):  # type: ignore[misc]
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, kind)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, kind)

    def at(cls: Any, zone: Any = None, tz: Any = None) -> Any:
        return datetime.datetime.fromtimestamp(now_ms / 1_000, zone or tz)

    def utc(cls: Any) -> Any:
        return datetime.datetime.fromtimestamp(now_ms / 1_000, datetime.UTC).replace(tzinfo=None)

    def day(cls: Any) -> Any:
        return at(cls) if kind is datetime.datetime else at(cls).date()

    methods = {"now": classmethod(at), "utcnow": classmethod(utc), "today": classmethod(day)}
    return Meta(kind.__name__, (kind,), methods)
