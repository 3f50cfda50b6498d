"""The races of the doctor: who wins, who has lost, and how their answers are judged."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from persistent.storage import MemoryStorage, Put, doctor
from tests.storage.noting import Noting, RefusesAll

WON, LOST, UNKNOWN = Put.WON, Put.LOST, Put.UNKNOWN


def test_who_has_lost_looks_at_the_file_that_won() -> None:
    """A store that takes the name first and writes then would pass: its losers would read half a manifest."""
    storage = Noting()
    assert doctor._create_and_read(storage, "a", 3) is WON
    assert storage.read("a").to_pybytes() == b"3" * 100
    assert doctor._create_and_read(storage, "a", 4) is LOST
    storage.put_if_absent("b", b"3" * 10)
    assert doctor._create_and_read(storage, "b", 3) == "the winner's file is missing or incomplete"
    assert doctor._create_and_read(RefusesAll(), "c", 7) is LOST
    storage.put_if_absent("d", b"8" * 100)
    assert doctor._create_and_read(storage, "d", 7) == "the winner's file is missing or incomplete"


def test_a_race_has_turns_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow store would be raced for an hour, or a fast one too few times for its two halves to be found."""
    now = [100.0]
    monkeypatch.setattr(doctor, "monotonic_s", lambda: now[0])
    is_over = doctor._turns(50)
    assert [is_over(done) for done in (0, 49, 50, 51)] == [False, False, True, True]
    now[0] = 115.0
    assert [is_over(done) for done in (0, 20, 49, 50)] == [False, False, False, True]
    now[0] = 115.001
    assert [is_over(done) for done in (0, 19, 20, 50)] == [False, False, True, True]


def test_threads_give_way_often_while_they_race() -> None:
    """Of two halves of a create no other thread would ever come between; or all of the process would stay slow."""
    before = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError), doctor._switching():
        assert sys.getswitchinterval() == pytest.approx(1e-6)
        raise ZeroDivisionError
    assert sys.getswitchinterval() == before


@pytest.mark.timeout(10)
def test_eight_threads_race() -> None:
    """A store whose create has two halves would pass."""
    storage, before = Noting(), set(threading.enumerate())
    told = doctor._race_of_threads(storage, "race", 3)
    assert told == "each of 3 races of 8 threads had one winner, and the file is the winner's"
    assert storage.list("") == ["race-0", "race-1", "race-2"]
    assert len(storage.sizes) == 24
    assert set(threading.enumerate()) <= before, "a thread is still at work"


@pytest.mark.timeout(10)
def test_a_thread_that_fails_is_told() -> None:
    """A store that breaks under many requests at once would pass."""

    class Breaking(Noting):
        def put_if_absent(self, name: str, data: bytes) -> Put:
            if data.startswith(b"5"):
                raise ZeroDivisionError("broken")
            return super().put_if_absent(name, data)

    with pytest.raises(doctor._Unfit, match="a create fails among 8 threads at once: ZeroDivisionError: broken"):
        doctor._race_of_threads(Breaking(), "race", 3)


@pytest.mark.parametrize(
    ("rows", "files", "told"),
    [
        ([[WON, LOST], [LOST, WON]], [0, 1], "each of 2 races of both had one winner, and the file is the winner's"),
        (
            [[UNKNOWN, LOST], [LOST, UNKNOWN]],
            [0, 1],
            "each of 2 races of both had one winner, and the file is the winner's",
        ),
        ([[LOST, "broken"]], [0], "a create fails among both at once: broken"),
        (
            [[WON, WON], [WON, LOST], [WON, WON]],
            [0, 0, 1],
            "2 of 3 races of both had more than one winner: two drivers would commit one checkpoint",
        ),
        ([[WON, LOST]], [1], "after a race of both the file is not the winner's"),
        ([[WON, UNKNOWN]], [1], "after a race of both the file is not the winner's"),
        ([[UNKNOWN, LOST]], [1], "after a race of both the file is not the winner's"),
        ([[LOST, LOST]], [], "after a race of both the file is not the winner's"),
    ],
    ids=["won", "unanswered", "failed", "twice", "other file", "other than unanswered", "loser's file", "nobody"],
)
def test_a_race_is_judged(rows: list[list[Put | str]], files: list[int], told: str) -> None:
    """A store with two winners, or none, would pass."""
    storage = Noting()
    for turn, number in enumerate(files):
        storage.write(f"race-{turn}", f"{number}".encode() * 100)
    if told.startswith("each"):
        assert doctor._judged(storage, "race", rows, "both") == told
    else:
        with pytest.raises(doctor._Unfit) as caught:
            doctor._judged(storage, "race", rows, "both")
        assert str(caught.value) == told


class Racer:
    """A process that races, without one: what it is told and what it answers, over a storage of this process."""

    storage: MemoryStorage
    first = "ready"
    made: list[Racer] = []

    def __init__(self, command: list[str], **options: Any) -> None:
        self.command, self.options = command, options
        self.stdin = self.stdout = self
        self.told: list[str] = []
        self.answers = [self.first]
        self.ended: list[str] = []
        Racer.made.append(self)

    def write(self, line: str) -> None:
        self.told.append(line)

    def flush(self) -> None:
        _, name, data = self.told[-1].split()
        self.answers.append(self.storage.put_if_absent(name, data.encode()).value)

    def readline(self) -> str:
        return f"{self.answers.pop(0)}\n" if self.answers else ""

    def kill(self) -> None:
        self.ended.append("kill")

    def communicate(self) -> None:
        self.ended.append("communicate")


@pytest.fixture
def racing(monkeypatch: pytest.MonkeyPatch) -> MemoryStorage:
    """The storage that the racers race on; it says that other processes see it."""
    storage = Noting()
    monkeypatch.setattr(Noting, "shared", True)
    monkeypatch.setattr(Racer, "storage", storage, raising=False)
    monkeypatch.setattr(Racer, "made", [])
    monkeypatch.setattr(subprocess, "Popen", Racer)
    monkeypatch.setattr(doctor, "monotonic_s", lambda: 100.0)
    return storage


@pytest.mark.parametrize(("cores", "count"), [(None, 2), (1, 2), (3, 3), (4, 4), (64, 4)])
def test_as_many_processes_race_as_there_are_cores(
    racing: MemoryStorage, monkeypatch: pytest.MonkeyPatch, cores: int | None, count: int
) -> None:
    """One process races with nobody; sixty-four take a minute to begin."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(sys, "path", ["", "/somewhere"])
    told = doctor._race_of_processes(racing, "race", 2)
    assert told == f"each of 2 races of {count} processes had one winner, and the file is the winner's"
    assert len(Racer.made) == count
    for number, racer in enumerate(Racer.made):
        assert racer.command == [sys.executable, "-m", "persistent.storage.racer", racing.url]
        assert racer.options["env"]["PYTHONPATH"] == f"{os.getcwd()}{os.pathsep}/somewhere"
        assert racer.options["env"].items() >= {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}.items()
        assert racer.options["text"] is True
        assert racer.told == [f"100.002 race-{turn} {str(number) * 100}\n" for turn in (0, 1)]
        assert racer.ended == ["kill", "communicate"]


def test_a_process_that_cannot_open_the_store_is_told(racing: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of an engine could not either."""
    monkeypatch.setattr(Racer, "first", "")
    with pytest.raises(doctor._Unfit, match="another process cannot open it"):
        doctor._race_of_processes(racing, "race", 2)
    assert all(racer.ended == ["kill", "communicate"] for racer in Racer.made)


def test_a_process_that_fails_is_told(racing: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it says would be taken for an answer of the store."""
    monkeypatch.setattr(Racer, "flush", lambda racer: racer.answers.append("cannot create it"))
    with pytest.raises(doctor._Unfit, match=r"a create fails among \d processes at once: cannot create it"):
        doctor._race_of_processes(racing, "race", 2)


def test_what_only_one_process_sees_is_not_raced() -> None:
    """Each process would win in a memory of its own."""
    with pytest.raises(doctor._Unfit, match="only this process sees the files"):
        doctor._race_of_processes(Noting(), "race", 2)
