"""A step is a value: the state before it, its plan, and the outcomes of its effects so far.

It reads and writes nothing. ``due`` is the effect to perform next; the driver performs it
(``persistent.driver.step_effects``), and its outcome makes the next value. Any other transition raises OutOfOrder. A
crash loses only the value: uncommitted work does not exist, and committed outputs are published again.

An effect is an action of a driver on the world. The effects of a step have one order, and so have those of taking
over.

Of a step:

 PLAN       put the plan: what the step will read, before anything of it is committed
 MAP        run the items; every file under a name of its own
 COMMIT     put the manifest that names them: from here on the step has happened
 CHECK      look for a manifest above ours: another driver has taken over
 PUBLISH    make the outputs visible, under the id that staged them
 COLLECT    delete what no kept manifest names

Of a driver that takes over, before its first step:

 FENCE      put the newest manifest once more, under a higher epoch
 CHECK      look for a manifest above ours
 MARK       after a rollback: outputs that it takes back no longer count, even if a fenced driver still publishes them
 SWEEP      delete staged files that no driver will publish: nothing can show them now
 TAKE_BACK  delete the published files that do not count
 PUBLISH    make visible what is committed and may still be unpublished
 COLLECT    delete what no kept manifest names, and outputs published after they were taken back

The driver takes the order from these two tuples, and so does the model of the protocol. A step refuses any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any

import pyarrow as pa

from persistent.checkpoint.compaction import choose_all, shards
from persistent.checkpoint.parts import Accounts, NodePart, partition_name
from persistent.checkpoint.plan import StepPlan, TaskStep
from persistent.checkpoint.successor import Entry
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.connect.formats.timestamps import TimeLimit
from persistent.connect.source import Reached, Split
from persistent.driver.report import StepReport
from persistent.driver.results import Results
from persistent.names import Attempt
from persistent.time.window import AnyWindow
from persistent.time.zone import Zone
from persistent.worker.job import CloseShard, FoldRuns, MapSplit, SplitOfNode
from persistent.worker.judge_records import added
from persistent.worker.seen_items import SeenAfter, SeenBefore, silence_ms


class Effect(Enum):
    """An action of a driver on the world."""

    PLAN = "plan"
    MAP = "map"
    COMMIT = "commit"
    FENCE = "fence"
    CHECK = "check"
    MARK = "mark"
    SWEEP = "sweep"
    TAKE_BACK = "take back"
    PUBLISH = "publish"
    COLLECT = "collect"


EFFECTS = (Effect.PLAN, Effect.MAP, Effect.COMMIT, Effect.CHECK, Effect.PUBLISH, Effect.COLLECT)
"""Of a step."""

TAKING_OVER = (
    Effect.FENCE,
    Effect.CHECK,
    Effect.MARK,
    Effect.SWEEP,
    Effect.TAKE_BACK,
    Effect.PUBLISH,
    Effect.COLLECT,
)
"""Of a driver that takes over."""


class OutOfOrder(AssertionError):
    """An effect was reported as performed while another one is due."""


SHARD_ROWS = 200_000
"""A state of more rows is closed in at least as many shards as the engine runs at once."""


@dataclass(frozen=True)
class Step:
    """The step after ``last``. ``appended``: rows that its plan adds to the index of each source, not yet written.
    ``done``: the effects performed, with PLAN if the plan was found. ``index``: the runs of each index after it.
    ``checkpoint``: the manifest put by the commit. ``sweeps``: whether it looks for files of abandoned attempts."""

    last: Entry
    plan: StepPlan
    appended: Mapping[str, pa.Table] = field(default_factory=dict)
    done: tuple[Effect, ...] = ()
    results: Results = field(default_factory=Results)
    index: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    checkpoint: Entry | None = None
    sweeps: bool = False

    @property
    def due(self) -> Effect | None:
        """The effect to perform next; None after the last."""
        return EFFECTS[len(self.done)] if len(self.done) < len(EFFECTS) else None

    @property
    def entry(self) -> Entry:
        """The newest checkpoint: ``last`` until the commit."""
        return self.checkpoint or self.last

    # -- outcomes of effects ---------------------------------------------------------------------------------

    def past(self, effect: Effect, **outcome: Any) -> Step:
        """The step after this effect. OutOfOrder if another one is due."""
        if effect is not (due := self.due):
            name = "nothing" if due is None else due.value
            raise OutOfOrder(f"{effect.value} while {name} is due; the order is {[member.value for member in EFFECTS]}")
        return replace(self, done=(*self.done, effect), **outcome)

    def planned(self, plan: StepPlan) -> Step:
        """The plan is put: this one, or one that another driver put first."""
        return self.past(Effect.PLAN, plan=plan, appended={})

    def mapped(self, results: Results, index: Mapping[str, tuple[Run, ...]]) -> Step:
        """The items have run, and all their files are written."""
        return self.past(Effect.MAP, results=results, index=index)

    def committed(self, entry: Entry) -> Step:
        """The manifest is put: the step has happened."""
        return self.past(Effect.COMMIT, checkpoint=entry)

    def after(self, last: Entry) -> Step | None:
        """The same step after a newer manifest, such as a fence; None if its plan no longer fits."""
        plan, manifest = self.plan, last.manifest
        fits = (plan.job, plan.base, plan.number) == (manifest.job, manifest.base, manifest.replan)
        return replace(self, last=last) if fits else None

    @cached_property
    def nodes(self) -> dict[str, NodeStep]:
        """The step of each node."""
        return {
            id: NodeStep(id, self.last, self.plan, before, self.plan.task_of(id, before.clock.closed))
            for id, before in self.last.manifest.nodes.items()
        }

    # -- work of the step -------------------------------------------------------------------------------------

    @property
    def attempt(self) -> Attempt:
        """The attempt whose files the items write."""
        return Attempt(self.last.manifest.epoch, self.last.manifest.id + 1)

    def maps(
        self, splits: Mapping[str, Sequence[Split]], max_future_ms: int, seen: Mapping[str, SeenBefore] | None = None
    ) -> list[MapSplit]:
        """The items that map these splits. ``max_future_ms``: the limit if the plan has none. ``seen``: the seen
        records of each source that recognises copies."""
        plan, last = self.plan, self.last.manifest
        limit = time_limit_of(self, max_future_ms)
        nodes = {
            id: SplitOfNode(node.before.clock.watermark, node.final, node.before.key_types)
            for id, node in self.nodes.items()
        }
        return [
            MapSplit(
                self.attempt,
                name,
                partition_name(name, split.partition, len(plan.sources)),
                split,
                plan.sources[name].recorded,
                nodes,
                limit,
                last.sources[name].since,
                None if seen is None else seen.get(name),
            )
            for name, source_splits in splits.items()
            for split in source_splits
        ]

    def seen_folds(self, seen: Mapping[str, SeenBefore], unfolded: frozenset[str]) -> list[FoldRuns]:
        """The runs of seen records of each source to fold."""
        folds, base = [], self.last.manifest.base
        for name, before in seen.items():
            recent = [run.rows for run in before.runs if run.first == run.last == base]
            merges = choose_all(before.runs, sum(recent), 0, unfolded)
            folds += [FoldRuns(self.attempt, merge, before.horizon, name, before.pane_ms) for merge in merges]
        return folds

    def report(self, seconds: Mapping[Effect, float], wall_ms: int, reached: Reached | None) -> StepReport:
        """The report of the step. ``seconds``: the duration of each effect."""
        results, manifest, before = self.results, self.entry.manifest, self.last.manifest
        nodes = results.nodes.values()
        folded_bytes = sum([folded.run.bytes for _, folded in results.folded if folded.run])
        written = [run for mapped in results.mapped for run in mapped.runs()] + [*results.seen_runs()]
        delta_bytes = sum([run.bytes for run in written])
        seen: dict[str, list[SeenAfter]] = {}
        for mapped in results.mapped:
            if mapped.seen is not None:
                seen.setdefault(mapped.source, []).append(mapped.seen)
        read, late, dead, duplicates = (
            now - old for now, old in zip(_counts(manifest.accounts), _counts(before.accounts), strict=True)
        )
        clock_ms = manifest.clock.watermark
        return StepReport(
            id=manifest.id,
            rows=read,
            seconds=sum(seconds.values()),
            late=late,
            dead=dead,
            outputs=sum(node.outputs for node in nodes),
            clock_ms=clock_ms,
            lag_ms=wall_ms - clock_ms,
            checkpoint_bytes=folded_bytes + delta_bytes + self.entry.bytes,
            compaction_bytes=folded_bytes,
            manifest_bytes=self.entry.bytes,
            commit_seconds=seconds[Effect.COMMIT],
            discarded=sum(node.discarded for node in nodes),
            set_aside=sum(staged.rows for staged in results.set_aside()),
            reached=reached,
            duplicates=duplicates,
            silence_ms={name: silence_ms([part.span for part in parts]) for name, parts in seen.items()},
            corrected=sum(closed.corrected for closed in results.closed),
            expired=sum(closed.expired for closed in results.closed),
            expired_in={id: sum(closed.expired for closed in node.closed) for id, node in results.nodes.items()},
            late_windows={id: added(split.late_windows for split in node.mapped) for id, node in results.nodes.items()},
            behind_ms={name: max(part.behind_ms for part in parts) for name, parts in seen.items()},
        )


def _counts(accounts: Accounts) -> tuple[int, int, int, int]:
    """The records of all partitions that were read, late, dead, and copies of others."""
    read = late = dead = duplicates = 0
    for account in accounts.values():
        read, late, dead = read + account.read, late + account.late, dead + account.dead
        duplicates += account.duplicate
    return read, late, dead, duplicates


def time_limit_of(step: Step, max_future_ms: int) -> TimeLimit:
    """Which records of a step are dead by their timestamps. ``max_future_ms``: used if its plan has none."""
    plan, furthest = step.plan, step.last.manifest.furthest
    ahead_ms = max_future_ms if plan.max_future_ms is None else plan.max_future_ms
    # If the time of day was set back, a timestamp that the clock has passed is not a dead letter.
    return TimeLimit(max(plan.wall_ms, furthest) + ahead_ms, plan.not_after)


@dataclass(frozen=True)
class NodeStep:
    """The step of one node. ``before``: the node in ``last``. ``task``: what the plan does with it."""

    id: str
    last: Entry
    plan: StepPlan
    before: NodePart
    task: TaskStep

    @property
    def attempt(self) -> Attempt:
        """The attempt whose files the items write."""
        return Attempt(self.last.manifest.epoch, self.last.manifest.id + 1)

    @property
    def final(self) -> int:
        """The clock up to which windows are final for this step. A plan of other options, or from before a migration,
        makes no final window open again."""
        return max(self.before.final, self.task.final)

    @property
    def zone(self) -> Zone | None:
        """The rules of the time zone of its windows."""
        return self.task.zone or self.before.zone

    def ends_with_changes(self, joining: Sequence[str]) -> bool:
        """Whether the input ends, and the state has something to publish: keys that have changed since the last
        publication; for ``joining`` sinks, any key."""
        return self.task.ends and bool(self.before.runs if joining else self.before.fresh())

    def closing(self) -> CloseShard:
        """What the step closes in the state before it, in all key groups."""
        attempt = self.attempt
        return CloseShard(
            attempt,
            self.id,
            self.before.runs,
            0,
            KEY_GROUPS,
            self.before.clock.closed,
            self.task.close_at,
            self.before.key_types,
            self.last.manifest.revision_base + attempt.id,
            final=self.final,
            settled=self.before.final,
        )

    def changing(self) -> CloseShard:
        """A closing of all key groups that closes no window, and publishes all that has changed since the last
        publication."""
        before, closing = self.before, self.closing()
        published = tuple(run for run in before.runs if run.first <= before.published)
        return replace(closing, runs=published, delta=before.fresh(), close_at=closing.closed)

    def closes(self, window: AnyWindow | None, parallelism: int, joining: tuple[str, ...] = ()) -> list[CloseShard]:
        """The shards of the state; a large state has at least as many as run in parallel. ``joining``: the sinks that
        get every key."""
        if window is None:
            return in_shards(replace(self.changing(), whole=joining), parallelism, None)
        closing = replace(self.closing(), whole=joining)
        panes = (window.start_of(window.first_number(closing.closed)), closing.close_at)
        return in_shards(closing, parallelism, panes)

    def folds(self, unfolded: frozenset[str]) -> list[FoldRuns]:
        """The runs to fold. ``unfolded``: the names of runs whose fold raised."""
        base, before = self.last.manifest.base, self.before
        recent = [run.rows for run in before.runs if run.first == run.last == base]
        merges = choose_all(before.runs, sum(recent), before.published, unfolded)
        return [
            FoldRuns(self.attempt, merge, before.final, node=self.id, shown_at=before.shown_to(merge.inputs))
            for merge in merges
        ]


def in_shards(closing: CloseShard, parallelism: int, panes: tuple[int, int] | None) -> list[CloseShard]:
    """A closing of all key groups, divided into shards. ``panes``: a range; rows outside do not count for the size."""
    runs = (*closing.runs, *closing.delta)
    least = parallelism if sum(run.rows_left for run in runs) > SHARD_ROWS else 1
    return [replace(closing, low=low, high=high) for low, high in shards(runs, least, panes=panes)]
