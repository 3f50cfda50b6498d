"""A schedule is who performs the next operation of a store, and what becomes of it: drawn from a seed, or written down.

Every process is a thread, and only one of them runs at a time: it hands over before each operation. So a seed is a run,
the same every time.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from persistent.errors import StorageError
from persistent.storage import MemoryStorage, Put
from persistent.storage.fsspec_storage import rename_by_copy
from persistent.testing.faults import Killed

FATES = ("killed before", "killed after", "killed half", "answer lost", "not done", "delayed")
_TURNS_MAX = 20_000


@dataclass
class Process:
    """A thread that works on the job. ``hurt``: an operation of it was refused, or got no answer. ``answer``: what it
    returned or raised."""

    name: str
    work: Callable[[Process], Any]
    stop: Callable[[], None] | None = None
    dead: bool = False
    hurt: bool = False
    done: bool = False
    sleeps_until: int = 0
    speed: float = 1.0
    fate: str | None = None
    at: tuple[str, str] = ("start", "")
    answer: Any = None
    go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    thread: threading.Thread | None = None


class Schedule:
    """``faults``: how often an operation does not do what it should; ``sleeps``: how often a process falls asleep."""

    def __init__(self, seed: object, faults: float, sleeps: float) -> None:
        self.drawn = random.Random(repr(seed))
        self.faults = faults
        self.sleeps = sleeps
        self.turn = 0
        self.story: list[str] = []
        self.processes: list[Process] = []
        self.delayed: list[tuple[str, Callable[[], None]]] = []
        self._back = threading.Semaphore(0)

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes if not process.done]

    @property
    def all_asleep(self) -> bool:
        return all(process.sleeps_until > self.turn for process in self.alive)

    def start(self, name: str, work: Callable[[Process], Any]) -> Process:
        """A process begins; it waits before its first operation."""
        process = Process(name, work)
        process.thread = threading.Thread(target=self._live, args=(process,), daemon=True)
        self.processes.append(process)
        self.story.append(f"{name} starts")
        process.thread.start()
        self._back.acquire()
        return process

    def go_on(self) -> None:
        """One operation of some process that is awake."""
        self.turn += 1
        if self.turn > _TURNS_MAX:
            raise AssertionError(f"no end after {_TURNS_MAX} operations")
        awake = [process for process in self.alive if process.sleeps_until <= self.turn]
        if not awake:
            awake = [min(self.alive, key=lambda process: process.sleeps_until)]
        process = self.drawn.choices(awake, [process.speed for process in awake])[0]
        if self.drawn.random() < self.sleeps:
            process.sleeps_until = self.turn + self.drawn.choice((3, 20, 100, 400))
            process.speed = self.drawn.choice((0.05, 0.3, 1.0))
            return
        process.fate = self.drawn.choice(FATES) if self.drawn.random() < self.faults else None
        process.go.release()
        self._back.acquire()

    def land(self, *, every: bool = False) -> None:
        """A delayed request takes effect, or is lost on its way."""
        while self.delayed:
            name, effect = self.delayed.pop(self.drawn.randrange(len(self.delayed)))
            if self.drawn.random() < 0.8:
                self.story.append(f"the delayed {name} arrives")
                effect()
            if not every:
                return

    def turn_of(self, process: Process, verb: str, name: str, *, fated: bool = True) -> str | None:
        """Called by a process before an operation: wait for its turn; what is to become of it. ``fated``: it may also
        be that it does not happen as it should."""
        if process.dead:
            raise Killed("dead")
        process.at = verb, name
        self._back.release()
        process.go.acquire()
        if process.dead:
            raise Killed("dead")
        fate = process.fate if fated else None
        process.dead = fate is not None and fate.startswith("killed")
        process.hurt = process.hurt or fate is not None
        self.story.append(f"{process.name}: {verb} {name}" + (f" [{fate}]" if fate else ""))
        return fate

    def end(self) -> None:
        """Nobody goes on."""
        for process in self.alive:
            process.dead = True
            process.go.release()
            self._back.acquire()
        for process in self.processes:
            assert process.thread is not None
            process.thread.join(10)

    def _live(self, process: Process) -> None:
        try:
            process.answer = process.work(process)
        except BaseException as error:
            # Killed is none, and what else is raised is judged by whoever looks at the answer.
            process.answer = error
        process.done = True
        told = f"{type(process.answer).__name__}: {process.answer}" if _is_error(process.answer) else "done"
        self.story.append(f"{process.name} ends: {told[:200]}")
        self._back.release()


def _is_error(answer: Any) -> bool:
    return isinstance(answer, BaseException)


Watch = Callable[[str, str, str, Any], None]
"""Told of each effect: which store, verb, name (of a rename: the new one), and the data put."""


class SimulatedStorage:
    """A store as one process sees it; its operations are turns of the schedule. ``where``: "checkpoint" or "sink".
    ``copies``: it has no rename."""

    shared = False
    local = True

    def __init__(
        self,
        inner: MemoryStorage,
        where: str,
        process: Process,
        schedule: Schedule,
        watch: Watch,
        *,
        copies: bool = False,
    ) -> None:
        self.inner = inner
        self.copies = copies
        self.where = where
        self.process = process
        self.schedule = schedule
        self.watch = watch
        self.url = inner.url

    def put_if_absent(self, name: str, data: bytes) -> Put:
        answers = [Put.UNKNOWN]

        def put() -> None:
            answers[0] = self.inner.put_if_absent(name, data)
            if answers[0] is Put.WON:
                self.watch(self.where, "put", name, data)

        return answers[0] if self._happens("put_if_absent", name, put) else Put.UNKNOWN

    def write(self, name: str, data: bytes | pa.Buffer) -> None:
        self._happens("write", name, lambda: self.inner.write(name, data), must=True)

    def read(self, name: str) -> pa.Buffer:
        self._happens("read", name, lambda: None, must=True)
        return self.inner.read(name)

    def list(self, folder: str) -> list[str]:
        self._happens("list", folder, lambda: None, must=True)
        return self.inner.list(folder)

    def rename(self, source: str, target: str) -> None:
        if self.copies:
            rename_by_copy(self, source, target, 3)
            return

        def rename() -> None:
            self.inner.rename(source, target)
            self.watch(self.where, "rename", target, source)

        def half() -> None:
            if source in self.inner._files:
                self.inner._files.setdefault(target, self.inner._files[source])
                self.watch(self.where, "rename", target, source)

        self._happens("rename", f"{source} to {target}", rename, half, must=True)

    def delete(self, name: str) -> None:
        def delete() -> None:
            if name in self.inner._files:
                self.inner.delete(name)
                self.watch(self.where, "delete", name, None)

        self._happens("delete", name, delete, must=True)

    def _happens(
        self,
        verb: str,
        name: str,
        effect: Callable[[], None],
        half: Callable[[], None] | None = None,
        *,
        must: bool = False,
    ) -> bool:
        """Let it happen as the schedule says; False where there is no answer, which raises if one ``must`` be."""
        fate = self.schedule.turn_of(self.process, verb, name)
        if fate in (None, "killed after", "answer lost"):
            effect()
        elif fate == "killed half" and half is not None:
            half()
        elif fate == "delayed":
            self.schedule.delayed.append((f"{verb} {name}", lambda: _if_it_can(effect)))
        if self.process.dead:
            raise Killed(fate or "")
        if fate is None:
            return True
        if must:
            raise StorageError(f"cannot {verb} {self.url}/{name}: no answer")
        return False


def _if_it_can(effect: Callable[[], None]) -> None:
    """A request whose sender has gone: nobody hears that it failed."""
    try:
        effect()
    except (FileNotFoundError, FileExistsError):
        return
