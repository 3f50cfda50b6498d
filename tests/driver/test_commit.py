"""A commit is a pure function: the last manifest and what a step came to give the next."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from persistent import Dedupe, MemorySink, MemorySource, tumbling
from persistent.checkpoint.compaction import Merge
from persistent.checkpoint.manifest import Manifest, Retention, commits_of
from persistent.checkpoint.output_parts import Aside, SinkBatch, SinkPart
from persistent.checkpoint.parts import Account, NodeClock, NodePart, SeenColumns, SourcePart
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import KEY_GROUPS
from persistent.driver.commit import check_can_begin, first_manifest, known_from
from persistent.driver.naming import named_sinks
from persistent.driver.results import Results
from persistent.driver.same_job import check_same_job
from persistent.errors import FingerprintChanged, InvalidPipeline, LawBroken, OtherJob
from persistent.names import STATE, Attempt, Staged
from persistent.storage import MemoryStorage
from persistent.time.clock import Clock
from persistent.worker.job import Closed, Folded, FoldRuns, Job, Mapped
from tests.checkpoint.samples import manifest, node, plan, run
from tests.driver.step_results import committed, mapped, results
from tests.driver.visits import Visits
from tests.single import only

WINDOW = tumbling(10)
NOTHING = results()
THREE = Staged("s", 3, 9)
SINKS = named_sinks(MemorySink())
MEMORY_DOES = ("newest", "retract", "staged")


def entry(**changes: Any) -> Entry:
    return Entry(manifest(4, epoch=2, **changes), "f" * 64, 100)


def split(rows: int = 4, **changes: Any) -> Mapped:
    """A split of which every record was processed."""
    fields: dict[str, Any] = {
        "run": run("e2-c5-a", first=5, last=5, pane_min=20, pane_max=20),
        "key_types": ("string",),
        "account": Account(rows, rows, 0, 0, 0, 7),
        "largest": 25,
        **changes,
    }
    return mapped(**fields)


def commit(last: Entry, found: Results = NOTHING, step: Any = None, **changes: Any) -> Manifest:
    sinks, lag_ms = named_sinks(changes.pop("sink", MemorySink())), changes.pop("lag_ms", 0)
    options = {"window": WINDOW, "sinks": sinks, "lags": {"memory": lag_ms}, **changes}
    return committed(last, step or plan(4), found, **options)


def test_a_sink_of_totals_that_joins_has_not_seen_the_end_of_the_input() -> None:
    """It would get its totals only once there is more input. Windows that are closed stay closed to everybody."""
    last, nothing = entry(clock=Clock(31, 31, {}, True)), plan(4, end={"memory": (0, 0)}, splits=())
    for window, known, ended in ((None, False, False), (None, True, True), (WINDOW, False, True)):
        before = replace(
            last,
            manifest=structs.replace(
                last.manifest, sinks=dict.fromkeys(SINKS, SinkPart(node="Visits")) if known else {}
            ),
        )
        assert commit(before, NOTHING, nothing, window=window).clock.end_of_input == ended


@pytest.mark.parametrize("reached, moved", [(0, 100), (33, 33)])
def test_what_went_quiet_is_what_was_reached_or_where_the_clock_stood(reached: int, moved: int) -> None:
    """After a history has ended its successor may have no record: the last windows would never close."""
    assert NodeClock(120, 80, False, 20).quiet_from(reached) == moved


def test_what_was_seen_goes_into_the_same_manifest() -> None:
    """A checkpoint that counts a record, and has not seen it, counts its copy."""
    dedupe = Dedupe(origin="origin", sequence="n", within=40)
    seen = run("e2-c5-s", first=5, last=5, pane_min=20, pane_max=20)
    found = results((split(seen=SimpleNamespace(run=seen)),), (), ())
    (one,) = commit(entry(), found, plan(4, cap={"memory": None}), dedupe={"memory": dedupe}).sources.values()
    assert one.seen is not None and (one.seen.columns, one.seen.runs) == (SeenColumns(**dedupe.columns()), (seen,))
    (plain,) = commit(entry(), found, plan(4)).sources.values()
    assert plain.seen is None


def test_a_fold_of_what_was_seen_counts_for_its_source() -> None:
    """Runs of one source would stand for those of another, or a fold be done again at each step."""
    dedupe = {"memory": Dedupe(origin="origin", sequence="n", within=40)}
    one, other, whole = (run(f"e2-c5-{name}", first=5, last=5, pane_min=20, pane_max=20) for name in ("s", "t", "u"))
    found = results(tuple(split(seen=SimpleNamespace(run=seen)) for seen in (one, other)), (), ())
    last = entry(sources=commit(entry(), found, plan(4), dedupe=dedupe).sources)
    for source, expected in (("memory", (whole,)), ("another", (one, other))):
        fold = FoldRuns(Attempt(1, 1), Merge((one, other), 0, KEY_GROUPS), 0, source, 10)
        found = results((), (), (), 0, ((fold, Folded(whole, None)),))
        seen = only(commit(last, found, plan(4), dedupe=dedupe).sources).seen
        assert seen is not None and seen.runs == expected


def test_what_splits_have_seen_is_of_their_source() -> None:
    """A copy in one source would hide a record of another."""
    one, other = (run(f"e2-c5-{name}", first=5, last=5) for name in ("s", "t"))
    splits = (split(seen=SimpleNamespace(run=one)), split(source="files", seen=SimpleNamespace(run=other)), split())
    found = results(splits, (), ())
    assert (found.seen_runs("memory"), found.seen_runs("files")) == ((one,), (other,))
    assert found.seen_runs() == (one, other)


def test_a_step_moves_state_clock_and_positions_together() -> None:
    """I3: a manifest in which one of them is a step ahead of the others loses or repeats records."""
    old_run = run("e1-c4-b", first=4, last=4, pane_min=10, pane_max=10)
    last = entry(
        nodes={"Visits": node({}, ("page",), ("string",), runs=(old_run,))}, accounts={"memory": Account(3, 3)}
    )
    late, dead = Staged("l", 1, 9), Staged("d", 2, 9)
    found = results(
        (split(account=Account(7, 4, 1, 2, 0, 7), late=late, dead=dead), split(run=None, largest=31)),
        (Closed(),),
        (),
    )
    new = commit(last, found)
    assert (new.id, new.base, new.kind, new.epoch) == (5, 5, "checkpoint", 2)
    assert new.parent == (4, "f" * 64)
    assert only(new.sources).positions == {"memory": (0, 4)}
    assert new.clock == Clock(31, 0, {"memory": 31})
    assert only(new.nodes).runs == (old_run, found.mapped[0].nodes["Visits"].run)
    assert only(new.nodes).lowest == 10
    assert new.inputs == {"memory": {"memory": Account(14, 11, 1, 2, 0, 14)}}
    assert new.aside == (Aside(5, (late,), (dead,)),) and not only(new.sinks).unpublished


def test_a_step_tells_why_its_first_dead_letter_is_one() -> None:
    """Of a million, the one that a report shows; and without any, none."""
    of = [split(first_dead=reason) for reason in ("", "no number", "no time")]
    assert results(tuple(of)).first_dead == "no number"
    assert results((of[0],)).first_dead == results().first_dead == ""


def test_what_a_source_has_no_longer_is_accounted_for() -> None:
    """Records that expired before they were read would be missing from every total, and nothing say so."""
    last = entry(accounts={"memory": Account(3, 3, skipped=1)})
    new = commit(last, results((split(),)), plan(4, skipped={"memory": 5}))
    assert new.accounts == {"memory": Account(7, 7, 0, 0, 0, 7, 6)}


def test_the_watermark_waits_for_what_is_listed_but_unread() -> None:
    """A backfill in any order has no late data."""
    found = results((split(largest=50),), (), ())
    assert commit(entry(), found, plan(4, cap={"memory": None})).clock.watermark == 50
    assert commit(entry(), found, plan(4, cap={"memory": 12})).clock.watermark == 12
    assert commit(entry(), found, plan(4, cap={"memory": -1})).clock.watermark == 0
    assert commit(entry(), found, plan(4), lag_ms=8).clock.watermark == 42
    behind = entry(clock=Clock(40, 0, {"memory": 40}))
    assert commit(behind, results((split(largest=5),), (), ()), plan(4, cap={"memory": 3})).clock.watermark == 40


def test_what_is_closed_is_closed_once() -> None:
    """I6: the next step closes what this one did not; and panes of closed windows are dropped with their runs."""
    held = (run("a", pane_min=0, pane_max=0), run("b", pane_min=0, pane_max=10), run("c", pane_min=20, pane_max=20))
    last = entry(clock=Clock(15, 0, {"memory": 15}), nodes={"Visits": node({}, runs=held)})
    staged = Staged("s", 3, 9)
    new = commit(last, results((), (Closed({"memory": staged}), Closed()), ()), plan(4, close_at=15))
    assert (new.clock.closed, new.clock.watermark) == (15, 15)
    assert [run.name for run in only(new.nodes).runs] == [held[1].name, held[2].name]
    assert only(new.nodes).lowest == 10
    assert only(new.sinks).unpublished == (SinkBatch(5, None, (staged,)),) and not new.aside
    assert commit(Entry(new, "0" * 64, 1), NOTHING, plan(5, close_at=0)).clock.closed == 15
    assert only(commit(last, NOTHING, plan(4, close_at=15), window=None).nodes).runs == held


def test_a_checkpoint_lists_its_own_outputs_only() -> None:
    """Those of the step before were published before this one was put; listed for ever, they would be swept
    and then missed."""
    old = (Staged("old", 1, 1),)
    last = entry(
        sinks={"memory": SinkPart((), 4, (SinkBatch(4, None, old),), node="Visits")}, aside=(Aside(4, old, old),)
    )
    new = commit(last)
    assert only(new.sinks).unpublished == () and new.aside == ()


def test_each_batch_names_the_one_before_it_for_its_sink() -> None:
    """A store that publishes in one transaction moves its mark from there, or finds that another has moved it."""
    staged = results((), (Closed({"memory": THREE, "other": THREE}),), ())
    one = commit(entry(), staged)
    assert one.sinks == {"memory": SinkPart(MEMORY_DOES, 5, (SinkBatch(5, None, (THREE,)),), node="Visits")}
    without = commit(Entry(one, "0" * 64, 1), NOTHING, plan(5))
    assert only(without.sinks) == SinkPart(MEMORY_DOES, 5, node="Visits")
    three = commit(Entry(without, "0" * 64, 1), staged, plan(6))
    assert only(three.sinks).unpublished == (SinkBatch(7, 5, (THREE,)),) and only(three.sinks).last == 7
    gone = commit(Entry(three, "0" * 64, 1), NOTHING, plan(7), sink=None)
    assert (
        gone.sinks == {"memory": SinkPart(MEMORY_DOES, 7, (SinkBatch(7, 5, ()),), node="Visits")}
        and gone.publishes is False
    )
    assert not only(gone.sinks).owed and gone.unpublished() == set()

    class Other(MemorySink):
        abilities = MemorySink.abilities | {"tidy"}

        def tidy(self) -> None: ...

    other = commit(Entry(three, "0" * 64, 1), staged, plan(7), sink=Other())
    assert other.sinks == {"other": SinkPart((*MEMORY_DOES, "tidy"), 8, (SinkBatch(8, None, (THREE,)),), node="Visits")}
    assert other.publishes is True


def test_a_partition_joins_with_the_step_that_reads_it() -> None:
    """Behind those there were: nobody else's position, account or clock moves with it."""
    step = plan(4, joins=("late",), end={"memory": (0, 4), "late": (0, 2)}, idle=("memory",))
    new = commit(entry(), results((split(), split(partition="late", account=Account(2, 2))), (), ()), step)
    assert only(new.sources).partitions == ("memory", "late") and only(new.sources).idle == ("memory",)
    assert only(new.sources).positions == {"memory": (0, 4), "late": (0, 2)}
    assert new.accounts == {"memory": Account(4, 4, 0, 0, 0, 7), "late": Account(2, 2)}
    assert only(commit(Entry(new, "0" * 64, 1), NOTHING, plan(5, splits=())).sources).idle == ()


def test_the_end_of_the_input_is_taken_back_by_more_of_it() -> None:
    """Who says "complete" and then sends more wants the rest too, and its end announced again."""
    ended = commit(entry(), NOTHING, plan(4, ends=True, splits=(), close_at=30))
    assert ended.clock.end_of_input and ended.clock.closed == 30
    last = Entry(ended, "0" * 64, 1)
    assert commit(last, NOTHING, plan(5, splits=())).clock.end_of_input
    assert not commit(last, results((split(),), (), ()), plan(5)).clock.end_of_input


def test_published_is_remembered_only_where_something_was_published() -> None:
    """Without a sink nothing was seen: a sink given later gets it all."""
    ends = plan(4, ends=True, splits=())
    assert only(commit(entry(), NOTHING, ends, window=None).nodes).published == 5
    assert only(commit(entry(), NOTHING, ends, window=None, sink=None).nodes).published == 0
    assert only(commit(entry(), NOTHING, ends).nodes).published == 0


def test_a_fold_takes_the_place_of_its_inputs() -> None:
    """Before the deltas of the step: they are younger."""
    a, b, sum_ = run("a"), run("b"), run("sum")
    last = entry(nodes={"Visits": node({}, runs=(a, b))})
    item = FoldRuns(Attempt(2, 5), Merge((a, b), 0, KEY_GROUPS), 0)
    new = commit(last, results((split(),), (), ((item, Folded(sum_, None)),)), window=None)
    assert [one.name for one in only(new.nodes).runs] == [sum_.name, "d/Visits/e2-c5-a.arrow"]


def test_ten_checkpoints_are_kept() -> None:
    """``oldest`` says what may be deleted: never forward past what is kept, never back."""
    assert commit(entry(commits=tuple((id, 0) for id in range(5)))).oldest == 0
    kept = dict.fromkeys(range(3, 31), 0)
    newest = commit(Entry(manifest(30, oldest=3, commits=commits_of(kept)), "0" * 64, 1), NOTHING, plan(30))
    assert newest.oldest == 22 and newest.bases == {**dict.fromkeys(range(22, 31), 0), 31: plan(30).wall_ms}
    assert commit(entry(oldest=4, commits=((0, 0), (4, 0)))).oldest == 4


def test_a_split_without_records_moves_no_clock() -> None:
    """Without a time of its own it would set the clock to that of another, or fail."""
    new = commit(entry(), results((split(run=None, largest=None, key_types=()),), (), ()))
    assert new.clock.largest == {} and new.clock.watermark == 0
    assert only(new.nodes).runs == () and only(new.nodes).lowest is None


def test_input_without_an_end_has_none() -> None:
    """A step that only closes windows, of a source that is idle, would end the job."""
    assert not commit(entry(), NOTHING, plan(4, splits=())).clock.end_of_input


def test_a_checkpoint_takes_nothing_over_from_a_fence() -> None:
    """Crashes are counted from here; what was taken back is done; the next plan is the first."""
    last = entry(fences=2, replan=1, target=3, retract=(3, 4), kind="fence")
    new = commit(last)
    assert (new.fences, new.replan, new.target, new.retract) == (0, 0, None, None)


def test_a_window_that_ends_at_the_clock_is_over() -> None:
    """Its run would be read in every step, for nothing, and its pane be needed for ever."""
    held = (run("a", pane_min=0, pane_max=0), run("b", pane_min=0, pane_max=10))
    last = entry(clock=Clock(10, 0, {"memory": 10}), nodes={"Visits": node({}, runs=held)})
    assert only(commit(last, NOTHING, plan(4, close_at=10)).nodes).runs == held[1:]
    assert only(commit(last, NOTHING, plan(4, close_at=9)).nodes).runs == held


def test_pins_and_what_rollbacks_left_are_kept_as_long_as_they_matter() -> None:
    """A pin collected is a promise broken; a branch forgotten, and its outputs are published a second time."""
    last = entry(
        commits=((0, 0), (1, 0), (2, 0), (4, 0)),
        pins=(1,),
        burnt=(2, 3, 4),
        left=((0, 1, True), (0, 2, True), (1, 2, False), (2, 4, True), (3, 5, True), (4, 6, False), (6, 8, True)),
    )
    new = commit(last, retention=Retention(last=2))
    assert new.oldest == 4 and new.bases == {1: 0, 4: 0, 5: plan(4).wall_ms}
    assert new.burnt == (4,)
    assert new.left == ((0, 2, True), (1, 2, False), (3, 5, True), (4, 6, False))


def test_a_step_that_breaks_a_law_is_not_committed() -> None:
    """I2: whatever the plan says."""
    last = entry(source=SourcePart("MemorySource", ("memory",), {"memory": (0, 5)}))
    with pytest.raises(LawBroken, match="manifest 5 after 4 breaks the law that positions of memory never go back"):
        commit(last, NOTHING, plan(4))


def test_the_kind_of_a_source_names_a_folder() -> None:
    """The runs of its index would lie outside of the checkpoint, or nowhere."""
    check_can_begin(manifest())
    with pytest.raises(
        InvalidPipeline, match=r"the kind of the source 'a/b': .*set another on the class of the source"
    ):
        check_can_begin(manifest(source=SourcePart("a/b", ("memory",), {"memory": (0, 0)})))


def test_a_first_manifest_holds_nothing() -> None:
    """It stands for the beginning of the source and an empty state: anything else would be invented."""
    task, source = Visits(), MemorySource([{"ts": 1}], timestamp="ts")
    job = Job(task, {STATE: task.persistent_state()}, {"memory": source}, {}, MemoryStorage("first"), False)
    expected = manifest(
        job="mine",
        nonce="mine",
        source=SourcePart("MemorySource", ("memory",), {"memory": (0, 0)}),
        nodes={"Visits": node(task.persistent_state().fingerprint(), ("page",))},
        commits=((0, 0),),
    )
    assert first_manifest(job, "mine") == expected


def test_key_columns_keep_their_type() -> None:
    """The type is fixed by the first manifest that holds one."""
    last = entry(nodes={"Visits": node({}, ("page",), ("null",))})
    assert only(commit(last, results((split(),))).nodes).key_types == ("string",)
    fixed = entry(nodes={"Visits": node({}, ("page",), ("int64",))})
    with pytest.raises(InvalidPipeline, match=r"key \(page\): key column 0 holds both int64 and string"):
        commit(fixed, results((split(),), (), ()))


# -- whose checkpoint it is -------------------------------------------------------------------------------------------


def test_another_job_is_refused() -> None:
    """Its positions mean nothing here, and what it holds would be overwritten."""
    ours = manifest()
    check_same_job(ours, ours, "url")
    state, source = only(ours.nodes), only(ours.sources)
    for other, says in (
        (manifest(nodes={"Clicks": state}), r"its states: \['Clicks'\], this pipeline's: \['Visits'\]"),
        (
            manifest(source=structs.replace(source, kind="FileSource")),
            "source: FileSource, this pipeline's: MemorySource",
        ),
        (manifest(source=structs.replace(source, partitions=("a",))), "partitions"),
    ):
        with pytest.raises(OtherJob, match=says):
            check_same_job(other, ours, "url")


def test_another_state_under_the_same_name_is_refused_and_shown() -> None:
    """Old elements read as those of another monoid are numbers that look right."""
    ours = manifest()
    changed = {"Visits": node({"state": "WindowState", "monoid": {"name": "Max"}}, ("user",), ())}
    with pytest.raises(
        FingerprintChanged, match=r"another definition: key: user -> page; monoid: Max\(\) -> none\. Nothing"
    ):
        check_same_job(manifest(nodes=changed), ours, "url")


@pytest.mark.parametrize(
    ("base", "says"),
    [
        (0, r"Nothing is committed there yet: the next run adopts the new task.*or delete url \("),
        (1, "Restore the old task; or give the new task a new checkpoint, and read the source again"),
    ],
)
def test_what_to_do_about_it_depends_on_what_is_there(base: int, says: str) -> None:
    """To delete a checkpoint that holds something is no remedy."""
    changed = {"Visits": node({"state": "Other"}, ("page",))}
    with pytest.raises(FingerprintChanged, match=says):
        check_same_job(manifest(4, base=base, nodes=changed), manifest(), "url")


@pytest.mark.parametrize(
    ("recorded", "now", "known"),
    [(None, None, None), (None, 7, 7), (3, None, None), (3, 7, 7), (7, 3, 7), (7, 7, 7)],
)
def test_what_was_summed_up_stays_so(recorded: int | None, now: int | None, known: int | None) -> None:
    """A longer history, or a clock that was set back, brings nothing back that is one sum already."""
    assert known_from(NodePart({}, known_from=recorded), now) == known
