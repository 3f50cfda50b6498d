"""Two jobs merged are one job that read both sources."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from monoids import Count, Max, Sum, record
from persistent import (
    MemorySink,
    MemorySource,
    NoCheckpoint,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Refused,
    StillRunning,
    UnknownCheckpoint,
    WindowState,
    session,
    tumbling,
)
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.parts import readings_of
from persistent.checkpoint.running import put_mark
from persistent.connect.source import Budget, Records, Source, SourcePlan, SourceState, Split
from persistent.names import new_nonce
from persistent.operations import collect_garbage, merge, rollback
from persistent.storage import MemoryStorage, Put
from persistent.testing.faults import FaultyStorage as Faulty
from persistent.verify import verify, verify_source
from tests.crash.sweep import Deaths, anywhere
from tests.faults import FaultyStorage, Killed, Operations
from tests.single import only

Rows = list[dict[str, Any]]


@dataclass
class Named(Source):
    """Several lists, each a partition of its own name."""

    rows: Mapping[str, Rows]
    kind: str = "Named"

    def partitions(self) -> tuple[str, ...]:
        return tuple(self.rows)

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        splits: list[Split] = []
        end, cap, recorded = dict(state.positions), {}, dict(state.recorded)
        for name, rows in self.rows.items():
            position = {"memory": state.positions.get(name, (0, 0))}
            one = MemorySource(rows, ordered=True).plan(SourceState(position, state.recorded), budget, follow=True)
            splits += [structs.replace(split, partition=name) for split in one.splits]
            end[name], cap[name] = one.end["memory"], one.cap["memory"]
            recorded = dict(one.recorded) or recorded
        return SourcePlan(tuple(splits), end, cap, recorded)

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        return MemorySource([]).schema(recorded)

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        yield from MemorySource(self.rows[split.partition]).read(split, recorded)


class Wider(Named):
    """One whose ``schema=`` has another column."""

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        planned = super().plan(state, budget, follow=follow)
        columns = [*(pair for pair in planned.recorded["schema"] if pair[0] != "other"), ["other", "string"]]
        return replace(planned, recorded={**planned.recorded, "schema": columns})


class Windows(PersistentTask):
    """Sums by page and ten milliseconds."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(record(count=Count(), total=Sum()), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"count": 1, "total": message.value["n"]})


class Sessions(Windows):
    """Sums by page and session."""

    def persistent_state(self) -> WindowState:
        return WindowState(record(count=Count(), total=Sum()), session(5), **self.options)

    def __init__(self, **options: Any) -> None:
        self.options = options


class Totals(PersistentTask):
    """Running sums by page, published at the end of the input."""

    key = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(total=Sum(), largest=Max()))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"total": message.value["n"], "largest": message.value["n"]})


def rows(seed: int, count: int, start: int = 0) -> Rows:
    return [{"ts": start + 3 * i, "page": "abc"[(i * seed) % 3], "n": seed * i} for i in range(count)]


A, B = rows(2, 9), rows(5, 9)
MORE_A, MORE_B = A + rows(2, 8, 27), B + rows(5, 8, 27)


@dataclass
class Side:
    """A job, its sink and its checkpoint."""

    task: PersistentTask
    storage: MemoryStorage
    sink: MemorySink

    def pipeline(self, lists: Mapping[str, Rows], **options: Any) -> Pipeline:
        return Pipeline(
            source=Named(lists), task=self.task, checkpoint=self.storage, sink=self.sink, step_rows=50, **options
        )

    def run(self, lists: Mapping[str, Rows], *, end: bool = False) -> Any:
        return self.pipeline(lists).run(engine="embedded", end_of_input=end)


def side(task: type[PersistentTask]) -> Side:
    return Side(task(), MemoryStorage(f"merging-{uuid.uuid4().hex}"), MemorySink())


def begun(task: type[PersistentTask], *, end: bool = False) -> tuple[Side, Side]:
    """Two jobs that have each read a part of their source."""
    one, other = side(task), side(task)
    one.run({"a": A}, end=end)
    other.run({"b": B}, end=end)
    return one, other


def shown(table: Any) -> list[str]:
    return sorted(str(sorted((k, v) for k, v in row.items() if k != "revision")) for row in table)


@pytest.mark.parametrize("task", [Windows, Totals])
def test_merged_they_go_on_as_one_job_over_both(task: type[PersistentTask]) -> None:
    """A sum of sums: what is lost or counted twice on the way is lost or counted twice for good."""
    one, other = begun(task)
    into, whole = side(task), side(task)
    entry = merge(one.storage, other.storage, into.storage)
    assert entry.manifest.kind == "merge" and verify(into.storage).ok
    lists = {"a": A, "b": B}
    whole.run(lists)
    assert shown(into.pipeline(lists).state().to_pylist()) == shown(whole.pipeline(lists).state().to_pylist())
    more = {"a": MORE_A, "b": MORE_B}
    before = len(whole.sink.rows())
    into.run(more, end=True)
    whole.run(more, end=True)
    assert shown(into.pipeline(more).state().to_pylist()) == shown(whole.pipeline(more).state().to_pylist())
    # What had been published before the merge, each has published by itself.
    assert shown(into.sink.rows()) == shown(whole.sink.rows()[before:])
    assert into.sink.rows()
    newest = [Log(one.storage).newest() for one in (into, whole)]
    assert newest[0].manifest.accounts == newest[1].manifest.accounts  # type: ignore[union-attr]
    collect_garbage(into.storage)
    assert not verify(into.storage).findings


class Corrected(Windows):
    """Windows that take late records."""

    def persistent_state(self) -> WindowState:
        return WindowState(record(count=Count(), total=Sum()), tumbling(10), allowed_lateness=15)


def test_what_is_final_in_two_jobs_is_none_of_the_empty_one_that_is_filled_with_them() -> None:
    """Nothing is closed in an empty job, so nothing can be final: jobs that take late records could not be merged."""
    one, other = begun(Corrected, end=True)
    into = side(Corrected)
    merged = merge(one.storage, other.storage, into.storage).manifest
    assert only(Log(into.storage).read(0).manifest.nodes).final == 0 < only(merged.nodes).final == merged.clock.closed
    more = {"a": A + rows(2, 8, 30), "b": B + rows(5, 8, 30)}
    whole = side(Corrected)
    whole.run({"a": A, "b": B}, end=True)
    before = len(whole.sink.rows())
    for job in (into, whole):
        job.run(more, end=True)
    assert shown(into.sink.rows()) == shown(whole.sink.rows()[before:])


def test_two_that_have_ended_at_different_times_are_merged() -> None:
    """The way out for jobs whose windows are closed up to different times: both hold nothing any more."""
    one, other = side(Windows), side(Windows)
    one.run({"a": A}, end=True)
    other.run({"b": B[:5]}, end=True)
    into = side(Windows)
    entry = merge(one.storage, other.storage, into.storage)
    clocks = [Log(job.storage).newest().manifest.clock for job in (one, other)]  # type: ignore[union-attr]
    assert clocks[0].closed != clocks[1].closed
    assert entry.manifest.clock.closed == max(clock.closed for clock in clocks)
    late = [{"ts": 200 + i, "page": "a", "n": 1} for i in range(4)]
    report = into.run({"a": A + late, "b": B[:5] + late}, end=True)
    assert report.rows == 8 and into.sink.rows()[0]["count"] == 8


class Remembered(Totals):
    """The same, whose last ten milliseconds are kept apart."""

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(total=Sum(), largest=Max()), interval_ms=5, history=10)


def test_a_clock_before_which_one_of_both_has_summed_up_its_past_is_refused() -> None:
    """The sum stands at the clock of the one behind, and the other cannot tell any more what it held there."""
    one, other, into = side(Remembered), side(Remembered), side(Remembered)
    one.run({"a": A}, end=True)
    other.run({"b": B[:2]}, end=True)
    clock = merge(one.storage, other.storage, into.storage).manifest.clock.watermark
    lists = {"a": A, "b": B}
    with pytest.raises(UnknownCheckpoint, match=r"before 1970-01-01 00:00:00.010Z are summed up: choose a later"):
        into.pipeline(lists).state(as_of=clock // 5 * 5)
    into.run(lists)
    found = into.pipeline(lists).state(as_of=15).to_pylist()
    read = [row for row in A + B if row["ts"] < 15]
    assert {row["page"]: row["total"] for row in found} == {
        page: sum(row["n"] for row in read if row["page"] == page) for page in {row["page"] for row in read}
    }


def test_jobs_whose_schema_changed_elsewhere_are_merged() -> None:
    """Each partition keeps how it was read: the jobs would be refused as different, or one be read as the other was."""
    one, other, into = side(Totals), side(Totals), side(Totals)
    for job, lists, more in ((one, {"a": A}, {"a": MORE_A}), (other, {"b": B[:4]}, {"b": MORE_B})):
        job.run(lists)
        Pipeline(source=Wider(more, "Named"), task=Totals(), sink=job.sink, checkpoint=job.storage).run(
            engine="embedded"
        )
    part = only(merge(one.storage, other.storage, into.storage).manifest.sources)
    assert [reading.high for reading in readings_of(part, "a")] == [(0, len(A)), None]
    assert [reading.high for reading in readings_of(part, "b")] == [(0, 4), None]
    merged = into.pipeline({"a": MORE_A, "b": MORE_B})
    assert verify_source(merged, newest_of(Log(into.storage))).findings == []


def test_windows_closed_in_one_and_held_by_the_other_are_refused() -> None:
    """Half of the sum of such a window is out in public: the other half would be lost, or look like the whole."""
    one, other = side(Windows), side(Windows)
    one.run({"a": A})
    other.run({"b": B[:5]})
    into = side(Windows)
    with pytest.raises(Refused, match=r"up to 1970-01-01 00:00:00\.024Z, .* only up to .*\.012Z .*--end-of-input"):
        merge(one.storage, other.storage, into.storage)
    assert not into.storage._files
    one.run({"a": A}, end=True)
    with pytest.raises(Refused, match=r"only up to .*\.012Z"):
        merge(one.storage, other.storage, into.storage)
    other.run({"b": B[:5]}, end=True)
    merge(one.storage, other.storage, into.storage)


@pytest.mark.parametrize("options", [{}, {"emit": "change"}, {"early": 3}])
def test_sessions_are_merged_only_where_both_have_ended(options: dict[str, Any]) -> None:
    """An open session of one and a published one of the other may be one."""
    sides = [Side(Sessions(**options), MemoryStorage(uuid.uuid4().hex), MemorySink()) for _ in range(3)]
    for side, name, some in ((sides[0], "x", A), (sides[1], "y", B)):
        side.run({name: some[:4]})
    with pytest.raises(Refused, match=r"keep sessions: .* Run both to their end \(--end-of-input\), then merge"):
        merge(sides[0].storage, sides[1].storage, sides[2].storage)
    for side, name, some in ((sides[0], "x", A), (sides[1], "y", B[:4])):
        side.run({name: some}, end=True)
    merge(sides[0].storage, sides[1].storage, sides[2].storage)
    before = len(sides[0].sink.rows()) + len(sides[1].sink.rows())
    grown = [*A, {"ts": 900, "page": "a", "n": 1}, {"ts": 901, "page": "a", "n": 2}]
    assert before and sides[2].run({"x": grown, "y": B[:4]}, end=True).outputs == 1
    (row,) = sides[2].sink.rows()
    assert (row["page"], row["count"], row["total"]) == ("a", 2, 3), "and no session of either again"


def test_what_cannot_be_added_up_is_refused_and_nothing_is_made() -> None:
    """A merge of what does not belong together gives numbers that mean nothing."""
    one, other = begun(Windows)
    into = side(Windows)

    class Larger(Windows):
        def persistent_state(self) -> WindowState:
            return WindowState(record(count=Count(), total=Sum()), tumbling(20))

    Larger.__name__ = "Windows"
    larger, overlapping, totals, numbers = side(Larger), side(Windows), side(Totals), side(Windows)
    larger.run({"b": B})
    overlapping.run({"b": B, "a": A[:1]})
    totals.run({"b": B})
    numbers.run({"b": [{**row, "page": row["n"]} for row in B]})
    for second, says in (
        (overlapping, "have read partition a: .*would count twice"),
        (larger, r'the state of Windows is not the same in .*window: tumbling\("10 ms"\) -> tumbling\("20 ms"\)'),
        (totals, "the nodes of .* are Windows, those of .* are Totals"),
        (numbers, "the keys of Windows|have not read alike: schema: [^{]*and [^{]*$"),
        (one, "have read partition a"),
    ):
        with pytest.raises(Refused, match=says):
            merge(one.storage, second.storage, into.storage)
        assert not into.storage._files
    with pytest.raises(NoCheckpoint):
        merge(one.storage, side(Windows).storage, into.storage)
    assert not into.storage._files
    before = dict(totals.storage._files)
    with pytest.raises(Exception, match=r"another job|already holds a job"):
        merge(one.storage, other.storage, totals.storage)
    assert totals.storage._files == before
    overlapped = dict(overlapping.storage._files)
    with pytest.raises(Exception, match=r"another job|already holds a job"):
        merge(one.storage, other.storage, overlapping.storage)
    assert overlapping.storage._files == overlapped


def test_jobs_over_two_kinds_of_source_have_both() -> None:
    """Side by side, each with its own positions; a pipeline over both goes on with them."""

    one, other, into = side(Windows), side(Windows), side(Windows)
    one.run({"a": A})
    foreign = Named({"a": B}, "OtherSource")
    Pipeline(source=foreign, task=Windows(), sink=MemorySink(), checkpoint=other.storage).run(engine="embedded")
    merged = merge(one.storage, other.storage, into.storage).manifest
    parts = [newest_of(Log(job.storage)).manifest for job in (one, other)]
    assert {name: one.kind for name, one in merged.sources.items()} == {"named": "Named", "other": "OtherSource"}
    assert {name: one.positions for name, one in merged.sources.items()} == {
        "named": only(parts[0].sources).positions,
        "other": only(parts[1].sources).positions,
    }
    assert merged.tasks["Windows"].inputs == {"named": parts[0].accounts, "other": parts[1].accounts}
    assert verify(into.storage).ok
    both = {"named": Named({"a": MORE_A}), "other": Named({"a": MORE_B}, "OtherSource")}
    job = Pipeline(source=both, task=Windows(), sink=MemorySink(), checkpoint=into.storage)
    assert job.run(engine="embedded").rows == len(MORE_A) + len(MORE_B) - len(A) - len(B)


def test_work_under_way_is_brought_to_its_end_first() -> None:
    """What one of them has begun belongs to neither sum."""
    one, other = begun(Windows)
    into = side(Windows)
    mark = put_mark(other.storage, 9, new_nonce())
    with pytest.raises(StillRunning, match="a driver runs: process"):
        merge(one.storage, other.storage, into.storage)
    other.storage.delete(mark)

    class Planned(Faulty):
        """The process is killed once its plan is put."""

        def put_if_absent(self, name: str, data: bytes) -> Put:
            answer = self.inner.put_if_absent(name, data)
            self.operations.dead = name.startswith("p/")
            return answer

    job = other.pipeline({"b": MORE_B})
    job.storage = Planned(other.storage, Operations())  # type: ignore[assignment]
    with pytest.raises(Killed):
        job.run(engine="embedded")
    with pytest.raises((Refused, StillRunning), match=r"once more|a driver runs"):
        merge(one.storage, other.storage, into.storage)
    for name in other.storage.list("r"):
        other.storage.delete(f"r/{name}")
    with pytest.raises(Refused, match="a step was begun but not committed: run its pipeline once more"):
        merge(one.storage, other.storage, into.storage)
    assert not into.storage._files
    other.run({"b": MORE_B}, end=True)
    one.run({"a": A}, end=True)
    merge(one.storage, other.storage, into.storage)


@pytest.mark.parametrize("outputs", ["retract", "again"])
def test_what_is_to_be_taken_back_is_taken_back_first(outputs: str) -> None:
    """The merged job publishes those windows again, in another sink: nobody would take back the first ones."""
    one, other = side(Windows), side(Windows)
    one.run({"a": A}, end=True)
    other.run({"b": B[:5]}, end=True)
    into = side(Windows)
    assert one.sink.rows()
    rollback(one.storage, 0, outputs="retract")
    with pytest.raises(Refused, match="may not have taken back later outputs yet: run its pipeline once"):
        merge(one.storage, other.storage, into.storage)
    assert not into.storage._files
    if outputs == "retract":
        one.run({"a": A}, end=True)
    else:
        # Back to the rollback itself, where that has nothing to do.
        rollback(one.storage, newest_base(one), outputs="again")
        one.run({"a": A}, end=True)
    merge(one.storage, other.storage, into.storage)


def newest_base(job: Side) -> int:
    """The id of the newest checkpoint of a job."""
    newest = Log(job.storage).newest()
    assert newest is not None
    return newest.manifest.base


@anywhere
def test_killed_anywhere_it_is_merged_by_the_same_call(deaths: Deaths) -> None:
    """I7 for operators: a sum of one and a half jobs."""
    one, other = begun(Windows)
    lists = {"a": A, "b": B}
    calm, operations = side(Windows), Operations()
    expected = merge(one.storage, other.storage, FaultyStorage(calm.storage, operations)).manifest  # type: ignore[arg-type]
    state = shown(calm.pipeline(lists).state().to_pylist())
    for death in deaths(operations.log):
        into = side(Windows)
        with pytest.raises(Killed):
            merge(one.storage, other.storage, FaultyStorage(into.storage, Operations(death.at, death.how)))  # type: ignore[arg-type]
        newest = Log(into.storage).newest() if Log(into.storage).ids() else None
        if newest is None or newest.manifest.base == 0:
            newest = merge(one.storage, other.storage, into.storage)
        assert newest.manifest.clock == expected.clock, death
        assert shown(into.pipeline(lists).state().to_pylist()) == state, death
        into.run(lists, end=True)
        assert verify(into.storage).ok, death
        collect_garbage(into.storage)
        assert not verify(into.storage).findings, death
