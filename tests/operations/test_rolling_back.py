"""A job that went back goes on as if what came since had never been."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from monoids import Sum
from persistent import (
    CorruptCheckpoint,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NewerFormat,
    NoCheckpoint,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Refused,
    UnknownCheckpoint,
    WindowState,
    session,
)
from persistent.checkpoint.commit_change import look_at_all
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Retention
from persistent.checkpoint.output_parts import SinkPart
from persistent.names import manifest_name, new_nonce
from persistent.operations import pin, rollback, savepoint
from persistent.operations.rolling_back import check_can_take_back
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.checkpoint.samples import body_of, document, manifest
from tests.crash.sweep import calm
from tests.crash.worlds import CrashJob, World
from tests.operations.twins import (
    OPEN,
    TOTALS,
    VISITS,
    bases,
    check_sound,
    content,
    ended,
    newest,
    refusals,
    twin,
)
from tests.single import only

JOBS = [VISITS, TOTALS, OPEN]


def damage(world: World, name: str) -> None:
    """Flip one byte of a file."""
    data = bytearray(world.checkpoint.read(name).to_pybytes())
    data[len(data) // 2] ^= 1
    world.checkpoint.delete(name)
    world.checkpoint.write(name, bytes(data))


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_back_to_any_checkpoint_and_on(job: CrashJob, folder: Path) -> None:
    """Retracted, nothing is there twice and nothing is missing: else going back would cost what it should save."""
    expected = calm(job, folder).outcome
    world = ended(job, folder)
    for to in bases(world):
        other = twin(world)
        before = Log(other.checkpoint).read(to).manifest
        entry = rollback(other.checkpoint, to, outputs="retract")
        assert content(entry.manifest) == content(before)
        assert (entry.manifest.kind, entry.manifest.target) == ("rollback", to)
        assert verify(other.checkpoint).ok
        other.run()
        assert other.outcome() == expected, to
        check_sound(other)
        other.close()


def test_published_again_is_there_twice(folder: Path) -> None:
    """Who keeps what was published must know that it comes a second time; and nothing may be missing."""
    expected = calm(VISITS, folder).outcome
    world = ended(VISITS, folder)
    entry = rollback(world.checkpoint, 0, outputs="again")
    assert entry.manifest.retract is None
    world.run()
    outcome = world.outcome()
    assert outcome.published == sorted(expected.published * 2)
    assert (outcome.state, outcome.ledger) == (expected.state, expected.ledger)


def test_back_twice_and_back_to_a_rollback(folder: Path) -> None:
    """What one rollback was still to take back, the next must: else rows of a branch that is no more stay for ever."""
    expected = calm(VISITS, folder).outcome
    world = ended(VISITS, folder)
    ids = bases(world)
    first = rollback(world.checkpoint, ids[1], outputs="retract").manifest
    second = rollback(world.checkpoint, first.id, outputs="retract").manifest
    assert second.retract == (ids[1] + 1, second.id)
    world.run()
    assert world.outcome() == expected
    third = rollback(world.checkpoint, ids[0], outputs="retract").manifest
    world.run()
    assert world.outcome() == expected
    abandoned = max(id for id in bases(world) if id < third.id)
    with pytest.raises(Refused, match=f"a rollback went back behind checkpoint {abandoned}"):
        rollback(world.checkpoint, abandoned, outputs="retract")
    check_sound(world)


@pytest.fixture
def totals_by_key() -> Iterator[Callable[..., Pipeline]]:
    """Jobs whose sums are published as they change, over the same rows."""

    class Totals(PersistentTask):
        key = "key"

        def persistent_state(self) -> NonWindowState:
            return NonWindowState(Sum(), emit="change", changes="retract")

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, message.value["value"])

    storages = []
    rows = [{"ts": time, "key": "ab"[time % 2], "value": time} for time in range(30)]

    def pipeline(storage: MemoryStorage, sink: MemorySink, start_from: str | None = None) -> Pipeline:
        storages.append(storage)
        source = MemorySource(rows, timestamp="ts", ordered=True)
        kept = Retention(last=1_000)
        options: dict[str, Any] = {"step_rows": 4, "retention": kept, "start_from": start_from}
        return Pipeline(source=source, task=Totals(), sink=sink, checkpoint=storage, **options)

    yield pipeline
    for storage in storages:
        storage.clear()


def added_up(sink: MemorySink) -> dict[str, int]:
    """What readers that add come to."""
    shown = [(one["key"], -one["value"] if one["retracted"] else one["value"]) for one in sink.rows()]
    return {key: sum(value for k, value in shown if k == key) for key in "ab"}


def test_sessions_that_were_held_back_after_a_rollback_to_nothing_are_not_taken_back() -> None:
    """Their sink was given something once, which is taken back; a second rollback took back what it never had."""

    class Visits(PersistentTask):
        key = "key"

        def persistent_state(self) -> WindowState:
            return WindowState(Sum(), session("8 ms"), early="30 ms", late="retract")

        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, message.value["value"])

    storage, sink = MemoryStorage(new_nonce()), MemorySink()
    rows = [{"ts": time, "key": "a", "value": 1} for time in (1, 2, 3, 4, 9, 12, 15, 90, 200)]

    def run(stop: int) -> None:
        source = MemorySource(rows[:stop], timestamp="ts", ordered=True)
        kept = Retention(last=1_000)
        pipeline = Pipeline(source=source, task=Visits(), sink=sink, checkpoint=storage, retention=kept)
        pipeline.run(engine="embedded")

    run(8)
    run(9)
    assert sink.rows()
    back = rollback(storage, 0, outputs="retract").manifest.id
    run(2)
    log = Log(storage)
    held = next(log.read(id).manifest for id in log.newest().manifest.bases if id > back)  # type: ignore[union-attr]
    assert held.nodes["Visits"].runs and held.nodes["Visits"].published == 0, "a step that publishes nothing"
    rollback(storage, held.id, outputs="retract")
    run(8)
    run(9)
    assert [(one["value"], one["retracted"]) for one in sink.rows()] == [(7, False), (1, False), (1, False)]
    storage.clear()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_is_owed_to_a_sink_is_not_forgotten_by_going_back_again(
    times: int, totals_by_key: Callable[..., Pipeline]
) -> None:
    """Outputs that a rollback had to take back stayed for good if it was repeated before the next run."""

    storage, sink = MemoryStorage(new_nonce()), MemorySink()
    totals_by_key(storage, sink).run(engine="embedded")
    first = rollback(storage, 2, outputs="retract").manifest
    for _ in range(times):
        assert rollback(storage, first.id, outputs="retract").manifest.retract[0] == first.retract[0]  # type: ignore[index]
    totals_by_key(storage, sink).run(engine="embedded")
    assert added_up(sink) == {"a": 210, "b": 225}


def test_published_again_by_a_job_that_began_with_what_another_had_published(
    totals_by_key: Callable[..., Pipeline],
) -> None:
    """Every key is published again, and runs are called what they were: `verify` took their new numbers for damage."""
    first, storage, sink = MemoryStorage(new_nonce()), MemoryStorage(new_nonce()), MemorySink()
    totals_by_key(first, MemorySink()).run(engine="embedded")
    url = savepoint(first, "end")
    totals_by_key(storage, sink, url).run(engine="embedded")
    rollback(storage, min(Log(storage).newest().manifest.bases), outputs="again")  # type: ignore[union-attr]
    assert verify(storage).ok
    assert totals_by_key(storage, sink, url).run(engine="embedded").steps == 1
    assert added_up(sink) == {"a": 420, "b": 450}
    assert verify(storage).ok


def test_back_to_a_clock(folder: Path) -> None:
    """An operator knows when things went wrong, not which id that was."""
    world = ended(OPEN, folder)
    log = Log(world.checkpoint)
    clocks = {id: log.read(id).manifest.clock.watermark for id in bases(world)}
    assert len(set(clocks.values())) > 2
    for clock in sorted({value + more for value in clocks.values() for more in (0, 1)}):
        other = twin(world)
        target = max(id for id, watermark in clocks.items() if watermark <= clock)
        assert rollback(other.checkpoint, clock=clock, outputs="retract").manifest.target == target
    with pytest.raises(UnknownCheckpoint, match="at most -1 ms; the earliest is at 1970-01-01 00:00:00Z"):
        rollback(world.checkpoint, clock=-1, outputs="retract")


def test_back_to_a_clock_passes_over_what_is_taken_back(folder: Path) -> None:
    """The newest of them all was refused, though an older one, that can be gone back to, has that clock as well."""
    world = ended(OPEN, folder)
    ids = bases(world)
    clock = Log(world.checkpoint).read(ids[0]).manifest.clock.watermark
    left = rollback(world.checkpoint, ids[0], outputs="again").manifest
    assert left.clock.watermark == clock
    rollback(world.checkpoint, ids[2], outputs="retract")
    assert rollback(world.checkpoint, clock=clock, outputs="retract").manifest.target == ids[0]


def killed_before_publishing(folder: Path) -> World:
    """A world whose driver was killed between the commit of the newest checkpoint and its publication."""
    world = World(VISITS, folder)
    sink: Any = world.sink
    world.run()
    staged = [
        entry.manifest for entry in world.entries() if any(part.unpublished for part in entry.manifest.sinks.values())
    ]
    last = staged[-1]
    assert last.id == newest(world).id
    published = [name for name in sink.list("") if int(name[:20]) == last.id]
    for name in published:
        sink._files[only(last.sinks).unpublished[0].staged[0].name] = sink._files.pop(name)
    sink.delete(f"_published/{last.id:020d}.json")
    return world


def test_all_that_was_listed_may_be_gone_where_a_driver_keeps_one_checkpoint(folder: Path) -> None:
    """Each of them is collected before it is read: that is no lost log, and another look finds the next."""
    world = World(TOTALS, folder)
    world.run()
    log = Log(world.checkpoint)
    there, gone = log.ids(), max(log.ids())

    class Slow(Log):
        looks, late = 0, 0

        def ids(self) -> list[int]:
            self.looks += 1
            return [gone + 1] if self.looks <= self.late else there

    # The fourth look is the first that decides whether what was listed is gone.
    for late in range(4):
        slow = Slow(world.checkpoint)
        slow.late = late
        assert look_at_all(slow).newest.manifest.id == gone and slow.looks > late
    for id in there:
        world.checkpoint.delete(manifest_name(id))
    with pytest.raises(CorruptCheckpoint, match="no manifest can be read"):
        look_at_all(Slow(world.checkpoint))
    world.close()


def test_what_is_staged_and_not_published_yet_still_is(folder: Path) -> None:
    """A job killed between commit and publish, then rolled back to that very commit, owes its rows to the sink."""
    expected = calm(VISITS, folder).outcome
    world = killed_before_publishing(folder)
    assert len(world.published()) < len(expected.published)
    rollback(world.checkpoint, newest(world).id, outputs="retract")
    world.run()
    assert world.outcome() == expected


def test_what_a_sink_was_given_last_never_goes_back(folder: Path) -> None:
    """A store that publishes in one transaction keeps a mark, and who slept meanwhile must not find it where it was."""
    world = ended(VISITS, folder)
    before = only(newest(world).sinks).last
    assert before is not None
    again = twin(world)
    for one, outputs in ((world, "retract"), (again, "again")):
        back = rollback(one.checkpoint, bases(one)[1], outputs=outputs).manifest
        assert only(back.sinks).last == back.id > before
        one.run()
        log = Log(one.checkpoint)
        parts = [part for id in log.ids() for part in log.read(id).manifest.sinks.values()]
        batches = [batch for part in parts for batch in part.unpublished]
        first = next(batch for batch in batches if batch.id > back.id)
        assert first.before == back.id


@pytest.mark.parametrize("runs_between", [False, True])
def test_what_stays_is_shown_though_it_was_not_published_yet(runs_between: bool, folder: Path) -> None:
    """ "again" says that what was committed stays. One may go back to it: then nobody would ever show it."""
    expected = calm(VISITS, folder).outcome
    world = killed_before_publishing(folder)
    last = newest(world)
    target = max(id for id in bases(world) if id < last.id)
    back = rollback(world.checkpoint, target, outputs="again").manifest
    assert back.sinks == {name: structs.replace(part, last=back.id) for name, part in last.sinks.items()}
    assert back.aside == last.aside
    if runs_between:
        world.run()
    rollback(world.checkpoint, last.id, outputs="retract")
    world.run()
    assert world.outcome() == expected
    check_sound(world)


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_corrupt_newest_manifest_is_gone_back_behind(job: CrashJob, folder: Path) -> None:
    """The way back that every error names must be one: else a flipped bit ends the job."""
    expected = calm(job, folder).outcome
    world = ended(job, folder)
    id = newest(world).id
    damage(world, manifest_name(id))
    with pytest.raises(CorruptCheckpoint, match=r"persistent rollback .* --outputs=retract") as told:
        world.run()
    to = int(str(told.value).partition("persistent rollback ")[2].split()[1])
    entry = rollback(world.checkpoint, to, outputs="retract")
    assert entry.manifest.id == entry.manifest.epoch == id + 1
    assert entry.manifest.burnt == (id,)
    assert verify(world.checkpoint).ok
    world.run()
    assert world.outcome() == expected
    check_sound(world)


def rewrite(world: World, id: int, change: Callable[[Any], object]) -> None:
    """Change a manifest as another release might have written it."""
    name = manifest_name(id)
    body = body_of(world.checkpoint.read(name).to_pybytes(), name)
    change(body)
    world.checkpoint.delete(name)
    world.checkpoint.write(name, document(body))


def files(world: World) -> dict[str, bytes]:
    """All files of the checkpoint and what is in them."""
    return dict(copy.copy(world.checkpoint._files))  # type: ignore[attr-defined]


NEWER: dict[str, Callable[[Any], object]] = {
    "format": lambda body: body.update(format=9),
    "field": lambda body: body.update(format=9, sessions=[1.5], id="seven"),
}


@pytest.mark.parametrize("changed", NEWER)
@pytest.mark.parametrize("which", [-1, -2], ids=["newest", "the one before"])
def test_what_a_newer_release_wrote_is_not_gone_back_behind(which: int, changed: str, folder: Path) -> None:
    """It is sound: to burn it as damaged would throw away, for good, what the newer release has done."""
    world = ended(replace(VISITS, rows=VISITS.rows[:-2]), folder)
    world.job = VISITS
    changed_id = bases(world)[which]
    # With the fences above the newest, which copy what they do not know.
    for id in Log(world.checkpoint).ids() if which == -1 else [changed_id]:
        if id >= changed_id:
            rewrite(world, id, NEWER[changed])
    before = files(world)
    for go_back in (
        lambda: rollback(world.checkpoint, 0, outputs="retract"),
        lambda: rollback(world.checkpoint, clock=4, outputs="retract"),
        world.run,
    ):
        with pytest.raises(NewerFormat, match=r"(?m)use a newer release$"):
            go_back()
        assert files(world) == before


def test_where_the_newest_is_damaged_a_newer_one_before_it_stays(folder: Path) -> None:
    """The way back goes through a newer release: the one that is named otherwise would burn what it wrote."""
    world = ended(VISITS, folder)
    *_, middle, last = Log(world.checkpoint).ids()
    rewrite(world, middle, NEWER["format"])
    damage(world, manifest_name(last))
    before = files(world)
    for act in (world.run, lambda: rollback(world.checkpoint, 0, outputs="retract")):
        with pytest.raises(NewerFormat, match=r"(?m)use a newer release$"):
            act()
        assert files(world) == before


def test_a_corrupt_manifest_in_the_middle_is_burnt(folder: Path) -> None:
    """A kept manifest that cannot be read stops every run: going back to the newest must be enough to go on."""
    expected = calm(VISITS, folder).outcome
    world = ended(VISITS, folder)
    *_, middle, last = bases(world)
    damage(world, manifest_name(middle))
    entry = rollback(world.checkpoint, last, outputs="retract")
    assert entry.manifest.burnt == (middle,)
    assert middle not in entry.manifest.bases
    world.run()
    assert world.outcome() == expected
    assert verify(world.checkpoint).ok


def test_pins_stay(folder: Path) -> None:
    """A checkpoint kept for good is not lost by going back."""
    world = ended(VISITS, folder)
    first, *_, last = bases(world)
    pin(world.checkpoint, last)
    assert rollback(world.checkpoint, first, outputs="retract").manifest.pins == (last,)
    world.run()
    assert newest(world).pins == (last,)
    assert verify(world.checkpoint).ok


def test_every_damaged_target_is_refused_and_nothing_is_changed(folder: Path) -> None:
    """I4: going back to half a checkpoint would lose state for good, and the good one with it."""
    world = ended(OPEN, folder)
    to = bases(world)[-1]
    for name in sorted(Log(world.checkpoint).read(to).manifest.files()):
        for harm in (damage, lambda place, file: place.checkpoint.delete(file)):
            other = twin(world)
            harm(other, name)
            before = dict(copy.copy(other.checkpoint._files))  # type: ignore[attr-defined]
            with pytest.raises(CorruptCheckpoint, match=f"{name}.*cannot go back to checkpoint {to}"):
                rollback(other.checkpoint, to, outputs="retract")
            assert other.checkpoint._files == before  # type: ignore[attr-defined]
            other.close()


def test_bad_input_is_refused_with_what_helps_and_nothing_is_changed(folder: Path) -> None:
    """A wrong id typed in a hurry must not cost anything."""
    world = ended(VISITS, folder)
    place: Any = world.checkpoint
    before = dict(place._files)
    said = list(
        refusals(
            Refused,
            lambda: rollback(place, 0, outputs="keep"),
            lambda: rollback(place, outputs="retract"),
            lambda: rollback(place, 0, clock=4, outputs="retract"),
        )
    )
    assert "retract" in said[0] and "either" in said[1] and "either" in said[2]
    with pytest.raises(UnknownCheckpoint, match="you can go back to 0, 2"):
        rollback(place, 99, outputs="retract")
    with pytest.raises(NoCheckpoint, match="there is no checkpoint"):
        rollback("memory://nothing-there", 0, outputs="retract")
    assert place._files == before


@pytest.mark.parametrize("harm", ["missing", "torn"])
def test_a_lost_format_is_told_with_what_it_was(harm: str, folder: Path) -> None:
    """FORMAT says nothing that the manifests do not: its loss must not end the job."""
    expected = calm(OPEN, folder).outcome
    world = ended(OPEN, folder)
    data = world.checkpoint.read("FORMAT").to_pybytes()
    world.checkpoint.delete("FORMAT")
    if harm == "torn":
        world.checkpoint.write("FORMAT", data[:-7])
    with pytest.raises(CorruptCheckpoint, match=r"FORMAT.*printf") as told:
        rollback(world.checkpoint, 0, outputs="retract")
    body, sha256 = str(told.value).partition("printf '%s\\n' '")[2].rpartition("' > FORMAT")[0].split("' '")
    world.checkpoint.delete("FORMAT")
    world.checkpoint.write("FORMAT", f"{body}\n{sha256}\n".encode())
    assert world.checkpoint.read("FORMAT").to_pybytes() == data
    rollback(world.checkpoint, 0, outputs="retract")
    world.run()
    assert world.outcome() == expected


def test_a_sink_that_cannot_take_back_says_what_to_do(folder: Path) -> None:
    """The rows that stay must not be taken for rows taken back."""

    world, sink = World(OPEN, folder), MemorySink()
    pipeline = world.pipeline()
    pipeline.sinks = {"forward": sink}
    pipeline.run(engine="embedded")
    rollback(world.checkpoint, 0, outputs="retract")
    sink.abilities -= {"retract"}
    with pytest.raises(Exception, match=r"persistent rollback .* --outputs=again") as told:
        pipeline.run(engine="embedded")
    to = int(str(told.value).partition("persistent rollback ")[2].split()[1])
    rollback(world.checkpoint, to, outputs="again")
    assert pipeline.run(engine="embedded").steps


@pytest.mark.parametrize("job", [VISITS, TOTALS], ids=lambda job: job.name)
@pytest.mark.parametrize("without", [False, True])
def test_without_the_sink_nothing_is_taken_back_so_nothing_is_run(job: CrashJob, without: bool, folder: Path) -> None:
    """A step would clear what is to be taken back, and rows of a branch that is no more stay for ever."""
    expected = calm(job, folder).outcome
    world = ended(replace(job, rows=job.rows[:-2]), folder)
    target = bases(world)[1]
    pipeline = world.pipeline()
    pipeline.sinks, pipeline.discard_closed = {}, True
    if without:
        # The last of the branch that is left had none.
        world.job = job
        pipeline = world.pipeline()
        pipeline.sinks, pipeline.discard_closed = {}, True
        assert pipeline.run(engine="embedded").steps
        assert newest(world).publishes is False
    world.job = job
    rollback(world.checkpoint, target, outputs="retract")
    before = world.checkpoint.list("m")
    with pytest.raises(InvalidPipeline, match=r"this pipeline has no sink .*persistent rollback .* --outputs=again"):
        pipeline.run(engine="embedded")
    assert world.checkpoint.list("m") == before
    world.run()
    assert world.outcome() == expected
    check_sound(world)


def run_of(world: World, rows: int, *, sink: bool, keep: int = 1) -> None:
    """Read the first rows, with the sink of the world or without; keep that many checkpoints."""
    world.job = replace(VISITS, rows=VISITS.rows[:rows])
    pipeline = world.pipeline()
    pipeline.retention = Retention(last=keep)
    if not sink:
        pipeline.sinks, pipeline.discard_closed = {}, True
    pipeline.run(engine="embedded")


NO_SINK = r"this pipeline has no sink .*persistent rollback .* --outputs=again"


@pytest.mark.parametrize("first", [False, True])
def test_a_sink_that_has_come_and_gone_is_not_forgotten(first: bool, folder: Path) -> None:
    """What was given to it is in no manifest that is kept: a run without it would leave that there for good."""
    world, rows = World(VISITS, folder), len(VISITS.rows)
    run_of(world, rows - 6, sink=first)
    target = bases(world)[-1]
    pin(world.checkpoint, target)
    run_of(world, rows - 3, sink=True)
    for more in (rows - 2, rows - 1):
        run_of(world, more, sink=False)
    kept = [Log(world.checkpoint).read(id).manifest.publishes for id in bases(world) if id >= target]
    assert kept == [first, False], "in between, those with the sink are collected"
    rollback(world.checkpoint, target, outputs="retract")
    before = world.checkpoint.list("m")
    with pytest.raises(InvalidPipeline, match=NO_SINK):
        run_of(world, rows, sink=False)
    assert world.checkpoint.list("m") == before


@pytest.mark.parametrize("before", [False, True])
def test_where_no_sink_was_given_anything_none_is_asked_for(before: bool, folder: Path) -> None:
    """A job without a sink has nothing to take back: to refuse its run would only cost a second rollback."""
    world, rows = World(VISITS, folder), len(VISITS.rows)
    if before:
        run_of(world, rows - 6, sink=True)
    run_of(world, rows - 4, sink=False)
    target = bases(world)[-1]
    pin(world.checkpoint, target)
    for more in (rows - 2, rows - 1):
        run_of(world, more, sink=False)
    assert rollback(world.checkpoint, target, outputs="retract").manifest.publishes is False
    run_of(world, rows, sink=False)


def remedy(error: BaseException) -> int:
    """The id that an error says to go back to."""
    return int(str(error).partition("persistent rollback ")[2].split()[1])


def test_after_the_way_back_behind_a_lost_manifest_nothing_is_called_damaged(folder: Path) -> None:
    """What the lost one had collected is gone: a check that blames the remedy for it is soon no longer run."""
    world = World(OPEN, folder)
    pipeline = world.pipeline()
    pipeline.retention = Retention(last=3)
    pipeline.run(engine="embedded")
    last = newest(world)
    assert last.oldest > 0 and last.id == last.base
    world.checkpoint.delete(manifest_name(last.id))
    found = verify(world.checkpoint)
    assert found.newest_good is not None
    rollback(world.checkpoint, found.newest_good, outputs="retract")
    assert verify(world.checkpoint).ok
    pipeline.run(engine="embedded")
    check_sound(world)


@pytest.mark.parametrize("is_base", [True, False])
def test_a_lost_old_manifest_ends_no_run_for_good(is_base: bool, folder: Path) -> None:
    """The newest state is whole without it; each try left one more fence, and said nothing of what to do."""
    expected = calm(OPEN, folder).outcome
    world = ended(replace(OPEN, rows=OPEN.rows[:-2]), folder)
    lost = bases(world)[-1 if is_base else 1]
    if is_base:
        pin(world.checkpoint, bases(world)[0])
        assert newest(world).kind == "fence"
    world.checkpoint.delete(manifest_name(lost))
    world.job = OPEN
    before = world.checkpoint.list("m")
    with pytest.raises(CorruptCheckpoint, match=r"missing. The newest state does not need it: 'persist") as told:
        world.run()
    assert world.checkpoint.list("m") == before
    rollback(world.checkpoint, remedy(told.value), outputs="retract")
    world.run()
    assert world.outcome() == expected
    check_sound(world)


def test_where_the_newest_state_is_lost_too_no_way_back_is_named(folder: Path) -> None:
    """The rollback that it named was refused, and named another command."""
    world = ended(replace(TOTALS, rows=TOTALS.rows[:-2]), folder)
    world.job = TOTALS
    world.checkpoint.delete(manifest_name(bases(world)[1]))
    world.checkpoint.delete(newest(world).state_runs()[-1].name)
    with pytest.raises(CorruptCheckpoint, match=r"(?m)missing too: restore the folder from a copy$"):
        world.run()


@pytest.mark.parametrize(
    ("parts", "unable"),
    [
        ({}, []),
        ({"a": SinkPart(("newest", "retract"), 3, node="Visits")}, []),
        ({"a": SinkPart(("newest",), 3, node="Visits")}, ["a"]),
        ({"a": SinkPart(("newest",), node="Visits")}, ["a"]),
        ({"a": SinkPart(node="Visits")}, ["a"]),
        ({"sink": SinkPart(("newest",), 3, node="Visits")}, ["sink"]),
        (
            {
                "a": SinkPart(("retract",), 3, node="Visits"),
                "b": SinkPart(("newest",), 3, node="Visits"),
                "c": SinkPart((), 2, node="Visits"),
            },
            ["b", "c"],
        ),
    ],
)
def test_whoever_cannot_take_back_is_named_before_anything_changes(parts: dict[str, Any], unable: list[str]) -> None:
    """Committed, the rollback would end every run until there is another one."""
    newest = manifest(9, sinks=parts)
    check_can_take_back(newest, "again", "u")
    if not unable:
        check_can_take_back(newest, "retract", "u")
        return
    with pytest.raises(Refused, match=f"^u: the sink {', '.join(map(repr, unable))} of this job cannot take back"):
        check_can_take_back(newest, "retract", "u")
