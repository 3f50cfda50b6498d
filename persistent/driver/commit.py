"""A commit turns a step's results into the next manifest, as a pure function of the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from persistent.checkpoint.compaction import replaced
from persistent.checkpoint.manifest import Manifest, check_name
from persistent.checkpoint.names import Staged
from persistent.checkpoint.parts import (
    STATE,
    Account,
    Aside,
    OperatorState,
    SinkBatch,
    SinkPart,
    SourcePart,
    StateRuns,
    default_name,
)
from persistent.checkpoint.plan import SourceStep, StepPlan
from persistent.checkpoint.positions import codec_of
from persistent.checkpoint.retention import Retention
from persistent.checkpoint.successor import Entry, at_one, first, succeed
from persistent.clock import Clock
from persistent.codec import Run, common_key_types
from persistent.errors import FingerprintChanged, InvalidPipeline, OtherJob
from persistent.sinks.outlet import abilities
from persistent.sinks.protocol import AnySink
from persistent.task import key_names, operator_name
from persistent.text.fingerprints import changes_text
from persistent.window import Window
from persistent.worker.job import Closed, Folded, FoldRuns, Job, Mapped


@dataclass(frozen=True)
class Results:
    """The results of a step's items, in the order of the plan. ``discarded``: windows that close without a sink."""

    mapped: tuple[Mapped, ...] = ()
    closed: tuple[Closed, ...] = ()
    folded: tuple[tuple[FoldRuns, Folded], ...] = ()
    discarded: int = 0

    @property
    def first_dead(self) -> str:
        """The reason of the first dead letter, if any."""
        return next((result.first_dead for result in self.mapped if result.first_dead), "")

    def staged(self) -> tuple[Staged, ...]:
        return tuple(result.staged for result in self.closed if result.staged)

    def set_aside(self) -> tuple[Staged, ...]:
        """The dead letters of results that cannot be published."""
        return tuple(result.dead for result in self.closed if result.dead)

    def unfolded(self) -> frozenset[str]:
        """The runs whose fold raised in at least one piece. All pieces of that fold are left out, because each raises
        ``low`` where the one before ends."""
        names: set[str] = set()
        for item, folded in self.folded:
            if folded.failure:
                names |= {run.name for run in item.merge.inputs}
        return frozenset(names)


def first_manifest(job: Job, nonce: str) -> Manifest:
    """The empty checkpoint of a job."""
    task = check_name(operator_name(job.task), "the task's name")
    source = default_name(job.source.kind, "source")
    states = {STATE: StateRuns(job.state.fingerprint())}
    return first(
        nonce,
        {source: SourcePart(job.source.kind, tuple(job.source.partitions()), {}, codec=codec_of(job.source).name)},
        {task: OperatorState((source,), key_names(job.task), (), states)},
    )


def check_can_begin(first: Manifest) -> None:
    """InvalidPipeline unless the kind of the source can name a folder: the runs of its index will be there."""
    try:
        check_name(first.source.kind, "the kind of the source")
    except ValueError as error:
        raise InvalidPipeline(
            f'{error}: set another on the class of the source, such as kind = "KafkaSource"'
        ) from error


def next_manifest(
    last: Entry,
    plan: StepPlan,
    results: Results,
    *,
    window: Window | None,
    sink: AnySink | None,
    index: Sequence[Run],
    lag_ms: int,
    retention: Retention,
    nonce: str | None = None,
    known: int | None = None,
) -> Manifest:
    """The checkpoint that a step commits on top of ``last``. ``known``: the first clock whose panes it keeps apart."""
    old = last.manifest
    id = old.id + 1
    accounts = {**old.accounts, **dict.fromkeys(plan.source.joins, Account())}
    for partition, count in plan.source.skipped.items():
        accounts[partition] += Account(skipped=count)
    for mapped in results.mapped:
        accounts[mapped.partition] = accounts.get(mapped.partition, Account()) + mapped.account
    clock = _next_clock(old.clock, plan, results, lag_ms)
    operator, state = old.operator, old.operator.state
    runs = _next_runs(state.runs, results, window, clock.closed)
    ends = plan.task.ends and sink is not None and window is None
    operator = operator.with_state(
        runs=runs,
        lowest=_lowest(runs, window, clock.closed),
        published=id if ends else state.published,
        known_from=known_from(state, known),
    )
    return succeed(
        last,
        "checkpoint",
        nonce=nonce,
        **retained(old, {**old.bases, id: plan.wall_ms}, retention),
        committed_ms=plan.wall_ms,
        **at_one(
            old,
            clock=clock,
            source=_next_source(old.source, plan.source, index),
            operator=replace(operator, key_types=_key_types(operator, results)),
            accounts=accounts,
        ),
        sinks=_next_sinks(old, id, sink, results.staged()),
        aside=_aside(id, results),
        publishes=sink is not None,
    )


def _next_source(source: SourcePart, step: SourceStep, index: Sequence[Run]) -> SourcePart:
    return replace(
        source,
        partitions=(*source.partitions, *step.joins),
        positions={**source.positions, **step.end},
        recorded=step.recorded,
        index=tuple(index),
        idle=step.idle,
    )


def _next_clock(clock: Clock, plan: StepPlan, results: Results, lag_ms: int) -> Clock:
    largest: dict[str, int] = {}
    for mapped in results.mapped:
        if mapped.largest is not None:
            largest[mapped.partition] = max(mapped.largest, largest.get(mapped.partition, mapped.largest))
    clock = clock.advanced(largest, plan.source.cap, lag_ms)
    return replace(
        clock,
        watermark=max(clock.watermark, plan.task.close_at),
        closed=max(clock.closed, plan.task.close_at),
        end_of_input=plan.task.ends or (clock.end_of_input and not plan.source.splits),
    )


def retained(old: Manifest, bases: Mapping[int, int], retention: Retention) -> dict[str, Any]:
    """The fields that say which of these checkpoints are still kept."""
    oldest = retention.oldest(bases, old.oldest)
    chosen = {*retention.thinned(bases, oldest), *old.pins}
    kept = {id: ms for id, ms in bases.items() if id >= oldest or id in chosen}
    return {
        "oldest": oldest,
        "bases": kept,
        "left": tuple(branch for branch in old.left if any(branch[0] <= id < branch[1] for id in kept)),
        "burnt": tuple(id for id in old.burnt if id >= oldest),
    }


def known_from(state: StateRuns, now: int | None) -> int | None:
    """The clock from which panes are kept apart, after a step that keeps them apart from ``now`` on; None without
    history. For a state of an older release, which did not record it, ``now`` counts."""
    return now if now is None or state.known_from is None else max(now, state.known_from)


def _next_runs(runs: tuple[Run, ...], results: Results, window: Window | None, closed: int) -> tuple[Run, ...]:
    unfolded = results.unfolded()
    for item, folded in results.folded:
        if not unfolded & {run.name for run in item.merge.inputs}:
            runs = replaced(runs, item.merge, folded.run)
    runs += tuple(mapped.run for mapped in results.mapped if mapped.run)
    if window is None:
        return runs
    return tuple(run for run in runs if window.last_end(run.pane_max) > closed)


def _lowest(runs: Sequence[Run], window: Window | None, closed: int) -> int | None:
    if not runs:
        return None
    lowest = min(run.pane_min for run in runs)
    return lowest if window is None else max(lowest, window.first_number(closed) * window.every_ms)


def _key_types(operator: OperatorState, results: Results) -> tuple[str, ...]:
    try:
        return common_key_types([operator.key_types, *(mapped.key_types for mapped in results.mapped)])
    except TypeError as error:
        raise InvalidPipeline(f"key ({', '.join(operator.key_names)}): {error}") from error


def _next_sinks(old: Manifest, id: int, sink: AnySink | None, staged: tuple[Staged, ...]) -> dict[str, SinkPart]:
    """The sinks with their new batches; all earlier batches are published before this checkpoint is put. Without a
    sink, what is known of the previous one is kept, and its batches are empty: a mark must find each after the one
    before."""
    if sink is None:
        return {name: replace(part, unpublished=_emptied(part)) for name, part in old.sinks.items()}
    name = default_name(type(sink).__name__, "sink")
    before = old.sinks[name].last if name in old.sinks else None
    batches = (SinkBatch(id, before, staged),) if staged else ()
    return {name: SinkPart(abilities(sink), id if staged else before, batches)}


def _emptied(part: SinkPart) -> tuple[SinkBatch, ...]:
    return tuple(replace(batch, staged=()) for batch in part.unpublished)


def _aside(id: int, results: Results) -> tuple[Aside, ...]:
    aside = Aside(
        id,
        tuple(mapped.late for mapped in results.mapped if mapped.late),
        (*(mapped.dead for mapped in results.mapped if mapped.dead), *results.set_aside()),
    )
    return (aside,) if aside else ()


def check_same_job(found: Manifest, expected: Manifest, url: str) -> None:
    """Refuse the checkpoint of another job, or of another monoid, key or window under the same operator. A source that
    begins without partitions may have any."""
    for what, theirs, ours in (
        ("operators", sorted(found.operators), sorted(expected.operators)),
        ("source", found.source.kind, expected.source.kind),
        ("positions", found.source.codec, expected.source.codec),
        ("partitions", sorted(found.source.partitions), sorted(expected.source.partitions or found.source.partitions)),
    ):
        if theirs != ours:
            raise OtherJob(
                f"{url} is the checkpoint of another job: its {what}: {theirs}, this pipeline's: {ours}. "
                "Give this pipeline a checkpoint of its own, or the task the name it had"
                + (f"; or drop its state: Pipeline(allow_dropped={theirs})" if what == "operators" else "")
            )
    for name, operator in expected.operators.items():
        changed = changes_text(found.operators[name].described(), operator.described())
        if changed:
            raise FingerprintChanged(
                f"{url}: the state of {name} has another definition: {changed}. {_what_to_do(found, url)}"
            )


def _what_to_do(found: Manifest, url: str) -> str:
    if found.base == 0:
        return (
            "Nothing is committed there yet: the next run adopts the new task, unless a driver of the old one still "
            f"runs; or delete {url} (and the folder of the sink)"
        )
    return (
        "Put the old task back; or migrate its state, Pipeline(evolve=Evolution(...)); or give the new task a new "
        "checkpoint, and read the source again"
    )
