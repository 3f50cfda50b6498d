"""Shipping pickles a function for a worker; code that the worker cannot import is sent by value."""

from __future__ import annotations

import functools
import io
import os
import pickle
import site
import sys
import sysconfig
import types
from typing import Any

import cloudpickle

from persistent.errors import InvalidPipeline, PersistentError


def ship_by_value(module: types.ModuleType) -> None:
    """Pickle the classes and functions of ``module`` as code, so that workers need not import it.

    The same goes for the modules it uses, unless they are installed packages: workers have those, and their classes
    stay the same objects.
    """
    pending, seen = [module], set()
    while pending:
        module = pending.pop()
        if module.__name__ in seen or _is_installed(module):
            continue
        seen.add(module.__name__)
        if sys.modules.get(module.__name__) is module and module.__name__ != "__main__":
            cloudpickle.register_pickle_by_value(module)
        for value in list(vars(module).values()):
            used = value if isinstance(value, types.ModuleType) else sys.modules.get(_module_of(value))
            if used is not None:
                pending.append(used)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Cloudpickle that ships by value every class and function that workers may be unable to import."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | types.FunctionType):
            module = sys.modules.get(_module_of(obj))
            if module is not None and not _is_known(module.__name__):
                ship_by_value(module)
        return super().reducer_override(obj)


def dumps(value: Any) -> bytes:
    out = io.BytesIO()
    try:
        _Pickler(out, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    except PersistentError:
        raise
    except Exception as error:
        raise InvalidPipeline(
            f"{type(value).__name__} cannot be sent to Spark's workers: {error}. Create unpicklable objects (an open "
            "file, a connection, a lock) where they are used."
        ) from error
    return out.getvalue()


def _module_of(value: Any) -> str:
    name = getattr(value, "__module__", None)
    return name if isinstance(name, str) else ""


@functools.lru_cache(maxsize=4096)
def _is_known(name: str) -> bool:
    """Whether a module is installed, or already shipped by value."""
    module = sys.modules[name]
    return _is_installed(module) or name in cloudpickle.list_registry_pickle_by_value()


def _is_installed(module: types.ModuleType) -> bool:
    name = module.__name__.partition(".")[0]
    if name in ("monoids", "persistent") or name in sys.builtin_module_names or name in sys.stdlib_module_names:
        return True
    spec = getattr(module, "__spec__", None)
    if name == "__main__" or spec is None:
        return False
    # A folder without __init__.py is a module with paths only.
    places = [spec.origin] if spec.has_location else spec.submodule_search_locations or ()
    return all(map(_is_below_installed, places))


def _is_below_installed(place: str) -> bool:
    """Whether a path, or the target of its link, is in an installed folder: some installers link to a cache."""
    return any(path.startswith(_installed_folders()) for path in (os.path.abspath(place), os.path.realpath(place)))


@functools.lru_cache(maxsize=1)
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    # Also folders that a .pth file or PYTHONPATH adds.
    folders += [path for path in sys.path if os.path.basename(path.rstrip("/")) in ("site-packages", "dist-packages")]
    named = {path for folder in folders for path in (os.path.abspath(folder), os.path.realpath(folder))}
    return tuple(path + os.sep for path in sorted(named))
