"""Another Python process has another seed of ``hash``, as after a crash or on a worker.

The task is sent to it by cloudpickle, as to Spark's workers.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from types import ModuleType

import cloudpickle

from persistent.errors import EngineError, InvalidPipeline
from persistent.task import PersistentTask
from persistent.testing.outcome import Outcome
from persistent.testing.running import InputRecords, Settings, at_once, maker

_OURS = ("persistent", "monoids", "builtins", "__main__")
_SEEDS = ("1", "2")


class OtherProcess:
    """Runs a task in one other process, which starts at first use and ends with ``with``."""

    _process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OtherProcess:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._process is not None:
            self._pipe.close()
            self._process.kill()
            self._process.wait()

    def _begin(self) -> None:
        self._pipe, there = Pipe()
        seed = _SEEDS[os.environ.get("PYTHONHASHSEED") == _SEEDS[0]]
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-c", f"from persistent.testing.other_process import serve; serve({there.fileno()})"]
        self._process = subprocess.Popen(command, env=environment, pass_fds=[there.fileno()])
        there.close()

    def run(self, task: PersistentTask, records: InputRecords, settings: Settings) -> Outcome:
        """Run all records at once in the other process. Its errors are raised here as ``EngineError``."""
        data = _pickled(task, records, settings, ())
        if self._process is None:
            self._begin()
        answer = self._ask(data)
        if isinstance(answer, _NotFound):
            answer = self._ask(_pickled(task, records, settings, _modules_of(task)))
        if not isinstance(answer, Outcome):
            raise EngineError(answer.error)
        return answer

    def _ask(self, data: bytes) -> Outcome | _Failed:
        try:
            self._pipe.send_bytes(data)
            answer: Outcome | _Failed = pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as gone:
            raise EngineError("the other process ended without an answer: see its output for the cause") from gone
        return answer


@dataclass(frozen=True)
class _Failed:
    """The other process failed."""

    error: str


class _NotFound(_Failed):
    """The other process cannot import the task's module."""


def serve(descriptor: int) -> None:
    """Answer requests until the pipe closes."""
    pipe = Connection(descriptor)
    while True:
        try:
            data = pipe.recv_bytes()
        except EOFError:
            return
        pipe.send_bytes(pickle.dumps(_answer(data)))


def _answer(data: bytes) -> Outcome | _Failed:
    try:
        task, records, settings = pickle.loads(data)
    except Exception as error:
        return _NotFound(f"{type(error).__name__}: {error}")
    try:
        return at_once(maker(task), records, settings)
    except Exception as error:
        return _Failed(f"{type(error).__name__}: {error}")


def _modules_of(task: PersistentTask) -> list[ModuleType]:
    """The modules of the task's classes, except those of Python and of this project."""
    names = {cls.__module__ for cls in type(task).__mro__ if cls.__module__.split(".")[0] not in _OURS}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


def _pickled(task: PersistentTask, records: InputRecords, settings: Settings, by_value: Sequence[ModuleType]) -> bytes:
    """Pickle as Spark does: importable code by reference, the modules of ``by_value`` as code."""
    registered = [module for module in by_value if module.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    try:
        for module in registered:
            cloudpickle.register_pickle_by_value(module)
        return cloudpickle.dumps((task, records, settings))  # type: ignore[no-any-return]
    except Exception as error:
        raise InvalidPipeline(
            f"{type(task).__name__} cannot be sent to another process ({type(error).__name__}: {error}), and so not "
            "to a Spark worker: create its unpicklable parts where they are used; or verify_task(..., elsewhere=False)"
        ) from error
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)
