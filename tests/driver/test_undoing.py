"""In sinks that can only append, a rollback takes back by rows."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from monoids import Count, Sum, record
from persistent import Evolution, KafkaSink, LogSink, NonWindowState, Refused, Retention, SegmentedLog
from persistent.checkpoint.log import Log
from persistent.checkpoint.parts import NodePart
from persistent.connect.outlet import abilities
from persistent.driver.undoing import batches_since, has_signs, undoing_rows
from persistent.errors import CorruptCheckpoint, SinkMismatch
from persistent.names import STAGED, manifest_name
from persistent.operations import collect_garbage, pin, rollback
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.faults import DEATHS, FaultyStorage, Killed, Operations
from tests.single import only
from tests.taken_back import ABANDONED, FIRST, INSTEAD, Rolled, Totals, held, totals


class Logged(Rolled):
    """A job that publishes to a log, whose storage and checkpoint may fail."""

    def __init__(self, changes: str | None) -> None:
        self.place, self.operations = MemoryStorage(uuid.uuid4().hex), Operations()
        super().__init__(lambda: LogSink(FaultyStorage(self.place, self.operations)), changes, None)

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(text) for batch in SegmentedLog(self.place).read() for text in batch.records.to_pylist()]

    def killed(self, at: int, how: str, numbers: list[tuple[str, int]]) -> bool:
        """Whether a run dies at an operation of the log or the checkpoint."""
        self.operations = Operations(at, how)
        with suppress(Killed):
            self.run(numbers, checkpoint=FaultyStorage(self.storage, self.operations))
            return False
        return True


@pytest.mark.parametrize("changes", ["retract", "update"])
def test_readers_are_brought_back_wherever_the_next_run_dies(changes: str) -> None:
    """Half of it, or twice of it, would stay with the readers for ever."""
    for at in range(0, 200, 3):
        job = Logged(changes)
        job.go_back()
        is_killed = job.killed(at, DEATHS[at % len(DEATHS)], FIRST + INSTEAD)
        job.operations = Operations()
        job.run(FIRST + INSTEAD)
        assert held(job.rows(), changes) == totals(FIRST + INSTEAD)
        if not is_killed:
            break
    assert at > 30


def test_rows_that_add_up_are_exact_before_anything_is_read() -> None:
    """A reader between the rollback and the next step would hold what no checkpoint has."""
    job = Logged("retract")
    target = job.go_back()
    job.run(FIRST)
    assert held(job.rows(), "retract") == totals(FIRST) and job.newest > target


@pytest.mark.parametrize("changes", ["retract", "update"])
def test_one_rollback_after_another_takes_back_once(changes: str) -> None:
    """What the first has taken back would be taken back twice."""
    job = Logged(changes)
    target = job.go_back()
    with pytest.raises(Refused, match="the last rollback is not done: run the job, until it has made a step"):
        rollback(job.storage, target - 2, outputs="retract")
    job.run(FIRST + INSTEAD)
    for back in (target, target - 2):
        rollback(job.storage, back, outputs="retract")
        job.run(FIRST + INSTEAD)
        assert held(job.rows(), changes) == totals(FIRST + INSTEAD)


def test_what_is_owed_is_published_and_taken_back() -> None:
    """Half of a batch may be in the log, of which no mark tells."""
    owed = 0
    for at in range(20, 120, 2):
        job = Logged("retract")
        job.run(FIRST)
        target = job.newest
        job.killed(at, DEATHS[0], FIRST + ABANDONED)
        entry = Log(job.storage).newest()
        assert entry is not None
        owed += LogSink(job.place).newest(entry.manifest.job) < (only(entry.manifest.sinks).last or 0)
        job.operations = Operations()
        rollback(job.storage, target, outputs="retract", take_over=True)
        job.run(FIRST)
        assert held(job.rows(), "retract") == totals(FIRST)
    assert owed


def test_the_rows_of_kept_checkpoints_are_kept_and_no_others() -> None:
    """Without them nothing can be taken back; kept for good they would fill the store."""
    job = Logged("retract")
    job.run(FIRST + ABANDONED, retention=Retention(last=2))
    entry = Log(job.storage).newest()
    assert entry is not None
    assert len(job.storage.list(STAGED)) == 2 == len(entry.manifest.bases)


def test_the_rows_that_are_kept_are_no_strays() -> None:
    """Whoever deletes what is told to belong to nobody could not go back any more."""
    job = Logged("retract")
    job.go_back()
    for _ in range(2):
        assert not verify(job.storage).findings
        collect_garbage(job.storage)
        job.run(FIRST + INSTEAD)
    assert held(job.rows(), "retract") == totals(FIRST + INSTEAD)


def test_a_target_with_a_gap_behind_it_is_refused() -> None:
    """What the sink was given by the checkpoints that are gone would stay."""
    job = Logged("retract")
    job.run(FIRST)
    target = job.newest
    pin(job.storage, target)
    for count in range(1, 5):
        job.run((FIRST + ABANDONED + INSTEAD)[: len(FIRST) + count], retention=Retention(last=2))
    with pytest.raises(Refused, match=r"is not kept, so what it was given since then is not known.*--outputs=again"):
        rollback(job.storage, target, outputs="retract")


def test_rows_that_are_lost_refuse_it_before_anything_is_changed() -> None:
    """The next run, and every later one, would be refused."""
    job = Logged("retract")
    job.run(FIRST)
    target = job.newest
    job.run(FIRST + ABANDONED)
    last, before = sorted(job.storage.list(STAGED))[-1], Log(job.storage).newest()
    data = job.storage.read(f"{STAGED}/{last}").to_pybytes()
    job.storage.delete(f"{STAGED}/{last}")
    with pytest.raises(Refused, match=rf"the sink 'log' .* only by further rows, and .*{last} is missing"):
        rollback(job.storage, target, outputs="retract")
    job.storage.write(f"{STAGED}/{last}", data[:-1])
    with pytest.raises(CorruptCheckpoint, match=last):
        rollback(job.storage, target, outputs="retract")
    assert Log(job.storage).newest() == before


@pytest.mark.parametrize("changes", ["retract", "update"])
def test_over_rows_that_were_left_it_is_refused(changes: str) -> None:
    """A restart publishes windows again that were final at the target; and what a rollback was to take back before it
    was done stays with the readers."""
    job = Logged(changes)
    job.run(FIRST)
    target = job.newest
    job.run(FIRST + ABANDONED)
    rollback(job.storage, target, outputs="again")
    job.run(FIRST + INSTEAD)
    with pytest.raises(Refused, match="a rollback or restart since then has left what it was given"):
        rollback(job.storage, target, outputs="retract")
    late = job.newest
    job.run(FIRST + INSTEAD + ABANDONED)
    rollback(job.storage, late, outputs="retract")
    job.run(FIRST + INSTEAD)


@pytest.mark.parametrize("changes", ["retract", "update"])
def test_a_sink_that_was_left_out_since_is_refused(changes: str) -> None:
    """Nothing would be taken back from it, and it would stay wrong for ever."""
    job, other = Logged(changes), MemoryStorage(uuid.uuid4().hex)
    both = {"log": LogSink(job.place), "other": LogSink(other)}
    job.run(FIRST, sink=both)
    target = job.newest
    nothing = [*FIRST, *ABANDONED, ("a", 0)]
    job.run(nothing, sink=both)
    job.run(nothing + INSTEAD, sink={"log": both["log"]})
    with pytest.raises(Refused, match=r"the sink 'other' .* and it was left out since then"):
        rollback(job.storage, target, outputs="retract")


class Evolved(Totals):
    """With another column."""

    name = "Totals"

    def persistent_state(self) -> Any:
        return NonWindowState(record(n=Count(), sum=Sum(), more=Count()), emit="change", changes=self.changes)


def test_over_another_definition_of_the_state_it_is_refused() -> None:
    """Rows of other columns would be turned."""
    job = Logged("retract")
    job.run(FIRST)
    target = job.newest
    job.run(FIRST + ABANDONED)
    job.run(FIRST + ABANDONED + INSTEAD, task=Evolved("retract"), evolve=Evolution())
    with pytest.raises(Refused, match="its state was added, or had another definition, since then"):
        rollback(job.storage, target, outputs="retract")


def test_over_a_lost_checkpoint_it_is_refused() -> None:
    """Nobody knows what the sink was given by it: its rows would stay."""
    job = Logged("retract")
    job.run(FIRST)
    target = job.newest
    job.run(FIRST + ABANDONED)
    job.storage.delete(manifest_name(job.newest))
    rollback(job.storage, target, outputs="retract", take_over=True)
    with pytest.raises(SinkMismatch, match="a checkpoint was lost, and what it published cannot be taken back by row"):
        job.run(FIRST)
    rollback(job.storage, job.newest, outputs="again", take_over=True)
    job.run(FIRST)


def test_what_a_run_without_a_sink_has_discarded_is_not_taken_back() -> None:
    """It was never published, and would be subtracted."""
    refused = 0
    for at in range(20, 120, 4):
        job = Logged("retract")
        job.run(FIRST)
        target = job.newest
        job.killed(at, DEATHS[0], FIRST + ABANDONED)
        job.operations = Operations()
        job.run(FIRST + ABANDONED, sink=None, discard_closed=True)
        manifests = [entry.manifest for entry in map(Log(job.storage).read, Log(job.storage).ids())]
        job.run(FIRST + ABANDONED + INSTEAD)
        if any(
            not batch.staged for manifest in manifests for sink in manifest.sinks.values() for batch in sink.unpublished
        ):
            with pytest.raises(Refused, match="a run without a sink has discarded what it was to be given since then"):
                rollback(job.storage, target, outputs="retract")
            refused += 1
    assert refused


def test_rows_without_a_sign_cannot_be_taken_back() -> None:
    """A reader would add the row that takes back."""
    job = Logged(None)
    job.run(FIRST)
    with pytest.raises(Refused, match=r"by checkpoint .* have no column 'retracted'.*--outputs=again"):
        rollback(job.storage, 1, outputs="retract")
    rollback(job.storage, job.newest, outputs="retract")
    job.run(FIRST)
    named = table(("a", 1, True))
    assert has_signs(NodePart({}), named) and not has_signs(NodePart({"window": {}}), named)


def table(*rows: tuple[str, int, bool]) -> pa.Table:
    columns = list(zip(*rows))
    return pa.table(
        {
            "page": pa.array(columns[0]),
            "n": pa.array(columns[1]),
            "revision": pa.array([1] * len(rows)),
            "retracted": pa.array(columns[2]),
        }
    )


def undone(
    tables: list[pa.Table], key: tuple[str, ...] = ("page",), *, both_signs: bool = True
) -> list[tuple[Any, ...]]:
    rows = undoing_rows(tables, key, 9, both_signs=both_signs).to_pylist()
    assert {row["revision"] for row in rows} <= {9}
    return sorted((row["page"], row["n"], row["retracted"]) for row in rows)


def test_of_each_place_come_the_last_row_and_that_of_the_target() -> None:
    """Those between would leave a reader that goes by the revision with any of them."""
    tables = [
        table(("a", 1, True), ("a", 2, False), ("b", 1, False)),
        table(("a", 3, False), ("a", 2, True)),
        table(("b", 1, True), ("c", 1, True)),
    ]
    assert undone(tables) == [("a", 1, False), ("a", 3, True), ("c", 1, False)]
    assert undone(tables, both_signs=False) == [("a", 3, True)]


def test_rows_that_do_not_alternate_are_turned_one_by_one() -> None:
    """Rows that were published as a whole take nothing back, so one that stood there still counts."""
    tables = [table(("a", 1, False), ("b", 1, False)), table(("a", 2, False), ("b", 1, True))]
    assert undone(tables) == [("a", 1, True), ("a", 2, True)]


def test_a_key_may_be_null_or_none() -> None:
    """A place would be taken for another, and its rows stay."""
    tables = [table((None, 1, False), ("a", 1, False)), table((None, 1, True), (None, 2, False))]  # type: ignore[arg-type]
    rows = undoing_rows(tables, ("page",), 9, both_signs=True).to_pylist()
    assert {(row["page"], row["n"], row["retracted"]) for row in rows} == {(None, 2, True), ("a", 1, True)}
    whole = [table(("x", 1, False)), table(("x", 1, True), ("x", 2, False))]
    assert undone(whole, ()) == [("x", 2, True)]


def test_a_checkpoint_that_is_not_there_is_an_error() -> None:
    """The batches before it would stay."""
    job = Logged("retract")
    job.run(FIRST)
    entry = Log(job.storage).newest()
    assert entry is not None
    with pytest.raises(KeyError):
        list(batches_since({}.__getitem__, entry.manifest, "log", 0))


def test_sinks_that_append_can_undo() -> None:
    """A rollback decides by what the checkpoint says of the sink."""
    for sink in (LogSink(MemoryStorage(uuid.uuid4().hex)), KafkaSink("localhost:1", "topic")):
        assert "undo" in abilities(sink) and "retract" not in abilities(sink)
