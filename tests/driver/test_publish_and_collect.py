"""What is listed is made visible, what is taken back is not, and what is collected is what nobody names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from persistent import MemorySource
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import Aside, SinkBatch, SinkPart
from persistent.checkpoint.set_aside import aside_names
from persistent.connect.sink import BatchSink, StagingSink
from persistent.driver.naming import named_sinks
from persistent.driver.publish import (
    check_folder,
    claim,
    collect,
    collectable,
    mark_retracted,
    no_longer_kept,
    publish,
    sweep,
    sweepable,
    take_back,
)
from persistent.errors import Fenced, InvalidPipeline, SinkMismatch, StagedMissing, StorageError
from persistent.names import STATE, Staged, aside_name, new_nonce
from persistent.storage import MemoryStorage, delete_all
from persistent.worker.job import Job
from tests.checkpoint.samples import manifest, node, plan, run
from tests.driver.visits import Visits

HEX = "0123456789abcdef" * 2


class Listener(StagingSink):
    """A sink that cannot take back, and remembers what it was asked for."""

    shared = False

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def claim(self, job: str) -> None:
        self.asked.append(("claim", job))

    def stage(self, outputs: Any, staging_id: int, attempt: str) -> Staged:
        raise AssertionError("nothing is staged here")

    def publish(self, staging_id: int, staged: Sequence[Staged]) -> None:
        self.asked.append(("publish", staging_id, *(one.name for one in staged)))

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        self.asked.append(("sweep", set(live), epoch, id))


class Retracting(Listener):
    """One that can."""

    abilities = frozenset({"retract"})

    def retract(self, first: int, stop: int) -> None:
        self.asked.append(("retract", first, stop))


class Marking(Retracting):
    """One that keeps what is taken back from ever counting, and tidies what came in spite of that."""

    abilities = frozenset({"mark", "retract", "tidy"})

    def mark(self, first: int, stop: int) -> None:
        self.asked.append(("mark", first, stop))

    def tidy(self) -> None:
        self.asked.append(("tidy",))


class Held(Listener):
    """One that knows whose it is, as a folder does."""

    abilities = frozenset({"holder", "staged"})

    def __init__(self, job: str | None, staged: Sequence[str] = ()) -> None:
        super().__init__()
        self.job, self.names = job, staged

    def holder(self) -> str | None:
        return self.job

    def claim(self, job: str) -> None:
        super().claim(job)
        if self.job not in (None, job):
            raise StorageError(f"of job {self.job}")

    def staged(self, job: str) -> list[str]:
        self.claim(job)
        return list(self.names)


def job_of(sink: Any = None) -> Job:
    task = Visits()
    source = MemorySource([{"ts": 1}], timestamp="ts")
    return Job(
        task, {STATE: task.persistent_state()}, {"memory": source}, named_sinks(sink), MemoryStorage(new_nonce()), True
    )


def aside(name: str) -> Staged:
    return Staged(f"d/Visits/e1-c5-{name}.arrow", 1, 1, "0" * 64)


WINDOWS = SinkBatch(5, None, (Staged("_staged/w1", 1, 1), Staged("_staged/w2", 1, 1)))
LATE, DEAD = aside("1a7e"), aside("dead")
ASIDE: dict[str, Any] = {"aside": (Aside(6, (LATE,), (DEAD,)),)}
OUTPUTS: dict[str, Any] = {"sinks": {"retracting": SinkPart((), 5, (WINDOWS,), node="Visits")}, **ASIDE}
PUBLISHED = ["late/00000000000000000006-1a7e.arrow", "dead/00000000000000000006-dead.arrow"]


def staged_in(job: Job) -> Job:
    for one in (LATE, DEAD):
        job.storage.write(one.name, one.name.encode())
    return job


def asides(job: Job) -> list[str]:
    return [f"{folder}/{name}" for folder in ("late", "dead") for name in job.storage.list(folder)]


def test_a_sink_is_claimed_for_the_job() -> None:
    """Another job would sweep what this one has staged."""
    sink = Listener()
    claim(job_of(sink), manifest(6, job="mine"))
    assert sink.asked == [("claim", "mine")]
    claim(job_of(), manifest(6, **ASIDE))


@pytest.mark.parametrize("sink", [None, Listener(), Held(None), Held("mine")], ids=["none", "any", "new", "mine"])
def test_a_sink_of_nobody_or_of_this_job_may_be_written(sink: Any) -> None:
    """And is not claimed yet: nothing has been put."""
    job = job_of(sink)
    check_folder(
        job, Log(job.storage), manifest(6, job="mine", publishes=isinstance(sink, Held) and sink.job == "mine")
    )
    assert sink is None or sink.asked == []


def test_a_folder_of_another_job_is_refused_before_anything_is_written() -> None:
    """Its sweep would delete what the other has staged; but who lost the race to begin this job is of it."""
    job = job_of(Held("other"))
    log = Log(job.storage)
    with pytest.raises(StorageError, match="of job other"):
        check_folder(job, log, manifest(0, job="mine"))
    log.create(manifest(0, job="mine"))
    with pytest.raises(StorageError, match="of job other"):
        check_folder(job, log, manifest(0, job="mine"))
    lost = job_of(Held("first"))
    log = Log(lost.storage)
    log.create(manifest(0, job="first"))
    check_folder(lost, log, manifest(0, job="mine"))
    assert lost.sinks["held"].asked == []  # type: ignore[union-attr]


def test_a_folder_without_what_was_published_is_refused() -> None:
    """A folder that was mistyped would hold the second half of the results, and nobody learn where the first is."""
    job = job_of(Held(None))
    with pytest.raises(SinkMismatch, match=r"none of the outputs of job mine .*Give the sink its old url"):
        check_folder(job, Log(job.storage), manifest(6, job="mine", publishes=True))
    for nothing_published in (False, None):
        check_folder(job, Log(job.storage), manifest(6, job="mine", publishes=nothing_published))
    check_folder(replace(job, sinks=named_sinks(Listener())), Log(job.storage), manifest(6, publishes=True))


@pytest.mark.parametrize("act", [claim, lambda job, one: publish(job, Log(job.storage), one)], ids=["claim", "publish"])
def test_windows_without_a_sink_are_refused_before_anything_is_done(act: Callable[[Job, Manifest], None]) -> None:
    """They might never be seen; and late rows published before the refusal are seen without them."""
    job = staged_in(job_of())
    with pytest.raises(InvalidPipeline, match="checkpoint 6 has outputs for a sink, but this pipeline has none"):
        act(job, manifest(6, **OUTPUTS))
    assert asides(job) == []


def test_what_is_to_be_taken_back_needs_the_sink_it_is_in() -> None:
    """Gone on without, the rows of the branch that is left would stay there; where there never were any, nothing is
    in the way."""
    back: dict[str, Any] = {"target": 3, "retract": (4, 7)}
    for publishes in (True, None):
        with pytest.raises(InvalidPipeline, match=r"went back to checkpoint 3, .* this pipeline has no sink .*=again"):
            claim(job_of(), manifest(7, publishes=publishes, **back))
    claim(job_of(), manifest(7, publishes=False, **back))
    claim(job_of(), manifest(7, publishes=True))


def test_each_output_is_published_under_the_id_that_staged_it() -> None:
    """Under another, it would be published twice after a crash."""
    sink = Retracting()
    job = staged_in(job_of(sink))
    one = manifest(7, **OUTPUTS)
    for _ in range(2):
        publish(job, Log(job.storage), one)
        assert asides(job) == PUBLISHED
    assert sink.asked == [("publish", 5, "_staged/w1", "_staged/w2")] * 2
    assert [job.storage.read(name).to_pybytes() for name in PUBLISHED] == [LATE.name.encode(), DEAD.name.encode()]
    without = staged_in(job_of())
    publish(without, Log(without.storage), manifest(7, **ASIDE))
    assert asides(without) == PUBLISHED


class Moving(BatchSink):
    """A batch sink that remembers what moved its mark."""

    abilities = frozenset({"retract"})

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def claim(self, claim: Any) -> None:
        self.asked.append(("claim", claim.shown))

    def deliver(self, batch: Any) -> None:
        self.asked.append(("deliver", batch.number))

    def retract(self, retreat: Any) -> None:
        self.asked.append(("retract", retreat.number))


def test_a_mark_is_moved_by_each_batch_and_by_a_rollback_without_any() -> None:
    """A driver that was fenced, and slept before it delivered, would publish what was taken back."""
    sinks = {"moving": SinkPart((), 5, (structs.replace(WINDOWS, staged=()),), node="Visits")}
    for changes, asked in (
        ({"sinks": sinks}, [("deliver", 5)]),
        ({"sinks": {"moving": SinkPart((), 5, node="Visits")}}, []),
        ({"sinks": {"moving": SinkPart((), 5, node="Visits")}, "target": 3, "retract": (4, 7)}, [("retract", 7)]),
    ):
        sink = Moving()
        job = job_of(sink)
        publish(job, Log(job.storage), manifest(7, **changes))
        assert sink.asked == asked


def test_what_was_renamed_and_is_still_there_is_published() -> None:
    """A store that copies, and dies before it deletes, has both."""
    job = staged_in(job_of())
    one = manifest(7, **ASIDE)
    publish(job, Log(job.storage), one)
    publish(staged_in(job), Log(job.storage), one)
    assert asides(job) == PUBLISHED


def test_what_is_neither_staged_nor_published_is_missing() -> None:
    """Said aloud: the next checkpoint does not list it any more."""
    job = staged_in(job_of())
    job.storage.delete(DEAD.name)
    with pytest.raises(StagedMissing, match=f"{DEAD.name}: missing, and not published as {PUBLISHED[1]}"):
        publish(job, Log(job.storage), manifest(7, **ASIDE))
    assert asides(job) == PUBLISHED[:1]


def test_what_a_successor_has_swept_is_not_missing() -> None:
    """Whoever has fenced us has published it: there is nothing to restore."""
    job = job_of()
    log = Log(job.storage)
    log.create(manifest())
    log.put(manifest(1))
    with pytest.raises(Fenced):
        publish(job, log, manifest(0, **ASIDE))
    with pytest.raises(StagedMissing):
        publish(job, log, manifest(1, **ASIDE))


NAMES = [f"late/{id:020d}-a.arrow" for id in (3, 4, 6, 7)]


@pytest.mark.parametrize("sink", [Retracting(), None], ids=["sink", "no sink"])
def test_what_was_published_since_is_taken_back(sink: Any) -> None:
    """From the first id on, and nothing of the one that goes on from there."""
    job = job_of(sink)
    for name in (*NAMES, "dead/00000000000000000005-b.arrow", "dead/notes.txt"):
        job.storage.write(name, b"")
    for _ in range(2):
        take_back(job, manifest(7, target=3, retract=(4, 7)))
        assert asides(job) == [NAMES[0], NAMES[3], "dead/notes.txt"]
    if sink is not None:
        assert sink.asked == [("retract", 4, 7)] * 2


def test_a_sink_that_cannot_take_back_says_what_to_do() -> None:
    """Gone on with, the rows that follow would be published a second time, unasked."""
    job = job_of(Listener())
    job.storage.write(NAMES[1], b"")
    with pytest.raises(InvalidPipeline, match=r"went back to checkpoint 3, .* cannot take back.* 7 --outputs=again"):
        mark_retracted(job, manifest(7, target=3, retract=(4, 7)))
    assert asides(job) == [NAMES[1]] and job.storage.list("retracted") == []


def test_a_sink_that_can_is_told_what_does_not_count_before_it_is_taken_back() -> None:
    """A driver that was fenced, and slept in the middle of a publication, would bring it back for good."""
    sink = Marking()
    job = job_of(sink)
    mark_retracted(job, manifest(7, target=3, retract=(4, 7)))
    assert sink.asked == [("mark", 4, 7)]
    mark_retracted(job, manifest(9))
    mark_retracted(job_of(Retracting()), manifest(7, target=3, retract=(4, 7)))
    assert sink.asked == [("mark", 4, 7)]


def test_a_sink_is_tidied_when_files_are_collected() -> None:
    """What a fenced driver published after it was taken back would lie there for ever."""
    sink, one = Marking(), newest()
    collect(replace(everything(), sinks=named_sinks(sink)), one, [one, KEPT], None)
    assert sink.asked == [("tidy",)]


def test_what_a_sweep_deletes_is_told_by_its_name() -> None:
    """A command shows it before it deletes; what the manifest lists, or a driver still writes, is not among it."""
    live, dead, later = (f"_staged/e1-c{id}-{HEX}.jsonl" for id in (9, 8, 10))
    one = newest(sinks={"held": SinkPart((), 9, (SinkBatch(9, None, (Staged(live, 1, 1),)),), node="Visits")})
    held = Held("job", [live, dead, later, "_staged/notes.txt"])
    for sink, found in ((held, [dead]), (Listener(), [])):
        (outlet,) = job_of(sink).all_outlets().values()
        assert sweepable(outlet, one) == found
    assert held.asked == [("claim", "job")]


def test_what_is_published_after_it_was_taken_back_does_not_count() -> None:
    """A driver that was fenced, and slept in the middle of a rename by copy, would bring it back for good."""
    job = job_of()
    one = manifest(7, target=3, retract=(4, 7))
    for act in (mark_retracted, mark_retracted, take_back):
        act(job, one)
    for name in NAMES:
        job.storage.write(name, b"")
    assert [f"late/{name}" for name in aside_names(job.storage, "late")] == [NAMES[0], NAMES[3]]
    assert list(collectable(job.storage, [], one, [one], None)) == NAMES[1:3]
    mark_retracted(job, manifest(9))
    assert len(job.storage.list("retracted")) == 1


def test_where_late_rows_are_once_published() -> None:
    """Whoever reads them goes by the id, in order."""
    assert aside_name("late", 41, aside("0f")) == "late/00000000000000000041-0f.arrow"


# -- what is collected ------------------------------------------------------------------------------------------------


def attempt(epoch: int, id: int, last: str, folder: str = "d/Visits") -> str:
    return f"{folder}/e{epoch}-c{id}-{HEX[1:]}{last}.arrow"


def names_run(name: str) -> Any:
    return structs.replace(run(), name=name)


def newest(kind: str = "checkpoint", **changes: Any) -> Manifest:
    """Checkpoint 9, of which 3 is pinned, and the third of its own files is listed for publication."""
    state = node({}, ("page",), runs=(names_run(attempt(1, 9, "a")),))
    fields = {
        "oldest": 7,
        "commits": ((3, 0), (7, 0), (8, 0), (9, 0)),
        "nodes": {"Visits": state},
        "sinks": {"listener": SinkPart((), 9, (SinkBatch(9, None, (Staged("_staged/w", 1, 1),)),), node="Visits")},
        "aside": (Aside(9, (Staged(attempt(1, 9, "b"), 1, 1),)),),
    }
    return manifest(9, kind=kind, epoch=1, **{**fields, **changes})


KEPT = manifest(8, nodes={"Visits": node({}, ("page",), runs=(names_run(attempt(1, 8, "a")),))})
LIVE = [attempt(1, 8, "a"), attempt(1, 9, "a"), attempt(1, 9, "b"), attempt(1, 10, "c"), attempt(2, 1, "d")]
DEAD_RUNS = [attempt(0, 99, "e"), attempt(1, 8, "c"), attempt(1, 9, "f")]
INDEX = [attempt(1, 9, "a", "d/MemorySource"), attempt(1, 9, "b", "d/MemorySource")]
LOGGED = [f"m/{id:020d}.json" for id in (2, 3, 6, 7, 9, 10)]
PLANS = [f"p/{id:020d}{more}.json" for id, more in ((3, ""), (6, ""), (6, "-1"), (7, ""), (9, ""))]
OLD = [LOGGED[0], LOGGED[2], PLANS[2], PLANS[0], PLANS[1]]


def everything() -> Job:
    job = job_of(Listener())
    for name in (*LIVE, *DEAD_RUNS, *INDEX, *LOGGED, *PLANS, "m/notes.txt", "p/notes.txt"):
        job.storage.write(name, b"")
    return job


def deleted(job: Job, act: Callable[[], None]) -> set[str]:
    folders = ("d/Visits", "d/MemorySource", "m", "p")
    before = {f"{folder}/{name}" for folder in folders for name in job.storage.list(folder)}
    act()
    return before - {f"{folder}/{name}" for folder in folders for name in job.storage.list(folder)}


def test_what_nobody_names_is_collected() -> None:
    """One file more is state lost; one less stays for ever."""
    job, one = everything(), newest()
    found = deleted(job, lambda: collect(job, one, [one, KEPT], None))
    assert found == {*DEAD_RUNS, *INDEX, *OLD}
    sweep(job, one)
    assert next(iter(job.sinks.values())).asked == [("sweep", {"_staged/w", attempt(1, 9, "b")}, 1, 9)]  # type: ignore[union-attr]
    without = replace(everything(), sinks={})
    assert deleted(without, lambda: collect(without, one, [one, KEPT], None)) == {*DEAD_RUNS, *INDEX, *OLD}


def test_outputs_that_nobody_will_publish_are_collected() -> None:
    """They wait in the checkpoint for a batch sink: of every attempt that failed, some would lie there for ever."""
    waiting, dead = attempt(1, 9, "a", "staged"), attempt(1, 8, "b", "staged")
    one = newest(sinks={"moving": SinkPart((), 9, (SinkBatch(9, None, (Staged(waiting, 1, 1),)),), node="Visits")})
    job = replace(everything(), sinks=named_sinks(Moving()))
    for name in (waiting, dead):
        job.storage.write(name, b"")
    collect(job, one, [one, KEPT], None)
    assert [f"staged/{name}" for name in job.storage.list("staged")] == [waiting]


def test_the_index_waits_for_the_plan_after_a_fence() -> None:
    """A driver that was fenced may still put one that names its runs."""
    job, fence = everything(), newest("fence")
    found = list(collectable(job.storage, ["d/Visits"], fence, [fence, KEPT], None))
    assert sorted(found) == sorted([*DEAD_RUNS, *OLD])
    pending = plan(9, appended=(names_run(INDEX[0]),))
    for one in (fence, newest()):
        found = list(collectable(job.storage, ["d/Visits"], one, [one, KEPT], pending))
        assert sorted(found) == sorted([*DEAD_RUNS, INDEX[1], *OLD])


def test_the_index_of_a_source_waits_where_the_task_has_its_name() -> None:
    """Runs of both are in one folder then: the plan of a driver that was fenced would name a file that is gone."""
    job, fence = everything(), newest("fence")
    assert sorted(collectable(job.storage, ["d/MemorySource"], fence, [fence, KEPT], None)) == sorted(OLD)
    one = newest()
    found = list(collectable(job.storage, ["d/MemorySource"], one, [one, KEPT], None))
    assert sorted(found) == sorted([*INDEX, *OLD])


def test_the_newest_manifest_is_not_collected_whatever_it_says() -> None:
    """Without it the job is that of the checkpoint before."""
    job, one = everything(), newest(burnt=(9,), oldest=10)
    found = set(collectable(job.storage, [], one, [one], None))
    assert not found & {LOGGED[4], LOGGED[5], PLANS[4]}


def test_what_is_dropped_goes_with_its_files_and_plans() -> None:
    """Without a look at the rest: that would be a request for each folder in every step."""
    job, one = everything(), newest()
    other = {"Visits": node({}, ("page",), runs=(names_run(DEAD_RUNS[0]), names_run(LIVE[0])))}
    dropped = [
        manifest(6, replan=1, nodes=other),
        manifest(7, base=7, replan=1),
        manifest(2, base=3),
        manifest(10, nodes={"Visits": node({}, runs=(names_run(LIVE[3]), names_run(LIVE[4])))}),
    ]
    found = deleted(job, lambda: delete_all(job.storage, no_longer_kept(one, [one, KEPT], dropped)))
    assert found == {DEAD_RUNS[0], PLANS[1], PLANS[2], PLANS[0], LOGGED[2], LOGGED[3], LOGGED[0], LOGGED[5]}


def test_outputs_that_waited_go_with_the_next_checkpoint() -> None:
    """They would fill the store of the checkpoint; or a sink without a mark could not be handed them again."""
    waited, waits = Staged("staged/e3-c8-aa.arrow", 1, 1), Staged("staged/e3-c9-bb.arrow", 1, 1)
    older, old, new = (
        manifest(
            id,
            sinks={
                "ledger": SinkPart((), id, (SinkBatch(id, None, (staged, Staged("_staged/x", 1, 1))),), node="Visits")
            },
        )
        for id, staged in ((7, LATE), (8, waited), (9, waits))
    )
    assert no_longer_kept(new, [new, older, old], []) == [waited.name]
    assert no_longer_kept(old, [old], []) == []


def test_while_nothing_is_dropped_no_kept_manifest_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ten thousand kept ones each step would name the files of all of them."""
    waited = SinkPart((), 8, (SinkBatch(8, None, (Staged("staged/e3-c8-aa.arrow", 1, 1),)),), node="Visits")
    old, new = manifest(8, sinks={"ledger": waited}), manifest(9)
    monkeypatch.setattr(Manifest, "files", None)
    assert no_longer_kept(new, [old, new], []) == ["staged/e3-c8-aa.arrow"]


def test_no_more_plans_are_deleted_than_there_can_be() -> None:
    """A request each."""
    assert no_longer_kept(newest(), [], [manifest(6, replan=1)]) == [PLANS[1], PLANS[2], LOGGED[2]]
