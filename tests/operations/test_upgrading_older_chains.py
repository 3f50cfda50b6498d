"""A job that an older release has begun runs on in the newest format, whatever is done with it.

Its chain begins in the documents of the older format and goes on in those of the newest.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Sum, record
from persistent import MemorySink, OldFormat, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import FORMAT
from persistent.checkpoint.names import plan_name
from persistent.checkpoint.shapes import FORMATS
from persistent.driver.evolution import Evolution
from persistent.operations import collect_garbage, compact, merge, pin, rollback, savepoint, upgrade
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.crash.sweep import deaths
from tests.crash.worlds import JOBS, CrashJob, Visits, World
from tests.faults import Killed, Operations
from tests.few import paired
from tests.operations import test_merging as merging
from tests.operations.older import rewritten
from tests.operations.twins import OPEN, TOTALS, VISITS, bases, check_sound, ended, newest, twin

FILES = next(job for job in JOBS if job.name == "files")


@pytest.fixture(params=FORMATS[:-1], ids="format-{}".format)
def number(request: pytest.FixtureRequest) -> int:
    """An older format."""
    found: int = request.param
    return found


def begun_long_ago(job: CrashJob, folder: Path, number: int) -> World:
    """A job of which an older release has read about a half, and that has been upgraded since."""
    part = replace(job, rows=job.rows[: len(job.rows) // 2 + 1], end_of_input=False)
    if job.files:
        part = replace(part, files=job.files // 2)
    world = ended(part, folder)
    world.job = job
    rewritten(world.checkpoint, number)
    return world


def formats(world: World) -> list[int]:
    log = Log(world.checkpoint)
    return [log.read(id).manifest.format for id in log.ids()]


@pytest.mark.parametrize(
    ("job", "number"), paired([VISITS, TOTALS], FORMATS[:-1]), ids=lambda value: str(getattr(value, "name", value))
)
def test_killed_anywhere_and_upgraded_it_runs_on(job: CrashJob, number: int, folder: Path) -> None:
    """A plan, outputs or a fence that an older driver left is found by one of today, and not done twice or never."""
    calm = Operations()
    fresh = World(job, folder)
    fresh.run(calm)
    expected, planned = fresh.outcome(), 0
    for death in [*deaths(calm.log)][number::6]:
        world = World(job, folder)
        with suppress(Killed):
            world.run(Operations(death.at, death.how))
        log = Log(world.checkpoint)
        if len(log.ids()) > 1:
            rewritten(world.checkpoint, number)
            planned += log.plan(newest(world).base, newest(world).replan) is not None
            upgrade(world.checkpoint, take_over=True)
            assert verify(world.checkpoint).ok, death
        world.run()
        assert world.outcome() == expected, f"{death.how} operation {death.at}: {calm.log[death.at]}"
        check_sound(world)
        world.close()
    assert planned > 1, "no plan was pending"


@pytest.mark.parametrize(
    ("operation", "job", "number"),
    paired(["none", "pin", "compact", "collect", "back", "again"], [VISITS, TOTALS, OPEN, FILES], FORMATS[:-1]),
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_what_is_done_with_it_is_done_as_ever(operation: str, job: CrashJob, number: int, folder: Path) -> None:
    """The whole of a job's past is in its chain: an operation that stumbles over the older half ends the job."""
    expected = ended(job, folder).outcome()
    world = begun_long_ago(job, folder, number)
    with pytest.raises(OldFormat, match="persistent upgrade"):
        world.run()
    kept = bases(world) or [id for id in Log(world.checkpoint).ids() if id]
    upgrade(world.checkpoint)
    target = kept[len(kept) // 2]
    act: dict[str, Callable[[], Any]] = {
        "none": lambda: None,
        "pin": lambda: pin(world.checkpoint, newest(world).base),
        "compact": lambda: compact(world.pipeline()),
        "collect": lambda: collect_garbage(world.checkpoint),
        "back": lambda: rollback(world.checkpoint, target, outputs="retract"),
        "again": lambda: rollback(world.checkpoint, newest(world).base, outputs="again"),
    }
    act[operation]()
    assert verify(world.checkpoint).ok
    assert {number, FORMAT} == set(formats(world)) or operation == "collect"
    world.run()
    assert world.outcome() == expected
    check_sound(world)
    back = twin(world)
    rollback(back.checkpoint, target, outputs="retract")
    back.run()
    assert back.outcome() == expected and verify(back.checkpoint).ok


@pytest.mark.parametrize("job", [VISITS, TOTALS], ids=lambda job: job.name)
def test_a_savepoint_of_it_starts_a_job(job: CrashJob, number: int, folder: Path) -> None:
    """Of the job as it is, without an upgrade: the way out for who may not touch it."""
    expected = ended(job, folder).outcome()
    world = begun_long_ago(job, folder, number)
    url = savepoint(world.checkpoint, "before")
    assert set(formats(world)) == {number}
    storage = MemoryStorage(f"{world.name}-{number}-started")
    storage.clear()
    source = world.pipeline().source
    started = Pipeline(
        source=source,
        task=job.task(),
        sink=MemorySink(),
        checkpoint=storage,
        step_rows=job.step_rows,
        on_error="dead-letter",
        start_from=url,
    )
    started.run(engine="embedded", end_of_input=job.end_of_input)
    assert Log(storage).newest().manifest.accounts == expected.ledger  # type: ignore[union-attr]
    assert verify(storage).ok


class MoreVisits(Visits):
    """Visits with another name for a field, and a new one."""

    name = "Visits"

    def persistent_state(self) -> WindowState:
        return WindowState(record(sum=Sum(), visits=Count(), more=Count()), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["n"] < 0:
            raise ValueError("negative")
        state.update(message.timestamp, {"visits": 1, "sum": message.value["n"], "more": 1})


class Others(Visits):
    """A task of another name."""

    name = "Others"


def test_its_task_evolves(number: int, folder: Path) -> None:
    """The format and the task have both changed since."""
    world = begun_long_ago(OPEN, folder, number)
    before = world.pipeline().state().to_pylist()
    upgrade(world.checkpoint)
    made = world.pipeline()
    task = MoreVisits()
    evolved = Pipeline(
        source=made.source,
        task=task,
        sink=made.sink,
        checkpoint=world.checkpoint,
        step_rows=3,
        on_error="dead-letter",
        evolve=Evolution(renamed={"total": "sum"}),
    )
    held = {(row["page"], row["window_start"]): row["total"] for row in before}
    log = Log(world.checkpoint)
    evolved.run(engine="embedded")
    kinds = [log.read(id).manifest.kind for id in log.ids()]
    assert "migration" in kinds and verify(world.checkpoint).ok
    after = {(row["page"], row["window_start"]): row["sum"] for row in evolved.state().to_pylist()}
    assert all(after[place] >= total for place, total in held.items() if place in after) and held


def test_its_task_is_dropped_for_another(number: int, folder: Path) -> None:
    """Clock and account stand under the name of the task: they go on under that of the new one."""
    world = begun_long_ago(OPEN, folder, number)
    old = upgrade(world.checkpoint).manifest
    made = world.pipeline()
    other = Pipeline(
        source=made.source,
        task=Others(),
        sink=made.sink,
        checkpoint=world.checkpoint,
        step_rows=3,
        on_error="dead-letter",
        allow_dropped=["Visits"],
    )
    other.run(engine="embedded")
    log = Log(world.checkpoint)
    chain = [log.read(id).manifest for id in log.ids()]
    (migration,) = [one for one in chain if one.kind == "migration"]
    assert (migration.clock, migration.accounts, migration.task_name) == (old.clock, old.accounts, "Others")
    assert sum(account.read for account in chain[-1].accounts.values()) == len(OPEN.rows)
    assert verify(world.checkpoint).ok


@pytest.mark.parametrize("both", [True, False], ids=["both", "one"])
def test_it_is_merged(both: bool, number: int) -> None:
    """A job of today and one of years ago, or two of years ago, without an upgrade of either."""
    one, other = merging.begun(merging.Totals, end=True)
    expected = MemoryStorage(f"expected-{number}-{both}")
    expected.clear()
    calm = merge(one.storage, other.storage, expected).manifest
    for side in (one, other) if both else (one,):
        rewritten(side.storage, number)
    into = MemoryStorage(f"into-{number}-{both}")
    into.clear()
    merged = merge(one.storage, other.storage, into).manifest
    assert merged.format == FORMAT and verify(into).ok
    assert (merged.clock, merged.accounts, merged.sources) == (calm.clock, calm.accounts, merged.sources)
    assert merged.revision_base == calm.revision_base > 0


def test_a_plan_of_the_older_format_is_run_as_it_was_planned(number: int, folder: Path) -> None:
    """Planned anew, what is late would depend on who crashed when."""
    world = begun_long_ago(OPEN, folder, number)
    base = newest(world).base
    upgrade(world.checkpoint)
    ahead = World(OPEN, folder)
    for ours, theirs in ((world.checkpoint, ahead.checkpoint), (world.sink, ahead.sink)):
        theirs._files.update(ours._files)  # type: ignore[union-attr]
    ahead.run()
    log, there = Log(ahead.checkpoint), Log(world.checkpoint)
    plan = log.plan(base, 0)
    assert plan is not None
    late = replace(plan, wall_ms=plan.wall_ms - 1_000)
    ahead.checkpoint.delete(plan_name(base, 0))
    for id in [id for id in log.ids() if id > newest(world).id]:
        ahead.checkpoint.delete(f"m/{id:020d}.json")
    log.put_plan(late)
    rewritten(ahead.checkpoint, number)
    world.checkpoint.write(plan_name(base, 0), ahead.checkpoint.read(plan_name(base, 0)))
    world.run()
    step = next(one for id in there.ids() if (one := there.read(id).manifest).kind == "checkpoint" and id > base)
    assert step.committed_ms == late.wall_ms and step.source.positions == late.source.end
