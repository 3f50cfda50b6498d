"""A checkpoint that has lost its newest manifest is told by what else there is of it, and there is a way back."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

from persistent import CorruptCheckpoint, Fenced, FileSink, MemorySink, MemorySource, Pipeline, StorageError
from persistent.checkpoint.log import Log
from persistent.connect.sink import StagingSink
from persistent.driver.publish import take_back
from persistent.names import manifest_name
from persistent.operations import collect_garbage, compact, merge, pin, restart, rollback, savepoint
from persistent.storage import MemoryStorage, Storage
from persistent.tools.cli import main
from persistent.verify import verify
from tests.crash.sweep import Deaths, anywhere, calm
from tests.crash.worlds import JOBS, ROWS, CrashJob, Outcome, Visits, World
from tests.faults import FaultyStorage, Killed, Operations
from tests.few import paired
from tests.operations.twins import OPEN, TOTALS, VISITS, bases, check_sound, die_everywhere, ended, newest, twin

PARQUET, DISK = (next(job for job in JOBS if job.name == name) for name in ("parquet", "disk"))
TRACES = (
    "p/{}.json",
    "p/{}-2.json",
    "late/{}-a.arrow",
    "dead/{}-a.arrow",
    "sink:_published/{}.json",
    "sink:{}-a.jsonl",
)
"""Everything by which a checkpoint may be known, besides its manifest."""


def leave(world: World, trace: str, id: int) -> str:
    """Put that trace of checkpoint ``id``; the name that the error must have."""
    place, _, name = trace.rpartition(":")
    storage = world.sink if place else world.checkpoint
    storage.write(name.format(f"{id:020d}"), b"")
    return (
        repr(FileSink(storage, format=world.job.format))
        if place
        else f"{world.checkpoint.url}/{name.format(f'{id:020d}')}"
    )


def forget(world: World, ids: list[int], *, shown: bool = False) -> None:
    """Lose these manifests; and where nothing is ``shown``, all that is left of them in the checkpoint's folder."""
    for id in ids:
        world.checkpoint.delete(manifest_name(id))
        for folder in () if shown else ("p", "late", "dead"):
            for name in world.checkpoint.list(folder):
                if name.startswith(f"{id:020d}"):
                    world.checkpoint.delete(f"{folder}/{name}")


def files(storage: Storage) -> dict[str, bytes]:
    assert isinstance(storage, MemoryStorage)
    return {name: bytes(data) for name, data in storage._files.items()}


def told(call: Callable[[], Any]) -> str:
    with pytest.raises(CorruptCheckpoint) as caught:
        call()
    return str(caught.value)


def command(message: str) -> list[str]:
    """The command of an error message, without the program."""
    found = re.search(r"'persistent (rollback \S+ \d+ --outputs=retract)'", message)
    assert found is not None, message
    return shlex.split(found[1])


def losses(world: World) -> Iterator[list[int]]:
    """The newest manifest, the two newest, and so on, until only the first is left."""
    ids = Log(world.checkpoint).ids()
    yield from (ids[at:] for at in range(len(ids) - 1, 0, -1))


# -- told ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trace", "at_work"), paired(TRACES, [False, True]))
def test_each_trace_alone_is_told_and_nothing_is_changed(trace: str, at_work: bool, folder: Path) -> None:
    """Whoever goes on from the manifest below publishes a second time what was published, and says nothing; whether
    there is something to do or not."""
    world = ended(VISITS, folder)
    id = newest(world).id
    if at_work:
        forget(world, [id])
        for name in [name for name in files(world.sink) if f"{id:020d}" in name]:
            world.sink.delete(name)
    else:
        id += 1
    named = leave(world, trace, id)
    before = files(world.checkpoint), files(world.sink)
    message = told(world.run)
    assert message.startswith(f"{named}: left by checkpoint {id}, whose manifest {manifest_name(id)} is lost: ")
    assert command(message) == ["rollback", world.checkpoint.url, str(id - 1), "--outputs=retract"]
    assert (files(world.checkpoint), files(world.sink)) == before


@pytest.mark.parametrize("trace", TRACES[:4])
def test_operations_refuse_and_change_nothing(trace: str, folder: Path) -> None:
    """What fences or copies goes on from the manifest below as if that were the newest; and restoring the lost one
    from a copy is possible only as long as nobody has taken its id, nor collected what it names."""
    world, other = ended(OPEN, folder), ended(OPEN, folder)
    pin_one = bases(world)[0]
    named = leave(world, trace, newest(world).id + 1)
    before, storage = files(world.checkpoint), world.checkpoint
    for call in (
        lambda: pin(storage, pin_one),
        lambda: collect_garbage(storage),
        lambda: compact(world.pipeline()),
        lambda: savepoint(storage, "mine"),
        lambda: restart(world.pipeline(), 30, outputs="retract"),
        lambda: merge(storage, other.checkpoint, MemoryStorage(f"{world.name}-m")),
        lambda: merge(other.checkpoint, storage, MemoryStorage(f"{world.name}-m")),
    ):
        message = told(call)
        assert named in message and command(message)
        assert files(storage) == before


@pytest.mark.parametrize("trace", TRACES[:4])
def test_verify_tells_it(trace: str, folder: Path) -> None:
    """Whoever asks whether a checkpoint is whole must hear what its next run would say."""
    world = ended(VISITS, folder)
    good, id = newest(world).base, newest(world).id + 3
    place = leave(world, trace, id).removeprefix(f"{world.checkpoint.url}/")
    found = verify(world.checkpoint)
    lost = [finding for finding in found.findings if finding.text == f"left by checkpoint {id}, whose manifest is lost"]
    assert [finding.place for finding in lost] == [place]
    assert (found.ok, found.newest, found.newest_good) == (False, id, good)


def test_verify_takes_an_unreadable_manifest_for_no_lost_one(folder: Path) -> None:
    """Its bytes are damaged, and it may have left what it likes: a second fault would send people looking for a file
    that is there."""
    world = ended(VISITS, folder)
    name = manifest_name(newest(world).id)
    world.checkpoint.delete(name)
    world.checkpoint.write(name, b"{}")
    leave(world, TRACES[2], Log(world.checkpoint).ids()[-1])
    assert not [one for one in verify(world.checkpoint).findings if "is lost" in one.text]


# -- the way back ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "only_sink"),
    paired([VISITS, PARQUET, TOTALS, OPEN], [False, True]),
    ids=lambda value: str(getattr(value, "name", value)),
)
def test_the_command_that_is_told_goes_back(job: CrashJob, only_sink: bool, folder: Path) -> None:
    """A remedy that does not work is none: afterwards everything must be there once, also where only the sink knows
    what the rollback cannot see."""
    expected = calm(job, folder).outcome
    for lost in losses(ended(job, folder)):
        world = ended(job, folder)
        forget(world, lost, shown=not only_sink)
        try:
            world.run()
        except CorruptCheckpoint as error:
            rollback(world.checkpoint, int(command(str(error))[2]), outputs="retract")
            world.run()
        assert world.outcome() == expected, lost
        check_sound(world)
        assert world.run().steps == 0
        world.close()


def test_the_command_works_on_the_command_line(folder: Path) -> None:
    """It is what stands in the message that people copy."""
    expected = calm(DISK, folder).outcome
    world = ended(DISK, folder)
    world.checkpoint.delete(manifest_name(newest(world).id))
    result = CliRunner().invoke(main, command(told(world.run)))
    assert result.exit_code == 0, result.output
    world.run()
    assert world.outcome() == expected


def back_once_more(world: World, expected: Outcome, story: str) -> None:
    """Run, go back if told to, and run."""
    try:
        world.run()
    except CorruptCheckpoint as error:
        rollback(world.checkpoint, int(command(str(error))[2]), outputs="retract", take_over=True)
        world.run()
    assert world.outcome() == expected, story
    assert verify(world.checkpoint).ok, story


@anywhere
def test_a_rollback_killed_anywhere_hides_nothing(folder: Path, deaths: Deaths) -> None:
    """A fence stands under the id that was lost: whoever goes by that takes the loss for made good."""
    expected = calm(VISITS, folder).outcome
    world = ended(VISITS, folder)
    forget(world, Log(world.checkpoint).ids()[-2:], shown=True)
    good = newest(world).id
    cases = die_everywhere(
        world,
        lambda storage: rollback(storage, good, outputs="retract"),
        lambda other, story: back_once_more(other, expected, story),
        deaths,
    )
    assert cases > 20


@anywhere
def test_the_run_after_it_killed_anywhere_takes_all_back(folder: Path, deaths: Deaths) -> None:
    """What the rollback could not see, the next driver fences above, and takes back; or the one after it."""
    expected = calm(VISITS, folder).outcome
    world = ended(VISITS, folder)
    forget(world, Log(world.checkpoint).ids()[1:])
    rollback(world.checkpoint, 0, outputs="retract")
    operations = Operations()
    twin(world).run(operations)
    for death in deaths(operations.log):
        if operations.log[death.at][0] in ("put_if_absent", "delete"):
            other = twin(world)
            with pytest.raises(Killed):
                other.run(Operations(death.at, death.how))
            back_once_more(other, expected, f"{death}: {operations.log[death.at]}")
            other.close()


def test_going_back_to_a_fence_takes_back_what_was_published_under_its_id(folder: Path) -> None:
    """A rollback that was killed leaves a fence under the lost id; and that is the newest that the error names."""
    expected = calm(VISITS, folder).outcome
    world = ended(VISITS, folder)
    top = newest(world).id
    forget(world, [top])
    last = Log(world.checkpoint).newest()
    assert last is not None
    assert Log(world.checkpoint).fence(last, "killed").manifest.id == top
    assert command(told(world.run))[2] == str(top)
    rollback(world.checkpoint, top, outputs="retract")
    world.run()
    assert world.outcome() == expected


def test_lost_again_after_a_rollback_it_is_taken_back_again(folder: Path) -> None:
    """Nothing is told where a rollback has said what becomes of outputs; so what is lost on top of it must be taken
    back with the rest."""
    expected = calm(VISITS, folder).outcome
    world = ended(VISITS, folder)
    rollback(world.checkpoint, bases(world)[0], outputs="retract")
    back = newest(world).id
    world.run()
    forget(world, [id for id in Log(world.checkpoint).ids() if id > back + 1], shown=True)
    assert newest(world).target is not None
    assert Log(world.checkpoint).lost(newest(world).base, newest(world).id) is not None
    assert not [one for one in verify(world.checkpoint).findings if "is lost" in one.text]
    world.run()
    assert world.outcome() == expected


def test_published_again_is_not_told_for_ever(folder: Path) -> None:
    """Who chooses that rows come twice has chosen: the next runs publish above all that is there, and end in peace."""
    expected = calm(VISITS, folder).outcome
    world = ended(VISITS, folder)
    top = newest(world).id
    forget(world, Log(world.checkpoint).ids()[1:])
    rollback(world.checkpoint, 0, outputs="again")
    world.run()
    assert world.outcome().published == sorted(expected.published * 2)
    assert newest(world).base > top
    assert world.run().steps == 0
    assert newest(world).kind == "checkpoint"
    check_sound(world)


def test_a_run_that_has_nothing_to_do_after_a_rollback_does_nothing(folder: Path) -> None:
    """A run every minute that puts a fence each time fills a checkpoint with manifests."""
    world = ended(VISITS, folder)
    leave(world, TRACES[4], newest(world).id + 5)
    rollback(world.checkpoint, newest(world).base, outputs="again")
    assert world.run().steps == 0
    assert newest(world).kind == "rollback"


@pytest.mark.parametrize(("trace", "outputs"), paired(TRACES, ["retract", "again"]))
def test_a_copy_of_long_ago_goes_on_above_all_that_came_since(trace: str, outputs: str, folder: Path) -> None:
    """An id that was used is not used again, or a sink takes what is new for what it has; and a thousand lost ones must
    not cost a thousand manifests."""
    world = ended(VISITS, folder)
    id, count = newest(world).id + 1_000, len(Log(world.checkpoint).ids())
    leave(world, trace, id)
    rollback(world.checkpoint, 0, outputs=outputs)
    world.run()
    ids = Log(world.checkpoint).ids()
    assert ids[-1] > id and len(ids) < count + 10
    assert verify(world.checkpoint).ok or outputs == "again"
    assert world.run().steps == 0


def test_whoever_goes_on_from_the_first_fence_goes_above_too(folder: Path) -> None:
    """Between the two fences of one who goes above a lost id, another must not go on below: two would go on from one
    manifest."""
    world = ended(VISITS, folder)
    log, last = Log(world.checkpoint), Log(world.checkpoint).newest()
    assert last is not None
    top = last.manifest.id
    log.fence(last, "mine", above=top + 10)
    assert log.ids()[-2:] == [top + 1, top + 11]
    world.checkpoint.delete(manifest_name(top + 11))
    first = log.newest()
    assert first is not None and first.manifest.burnt == (top + 10,)
    assert log.fence(first, "another").manifest.id == top + 11


def test_lost_above_one_that_cannot_be_read(folder: Path) -> None:
    """The plan of a lost checkpoint is not that of the rollback: its id must not be that of the lost one."""
    expected = calm(OPEN, folder).outcome
    world = ended(OPEN, folder)
    forget(world, [newest(world).id], shown=True)
    lost, name = newest(world).id + 1, manifest_name(newest(world).id)
    leave(world, TRACES[0], lost)
    world.checkpoint.delete(name)
    world.checkpoint.write(name, b"{}")
    _, _, good, _ = command(told(world.run))
    assert rollback(world.checkpoint, int(good), outputs="retract").manifest.id == lost + 1
    world.run()
    assert world.outcome() == expected
    check_sound(world)


# -- nothing lost ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["fence", "nothing"])
def test_where_nothing_can_be_doubled_nothing_is_told(lost: str, folder: Path) -> None:
    """A fence that is lost was nothing: an error that stops a job must have a reason."""
    expected = calm(OPEN, folder).outcome
    world = ended(OPEN, folder)
    pin(world.checkpoint, bases(world)[0])
    if lost == "fence":
        forget(world, [newest(world).id])
    world.run()
    pin(world.checkpoint, bases(world)[1])
    assert world.outcome() == expected
    assert verify(world.checkpoint).ok


def test_a_job_without_a_sink_and_a_sink_that_cannot_tell(folder: Path) -> None:
    """``newest`` is optional, and so is the sink: what such a job has left is told by its folder alone."""

    class Plain(MemorySink):
        abilities = MemorySink.abilities - {"newest"}
        newest = StagingSink.newest

    def run(storage: Storage, sink: Any) -> int:
        source = MemorySource(list(ROWS), timestamp="ts", ordered=True)
        job = Pipeline(
            source=source,
            task=Visits(),
            sink=sink,
            discard_closed=sink is None,
            checkpoint=storage,
            step_rows=4,
            on_error="dead-letter",
        )
        return job.run(engine="embedded", end_of_input=True).steps

    for sink in (None, Plain(), MemorySink()):
        storage = MemoryStorage(f"{folder.name}-{type(sink).__name__}")
        assert run(storage, sink) > 0
        assert run(storage, sink) == 0
        storage.delete(manifest_name(Log(storage).ids()[-1]))
        if isinstance(sink, Plain) or sink is None:
            assert run(storage, sink) > 0
        else:
            with pytest.raises(CorruptCheckpoint, match="MemorySink"):
                run(storage, sink)
        storage.clear()


def test_what_another_job_has_published_is_no_trace(folder: Path) -> None:
    """A sink given to the wrong job is that mistake, and its checkpoint is whole."""
    world, other = ended(VISITS, folder), ended(VISITS, folder)
    leave(other, TRACES[4], newest(world).id + 5)
    pipeline = world.pipeline()
    pipeline.sinks = {"file": FileSink(other.sink, format="jsonl")}
    with pytest.raises(StorageError, match="holds the results of job"):
        pipeline.run(engine="embedded", end_of_input=True)


@pytest.mark.parametrize("idle", [False, True])
def test_another_driver_that_goes_on_meanwhile_is_no_loss(idle: bool, folder: Path) -> None:
    """Between our look at the log and our look at what there is a driver commits and publishes: no manifest is lost,
    and to stop a job for that would be an alarm about nothing."""
    expected = calm(VISITS, folder).outcome
    world = World(VISITS, folder)
    world.pipeline().run(engine="embedded")
    asked = False

    def before(verb: str, name: str) -> None:
        nonlocal asked
        if (verb, name) == ("list", "p") and not asked:
            asked = True
            world.run()

    with nullcontext() if idle else pytest.raises(Fenced):
        world.pipeline(before=before).run(engine="embedded", end_of_input=not idle)
    assert asked
    assert world.outcome() == expected
    check_sound(world)


def test_an_operation_and_a_driver_that_goes_on_meanwhile(folder: Path) -> None:
    """The same of a command: it fences on top of what the driver has committed."""
    world = World(VISITS, folder)
    world.pipeline().run(engine="embedded")
    first, asked = bases(world)[0], []

    class Asking(FaultyStorage):
        def list(self, folder: str) -> list[str]:
            if folder == "p" and not asked:
                asked.append(world.run())
            return super().list(folder)

    with pytest.raises(Fenced, match="by another driver"):
        pin(Asking(world.checkpoint, Operations()), first)
    assert asked[0].steps > 0
    assert pin(world.checkpoint, first).manifest.pins == (first,)


# -- what is taken back, and what a sink tells ------------------------------------------------------------------------


def test_only_what_is_below_our_own_fence_is_taken_back(folder: Path) -> None:
    """Whoever has fenced a sleeping driver publishes above its fence: when it wakes up in the middle of taking back,
    it must not find that."""
    world = ended(VISITS, folder)
    rollback(world.checkpoint, 0, outputs="retract")
    log, last = Log(world.checkpoint), Log(world.checkpoint).newest()
    assert last is not None
    fence = log.fence(last, "mine").manifest
    ids = fence.id - 1, fence.id, fence.id + 1
    for id in ids:
        leave(world, "sink:{}-a.jsonl", id)
        leave(world, "late/{}-a.arrow", id)
    take_back(world.pipeline().job(), fence)
    assert [name[:20] for name in world.sink.list("")] == [f"{id:020d}" for id in ids[1:]]
    assert [name[:20] for name in world.checkpoint.list("late")] == [f"{id:020d}" for id in ids[1:]]


@pytest.mark.parametrize(
    "sink", [MemorySink(), FileSink("memory://newest", format="jsonl"), FileSink("memory://newest-p")]
)
def test_a_sink_tells_the_newest_id_it_shows(sink: Any) -> None:
    """What it does not tell comes twice; what it tells too much stops a job."""
    assert sink.newest() == -1
    sink.claim("job")
    table = pa.table({"page": ["a"]})
    seven = sink.stage(table, 7, "e1-c7-a")
    sink.stage(table, 9, "e1-c9-a")
    assert sink.newest() == -1
    sink.publish(7, [seven])
    assert sink.newest() == 7
    sink.publish(8, [])
    assert sink.newest() == 7
    sink.retract(7, 8)
    assert sink.newest() == -1
