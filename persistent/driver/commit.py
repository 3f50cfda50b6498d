"""A commit turns a step's results into the next manifest, as a pure function of the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from persistent.checkpoint.manifest import Manifest, Retention, check_name, commits_of
from persistent.checkpoint.output_parts import LATE_SINK, Aside, SinkBatch, SinkPart
from persistent.checkpoint.parts import Account, Accounts, NodeClock, NodePart, SourcePart, TaskPart, readings_after
from persistent.checkpoint.plan import SourceStep, StepPlan
from persistent.checkpoint.successor import first, succeed
from persistent.codec.fields import Run, codec_of, common_key_types
from persistent.connect.outlet import abilities
from persistent.connect.sink import Sink
from persistent.driver.results import NodeResults, Results, first_seen, kinds_read, runs_after, seen_after, seen_of
from persistent.driver.step import NodeStep, Step
from persistent.errors import InvalidPipeline
from persistent.names import Staged
from persistent.task.dedupe import Dedupe
from persistent.task.task import key_names, task_name
from persistent.time.clock import bound_of, later_of
from persistent.worker.job import Job, MappedNode, Node


def first_manifest(job: Job, nonce: str) -> Manifest:
    """The empty checkpoint of a job."""
    check_name(task_name(job.task), "the task's name")
    sources = {
        name: SourcePart(
            source.kind,
            tuple(source.partitions()),
            {},
            codec=codec_of(source).name,
            seen=first_seen(job.dedupe.get(name)),
        )
        for name, source in sorted(job.sources.items())
    }
    nodes = {
        id: NodePart(
            node.state.fingerprint(),
            key_names=key_names(job.task),
            zone=node.state.zone,
            late=node.state.lateness.answer,
            emit=node.state.lateness.of_changes,
        )
        for id, node in job.nodes.items()
    }
    return first(nonce, sources, nodes)


def with_sources(manifest: Manifest, expected: Manifest) -> Manifest:
    """The same checkpoint with the sources that join this job, each at its beginning; unchanged if there are none. The
    next plan covers all of them, and the next checkpoint lists them. ``expected``: the empty checkpoint of the job."""
    joining = {name: part for name, part in expected.sources.items() if name not in manifest.sources}
    if not joining:
        return manifest
    (new,) = expected.tasks.values()
    return replace(
        manifest,
        sources=dict(sorted({**manifest.sources, **joining}.items())),
        tasks={
            name: TaskPart({**task.inputs, **{source: new.inputs[source] for source in joining}})
            for name, task in manifest.tasks.items()
        },
    )


def _with_seen(
    old: Manifest,
    sources: dict[str, SourcePart],
    dedupe: Mapping[str, Dedupe],
    results: Results,
    watermark: int,
    kinds: Mapping[str, Mapping[str, str]],
) -> dict[str, SourcePart]:
    """The sources, each with its seen records; a source without deduplication has none."""
    with_seen = {}
    for name, source in sources.items():
        before = seen_of(old, dedupe, name)
        folds = [fold for fold in results.seen_folded if fold[0].seen_of == name]
        now = {"kinds": kinds.get(name, {}), "recorded": source.recorded}
        seen = before and seen_after(before, dedupe[name], results.seen_runs(name), folds, watermark, **now)
        with_seen[name] = replace(source, seen=seen)
    return with_seen


def check_can_begin(first: Manifest) -> None:
    """InvalidPipeline unless the kind of each source can name a folder, which will hold the runs of its index."""
    for source in first.sources.values():
        try:
            check_name(source.kind, "the kind of the source")
        except ValueError as error:
            raise InvalidPipeline(
                f'{error}: set another on the class of the source, such as kind = "KafkaSource"'
            ) from error


def next_manifest(job: Job, step: Step, retention: Retention) -> Manifest:
    """The checkpoint that a step commits."""
    old, plan, results, id = step.last.manifest, step.plan, step.results, step.attempt.id
    lags = {name: _lag_ms(job, name, source_step) for name, source_step in plan.sources.items()}
    sources = dict(old.sources)
    for name, source_step in plan.sources.items():
        sources[name] = _next_source(old.sources[name], source_step, step.index[name], _largest(results, name))
    reached = watermark_after(plan.sources, sources, lags)
    nodes = {name: next_node(job.nodes[name], node, results.nodes[name], reached) for name, node in step.nodes.items()}
    tasks = {
        name: TaskPart({source: _next_accounts(part, source, plan, results) for source, part in task.inputs.items()})
        for name, task in old.tasks.items()
    }
    # A seen record expires once no state has use for it.
    slowest = min(node.clock.watermark for node in nodes.values())
    return succeed(
        step.last,
        "checkpoint",
        **retained(old, {**old.bases, id: plan.wall_ms}, retention),
        committed_ms=plan.wall_ms,
        sources=_with_seen(old, sources, job.dedupe, results, slowest, kinds_read(job, plan)),
        tasks=tasks,
        nodes=nodes,
        sinks={
            sink: part
            for name, node in step.nodes.items()
            for sink, part in next_sinks(job.nodes[name], node, results.nodes[name]).items()
        }
        | next_late_sink(old.sinks, id, job.late_sink, results.late_outputs()),
        aside=aside_of(id, results),
        publishes=bool(job.sinks),
    )


def next_node(node: Node, step: NodeStep, results: NodeResults, reached: int) -> NodePart:
    """A node after a step. ``reached``: the event time that all sources have reached."""
    before, task, window, lateness = step.before, step.task, node.state.window, node.state.lateness
    sinks = step.last.manifest.sinks
    clock = _next_clock(step, reached, joins=window is None and not node.sinks.keys() <= sinks.keys())
    final = clock.closed if task.final_at is None else step.final
    runs = _next_runs(node, before.runs, results, final)
    publishes = results.changes or (task.ends and bool(node.sinks) and window is None)
    return replace(
        before,
        clock=clock,
        key_types=key_types(before, results.mapped),
        runs=runs,
        lowest=_lowest(node, runs, final),
        published=step.attempt.id if publishes else before.published,
        shown_at=before.shown_after(clock.closed, publishes=publishes),
        known_from=known_from(before, node.state.known_from(before.clock.watermark)),
        zone=None if window is None else window.zone,
        final_at=None if task.final_at is None else final,
        late=lateness.answer,
        emit=lateness.of_changes,
        passed=task.passed if lateness.of_changes else None,
    )


def next_sinks(node: Node, step: NodeStep, results: NodeResults) -> dict[str, SinkPart]:
    """The sinks of a node after a step. A sink that a rollback has emptied stays marked so until a step gives it all
    that it lacks, or stages a batch for it. Without a sink, the parts of the previous sinks are kept, with empty
    batches, because a mark must find each batch after its predecessor."""
    before, id = step.last.manifest.sinks_of(node.id), step.attempt.id
    if not node.sinks:
        return {name: replace(part, unpublished=_emptied(part)) for name, part in before.items()}
    window, of_changes = node.state.window, node.state.lateness.of_changes
    whole = results.changes or (step.task.ends if window is None else of_changes is None)
    parts = {
        name: replace(_next_sink(before, name, id, sink, results.staged(name)), node=node.id)
        for name, sink in node.sinks.items()
    }
    emptied = {name for name, part in before.items() if part.emptied and not whole}
    return {name: replace(part, emptied=name in emptied and part.last != id) for name, part in parts.items()}


def next_late_sink(
    before: Mapping[str, SinkPart], id: int, sink: Sink | None, staged: tuple[Staged, ...]
) -> dict[str, SinkPart]:
    """The sink of late records after a step, under its name; empty without such a sink."""
    if sink is None:
        return {}
    return {LATE_SINK: _next_sink(before, LATE_SINK, id, sink, staged)}


def _next_sink(before: Mapping[str, SinkPart], name: str, id: int, sink: Sink, staged: tuple[Staged, ...]) -> SinkPart:
    last = before.get(name, SinkPart()).last
    batches = (SinkBatch(id, last, staged),) if staged else ()
    return SinkPart(abilities(sink), id if staged else last, batches)


def _emptied(part: SinkPart) -> tuple[SinkBatch, ...]:
    return tuple(replace(batch, staged=()) for batch in part.unpublished)


def _lag_ms(job: Job, source: str, step: SourceStep) -> int:
    """How far the clock stays behind the largest timestamp of a source."""
    lag_ms = step.max_out_of_orderness_ms
    return job.sources[source].max_out_of_orderness if lag_ms is None else lag_ms


def _next_source(source: SourcePart, step: SourceStep, index: Sequence[Run], largest: Mapping[str, int]) -> SourcePart:
    return replace(
        source,
        partitions=(*source.partitions, *step.joins),
        positions={**source.positions, **step.end},
        recorded=step.recorded,
        readings=readings_after(source, step.recorded),
        index=tuple(index),
        idle=step.idle,
        largest=later_of(source.largest, largest),
    )


def _next_accounts(accounts: Accounts, name: str, plan: StepPlan, results: Results) -> Accounts:
    """The accounts of one source."""
    step = plan.sources.get(name)
    if step is None:
        return accounts
    after = {**accounts, **dict.fromkeys(step.joins, Account())}
    for partition, count in step.skipped.items():
        after[partition] += Account(skipped=count)
    for mapped in results.mapped:
        if mapped.source == name:
            after[mapped.partition] = after.get(mapped.partition, Account()) + mapped.account
    return after


def _largest(results: Results, name: str) -> dict[str, int]:
    """The largest timestamps that the step has processed of one source, by partition."""
    largest: dict[str, int] = {}
    for mapped in results.mapped:
        if mapped.source == name and mapped.largest is not None:
            largest = later_of(largest, {mapped.partition: mapped.largest})
    return largest


def watermark_after(
    plan: Mapping[str, SourceStep], sources: Mapping[str, SourcePart], lag_ms: Mapping[str, int]
) -> int:
    """The clock that all sources have reached, each with its own disorder; 0 if the clock waits for no partition."""
    bounds = (bound_of(sources[name].largest, step.cap, lag_ms[name]) for name, step in plan.items())
    return min((bound for bound in bounds if bound is not None), default=0)


def _next_clock(step: NodeStep, reached: int, *, joins: bool) -> NodeClock:
    """The clock of a node after a step. ``joins``: a sink is listed for the first time, so what the end of the input
    publishes has not reached it."""
    clock, plan, task = step.before.clock, step.plan, step.task
    if plan.quiet_ms:
        reached = clock.quiet_from(reached) + plan.quiet_ms
    return NodeClock(
        watermark=max(clock.watermark, reached, task.close_at),
        closed=max(clock.closed, task.close_at),
        ended=task.ends or (clock.ended and not plan.reads and not joins),
        quiet_ms=0 if plan.reads else max(clock.quiet_ms, plan.quiet_ms),
    )


def retained(old: Manifest, bases: Mapping[int, int], retention: Retention) -> dict[str, Any]:
    """The fields that say which of these checkpoints are still kept."""
    oldest = retention.oldest(bases, old.oldest)
    chosen = {*retention.thinned(bases, oldest), *old.pins}
    kept = {id: ms for id, ms in bases.items() if id >= oldest or id in chosen}
    return {
        "oldest": oldest,
        "commits": commits_of(kept),
        "left": tuple(branch for branch in old.left if any(branch[0] <= id < branch[1] for id in kept)),
        "burnt": tuple(id for id in old.burnt if id >= oldest),
    }


def known_from(node: NodePart, now: int | None) -> int | None:
    """The clock from which panes are kept apart, after a step that keeps them apart from ``now`` on; None without
    ``history=``."""
    return now if now is None or node.known_from is None else max(now, node.known_from)


def _next_runs(node: Node, runs: tuple[Run, ...], results: NodeResults, final: int) -> tuple[Run, ...]:
    runs, window = runs_after(runs, results.folded) + results.delta, node.state.window
    if window is None:
        return runs
    return tuple([run for run in runs if window.last_end(run.pane_max) > final])


def _lowest(node: Node, runs: Sequence[Run], final: int) -> int | None:
    if not runs:
        return None
    lowest, window = min([run.pane_min for run in runs]), node.state.window
    return lowest if window is None else max(lowest, window.start_of(window.first_number(final)))


def key_types(node: NodePart, mapped: Sequence[MappedNode]) -> tuple[str, ...]:
    """The types of the key columns after these results of a step."""
    try:
        return common_key_types([node.key_types, *(mapped_node.key_types for mapped_node in mapped)])
    except TypeError as error:
        raise InvalidPipeline(f"key ({', '.join(node.key_names)}): {error}") from error


def aside_of(id: int, results: Results) -> tuple[Aside, ...]:
    """The late rows and dead letters that checkpoint ``id`` stages."""
    aside = Aside(
        id,
        tuple(mapped.late for mapped in results.mapped if mapped.late),
        (*(mapped.dead for mapped in results.mapped if mapped.dead), *results.set_aside()),
    )
    return (aside,) if aside else ()
