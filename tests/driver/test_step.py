"""A step is a value: what is due, what there is to do, and what follows, without a storage or an engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from persistent import tumbling
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account, TaskPart
from persistent.checkpoint.successor import Entry, succeed
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.connect.memory import MemorySink
from persistent.connect.source import Span, Split
from persistent.driver import step as module
from persistent.driver.results import Results
from persistent.driver.step import EFFECTS, Effect, NodeStep, OutOfOrder, Step
from persistent.names import Attempt, Staged
from persistent.time.clock import Clock
from persistent.worker.job import Closed, CloseShard, Folded, FoldRuns, Mapped, MapSplit, SplitOfNode
from tests.checkpoint.samples import manifest, plan, run
from tests.checkpoint.samples import node as node_part
from tests.driver.step_results import committed, mapped, results
from tests.figures import imported
from tests.single import only

WINDOW = tumbling(10)
SPLITS = (Split("memory", (Span(0, 0, 3),)), Split("memory", (Span(0, 3, 4),)))
STAGED = Staged("_staged/e1-c1-0", 1, 1)


def entry(last: Manifest) -> Entry:
    return Entry(last, "f" * 64, 100)


def began(runs: tuple[Run, ...] = (), **changes: Any) -> Step:
    """A step after checkpoint 4, of epoch 2."""
    nodes = {"Visits": node_part({}, ("page",), ("string",), runs=runs)}
    clock = changes.pop("clock", Clock(15, 0, {"memory": 15}))
    last = manifest(4, epoch=2, clock=clock, nodes=nodes, commits=((4, 0),))
    return Step(entry(last), plan(4, **{"splits": SPLITS, "close_at": clock.watermark, **changes}))


def node(runs: tuple[Run, ...] = (), **changes: Any) -> NodeStep:
    """The same step, of its only node."""
    return only(began(runs, **changes).nodes)


# -- the order --------------------------------------------------------------------------------------------------------


@given(st.permutations(EFFECTS) | st.lists(st.sampled_from(Effect)))
def test_any_other_order_is_refused(effects: list[Effect]) -> None:
    """Whoever moves a line of the driver, or forgets one, must hear of it before a sink shows what is not committed."""
    step = began()
    for effect, expected in zip(effects, (*EFFECTS, None)):
        if effect is not expected:
            before = replace(step)
            with pytest.raises(OutOfOrder, match=f"^{effect.value} while {expected.value if expected else 'nothing'} "):
                step.past(effect)
            assert step == before
            return
        step = step.past(effect)
    assert step.done == tuple(effects)
    assert not step.sweeps


def test_each_outcome_belongs_to_its_effect() -> None:
    """A manifest that was committed before its files were written names nothing."""
    step = began()
    refused = (lambda: step.mapped(Results(), {}), lambda: step.committed(step.last))
    for outcome in refused:
        with pytest.raises(OutOfOrder):
            outcome()
    step = step.planned(step.plan).mapped(Results(), {"memory": (run("i"),)})
    with pytest.raises(OutOfOrder):
        step.planned(step.plan)
    assert step.due is Effect.COMMIT and step.entry is step.last
    new = entry(manifest(5))
    assert step.committed(new).entry is new and step.committed(new).due is Effect.CHECK


def test_a_plan_that_was_found_is_not_put_again() -> None:
    """The put of a plan that is there would be settled by a read, in every recovery."""
    assert replace(began(), done=(Effect.PLAN,)).due is Effect.MAP


def test_it_knows_neither_storage_nor_engine() -> None:
    """What reads or writes on the way cannot be played through, nor resumed in a test of a microsecond."""
    outside = ("storage", "engines", "clock", "checkpoint.log", "checkpoint.runs", "driver.publish", "driver.workbench")
    known = imported("persistent.driver.step")
    assert not [name for name in known if any(f"{name}.".startswith(f"persistent.{one}.") for one in outside)]


# -- a crash ----------------------------------------------------------------------------------------------------------


def ran(item: MapSplit | CloseShard | FoldRuns) -> Mapped | Closed | Folded:
    """What a worker would return, as a function of the item."""
    attempt = item.attempt
    name = f"e{attempt.epoch}-c{attempt.id}"
    if isinstance(item, MapSplit):
        (span,) = item.split.spans
        rows, time = span.stop - span.start, 16 + 5 * span.start
        delta = run(f"{name}-a{span.start}", rows, attempt.id, attempt.id, pane_min=time, pane_max=time)
        return mapped(delta, ("string",), account=Account(rows, rows, mix=span.stop), largest=time, late=STAGED)
    if isinstance(item, CloseShard):
        return Closed({"memory": structs.replace(STAGED, rows=item.close_at - item.closed + item.low)})
    inputs = item.merge.inputs
    ids = min(one.first for one in inputs), max(one.last for one in inputs)
    low, high = item.merge.low, item.merge.high
    rows = sum(one.rows for one in inputs)
    return Folded(run(f"{name}-b{low}", rows, *ids, start=low, low=low, high=high, pane_max=30), None)


def performed(step: Step) -> Step:
    """The step after the effect that is due, as a driver performs it, without a storage or an engine."""
    effect = step.due
    if effect is Effect.PLAN:
        return step.planned(step.plan)
    if effect is Effect.MAP:
        node, splits = only(step.nodes), {"memory": only(step.plan.sources).splits}
        folds = [(item, ran(item)) for item in node.folds(frozenset())]
        closed = [ran(item) for item in node.closes(WINDOW, 2)]
        return step.mapped(results([ran(item) for item in step.maps(splits, 1_000)], closed, folds), {"memory": ()})  # type: ignore[arg-type, misc]
    if effect is Effect.COMMIT:
        made = committed(step.last, step.plan, step.results, window=WINDOW, sinks={"memory": MemorySink()})
        return step.committed(entry(made))
    assert effect is not None
    return step.past(effect)


def resumed(step: Step) -> Step:
    """The step of a driver that takes over, of which nothing but the log is known."""
    last = step.entry.manifest
    fence = entry(succeed(step.entry, "fence", epoch=last.epoch + 1, fences=last.fences + 1, replan=last.replan))
    if step.checkpoint is not None:
        # Nothing is left to do but to publish, from the fence.
        return replace(step, last=fence, checkpoint=fence, done=EFFECTS[: EFFECTS.index(Effect.PUBLISH)])
    put = Effect.PLAN in step.done
    return Step(fence, step.plan, done=(Effect.PLAN,) if put else ())


def content(found: Manifest) -> dict[str, Any]:
    """What a checkpoint holds, without the numbers that the fences below it have taken."""

    def plain(one: Run) -> Run:
        return structs.replace(one, name=one.name.rpartition("-")[2], first=min(one.first, 5), last=min(one.last, 5))

    nodes = {name: structs.replace(one, runs=tuple(map(plain, one.runs))) for name, one in found.nodes.items()}
    staged = [batch.staged for batch in only(found.sinks).unpublished], [one.late for one in found.aside]
    return {"nodes": nodes, "staged": staged, "of": found.sources, "tasks": found.tasks}


@given(st.integers(0, 9), st.lists(st.integers(0, len(EFFECTS)), max_size=4), st.booleans())
def test_a_step_that_is_resumed_ends_in_the_same_manifest(deltas: int, crashes: list[int], ends: bool) -> None:
    """Wherever drivers died, and however often: else what a crash costs is a number that is wrong."""
    runs = tuple(run(f"e1-c{id}-r{id}", 3, id, id, pane_min=10, pane_max=10) for id in range(1, deltas + 1))
    first = step = began(runs, ends=ends)
    while first.due is not None:
        first = performed(first)
    for survived in crashes:
        for _ in range(survived):
            step = performed(step) if step.due is not None else step
        step = resumed(step)
    while step.due is not None:
        step = performed(step)
    assert content(step.entry.manifest) == content(first.entry.manifest)
    assert step.entry.manifest.accounts == {"memory": Account(4, 4, mix=7)}
    assert step.entry.manifest.id == 5 + len(crashes)
    assert (deltas >= 8) == bool(first.results.folded)


def test_a_step_goes_on_above_a_fence_if_its_plan_does() -> None:
    """What was planned before the fence is not planned again; what another driver has done since is not done twice."""
    step = began()
    fence = entry(structs.replace(step.last.manifest, id=5, kind="fence", epoch=3))
    moved = step.after(fence)
    assert moved == replace(step, last=fence) and moved.attempt == Attempt(3, 6)
    for change in ({"base": 5}, {"replan": 1}, {"job": "another"}):
        assert step.after(entry(structs.replace(fence.manifest, **change))) is None


# -- what there is to do ----------------------------------------------------------------------------------------------


def test_a_timestamp_is_too_far_ahead_by_the_plan_or_by_the_clock() -> None:
    """A rerun under another option, or a time of day that was set back, would make dead letters of what was counted."""

    def limit(step: Step) -> int:
        (item,) = step.maps({"memory": SPLITS[:1]}, 1_000)
        assert item.limit.not_after is None
        return item.limit.ahead

    assert limit(began(wall_ms=40, max_future_ms=7)) == 47
    assert limit(began(wall_ms=3, max_future_ms=7)) == 15 + 7
    assert limit(began(wall_ms=40, max_future_ms=None)) == 1_040


def test_a_split_has_the_limit_of_its_plan() -> None:
    """The checkpoint may have lost it since, and the step must be the same."""
    (first, *_) = began(not_after=30).maps({"memory": SPLITS}, 1_000)
    (other, *_) = began().maps({"memory": SPLITS}, 1_000)
    assert (first.limit.not_after, other.limit.not_after) == (30, None) and first.limit.ahead == other.limit.ahead


def test_every_split_is_judged_by_the_checkpoint_before() -> None:
    """By its own clock a split would make the other's rows late, or not, as the engine happens to run them."""
    step = began(recorded={"unit": "ms"})
    one, other = step.maps({"memory": SPLITS}, 1_000)
    assert (one.split, other.split) == SPLITS
    assert one == replace(other, split=one.split)
    assert (one.recorded, one.since) == ({"unit": "ms"}, None)
    assert one.nodes == {"Visits": SplitOfNode(15, 15, ("string",))}
    assert one.attempt == Attempt(2, 5)


def test_a_large_state_closes_in_as_many_shards_as_run_side_by_side() -> None:
    """One worker would do the work of all; and a shard left out would never be published."""
    small, large = run("s", 200_000), run("l", 200_001)
    assert [(one.low, one.high) for one in node((small,)).closes(WINDOW, 4)] == [(0, KEY_GROUPS)]
    shards = node((large,), clock=Clock(15, 10, {"memory": 15})).closes(WINDOW, 4)
    assert [(one.low, one.high) for one in shards] == [(0, 256), (256, 512), (512, 768), (768, 1024)]
    assert {(one.closed, one.close_at, one.revision, one.runs) for one in shards} == {(10, 15, 5, (large,))}


def test_a_shard_that_one_fold_cannot_hold_is_split() -> None:
    """By the bytes of what closes alone: panes that stay open cost no memory."""
    huge = structs.replace(run("h", 5, pane_min=0, pane_max=99), bytes=10 << 29)
    assert len(node((huge,)).closes(None, 1)) == 10
    assert len(node((huge,)).closes(WINDOW, 1)) == 2
    assert len(node((huge,), clock=Clock(30, 20, {"memory": 30})).closes(WINDOW, 1)) == 1


def test_keys_are_published_at_the_end_of_the_input_if_they_have_changed() -> None:
    """At another time a state without windows is not complete; unchanged, it was published before."""
    held = (run("a", first=3, last=3),)
    assert node(held, ends=True).ends_with_changes(())
    assert not node(held).ends_with_changes(()) and not node(ends=True).ends_with_changes(())
    step = began(held, ends=True)
    published = {"Visits": structs.replace(only(step.last.manifest.nodes), published=3)}
    step = only(replace(step, last=entry(structs.replace(step.last.manifest, nodes=published))).nodes)
    assert not step.ends_with_changes(())
    assert step.ends_with_changes(("new",)) and not node(ends=True).ends_with_changes(("new",))


def test_runs_whose_fold_raised_are_left() -> None:
    """Tried again in every step, they would cost a fold in every step."""
    runs = tuple(run(f"e1-c{id}-a", 3, id, id) for id in range(1, 9))
    (fold,) = node(runs, clock=Clock(15, 10, {"memory": 15})).folds(frozenset())
    assert fold.merge.inputs == runs and (fold.final, fold.attempt) == (10, Attempt(2, 5))
    assert node(runs).folds(frozenset({runs[3].name})) == []


def test_a_fold_takes_a_budget_from_the_step_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the rows of all deltas the first step after a long backfill would fold them at once."""
    asked: list[int] = []
    monkeypatch.setattr(module, "choose_all", lambda runs, rows, published, unfolded: asked.append(rows) or [])
    node((run("a", 8, 3, 3), run("b", 5, 4, 4), run("c", 2, 4, 4), run("d", 9, 2, 4))).folds(frozenset())
    assert asked == [7]


def test_a_report_counts_this_step_alone() -> None:
    """Accounts add up over the whole job; a user watches what comes in now."""
    step = began()
    before = structs.replace(
        step.last.manifest, tasks={"Visits": TaskPart({"memory": {"memory": Account(9, 6, 2, 1)}})}
    )
    step = replace(step, last=entry(before))
    fold = Folded(structs.replace(run("sum"), bytes=30), None)
    late_dead = mapped(
        structs.replace(run("a"), bytes=7), account=Account(6, 3, 1, 2), largest=20, dead=STAGED, first_dead="bad"
    )
    found = results(
        (late_dead,),
        (Closed({"memory": STAGED, "other": STAGED}, structs.replace(STAGED, rows=4)),),
        ((FoldRuns(*[None] * 3), fold),),  # type: ignore[arg-type]
        3,
    )
    new = structs.replace(before, id=5, tasks={"Visits": TaskPart({"memory": {"memory": Account(15, 9, 3, 3)}})})
    step = step.planned(step.plan).mapped(found, {}).committed(entry(new))
    report = step.report({Effect.MAP: 2.0, Effect.COMMIT: 0.5}, 40, None)
    assert (report.id, report.rows, report.late, report.dead) == (5, 6, 1, 2)
    assert (report.outputs, report.set_aside, report.discarded) == (1, 4, 3)
    assert (report.clock_ms, report.lag_ms, report.seconds, report.commit_seconds) == (15, 25, 2.5, 0.5)
    assert (report.checkpoint_bytes, report.compaction_bytes, report.manifest_bytes) == (137, 30, 100)
    assert found.first_dead == "bad" and Results().first_dead == ""
