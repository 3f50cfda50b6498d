"""What a batch sink is told: which batch is before each, how far a rollback goes back, whose place it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from monoids import Count
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Inheritance, SinkBatch, SinkPart
from persistent.checkpoint.successor import new_nonce
from persistent.connect.marked import SinkMark
from persistent.connect.sink import Claim, OutputBatch
from persistent.driver.output_batches import batches_of, claim_of, retreat_of
from persistent.engines.embedded import Embedded
from persistent.errors import CorruptCheckpoint, Fenced, InvalidPipeline, SinkMismatch
from persistent.names import STAGED, Staged
from persistent.operations import collect_garbage, rollback, savepoint
from persistent.storage import MemoryStorage
from persistent.verify import verify
from persistent.worker.job import Job
from tests.checkpoint.samples import manifest
from tests.connect.ledger import Ledger, LedgerSink
from tests.faults import FaultyStorage, Killed, Operations
from tests.few import one_in
from tests.sessions import Visits as SessionVisits
from tests.sessions import run_of, straggling
from tests.single import only
from tests.time.test_session_window_lateness import small_folds

ROWS = [{"ts": time, "page": f"p{time % 3}"} for time in range(1, 40)]


class Visits(PersistentTask):
    """Counts visits of a page."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class AllVisits(Visits):
    """Without windows."""

    def persistent_state(self) -> Any:
        return NonWindowState(Count())


def pipeline(storage: Any, sink: Any, rows: Sequence[dict[str, Any]] = ROWS, **options: Any) -> Pipeline:
    source = MemorySource(rows, timestamp="ts", ordered=True)
    return Pipeline(source=source, task=Visits(), sink=sink, checkpoint=storage, step_rows=10, **options)


def run(pipeline: Pipeline, *, ends: bool = True) -> None:
    pipeline.run(engine=Embedded(threads=1), end_of_input=ends)


def told(rows: Sequence[dict[str, Any]] = ROWS) -> list[str]:
    """The rows of a run without any accident."""
    sink = MemorySink()
    run(pipeline(MemoryStorage(new_nonce()), sink, rows))
    return sorted(map(str, sink.rows()))


def of(ledger: Ledger) -> list[str]:
    return sorted(map(str, ledger.rows()))


def newest(storage: MemoryStorage) -> Manifest:
    found = Log(storage).newest()
    assert found is not None
    return found.manifest


def waiting(storage: MemoryStorage) -> bool:
    """Whether only what the newest manifest lists waits in the checkpoint."""
    return {f"{STAGED}/{name}" for name in storage.list(STAGED)} <= newest(storage).unpublished()


def begun(begin: Callable[[MemoryStorage, Ledger], None], ledger: Ledger) -> MemoryStorage:
    """A new store, and what ``begin`` does there."""
    storage = MemoryStorage(new_nonce())
    begin(storage, ledger)
    return storage


PARTS = one_in(8, range(8))


def at_every_operation(begin: Callable[[MemoryStorage, Ledger], None], part: int) -> int:
    """Kill the run that follows ``begin`` at every operation of this part, repeat it, and check the ledger; how many
    operations there are in all."""

    def rest(at: Any, ledger: Ledger) -> None:
        run(pipeline(at, LedgerSink(ledger)))

    expected, calm = told(), Operations()
    rest(FaultyStorage(begun(begin, ledger := Ledger()), calm), ledger)
    for at, how in list(product(range(calm.count), ("before", "after")))[part :: len(PARTS)]:
        storage = begun(begin, ledger := Ledger())
        try:
            rest(FaultyStorage(storage, Operations(at, how)), ledger)
        except Killed:
            rest(storage, ledger)
        assert of(ledger) == expected, (at, how)
        assert verify(storage).ok
        # A run that finds nothing to do collects nothing.
        collect_garbage(storage, take_over=True)
        assert waiting(storage)
    return calm.count


@pytest.mark.parametrize("part", PARTS)
def test_killed_anywhere_each_batch_is_there_once(part: int) -> None:
    """The rows of a batch would be missing, or there twice; or what waits in the checkpoint stays there for ever."""
    assert at_every_operation(lambda storage, ledger: None, part) > 20


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("outputs", one_in(2, ["retract", "again"]))
def test_a_rollback_settles_what_was_published_since(outputs: str, part: int) -> None:
    """The mark stands where the next batch looks for it, whatever the drivers before have left undone."""

    def begin(storage: MemoryStorage, ledger: Ledger) -> None:
        operations = Operations()
        run(pipeline(FaultyStorage(MemoryStorage(new_nonce()), operations), LedgerSink(Ledger())), ends=False)
        last = [n for n, (verb, _, name) in enumerate(operations.log) if verb == "put_if_absent" and name[:2] == "m/"][
            -1
        ]
        with pytest.raises(Killed):
            run(pipeline(FaultyStorage(storage, Operations(last, "after")), LedgerSink(ledger)), ends=False)
        assert only(newest(storage).sinks).owed, "committed, and not published"
        target = newest(storage).id if outputs == "again" else sorted(newest(storage).bases)[1]
        rollback(storage, target, outputs=outputs, take_over=True)

    assert at_every_operation(begin, part) > 20


class Newest(LedgerSink):
    """Keeps the batches that it was given: their key, and their rows by file."""

    replaces = False
    given: list[tuple[tuple[str, ...], list[list[dict[str, Any]]]]]

    def deliver(self, batch: OutputBatch) -> None:
        self.given.append((batch.key, [table.to_pylist() for table in batch.tables()]))
        super().deliver(batch)


@pytest.mark.parametrize("replaces", [True, False])
def test_a_sink_that_keeps_one_row_of_a_session_is_given_one(replaces: bool) -> None:
    """It cannot tell which of two counts: the session as it was, or as it is. A sink that adds rows needs both."""
    rows = straggling(1, 40, 4, 10, 60)
    with (
        small_folds(0),
        run_of(rows, task=SessionVisits(emit="change", allowed_lateness=60), behind=4, step_rows=7) as made,
    ):
        sink = Newest(Ledger())
        sink.given, sink.replaces = [], replaces
        made.run(sink=sink, engine=Embedded(threads=3))
    assert any(len(files) > 1 for _, files in sink.given)
    twice = 0
    for key, files in sink.given:
        assert key == ("key", "window_start", "window_end", *(() if replaces else ("retracted",)))
        found = [tuple(row[name] for name in key[:3]) for file in files for row in file]
        twice += len(found) - len(set(found))
    assert (twice == 0) == replaces


def test_a_driver_that_slept_through_a_rollback_publishes_nothing() -> None:
    """What was taken back would come back, and stay beside what replaces it."""
    storage, ledger = MemoryStorage(new_nonce()), Ledger()
    run(pipeline(storage, LedgerSink(ledger)), ends=False)
    one = pipeline(storage, LedgerSink(ledger)).job()
    slept = newest(storage)
    batches = batches_of(one, slept, "ledger", lambda staged: pa.table({"page": ["ghost"]}))
    rollback(storage, sorted(slept.bases)[1], outputs="retract", take_over=True)
    run(pipeline(storage, LedgerSink(ledger)))
    assert batches, "nothing to wake up with"
    for batch in batches:
        with pytest.raises(Fenced, match="another driver has taken over"):
            LedgerSink(ledger).deliver(batch)
    assert of(ledger) == told()


def test_lost_manifests_do_not_end_the_chain() -> None:
    """A batch of which no manifest tells is passed by the rollback, or no batch ever follows it again."""
    storage, ledger = MemoryStorage(new_nonce()), Ledger()
    run(pipeline(storage, LedgerSink(ledger)), ends=False)
    last = newest(storage).id
    assert ledger.mark is not None and ledger.mark.number == last
    storage.delete(f"m/{last:020d}.json")
    rollback(storage, sorted(newest(storage).bases)[-1], outputs="retract", take_over=True)
    run(pipeline(storage, LedgerSink(ledger)))
    assert of(ledger) == told()


def test_a_copy_of_the_checkpoint_is_refused() -> None:
    """Two branches of one job would publish the same windows twice, each sure of itself."""
    storage, other, ledger = MemoryStorage(new_nonce()), MemoryStorage(new_nonce()), Ledger()
    run(pipeline(storage, LedgerSink(ledger), ROWS[:15]), ends=False)
    for folder in ("", "m", "p", "d/Visits", "d/MemorySource"):
        for name in storage.list(folder):
            path = f"{folder}/{name}".lstrip("/")
            other.write(path, storage.read(path))
    run(pipeline(storage, LedgerSink(ledger)))
    with pytest.raises(CorruptCheckpoint, match=r"LedgerSink\(\): left by checkpoint"):
        run(pipeline(other, LedgerSink(ledger)))
    assert of(ledger) == told()


def test_an_older_copy_of_the_table_is_noticed() -> None:
    """The batches that it lacks would be missing for ever, under newer ones."""
    storage, ledger = MemoryStorage(new_nonce()), Ledger()
    run(pipeline(storage, LedgerSink(ledger), ROWS[:25]), ends=False)
    copied, entries = ledger.mark, list(ledger.entries)
    run(pipeline(storage, LedgerSink(ledger), ROWS[:35]), ends=False)
    assert ledger.mark != copied is not None
    ledger.mark, ledger.entries = SinkMark(copied.job, 1), [one for one in entries if one[0] <= 1]
    with pytest.raises(SinkMismatch, match=r"those between are missing.*persistent rollback .* ID --outputs=retract"):
        run(pipeline(storage, LedgerSink(ledger)))
    rollback(storage, max(id for id in newest(storage).bases if id <= 1), outputs="retract", take_over=True)
    run(pipeline(storage, LedgerSink(ledger)))
    assert of(ledger) == told()


def test_a_table_of_another_place_is_refused() -> None:
    """Half of the results would lie in each."""
    storage = MemoryStorage(new_nonce())
    run(pipeline(storage, LedgerSink(Ledger()), ROWS[:25]), ends=False)
    with pytest.raises(SinkMismatch, match="has nothing of the outputs of this job"):
        run(pipeline(storage, LedgerSink(Ledger())))


def test_a_second_job_is_refused_and_changes_nothing() -> None:
    """It would write among the rows of the first."""
    storage, ledger = MemoryStorage(new_nonce()), Ledger()
    run(pipeline(storage, LedgerSink(ledger)))
    mark = ledger.mark
    other = MemoryStorage(new_nonce())
    with pytest.raises(SinkMismatch, match=r"holds the results of job .* give each its own table"):
        run(pipeline(other, LedgerSink(ledger)))
    assert ledger.mark == mark and of(ledger) == told()


@pytest.mark.parametrize("by", ["savepoint", "checkpoint"])
def test_the_heir_of_a_savepoint_takes_over_the_place(by: str) -> None:
    """A job that goes on elsewhere would need a new table; and the old one could go on in the same."""
    storage, heir, ledger = MemoryStorage(new_nonce()), MemoryStorage(new_nonce()), Ledger()
    run(pipeline(storage, LedgerSink(ledger), ROWS[:25]), ends=False)
    url = savepoint(storage, "one") if by == "savepoint" else storage.url
    for _ in range(2):
        run(pipeline(heir, LedgerSink(ledger), ROWS, start_from=url))
    assert of(ledger) == told()
    numbers = [number for number, _ in ledger.entries]
    assert numbers == sorted(numbers)
    with pytest.raises(SinkMismatch, match=r"holds the results of job .* give each its own table"):
        run(pipeline(storage, LedgerSink(ledger)))
    second = MemoryStorage(new_nonce())
    with pytest.raises(SinkMismatch, match="holds the results of job"):
        run(pipeline(second, LedgerSink(ledger), start_from=url))
    # And its heir: what it takes back is its own, not what it inherited.
    third = MemoryStorage(new_nonce())
    run(pipeline(third, LedgerSink(ledger), start_from=heir.url))
    rollback(third, min(newest(third).bases), outputs="retract", take_over=True)
    run(pipeline(third, LedgerSink(ledger), start_from=heir.url))
    assert of(ledger) == told()


def test_the_heir_of_a_job_that_went_on_is_refused() -> None:
    """Windows that the old job has published since would be there twice."""
    storage, ledger = MemoryStorage(new_nonce()), Ledger()
    run(pipeline(storage, LedgerSink(ledger), ROWS[:25]), ends=False)
    url = savepoint(storage, "one")
    run(pipeline(storage, LedgerSink(ledger)))
    with pytest.raises(SinkMismatch, match="It has continued: start from a newer savepoint"):
        run(pipeline(MemoryStorage(new_nonce()), LedgerSink(ledger), start_from=url))
    assert of(ledger) == told()
    own = Ledger()
    run(pipeline(MemoryStorage(new_nonce()), LedgerSink(own), start_from=url))
    assert 0 < len(own.entries) < len(ledger.entries)


def test_what_a_run_without_a_sink_discards_leaves_no_hole() -> None:
    """The mark would look for a batch that never comes, and end the job for good."""
    operations = Operations()
    run(pipeline(FaultyStorage(MemoryStorage(new_nonce()), operations), LedgerSink(Ledger())), ends=False)
    last = [n for n, (verb, _, name) in enumerate(operations.log) if verb == "put_if_absent" and name[:2] == "m/"][-1]
    for how, missing in (("before", 0), ("after", 3)):
        storage, ledger = MemoryStorage(new_nonce()), Ledger()
        with pytest.raises(Killed):
            run(pipeline(FaultyStorage(storage, Operations(last, how)), LedgerSink(ledger), ROWS[:39]), ends=False)
        shown = len(ledger.entries)
        run(pipeline(storage, None, [*ROWS, {"ts": 41, "page": "p9"}], discard_closed=True), ends=False)
        more = [*ROWS, {"ts": 41, "page": "p9"}, {"ts": 75, "page": "p9"}, {"ts": 95, "page": "p9"}]
        run(pipeline(storage, LedgerSink(ledger), more))
        assert len(ledger.entries) > shown and ledger.mark is not None and ledger.mark.number == newest(storage).id
        assert len(told(more)) - len(ledger.entries) >= missing
        assert waiting(storage)


def test_what_waits_for_nobody_is_collected() -> None:
    """Outputs of failed attempts would fill the store of the checkpoint."""
    storage, ledger = MemoryStorage(new_nonce()), Ledger()
    run(pipeline(storage, LedgerSink(ledger), ROWS[:25]), ends=False)
    left = f"{STAGED}/e1-c1-{'0' * 32}.arrow"
    storage.write(left, b"left")
    assert [finding.place for finding in verify(storage).findings] == [left]
    assert collect_garbage(storage, dry_run=True) == (left,)
    run(pipeline(storage, LedgerSink(ledger)))
    assert waiting(storage)


def test_an_object_with_half_of_the_contract_is_no_sink() -> None:
    """It would be found out at the first window that closes."""

    class Half:
        def deliver(self, batch: OutputBatch) -> None: ...

    with pytest.raises(InvalidPipeline, match="is not a sink: one of your own is a subclass of Sink; or use FileSink"):
        pipeline("memory://half", Half())


def job_of(sink: Any, task: Any = None) -> Job:
    return Pipeline(
        source=MemorySource([], timestamp="ts"), task=task or Visits(), sink=sink, checkpoint=MemoryStorage(new_nonce())
    ).job()


STAGED_ONE = Staged(f"{STAGED}/e1-c5-aa.arrow", 1, 1, "0" * 64)


def test_numbers_are_revisions() -> None:
    """The ids of an heir begin again: its batches would lie below those of the job before."""
    job = job_of(LedgerSink(Ledger()))
    part = SinkPart((), 7, (SinkBatch(5, None, (STAGED_ONE,)), SinkBatch(7, 5, ())), node="Visits")
    one = manifest(
        8, sinks={"ledger": part}, revision_base=40, oldest=3, inherits={"ledger": Inheritance(("old",), 38)}
    )
    claim = claim_of(job, one, "ledger")
    assert (claim.job, claim.shown, claim.heir_of, claim.inherited) == (one.job, 0, ("old",), 38)
    assert (
        claim_of(job, manifest(8, sinks={"ledger": SinkPart((), 7, node="Visits")}, revision_base=40), "ledger").shown
        == 47
    )
    # It began with a batch that it staged, or has a batch behind it; not with what a run without a sink discarded.
    parts = [SinkPart((), 7, node="Visits"), SinkPart((), None, (SinkBatch(5, None, (STAGED_ONE,)),), node="Visits")]
    parts += [SinkPart(("mark",), node="Visits"), SinkPart((), None, (SinkBatch(5, None, ()),), node="Visits")]
    began = [claim_of(job, manifest(8, sinks={"ledger": part}), "ledger").began for part in parts]
    assert began == [True, True, False, False] and not claim_of(job, manifest(8), "ledger").began
    five, seven = batches_of(job, one, "ledger", lambda staged: pa.table({}))
    assert (five.number, five.before, five.oldest, five.id, five.rows) == (45, 38, 43, 5, 1)
    assert (seven.number, seven.before, seven.rows, list(seven.tables())) == (47, 45, 0, [])
    log = Log(job.storage)
    assert retreat_of(job, log, one, "ledger", five.read) is None
    back = manifest(9, kind="rollback", sinks={"ledger": part}, revision_base=40, target=6, retract=(7, 9))
    retreat = retreat_of(job, log, back, "ledger", five.read)
    assert retreat is not None and (retreat.number, retreat.first, retreat.undoing) == (49, 47, None)
    assert [batch.number for batch in retreat.staged] == [45, 47]
    assert (claim_of(job, back, "ledger").shown, claim_of(job, back, "ledger").began) == (0, False)
    assert retreat_of(job_of(MemorySink()), log, back, "memory", five.read) is None


@pytest.mark.parametrize("task", [Visits(), AllVisits()])
def test_the_claim_tells_the_columns(task: Any) -> None:
    """A table of another shape is found at the first window that closes, hours after the start."""
    job = job_of(LedgerSink(Ledger()), task)
    last = "window_start" if isinstance(task, AllVisits) else "revision"
    schema = claim_of(job, manifest(0), "ledger").schema
    assert schema.field("page").type == pa.null() and schema.field("value").type == pa.int64()
    assert ("revision" in schema.names) == isinstance(task, AllVisits) and last not in schema.names


def test_a_claim_by_hand_has_nothing_to_say() -> None:
    """A sink that is tried out alone needs no checkpoint."""
    assert (Claim("job").shown, Claim("job").schema.names) == (0, [])
