"""Loading turns ``FILE_OR_MODULE:NAME`` into the pipeline or monoid that it names.

A file runs as a module, with its folder on the path, as a script does. So it can import its neighbours, and Spark's
workers receive its classes by value.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from monoids import Monoid
from persistent.errors import InvalidPipeline, PersistentError
from persistent.pipeline import Pipeline
from persistent.state.rows import values_of
from persistent.task.task import PersistentTask, check_task, named_states

_TARGET = re.compile(r"(.+):([A-Za-z_]\w*)")
_ABSENT: Any = object()


def names_pipeline(target: str) -> bool:
    """Whether ``target`` has the form FILE_OR_MODULE:NAME, and is not a folder.

    >>> names_pipeline("visits.py:pipeline"), names_pipeline("s3://bucket/visits"), names_pipeline("visits-checkpoint")
    (True, False, False)
    """
    return bool(_TARGET.fullmatch(target)) and not os.path.exists(target)


def load_pipeline(target: str) -> Pipeline:
    """The pipeline at ``FILE.py:NAME`` or ``package.module:NAME``: a Pipeline, or a function without arguments that
    returns one. Raises InvalidPipeline."""
    module, pipeline = _named(target, "a pipeline", Pipeline)
    if not isinstance(pipeline, Pipeline):
        raise InvalidPipeline(
            f"{target} is {type(pipeline).__name__}, not a Pipeline nor a function without arguments that returns one"
            f"{_choices(module, Pipeline)}"
        )
    return pipeline


def load_monoid(target: str) -> tuple[Monoid[Any], Any]:
    """The monoid at ``FILE.py:NAME`` or ``package.module:NAME``, and the strategy for its inputs, or None.

    NAME is a monoid, a class of monoids or tasks without required arguments, a pair of a monoid and a strategy, a
    function that returns one of these, or a task or pipeline, for the monoid of its state. Raises InvalidPipeline.
    """
    module, value = _named(target, "a monoid", Monoid)
    value, inputs = value if isinstance(value, tuple) and len(value) == 2 else (value, None)
    if isinstance(value, type) and issubclass(value, Monoid | PersistentTask):
        try:
            value = value()
        except TypeError as error:
            raise InvalidPipeline(
                f"{target} cannot be created without arguments ({error}): name an instance"
            ) from error
    if isinstance(value, Pipeline):
        value = value.task
    if isinstance(value, PersistentTask):
        states = named_states(check_task(value))
        if len(states) > 1:
            raise InvalidPipeline(f"{target} has the states {', '.join(states)}: name the monoid of one of them")
        (state,) = states.values()
        value = values_of(state.monoid)
    if not isinstance(value, Monoid):
        raise InvalidPipeline(
            f"{target} is {type(value).__name__}, not a monoid, nor a task or pipeline, whose state has one"
            f"{_choices(module, Monoid)}"
        )
    return value, inputs


def _named(target: str, what: str, kind: type) -> tuple[ModuleType, Any]:
    """The module that ``target`` names, and the object in it; if that is a function, what the function returns."""
    match = _TARGET.fullmatch(target)
    if not match:
        such = f", as in {target}:{kind.__name__.lower()}" if os.path.isfile(target) else ""
        raise InvalidPipeline(f"{target}: name {what} as FILE.py:NAME or package.module:NAME{such}")
    place, name = match[1], match[2]
    module = _module(place)
    value = getattr(module, name, _ABSENT)
    if value is _ABSENT:
        raise InvalidPipeline(f"{place} has no {name!r}{_choices(module, kind)}")
    if callable(value) and not isinstance(value, Pipeline | Monoid | PersistentTask | type):
        try:
            value = value()
        except PersistentError:
            raise
        except Exception as error:
            raise InvalidPipeline(f"{place}: {name}() raised {_shown(error, place)}") from error
    return module, value


def _module(place: str) -> ModuleType:
    is_file = place.endswith(".py") or os.path.isfile(place)
    try:
        return _run_file(place) if is_file else _import(place)
    except PersistentError:
        raise
    except Exception as error:
        raise InvalidPipeline(f"{place} cannot be loaded: {_shown(error, place)}") from error


def _run_file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        beside = [file.name for file in Path(path).parent.glob("*.py")]
        near = difflib.get_close_matches(os.path.basename(path), beside, 1)
        meant = f", but {near[0]} is there" if near else ""
        raise InvalidPipeline(f"{path}: no such file{meant}: correct the path, which begins at {os.getcwd()}")
    path = os.path.abspath(path)
    _put_on_path(os.path.dirname(path))
    name = re.sub(r"\W", "_", os.path.basename(path).removesuffix(".py"))
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"{name}_file"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidPipeline(f"{path} is not a Python file: give a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import(name: str) -> ModuleType:
    _put_on_path(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise InvalidPipeline(
            f"{name} cannot be loaded: {error}: run the command in the folder that holds it, add that folder to "
            "PYTHONPATH, or name its file, as in jobs/visits.py:NAME"
        ) from error


def _put_on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _choices(module: ModuleType, kind: type) -> str:
    """The possible names: instances of ``kind``, and its subclasses that the module defines."""
    names = sorted(
        name
        for name, value in vars(module).items()
        if isinstance(value, kind)
        or (isinstance(value, type) and issubclass(value, kind) and value.__module__ == module.__name__)
    )
    return f"; its {kind.__name__.lower()}s: {', '.join(names)}" if names else ""


def _shown(error: Exception, place: str) -> str:
    """The error, with the last line that failed in the user's file."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if os.path.basename(trace.tb_frame.f_code.co_filename) == os.path.basename(place):
            line = trace.tb_lineno
        trace = trace.tb_next
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, ModuleNotFoundError):
        text += f": install it, or correct the name; the Python is {sys.executable}"
    return f"{text} (line {line})" if line else text
