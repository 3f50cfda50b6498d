"""The Spark engine: what tasks do when they fail, die, or need code that only the driver has."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from persistent import FileSource, MemorySource
from persistent.errors import EngineError, InvalidPipeline, PersistentError, UserCodeError
from persistent.storage import LocalStorage

pytestmark = pytest.mark.spark


class DetailedError(PersistentError):
    """An error with attributes."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message, position)
        self.position = position


class AwkwardError(PersistentError):
    """An error that pickles, but cannot be unpickled."""

    def __init__(self, first: str, *, second: str) -> None:
        super().__init__(first + second)


def attempts(folder: Path, item: int) -> int:
    """Note an attempt at an item, whichever process makes it; how many there have been."""
    with open(folder / f"attempts-{item}", "ab") as file:
        file.write(b".")
    return (folder / f"attempts-{item}").stat().st_size


def test_results_come_in_the_order_of_the_items(engine: Any) -> None:
    """Deltas would be credited to the splits of others."""
    assert engine.map(lambda item: item * item, range(5)) == [0, 1, 4, 9, 16]
    assert engine.map(lambda item: item, ["one"]) == ["one"]
    assert engine.map(lambda item: item, []) == []


def test_work_is_done_by_other_processes_of_the_same_python(engine: Any) -> None:
    """Workers of another Python lack the packages of this one."""
    answers = engine.map(lambda _: (os.getpid(), sys.executable), range(2))
    assert os.getpid() not in {pid for pid, _ in answers}
    assert {executable for _, executable in answers} == {sys.executable}
    assert (engine.parallelism, engine.in_process, engine.name) == (2, False, "spark")


def test_one_function_serves_step_after_step(engine: Any) -> None:
    """What is built once for a function must not hold the items of the step before."""
    payload = os.urandom(2_000_000)

    def work(item: tuple[int, int]) -> tuple[int, int, int]:
        return (*item, len(payload))

    for step in range(5):
        for count in (2, 3):
            items = [(step, number) for number in range(count)]
            assert engine.map(work, items) == [(*item, len(payload)) for item in items]


def test_a_task_that_fails_once_is_tried_again(engine: Any, tmp_path: Path) -> None:
    """One lost connection would stop a run that has been going for months."""

    def work(item: int) -> tuple[int, int]:
        attempt = attempts(tmp_path, item)
        if item == 1 and attempt == 1:
            raise OSError("connection lost")
        return item, attempt

    assert engine.map(work, range(3)) == [(0, 1), (1, 2), (2, 1)]


def test_a_worker_killed_is_replaced(engine: Any, tmp_path: Path) -> None:
    """The kernel kills a worker when memory is short; its results must be there once."""

    def work(item: int) -> tuple[int, int]:
        attempt = attempts(tmp_path, item)
        if item == 0 and attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return item, attempt

    results = engine.map(work, range(4))
    assert [item for item, _ in results] == [0, 1, 2, 3]
    assert results[0][1] == 2


@pytest.mark.check
def test_a_task_that_always_fails_is_an_engine_error(engine: Any, tmp_path: Path) -> None:
    """The user would search a Java stack trace of two hundred lines for their own."""

    def work(item: int) -> int:
        attempts(tmp_path, item)
        raise ZeroDivisionError("no such luck")

    with pytest.raises(EngineError, match="ZeroDivisionError: no such luck") as caught:
        engine.map(work, [0])
    assert attempts(tmp_path, 0) == 5
    assert len(str(caught.value)) < 200
    assert caught.value.__cause__ is not None


def test_errors_of_ours_keep_their_type_and_are_not_repeated(engine: Any, tmp_path: Path) -> None:
    """A fault in the user's code is the same on every attempt: four times the wait, and an error of
    Spark's."""

    def work(item: int) -> int:
        attempts(tmp_path, item)
        if item == 1:
            try:
                raise KeyError("user")
            except KeyError as error:
                raise DetailedError("the user's code failed", 7) from error
        return item

    with pytest.raises(DetailedError) as caught:
        engine.map(work, range(2))
    assert caught.value.args == ("the user's code failed", 7)
    assert caught.value.position == 7
    assert "KeyError: 'user'" in "".join(caught.value.__notes__)
    assert attempts(tmp_path, 1) == 2


def test_an_error_that_cannot_travel_is_told_in_words(engine: Any) -> None:
    """It would be lost behind an error of the pickler."""

    def work(item: int) -> int:
        raise AwkwardError("the fault", second=" itself")

    with pytest.raises(EngineError, match=r"(?s)the fault itself.*cannot be pickled"):
        engine.map(work, [0])


@pytest.mark.check
def test_an_interrupt_cancels_the_job(engine: Any, tmp_path: Path) -> None:
    """Ctrl-C would leave tasks running that the next run has to share its cores with."""

    def work(item: int) -> int:
        attempts(tmp_path, item)
        time.sleep(60)
        return item

    def interrupt() -> None:
        while not (tmp_path / "attempts-0").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt, daemon=True).start()
        with pytest.raises(KeyboardInterrupt):
            engine.map(work, range(2))
    finally:
        signal.signal(signal.SIGINT, before)
    tracker = engine.session.sparkContext.statusTracker()
    deadline = time.monotonic() + 10
    while tracker.getActiveJobsIds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(tracker.getActiveJobsIds()) == []
    assert engine.map(lambda item: item + 1, range(2)) == [1, 2]


def test_the_session_is_left_as_it_was(engine: Any) -> None:
    """The user's own jobs would carry our items and be cancelled with ours."""
    engine.map(lambda item: item, range(2))
    context = engine.session.sparkContext
    assert not [tag for tag in context.getJobTags() if tag.startswith("persistent")]
    assert context.getLocalProperty("persistent.items") is None
    assert engine.session.range(3).count() == 3


def test_places_that_workers_cannot_reach_are_refused(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every executor would write its part of the checkpoint to its own disk."""
    engine.check([str(tmp_path), "s3://bucket/folder"])
    with pytest.raises(InvalidPipeline, match="out of reach of Spark's workers"):
        engine.check(["memory://visits"])
    monkeypatch.setattr(engine, "_master", "spark://far:7077")
    with pytest.raises(InvalidPipeline, match="path of this machine"):
        engine.check([str(tmp_path)])
    engine.check(["s3://bucket/folder"], FileSource("s3://bucket/events", timestamp="ts"))
    with pytest.raises(InvalidPipeline, match=r"path of this machine.*shared_mount=True"):
        engine.check(["s3://bucket/folder"], FileSource(tmp_path, timestamp="ts"))
    with pytest.raises(InvalidPipeline, match="path of this machine"):
        engine.check(["s3://bucket/folder"], FileSource(f"local://{tmp_path}", timestamp="ts"))
    engine.check(["s3://bucket/folder"], FileSource(tmp_path, timestamp="ts", shared_mount=True))


def test_a_source_in_the_memory_of_the_driver_is_refused(engine: Any) -> None:
    """Its files were listed here, and "gone" on the workers."""
    with pytest.raises(InvalidPipeline, match="out of reach of Spark's workers"):
        engine.check([], FileSource("memory://events", timestamp="ts"))


def test_every_worker_is_asked_on_first_use(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that comes later, with another version or without a mount, would put other numbers into the sum, or
    end the run with an error that tells of something else."""
    engine.check([], MemorySource([{"ts": 1}]))
    needs = engine._needs
    try:
        other = tuple((name, "0.0.1" if name == "pyarrow" else version) for name, version in needs.versions)
        for wanted, told in (
            (
                replace(needs, versions=other),
                r"pyarrow is .* there, but 0\.0\.1 on the driver: pip install pyarrow==0\.0\.1",
            ),
            (
                replace(needs, versions=(("persistent-monoids", "9.9"),)),
                r"9\.9 on the driver.*persistent-monoids==9\.9",
            ),
            (replace(needs, modules=("nobody_has_this",)), r"needs the package nobody_has_this: pip install"),
            (replace(needs, paths=(str(tmp_path / "mount"),)), r"mount does not exist.*mount it at the same path"),
        ):
            engine._needs = wanted
            engine._shipped.clear()
            with pytest.raises(InvalidPipeline, match=rf"{re.escape(sys.executable)}: .*{told}"):
                engine.map(lambda item: item, [1])
    finally:
        engine._needs = needs
        engine._shipped.clear()


def test_an_executor_without_the_package_is_told(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step would fail four times with ModuleNotFoundError from deep inside an unpickler."""
    bare = Path(sys.executable).resolve()
    monkeypatch.setattr(engine, "_master", "spark://far:7077")
    monkeypatch.setattr(engine.session.sparkContext, "pythonExec", str(bare))
    monkeypatch.setattr(engine.session.sparkContext, "environment", {"PYTHONPATH": ""})
    with pytest.raises(InvalidPipeline, match=r"No module named.*the packages of the driver.*PYSPARK_PYTHON"):
        engine.check(["s3://bucket/folder"])


def test_storage_travels(engine: Any, tmp_path: Path) -> None:
    """Workers write runs through the storage that the driver reads them with."""
    storage = LocalStorage(tmp_path)

    def write(item: int) -> str:
        storage.write(f"d/{item}", str(item).encode())
        return storage.url

    assert engine.map(write, range(3)) == [str(tmp_path)] * 3
    assert storage.list("d") == ["0", "1", "2"]


def test_user_errors_of_the_package_are_not_wrapped(engine: Any) -> None:
    """The command line prints a user's error by its type."""

    def work(item: int) -> int:
        raise UserCodeError(f"partition events, position (0, {item})")

    with pytest.raises(UserCodeError, match=r"^partition events, position \(0, 0\)$"):
        engine.map(work, range(2))
