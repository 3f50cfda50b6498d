"""A commit turns a step's results into the next manifest, as a pure function of the last one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from persistent.checkpoint.manifest import Manifest, check_name
from persistent.checkpoint.names import Staged
from persistent.checkpoint.output_parts import Aside
from persistent.checkpoint.parts import Account, Accounts, OperatorState, SourcePart, StateRuns, TaskClock
from persistent.checkpoint.plan import SourceStep, StepPlan
from persistent.checkpoint.positions import codec_of
from persistent.checkpoint.readings import readings_after
from persistent.checkpoint.retention import Retention
from persistent.checkpoint.successor import Entry, first, succeed
from persistent.clock import bound_of, later_of
from persistent.codec import Run, common_key_types
from persistent.dedupe import Dedupe
from persistent.driver.folds import Fold, runs_after
from persistent.driver.next_sinks import next_late_sink, next_sinks
from persistent.driver.seen_part import begun, seen_after, seen_of
from persistent.errors import InvalidPipeline
from persistent.sinks.protocol import AnySink
from persistent.state import PersistentState
from persistent.task import STATE, key_names, task_name
from persistent.window import AnyWindow
from persistent.worker.job import Closed, Job, Mapped


@dataclass(frozen=True)
class Results:
    """The results of a step's items, in the order of the plan. ``discarded``: windows that close without a sink.
    ``seen_folded``: folds of seen records. ``changes``: whether all that has changed is published. ``states``: of a
    task with several, the results for each alone."""

    mapped: tuple[Mapped, ...] = ()
    closed: tuple[Closed, ...] = ()
    folded: tuple[Fold, ...] = ()
    discarded: int = 0
    seen_folded: tuple[Fold, ...] = ()
    changes: bool = False
    states: Mapping[str, Results] = field(default_factory=dict)

    def of(self, operator: str) -> Results:
        """The results for this state alone; itself, if there is no other."""
        return self.states.get(operator, self)

    @property
    def first_dead(self) -> str:
        """The reason of the first dead letter, if any."""
        return next((result.first_dead for result in self.mapped if result.first_dead), "")

    def seen_runs(self, source: str | None = None) -> tuple[Run, ...]:
        """The runs of the records that the splits of a source have seen; by default, of all sources."""
        chosen = (one.seen for one in self.mapped if source is None or one.source == source)
        return tuple(seen.run for seen in chosen if seen is not None and seen.run is not None)

    def written(self) -> set[str]:
        """The names of all runs that the step has written."""
        folded = (one.run for _, one in (*self.folded, *self.seen_folded))
        runs = (*(run for one in self.mapped for run in one.runs()), *self.seen_runs(), *folded)
        return {run.name for run in runs if run is not None}

    def late_outputs(self) -> tuple[Staged, ...]:
        """The outputs for the sink of late records."""
        return tuple(result.late_output for result in self.mapped if result.late_output)

    def staged(self, sink: str) -> tuple[Staged, ...]:
        """The outputs for the sink of results of that name."""
        return tuple(result.staged[sink] for result in self.closed if sink in result.staged)

    @property
    def outputs(self) -> int:
        """The rows for each sink; a sink that joins may get more than the others, and then these are counted."""
        return sum(max(staged.rows for staged in result.staged.values()) for result in self.closed if result.staged)

    @property
    def corrected(self) -> int:
        """The results of closed windows that are published again."""
        return sum(result.corrected for result in self.closed)

    @property
    def expired(self) -> int:
        """The lives of keys that have ended."""
        return sum(result.expired for result in self.closed)

    def set_aside(self) -> tuple[Staged, ...]:
        """The dead letters of results that cannot be published."""
        return tuple(result.dead for result in self.closed if result.dead)


def first_manifest(job: Job, nonce: str) -> Manifest:
    """The empty checkpoint of a job."""
    check_name(task_name(job.task), "the task's name")
    states = {operator: _empty(one.state) for operator, one in job.each().items()}
    sources = {
        name: SourcePart(
            source.kind, tuple(source.partitions()), {}, codec=codec_of(source).name, seen=begun(job.dedupe.get(name))
        )
        for name, source in sorted(job.sources.items())
    }
    keys = key_names(job.task)
    operators = {name: OperatorState(tuple(sources), keys, (), {STATE: state}) for name, state in states.items()}
    return first(nonce, sources, operators)


def _empty(state: PersistentState) -> StateRuns:
    lateness = state.lateness
    return StateRuns(state.fingerprint(), zone=state.zone, late=lateness.answer, emit=lateness.of_changes)


def with_sources(found: Manifest, expected: Manifest) -> Manifest:
    """The same checkpoint with the sources that join this job, each at its beginning; unchanged if there are none. The
    next plan covers all of them, and the next checkpoint lists them. ``expected``: the empty checkpoint of the job."""
    joining = {name: part for name, part in expected.sources.items() if name not in found.sources}
    if not joining:
        return found
    inputs, fresh = found.inputs, expected.inputs
    sources = dict(sorted({**found.sources, **joining}.items()))
    accounts = {name: inputs.get(name, fresh.get(name, {})) for name in sources}
    return replace(
        found,
        sources=sources,
        operators={name: replace(one, inputs=tuple(sources)) for name, one in found.operators.items()},
        ledger=dict.fromkeys(found.operators, accounts),
    )


def _with_seen(
    old: Manifest,
    sources: dict[str, SourcePart],
    dedupe: Mapping[str, Dedupe],
    results: Results,
    watermark: int,
    kinds: Mapping[str, Mapping[str, str]],
) -> dict[str, SourcePart]:
    """The sources with the records seen of each; without deduplication, with none."""
    with_seen = {}
    for name, source in sources.items():
        before = seen_of(old, dedupe, name)
        folds = [one for one in results.seen_folded if one[0].seen_of == name]
        seen = before and seen_after(
            before, dedupe[name], results.seen_runs(name), folds, watermark, kinds=kinds.get(name, {})
        )
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


def next_manifest(
    last: Entry,
    plan: StepPlan,
    results: Results,
    *,
    window: AnyWindow | None,
    sinks: Mapping[str, AnySink],
    index: Mapping[str, Sequence[Run]],
    lag_ms: Mapping[str, int],
    retention: Retention,
    nonce: str | None = None,
    known: int | None = None,
    dedupe: Mapping[str, Dedupe] | None = None,
    kinds: Mapping[str, Mapping[str, str]] | None = None,
    late: str | None = None,
    emit: str | None = None,
    late_sink: AnySink | None = None,
) -> Manifest:
    """The checkpoint that a step commits on top of ``last``, for one state. ``index``, ``lag_ms``: the runs of the
    index, and the allowed disorder, of each source. ``known``: the first clock whose panes it keeps apart. ``kinds``:
    of the values that identify a record, by source. ``late``, ``emit``: how and when the job publishes again."""
    old, task = last.manifest, last.manifest.task_name
    id = old.id + 1
    sources = dict(old.sources)
    for name, step in plan.sources.items():
        sources[name] = _next_source(old.sources[name], step, index[name], _largest(results, name))
    joins = window is None and not sinks.keys() <= old.sinks.keys()
    clock = _next_clock(old.clocks[task], plan, sources, lag_ms, joins=joins)
    operator, state = old.operator, old.operator.state
    final = clock.closed if plan.task.final_at is None else final_after(old, plan)
    runs = _next_runs(state.runs, results, window, final)
    ends = plan.task.ends and bool(sinks) and window is None
    sources = _with_seen(old, sources, dedupe or {}, results, clock.watermark, kinds or {})
    operator = operator.with_state(
        runs=runs,
        lowest=_lowest(runs, window, final),
        published=id if ends or results.changes else state.published,
        shown_at=state.shown_after(clock.closed, publishes=ends or results.changes),
        known_from=known_from(state, known),
        zone=None if window is None else window.zone,
        final=None if plan.task.final_at is None else final,
        late=late,
        emit=emit,
        passed=plan.task.passed if emit else None,
    )
    return succeed(
        last,
        "checkpoint",
        nonce=nonce,
        **retained(old, {**old.bases, id: plan.wall_ms}, retention),
        committed_ms=plan.wall_ms,
        sources=sources,
        clocks={task: clock},
        operators={task: replace(operator, key_types=key_types(operator, results.mapped))},
        ledger={task: {name: _next_accounts(old.ledger[task][name], name, plan, results) for name in sources}},
        sinks=next_sinks(old.sinks, id, sinks, results.staged, whole=ends or results.changes)
        | next_late_sink(old.sinks, id, late_sink, results.late_outputs()),
        aside=aside_of(id, results),
        publishes=bool(sinks),
    )


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
    found: dict[str, int] = {}
    for mapped in results.mapped:
        if mapped.source == name and mapped.largest is not None:
            found = later_of(found, {mapped.partition: mapped.largest})
    return found


def watermark_after(
    plan: Mapping[str, SourceStep], sources: Mapping[str, SourcePart], lag_ms: Mapping[str, int]
) -> int:
    """The clock that all sources have reached, each with its own disorder; 0 if the clock waits for no partition."""
    bounds = (bound_of(sources[name].largest, step.cap, lag_ms[name]) for name, step in plan.items())
    return min((bound for bound in bounds if bound is not None), default=0)


def _next_clock(
    clock: TaskClock, plan: StepPlan, sources: Mapping[str, SourcePart], lag_ms: Mapping[str, int], *, joins: bool
) -> TaskClock:
    """The clock after a step. ``joins``: a sink is listed for the first time, which the end of the input has not
    reached."""
    reached = watermark_after(plan.sources, sources, lag_ms)
    if plan.quiet_ms:
        reached = clock.quiet_from(reached) + plan.quiet_ms
    return TaskClock(
        watermark=max(clock.watermark, reached, plan.task.close_at),
        closed=max(clock.closed, plan.task.close_at),
        ended=plan.task.ends or (clock.ended and not plan.reads and not joins),
        quiet_ms=0 if plan.reads else max(clock.quiet_ms, plan.quiet_ms),
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
    ``history=``. For a state of an older release, which did not record it, ``now`` counts."""
    return now if now is None or state.known_from is None else max(now, state.known_from)


def final_after(old: Manifest, plan: StepPlan) -> int:
    """The clock up to which windows are final for the step of a plan. A plan of other options, or from before a
    migration, opens none again."""
    return max(old.final, plan.task.final)


def _next_runs(runs: tuple[Run, ...], results: Results, window: AnyWindow | None, final: int) -> tuple[Run, ...]:
    runs = runs_after(runs, results.folded) + tuple(mapped.run for mapped in results.mapped if mapped.run)
    if window is None:
        return runs
    return tuple(run for run in runs if window.last_end(run.pane_max) > final)


def _lowest(runs: Sequence[Run], window: AnyWindow | None, final: int) -> int | None:
    if not runs:
        return None
    lowest = min(run.pane_min for run in runs)
    return lowest if window is None else max(lowest, window.start_of(window.first_number(final)))


def key_types(operator: OperatorState, mapped: Sequence[Mapped]) -> tuple[str, ...]:
    """The types of the key columns after these results of a step."""
    try:
        return common_key_types([operator.key_types, *(one.key_types for one in mapped)])
    except TypeError as error:
        raise InvalidPipeline(f"key ({', '.join(operator.key_names)}): {error}") from error


def aside_of(id: int, results: Results) -> tuple[Aside, ...]:
    """The late rows and dead letters that checkpoint ``id`` stages."""
    aside = Aside(
        id,
        tuple(mapped.late for mapped in results.mapped if mapped.late),
        (*(mapped.dead for mapped in results.mapped if mapped.dead), *results.set_aside()),
    )
    return (aside,) if aside else ()
