"""A savepoint is a checkpoint of its own, and a job that starts from it goes on where it stood."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from persistent import (
    MemorySink,
    NoCheckpoint,
    Refused,
    UnknownCheckpoint,
)
from persistent.checkpoint.copies import renumbered
from persistent.checkpoint.log import Log
from persistent.checkpoint.parts import NodePart
from persistent.operations import collect_garbage, compact, savepoint
from persistent.storage import LocalStorage, MemoryStorage
from persistent.storage.subfolder import open_checkpoint, savepoint_folder
from persistent.testing.faults import FaultyStorage as Faulty
from persistent.verify import verify
from tests.checkpoint.samples import run
from tests.crash.sweep import Deaths, anywhere
from tests.crash.worlds import CrashJob, World
from tests.faults import FaultyStorage, Killed, Operations
from tests.operations.saved import pipeline, shown
from tests.operations.twins import OPEN, TOTALS, VISITS, bases, check_sound, die_everywhere, ended, newest, twin
from tests.single import only

JOBS = [VISITS, TOTALS, OPEN]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_started_from_any_checkpoint_it_ends_as_the_job_did(job: CrashJob, folder: Path) -> None:
    """A copy that left out a run, a position or what was published would go on with another state than it shows."""
    world = ended(job, folder)
    expected = world.outcome()
    published = {int(name[:20]): name for name in world.sink.list("")}
    for at in bases(world):
        url = savepoint(world.checkpoint, f"at-{at}", at=at)
        saved = open_checkpoint(url)
        assert verify(saved).ok
        sink, storage = MemorySink(), MemoryStorage(f"{world.name}-{at}")
        started = pipeline(world, sink, storage, start_from=url)
        # As the savepoint shows it, before it goes on.
        assert pipeline(world, sink, saved).state().equals(world.pipeline().state(at=at))
        started.run(engine="embedded", end_of_input=job.end_of_input)
        assert shown(started.state().to_pylist()) == expected.state
        assert Log(storage).newest().manifest.accounts == expected.ledger  # type: ignore[union-attr]
        since = [name for id, name in published.items() if id > at]
        rows = [line for name in since for line in world.sink.read(name).to_pybytes().decode().splitlines()]
        # Of windows those that closed since; of a state without windows every key, as the sink has none of them.
        assert len(sink.rows()) == len(expected.state if job is TOTALS else rows), f"from {at}"
        assert verify(storage).ok
        # Once more: it goes on, and does not begin anew.
        assert pipeline(world, sink, storage, start_from=url).run(engine="embedded").steps == 0
    check_sound(world)


def test_revisions_go_on_in_a_job_that_is_started(folder: Path) -> None:
    """The largest revision of a key wins: a job that began at 1 again would lose against what the one before showed."""
    world = ended(replace(TOTALS, rows=TOTALS.rows[:5]), folder)
    shown_before = [row["revision"] for row in world.published()]
    url = savepoint(world.checkpoint, "half")
    saved = Log(open_checkpoint(url)).newest().manifest  # type: ignore[union-attr]
    assert saved.revision_base == 0 and only(saved.sinks).last == max(shown_before) and not saved.unpublished()
    sink, storage = MemorySink(), MemoryStorage(f"{world.name}-revisions")
    world.job = TOTALS
    pipeline(world, sink, storage, start_from=url).run(engine="embedded", end_of_input=True)
    manifest = Log(storage).newest().manifest  # type: ignore[union-attr]
    assert manifest.revision_base == saved.id and manifest.sinks.keys() == {"memory"}
    assert {row["revision"] for row in sink.rows()} == {manifest.revision}
    assert manifest.revision > max(shown_before)


def test_a_savepoint_needs_nothing_of_the_job(folder: Path) -> None:
    """It is made to outlive the job: on another disk, after the job's folder is gone."""
    world = World(replace(VISITS, local=True), folder)
    world.run()
    url = savepoint(world.checkpoint, "monday")
    moved = LocalStorage(folder / "elsewhere")
    Path(url).rename(moved.url)
    started = pipeline(world, MemorySink(), MemoryStorage(f"{world.name}-moved"), start_from=moved.url)
    started.run(engine="embedded", end_of_input=True)
    assert shown(started.state().to_pylist()) == world.outcome().state
    # Its start is remembered, so the same script goes on once the savepoint is deleted.
    other = pipeline(world, MemorySink(), started.storage, start_from=str(folder / "gone"))
    assert other.run(engine="embedded").steps == 0


def test_the_job_is_not_touched(folder: Path) -> None:
    """A savepoint of a running job that fenced it, or held back its garbage, would be an outage."""
    world = ended(OPEN, folder)
    operations = Operations()
    savepoint(FaultyStorage(world.checkpoint, operations), "monday")
    changes = [name for verb, _, name in operations.log if verb not in ("read", "list")]
    assert changes and all(name.startswith("s/monday/") for name in changes)


def test_files_collected_under_the_copy_begin_it_anew(folder: Path) -> None:
    """The job goes on meanwhile: what was newest may be gone before it is copied."""
    world = ended(replace(OPEN, rows=OPEN.rows[:3]), folder)

    class Overtaken(Faulty):
        """Before the first run is read, the job does all the rest, and collects."""

        happened = False

        def read(self, name: str) -> Any:
            if name.startswith("d/") and not self.happened:
                self.happened = True
                later = World(OPEN, folder)
                later.checkpoint, later.sink = world.checkpoint, world.sink
                later.job = replace(OPEN, rows=OPEN.rows + OPEN.rows[7:] * 30, step_rows=2)
                compact(later.pipeline())
                later.run()
                collect_garbage(world.checkpoint)
            return super().read(name)

    overtaken = Overtaken(world.checkpoint, Operations())
    before = newest(world).base
    url = savepoint(overtaken, "monday")  # type: ignore[arg-type]
    assert overtaken.happened
    saved = Log(open_checkpoint(url)).newest()
    assert saved is not None and saved.manifest.id > before
    assert verify(open_checkpoint(url)).ok
    with pytest.raises(UnknownCheckpoint, match=f"keeps no checkpoint {before}; it keeps"):
        savepoint(world.checkpoint, "tuesday", at=before)


def test_a_lost_file_is_no_savepoint(folder: Path) -> None:
    """Copied on without it, the loss would be kept for good."""
    world = ended(OPEN, folder)
    lost = sorted(newest(world).files())[0]
    world.checkpoint.delete(lost)
    with pytest.raises(Exception, match=f"{lost}: missing"):
        savepoint(world.checkpoint, "monday")


def test_names_that_are_taken_or_none_are_refused(folder: Path) -> None:
    """A savepoint overwritten is the one thing it was made against."""
    world = ended(OPEN, folder)
    savepoint(world.checkpoint, "monday")
    before = dict(world.checkpoint._files)  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="a savepoint of this name exists"):
        savepoint(world.checkpoint, "monday")
    for name in ("", "../up", "a/b", ".hidden", "ü", "x" * 300):
        with pytest.raises(Refused, match="use letters, digits"):
            savepoint(world.checkpoint, name)
    with pytest.raises(UnknownCheckpoint, match="keeps no checkpoint 99; it keeps 0"):
        savepoint(world.checkpoint, "tuesday", at=99)
    with pytest.raises(NoCheckpoint):
        savepoint("memory://nothing-there", "monday")
    assert world.checkpoint._files == before  # type: ignore[attr-defined]


@anywhere
def test_a_savepoint_killed_anywhere_is_none_or_whole(folder: Path, deaths: Deaths) -> None:
    """I4: half a savepoint taken for one would be found out on the day it is needed."""
    world = ended(OPEN, folder)
    expected = newest(world)

    def check(other: World, story: str) -> None:
        saved = savepoint_folder(other.checkpoint, "monday")
        if Log(saved).ids():
            assert verify(saved).ok, story
        else:
            started = pipeline(other, MemorySink(), MemoryStorage(f"{other.name}-x"), start_from=saved)
            with pytest.raises(NoCheckpoint, match="the savepoint is unfinished"):
                started.run(engine="embedded")
            assert not Log(started.storage).ids(), story
            savepoint(other.checkpoint, "monday")
        found = Log(saved).newest()
        assert found is not None and found.manifest.clock == expected.clock, story
        assert found.manifest.origin == (expected.job, expected.base), story
        if "after" not in story and "half" not in story:
            assert collect_garbage(saved, dry_run=True) == (), story

    assert die_everywhere(world, lambda place: savepoint(place, "monday"), check, deaths) >= 15


@pytest.mark.parametrize("puts", [1, 2])
@pytest.mark.parametrize("sleeper_is_older", [True, False])
def test_of_two_savepoints_of_one_name_one_is_made(sleeper_is_older: bool, puts: int, folder: Path) -> None:
    """A cron job started twice: both would be told that theirs is there, and the files of one be swept by the other."""
    world = ended(OPEN, folder)
    old, new = bases(world)[1], bases(world)[-1]
    ours, theirs = (old, new) if sleeper_is_older else (new, old)
    made: list[str | Refused] = []

    class Sleeper(Faulty):
        """Before the claim is put, or its manifest, another call is made."""

        left = puts

        def put_if_absent(self, name: str, data: bytes) -> Any:
            if name.startswith("s/") and not name.endswith("FORMAT"):
                self.left -= 1
                if not self.left:
                    made.append(attempt(world.checkpoint, theirs))
            return super().put_if_absent(name, data)

    def attempt(storage: Any, at: int) -> str | Refused:
        try:
            return savepoint(storage, "monday", at=at)
        except Refused as refused:
            return refused

    made.append(attempt(Sleeper(world.checkpoint, Operations()), ours))
    (url,) = [one for one in made if isinstance(one, str)]
    saved = open_checkpoint(url)
    found = Log(saved).newest()
    assert found is not None and found.manifest.id == (theirs if made[0] == url else ours)
    assert Log(saved).ids() == [found.manifest.id]
    assert not verify(saved).findings
    assert re.search("savepoint of this name|created this savepoint", str(made[1 - made.index(url)]))


def test_a_claim_left_by_a_call_that_was_cut_off_is_brought_to_its_end(folder: Path) -> None:
    """Made of another checkpoint under the same name, it would be neither's; told as made, it would be an old one."""
    world = ended(OPEN, folder)
    old, new = bases(world)[1], bases(world)[-1]
    operations = Operations()
    savepoint(FaultyStorage(twin(world).checkpoint, operations), "monday", at=old)
    at = next(
        at
        for at, (_, _, name) in enumerate(operations.log)
        if name.endswith("/CLAIM") and "put" in str(operations.log[at])
    )
    with pytest.raises(Killed):
        savepoint(FaultyStorage(world.checkpoint, Operations(at, "after")), "monday", at=old)
    same, other = twin(world), twin(world)
    for place, wanted in ((same, old), (other, new)):
        saved = savepoint_folder(place.checkpoint, "monday")
        assert not Log(saved).ids()
        if wanted == old:
            assert savepoint(place.checkpoint, "monday", at=wanted) == saved.url
        else:
            with pytest.raises(Refused, match=f"of checkpoint {old}, not of {new}\\. It is complete"):
                savepoint(place.checkpoint, "monday")
        assert Log(saved).ids() == [old] and not verify(saved).findings


def test_progress_is_told(folder: Path) -> None:
    """A copy of hours that says nothing looks like one that hangs."""
    world = ended(OPEN, folder)
    told: list[tuple[int, int]] = []
    savepoint(world.checkpoint, "monday", on_progress=lambda done, all: told.append((done, all)))
    assert told == sorted(told) and told[-1][0] == told[-1][1] > 0


# -- starting ---------------------------------------------------------------------------------------------------------


def test_what_is_to_be_told_apart_stays_apart() -> None:
    """Renumbered as one, what was published would be published again, and a fold under way would take in older runs,
    in another order."""

    def numbers(*runs: Any, published: int = 0) -> list[int]:
        found = renumbered(NodePart({}, runs=runs, published=published))
        return [*(one.last for one in found.runs), found.published]

    old, new = run("a", first=3, last=7), run("b", first=9, last=9)
    begun = [run("m", first=8, last=8, high=400), run("c", first=8, last=8, low=400)]
    assert numbers(old, new) == [1, 1, 0]
    assert numbers(old, new, published=7) == [0, 1, 0]
    assert numbers(old, new, published=9) == [0, 0, 0]
    assert numbers(old, *begun, new) == [1, 2, 2, 2, 0]
    assert numbers(old, *begun, new, published=7) == [0, 1, 1, 1, 0]
    assert numbers(old, *begun, new, published=8) == [0, 1, 1, 2, 1]
    assert numbers(published=5) == [0]
