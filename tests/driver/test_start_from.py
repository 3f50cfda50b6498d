"""A job starts from a savepoint, once, whatever kills it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Sum, record
from persistent import (
    Evolution,
    FingerprintChanged,
    MemorySink,
    MemorySource,
    NoCheckpoint,
    NonWindowState,
    OtherJob,
    Pipeline,
)
from persistent.operations import collect_garbage, savepoint
from persistent.storage import MemoryStorage
from persistent.testing.faults import FaultyStorage as Faulty
from persistent.verify import verify
from tests.crash.sweep import Deaths, anywhere, calm
from tests.crash.worlds import Totals, World
from tests.driver import visits
from tests.faults import FaultyStorage, Killed, Operations
from tests.operations.conftest import _quiet, folder
from tests.operations.saved import pipeline, shown
from tests.operations.twins import OPEN, TOTALS, bases, ended

__all__ = ["_quiet", "folder"]


@anywhere
def test_a_start_killed_anywhere_is_started_again(folder: Path, deaths: Deaths) -> None:
    """I7: a checkpoint left half begun would refuse its own pipeline, or begin with nothing."""
    world = ended(TOTALS, folder)
    expected = calm(TOTALS, folder).outcome
    url = savepoint(world.checkpoint, "monday", at=bases(world)[1])
    empty = replace(TOTALS, name="empty")

    def start(place: Any) -> None:
        pipeline(world, MemorySink(), place, start_from=url).run(engine="embedded", end_of_input=True)

    operations = Operations()
    start(FaultyStorage(MemoryStorage(f"{world.name}-calm"), operations))
    planned = next(at for at, (_, _, name) in enumerate(operations.log) if name.startswith("p/"))
    for death in deaths(operations.log[:planned]):
        other = World(empty, folder)
        with pytest.raises(Killed):
            start(FaultyStorage(other.checkpoint, Operations(death.at, death.how)))
        started = pipeline(world, MemorySink(), other.checkpoint, start_from=url)
        started.run(engine="embedded", end_of_input=True)
        assert shown(started.state().to_pylist()) == expected.state, death
        assert verify(other.checkpoint).ok, death
        collect_garbage(other.checkpoint, take_over=True)
        assert not verify(other.checkpoint).findings, death
        other.close()


def test_a_start_that_died_is_no_hindrance_to_a_task_that_changes(folder: Path) -> None:
    """Its empty checkpoint refused every run, and said that the next one would take the task as it is."""

    class Totals2(Totals):
        """Of the same name, made otherwise."""

        name = "Totals"

        def persistent_state(self) -> NonWindowState:
            return NonWindowState(record(**{**dict.fromkeys(self.counted, Count()), "total": Sum()}))

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, {"total": message.value["n"], **dict.fromkeys(self.counted, 1)})

        def __init__(self, *counted: str) -> None:
            self.counted = counted

    def job(storage: Any, *counted: str, **options: Any) -> Pipeline:
        source = MemorySource(list(TOTALS.rows), timestamp="ts", ordered=TOTALS.ordered)
        return Pipeline(source=source, task=Totals2(*counted), checkpoint=storage, evolve=Evolution(), **options)

    world = ended(TOTALS, folder)
    first = MemoryStorage(f"{world.name}-first")
    job(first).run(engine="embedded")
    url = savepoint(first, "monday")
    for puts in (1, 2, 3):
        storage, left = MemoryStorage(f"{world.name}-changed-{puts}"), puts

        class Dying(Faulty):
            """Dies after some puts."""

            def put_if_absent(self, name: str, data: bytes) -> Any:
                nonlocal left
                if not left:
                    raise Killed
                left -= 1
                return super().put_if_absent(name, data)

        with pytest.raises(Killed):
            job(Dying(storage, Operations()), "seen", start_from=url).run(engine="embedded")
        started = job(storage, "other", start_from=url)
        started.run(engine="embedded", end_of_input=True)
        assert {row["total"] for row in started.state().to_pylist()} == {
            row["total"] for row in job(first).state().to_pylist()
        }
        assert verify(storage).ok


def test_only_an_empty_checkpoint_is_started(folder: Path) -> None:
    """A state that is there must never be replaced by another, or added to."""
    world = ended(OPEN, folder)
    url = savepoint(world.checkpoint, "monday", at=0)
    other = ended(OPEN, folder)
    before = dict(other.checkpoint._files)  # type: ignore[attr-defined]
    with pytest.raises(OtherJob, match=r"began with nothing, not from start_from=.*s/monday"):
        pipeline(world, MemorySink(), other.checkpoint, start_from=url).run(engine="embedded")
    assert other.checkpoint._files == before  # type: ignore[attr-defined]
    storage = MemoryStorage(f"{world.name}-started")
    pipeline(world, MemorySink(), storage, start_from=url).run(engine="embedded")
    second = savepoint(world.checkpoint, "tuesday")
    with pytest.raises(OtherJob, match="of another job, not from"):
        pipeline(world, MemorySink(), storage, start_from=second).run(engine="embedded")
    with pytest.raises(NoCheckpoint, match="no checkpoint exists there"):
        pipeline(world, MemorySink(), MemoryStorage(f"{world.name}-e"), start_from="memory://nothing").run(
            engine="embedded"
        )


def test_another_job_is_not_started_from(folder: Path) -> None:
    """Runs of another monoid decode into numbers that mean nothing. ``Visits`` has the name of the other task."""
    world = ended(OPEN, folder)
    url = savepoint(world.checkpoint, "monday")
    for task, error in ((visits.Visits(), FingerprintChanged), (Totals(), OtherJob)):
        storage = MemoryStorage(f"{world.name}-{type(task).__name__}")
        job = Pipeline(source=MemorySource([{"ts": 1}]), task=task, checkpoint=storage, start_from=url)
        with pytest.raises(error):
            job.run(engine="embedded")
        assert not storage._files
