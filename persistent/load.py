"""To load is to turn ``FILE_OR_MODULE:NAME`` into the pipeline that a user wrote there.

A file is run as a module of its own, with its folder on the path, as Python does with a script: so what it imports
from beside it is found, and Spark's workers get its classes by value.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from types import ModuleType

from persistent.errors import InvalidPipeline, PersistentError
from persistent.pipeline import Pipeline

_TARGET = re.compile(r"(.+):([A-Za-z_]\w*)")


def names_pipeline(target: str) -> bool:
    """Whether ``target`` is of the form FILE_OR_MODULE:NAME, and no folder.

    >>> names_pipeline("visits.py:pipeline"), names_pipeline("s3://bucket/visits"), names_pipeline("visits-checkpoint")
    (True, False, False)
    """
    return bool(_TARGET.fullmatch(target)) and not os.path.exists(target)


def load_pipeline(target: str) -> Pipeline:
    """The pipeline named by ``FILE.py:NAME`` or ``package.module:NAME``: a Pipeline, or a function without arguments
    that returns one. InvalidPipeline says what is wrong with it."""
    match = _TARGET.fullmatch(target)
    if not match:
        raise InvalidPipeline(f"{target}: name a pipeline as FILE.py:NAME or package.module:NAME")
    place, name = match[1], match[2]
    module = _module(place)
    if not hasattr(module, name):
        raise InvalidPipeline(f"{place} has no {name!r}{_choices(module)}")
    found = getattr(module, name)
    if callable(found) and not isinstance(found, Pipeline | type):
        try:
            found = found()
        except PersistentError:
            raise
        except Exception as error:
            raise InvalidPipeline(f"{place}: {name}() raised {_shown(error, place)}") from error
    if not isinstance(found, Pipeline):
        raise InvalidPipeline(
            f"{target} is {type(found).__name__}, not a Pipeline nor a function without arguments that returns one"
            f"{_choices(module)}"
        )
    return found


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
        raise InvalidPipeline(f"{path}: no such file")
    path = os.path.abspath(path)
    _put_on_path(os.path.dirname(path))
    name = re.sub(r"\W", "_", os.path.basename(path).removesuffix(".py"))
    if name in sys.modules or name in sys.stdlib_module_names:
        name = f"{name}_file"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidPipeline(f"{path} is not a Python file: its name ends in .py")
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
    return importlib.import_module(name)


def _put_on_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _choices(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, Pipeline))
    return f"; its pipelines: {', '.join(names)}" if names else ""


def _shown(error: Exception, place: str) -> str:
    """The error with the last line of the user's file that it passed."""
    line, trace = 0, error.__traceback__
    while trace is not None:
        if os.path.basename(trace.tb_frame.f_code.co_filename) == os.path.basename(place):
            line = trace.tb_lineno
        trace = trace.tb_next
    text = f"{type(error).__name__}: {error}"
    return f"{text} (line {line})" if line else text
