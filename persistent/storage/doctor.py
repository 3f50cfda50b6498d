"""The doctor probes a store: if many create one name at once, exactly one must win, as checkpoints require."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from persistent.errors import StorageError
from persistent.storage.fsspec_storage import FsspecStorage
from persistent.storage.opening import leave_evidence, open_storage, withdraw_evidence
from persistent.storage.protocol import Put, Storage
from persistent.time.clock import monotonic_s

_FOLDER = ".doctor"
_ROUNDS = 300
_ROUNDS_MIN = 20
_RACE_SECONDS_MAX = 15
_THREADS = 8
_LEAD_SECONDS = 0.002
_SWITCH_SECONDS = 1e-6


@dataclass(frozen=True)
class Probe:
    """One question to a store, and its outcome."""

    name: str
    passed: bool
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """The results of the probes of a store."""

    url: str
    probes: tuple[Probe, ...]

    @property
    def is_safe(self) -> bool:
        """Whether several drivers can commit checkpoints there."""
        return all(probe.passed for probe in self.probes)


def probe(url: str, *, rounds: int = _ROUNDS) -> Diagnosis:
    """Probe the store in a folder. Leaves only ``DOCTOR`` behind, if ``open_storage`` requires it.

    ``rounds``: the number of races. On a slow store fewer are enough: there, a create in two steps leaves a long gap
    between the steps. Takes up to a minute. Failed probes are in the diagnosis, not raised.

    >>> import tempfile
    >>> probe(tempfile.mkdtemp(), rounds=3).is_safe
    True
    """
    try:
        storage = open_storage(url, unsafe_single_driver=True)
        probes = tuple(_probed(storage, rounds))
    except StorageError as error:
        return Diagnosis(url, (Probe("open", False, str(error)),))
    diagnosis = Diagnosis(storage.url, probes)
    if isinstance(storage, FsspecStorage) and not storage.is_known:
        if diagnosis.is_safe:
            leave_evidence(storage)
        elif probes[0].passed:
            withdraw_evidence(storage)
    return diagnosis


class _Unfit(Exception):
    """A sentence that says what the store does wrong."""


def _probed(storage: Storage, rounds: int) -> Iterator[Probe]:
    prefix = f"{_FOLDER}/{uuid.uuid4().hex}"
    questions: tuple[tuple[str, Callable[[], str]], ...] = (
        ("create", lambda: _create(storage, f"{prefix}-create")),
        ("overwrite", lambda: _overwrite(storage, f"{prefix}-overwrite")),
        ("list", lambda: _list(storage, f"{prefix}-list")),
        ("rename", lambda: _rename(storage, f"{prefix}-rename")),
        ("delete", lambda: _delete(storage, f"{prefix}-delete")),
        ("race of threads", lambda: _race_of_threads(storage, f"{prefix}-threads", rounds)),
        ("race of processes", lambda: _race_of_processes(storage, f"{prefix}-processes", rounds)),
    )
    try:
        for name, question in questions:
            answer = _asked(name, question)
            yield answer
            if name == "create" and not answer.passed:
                return
    finally:
        with suppress(StorageError):
            for name in storage.list(_FOLDER):
                if f"{_FOLDER}/{name}".startswith(prefix):
                    storage.delete(f"{_FOLDER}/{name}")


def _asked(name: str, question: Callable[[], str]) -> Probe:
    try:
        return Probe(name, True, question())
    except (_Unfit, StorageError) as error:
        return Probe(name, False, str(error))
    except OSError as error:
        return Probe(name, False, f"{type(error).__name__}: {error}")


def _create(storage: Storage, name: str) -> str:
    """A new file is readable at once, whatever its size."""
    for number, data in enumerate((b"", b"x", os.urandom(1 << 20))):
        answer = storage.put_if_absent(f"{name}-{number}", data)
        if answer is Put.LOST:
            raise _Unfit(f"creating a new file of {len(data)} bytes is refused, as if it existed")
        if _content(storage, f"{name}-{number}") != data:
            raise _Unfit(f"a new file of {len(data)} bytes does not read back as it was written")
    return "a new file reads back at once as it was written"


def _overwrite(storage: Storage, name: str) -> str:
    for number, (first, second) in enumerate(((b"first", b"second"), (b"first", b""), (b"", b"second"))):
        storage.put_if_absent(f"{name}-{number}", first)
        answer = storage.put_if_absent(f"{name}-{number}", second)
        if answer is Put.WON or _content(storage, f"{name}-{number}") != first:
            raise _Unfit(f"a file of {len(first)} bytes is overwritten by a second create of {len(second)} bytes")
    return "a second create is refused and changes nothing"


def _list(storage: Storage, name: str) -> str:
    folder, _, stem = name.rpartition("/")
    for number in range(5):
        storage.put_if_absent(f"{name}-{number:02d}", b"")
        listed = [file for file in storage.list(folder) if file.startswith(stem)]
        if listed != [f"{stem}-{known:02d}" for known in range(number + 1)]:
            raise _Unfit(f"after {number + 1} files were created, a list shows {len(listed)}")
    return "a list shows a file as soon as it is created"


def _rename(storage: Storage, name: str) -> str:
    storage.write(f"{name}-source", b"source")
    storage.write(f"{name}-taken", b"taken")
    try:
        storage.rename(f"{name}-source", f"{name}-taken")
    except FileExistsError:
        pass
    else:
        raise _Unfit("a rename overwrites its target")
    storage.rename(f"{name}-source", f"{name}-target")
    contents = [_content(storage, f"{name}-{which}") for which in ("source", "taken", "target")]
    if contents != [None, b"taken", b"source"]:
        raise _Unfit("a rename does not move the file, or changes another")
    return "a rename moves a file and never overwrites another"


def _delete(storage: Storage, name: str) -> str:
    storage.write(name, b"x")
    storage.delete(name)
    storage.delete(name)
    if _content(storage, name) is not None or name.rpartition("/")[2] in storage.list(_FOLDER):
        raise _Unfit("a deleted file is still visible")
    return "a deleted file is gone at once"


def _race_of_threads(storage: Storage, name: str, rounds: int) -> str:
    answers: list[list[Put | str]] = []
    is_over = _turns(rounds)
    over = threading.Event()

    def next_turn() -> None:
        if is_over(len(answers)):
            over.set()
        else:
            answers.append(["no answer"] * _THREADS)

    gate = threading.Barrier(_THREADS, action=next_turn)

    def run(number: int) -> None:
        while gate.wait() >= 0 and not over.is_set():
            turn = len(answers) - 1
            try:
                answers[turn][number] = _create_and_read(storage, f"{name}-{turn}", number)
            except Exception as error:
                answers[turn][number] = f"{type(error).__name__}: {error}"

    with _switching():
        racers = [threading.Thread(target=run, args=(number,)) for number in range(_THREADS)]
        for racer in racers:
            racer.start()
        for racer in racers:
            racer.join()
    return _judged(storage, name, answers, f"{_THREADS} threads")


def _create_and_read(storage: Storage, name: str, number: int) -> Put | str:
    """The answer of the store, or the fault. A loser relies on the winner's file: it must exist and be whole."""
    answer = storage.put_if_absent(name, _data(number))
    if answer is Put.LOST and _content(storage, name) not in [_data(racer) for racer in range(_THREADS)]:
        return "the winner's file is missing or incomplete"
    return answer


def _turns(rounds: int) -> Callable[[int], bool]:
    """A function of the number of turns done: whether the race is over, by ``rounds`` or by time."""
    end = monotonic_s() + _RACE_SECONDS_MAX
    return lambda done: done >= rounds or (done >= _ROUNDS_MIN and monotonic_s() > end)


@contextmanager
def _switching() -> Iterator[None]:
    """Switch threads so often that a thread runs between the two steps of another thread's create."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _race_of_processes(storage: Storage, name: str, rounds: int) -> str:
    if not storage.shared:
        raise _Unfit("only this process sees the files, so no other driver or worker can")
    count = max(2, min(4, os.cpu_count() or 2))
    command = [sys.executable, "-m", "persistent.storage.racer", storage.url]
    paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
    racers = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        for _ in range(count)
    ]
    try:
        if any(_heard(racer) != "ready" for racer in racers):
            raise _Unfit(
                "another process cannot open it, as an engine's workers must: check that python -m "
                "persistent.storage.racer runs there"
            )
        is_over = _turns(rounds)
        answers: list[list[Put | str]] = []
        while not is_over(len(answers)):
            answers.append(_round(racers, f"{name}-{len(answers)}"))
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
    return _judged(storage, name, answers, f"{count} processes")


def _round(racers: Sequence[subprocess.Popen[str]], name: str) -> list[Put | str]:
    moment = monotonic_s() + _LEAD_SECONDS
    for number, racer in enumerate(racers):
        assert racer.stdin is not None
        racer.stdin.write(f"{moment} {name} {_data(number).decode()}\n")
        racer.stdin.flush()
    heard = [_heard(racer) for racer in racers]
    return [Put(text) if text in {put.value for put in Put} else text for text in heard]


def _heard(racer: subprocess.Popen[str]) -> str:
    assert racer.stdout is not None
    return racer.stdout.readline().strip()


def _judged(storage: Storage, name: str, answers: Sequence[Sequence[Put | str]], racers: str) -> str:
    """The sentence for a race without faults; otherwise raises _Unfit."""
    rounds = len(answers)
    for row in answers:
        for answer in row:
            if not isinstance(answer, Put):
                raise _Unfit(f"a create fails among {racers} at once: {answer}")
    twice = sum(row.count(Put.WON) > 1 for row in answers)
    if twice:
        raise _Unfit(
            f"{twice} of {rounds} races of {racers} had more than one winner: two drivers would commit one checkpoint"
        )
    for turn, row in enumerate(answers):
        content = _content(storage, f"{name}-{turn}")
        winners = [number for number, answer in enumerate(row) if answer is Put.WON]
        # Without a reported winner, the winner is one of those without an answer.
        possible = winners or [number for number, answer in enumerate(row) if answer is Put.UNKNOWN]
        if content not in [_data(number) for number in possible]:
            raise _Unfit(f"after a race of {racers} the file is not the winner's")
    return f"each of {rounds} races of {racers} had one winner, and the file is the winner's"


def _data(number: int) -> bytes:
    return f"{number}".encode() * 100


def _content(storage: Storage, name: str) -> bytes | None:
    try:
        return bytes(storage.read(name))
    except FileNotFoundError:
        return None
