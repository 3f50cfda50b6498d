"""A bench runs the tests of one module, each time with another mutant of it in its place.

A mutant is made in memory, in a process of its own, forked from one that has everything imported but the package;
the checkout is never written.
"""

from __future__ import annotations

import ast
import ctypes
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import logging
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.proof.mutants_explained import EXPLAINED
from tests.proof.mutation import ROOT, Mutation, mutated, mutations

_MEMORY_BYTES_MAX = 16 << 30
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Mirror:
    """The tests of a module, fastest first; ``without``: words of those that tell nothing and take long."""

    module: str
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    root: Path = ROOT

    @property
    def path(self) -> Path:
        """Where the module is."""
        plain = self.root / (self.module.replace(".", "/") + ".py")
        return plain if plain.exists() else plain.with_suffix("") / "__init__.py"

    @property
    def key(self) -> str:
        """Changes whenever the module or its tests do, or what is counted as a mutant."""
        found = hashlib.sha256(repr((self.module, self.tests, self.without)).encode())
        for path in [self.path, *(self.root / test for test in self.tests), Path(__file__).with_name("mutation.py")]:
            found.update(path.read_bytes())
        return found.hexdigest()[:16]

    def mutations(self) -> list[Mutation]:
        """All of the module."""
        return mutations(self.module, self.path.read_text())


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: "killed", "timeout" or "survived"."""

    mutation: Mutation
    end: str
    seconds: float = 0.0

    @property
    def is_found(self) -> bool:
        """A hang is noticed too."""
        return self.end != "survived"

    @property
    def explanation(self) -> str:
        """Why nobody can tell it from the original; empty if somebody could."""
        return EXPLAINED.get((self.mutation.module, self.mutation.text, self.mutation.change), "")

    @property
    def is_explained(self) -> bool:
        """Whether it survived, as it must."""
        return not self.is_found and bool(self.explanation)

    @property
    def is_survivor(self) -> bool:
        """Whether a test is missing."""
        return not self.is_found and not self.explanation


class Bench:
    """Runs the tests of one module, as it is first, then with each mutant.

    Tests that fail with the module as it is would find anything: that raises RuntimeError.
    """

    def __init__(self, mirror: Mirror, seconds_max: float = 900.0) -> None:
        self.mirror = mirror
        self._source = mirror.path.read_text()
        self._folder = tempfile.TemporaryDirectory(prefix="mutants-")
        # What is compiled is kept for all mutants of the module, apart from the checkout.
        sys.pycache_prefix, sys.dont_write_bytecode = self._folder.name, False
        seen = Path(self._folder.name) / "modules"
        end, seconds, told = _run(mirror, None, seconds_max, seen)
        if end != "survived":
            raise RuntimeError(f"{mirror.module}: its tests fail as it is ({end}); mend them first.\n{told}")
        _preload(json.loads(seen.read_text()))
        self.seconds_max = 10.0 + 4 * seconds

    def tried(self, mutation: Mutation) -> Verdict:
        """What became of this mutant."""
        return Verdict(mutation, *self.ended(mutated(self._source, mutation.number)))

    def ended(self, mutant: ast.Module | str) -> tuple[str, float]:
        """How the tests ended with this in the place of the module, after how many seconds."""
        end, seconds, _ = _run(self.mirror, compile(mutant, str(self.mirror.path), "exec"), self.seconds_max)
        return end, seconds


def _run(mirror: Mirror, code: Any, seconds_max: float, seen: Path | None = None) -> tuple[str, float, str]:
    """Run the tests in a forked process: how it ended, after how many seconds, and the end of what it printed."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        log = Path(folder) / "log"
        # Here, as it may be killed before it begins.
        log.touch()
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            _child(mirror, code, Path(folder), log, seen)
        ended = select.poll()
        descriptor = os.pidfd_open(process)
        try:
            ended.register(descriptor, select.POLLIN)
            in_time = bool(ended.poll(seconds_max * 1000))
        finally:
            os.close(descriptor)
            # Its whole group: a test may have begun processes of its own.
            with suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            _, status = os.waitpid(process, 0)
        told = log.read_text(errors="replace")[-2000:]
    if not in_time:
        return "timeout", time.monotonic() - began, told
    code = os.waitstatus_to_exitcode(status)
    if code == 5:
        raise RuntimeError(f"{mirror.module}: no test was run.\n{told}")
    return "survived" if code == 0 else "killed", time.monotonic() - began, told


def _child(mirror: Mirror, code: Any, folder: Path, log: Path, seen: Path | None) -> None:
    """What the forked process does; it never comes back."""
    status = 3
    try:
        # It ends with its parent, which may itself be ended from outside.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT)
        for descriptor in (1, 2):
            os.dup2(output, descriptor)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
        os.chdir(mirror.root)
        # The section that asks is silent, and tests read what is logged.
        logging.getLogger("persistent").setLevel(logging.NOTSET)
        _forget()
        sys.path.insert(0, str(mirror.root))
        import pytest

        words = " and ".join(f"not {word}" for word in mirror.without)
        chosen = ["-k", words] if words else []
        plain = [
            "-x",
            "-q",
            "--tb=line",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            f"--basetemp={folder / 'base'}",
        ]
        doctests = ["--doctest-modules", str(mirror.path)]
        finder = _Finder(mirror, code) if code is not None else None
        status = int(pytest.main([*plain, *chosen, *doctests, *mirror.tests], plugins=[_Plugin(finder, seen)]))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


class _Plugin:
    """Puts the mutant in place; a failure is enough, the smallest example of it is not wanted."""

    def __init__(self, finder: _Finder | None, seen: Path | None) -> None:
        self._finder, self._seen = finder, seen

    def pytest_configure(self, config: Any) -> None:
        """After conftest has chosen its profile, before the first test is read."""
        from hypothesis import Phase, settings

        settings.register_profile("mutants", settings(phases=(Phase.explicit, Phase.generate)))
        settings.load_profile("mutants")
        if self._finder is not None:
            # Here, because pytest has put its own finder first, which would find the module as it is on the disk.
            assert self._finder.module not in sys.modules, f"{self._finder.module} is imported too early"
            sys.meta_path.insert(0, self._finder)

    def pytest_sessionfinish(self) -> None:
        """Tell what was imported."""
        if self._seen is not None:
            self._seen.write_text(json.dumps(list(sys.modules)))


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds the mutant where the module is looked for."""

    def __init__(self, mirror: Mirror, code: Any) -> None:
        self._mirror, self._code = mirror, code
        self.module = mirror.module

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> Any:
        """Of the one module only."""
        if fullname != self._mirror.module:
            return None
        where = self._mirror.path
        submodules = [str(where.parent)] if where.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            fullname, where, loader=self, submodule_search_locations=submodules
        )

    def get_source(self, fullname: str) -> str:
        """The source as it was, for tracebacks."""
        return self._mirror.path.read_text()

    def get_filename(self, fullname: str) -> str:
        """Where it was."""
        return str(self._mirror.path)

    def exec_module(self, module: ModuleType) -> None:
        """Run the mutant."""
        exec(self._code, module.__dict__)


def _is_ours(name: str) -> bool:
    top, _, rest = name.partition(".")
    if top == "tests":
        return bool(rest)
    return top in {"persistent", "pytest_persistent", "pytest_monoids", "monoids", "conftest"} or top.startswith(
        "test_"
    )


def _forget() -> None:
    """What was imported of ours is imported anew."""
    for name in [name for name in sys.modules if _is_ours(name)]:
        del sys.modules[name]


def _preload(names: Iterable[str]) -> None:
    """What tests import of others, once for all mutants."""
    for name in names:
        if name not in sys.modules and not _is_ours(name) and not name.startswith("__"):
            with suppress(Exception):
                importlib.import_module(name)
