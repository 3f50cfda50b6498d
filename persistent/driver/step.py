"""A step goes from one checkpoint to the next by effects in one order.

A crash can come anywhere: what was not committed does not exist, what was committed is published again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from persistent.checkpoint.compaction import Merge, choose, choose_all, replaced
from persistent.checkpoint.runs import read_table
from persistent.checkpoint.successor import Entry, new_nonce
from persistent.clock import monotonic_s, wall_ms
from persistent.codec import KEY_GROUPS, Run, common_key_types, encode_table
from persistent.driver.commit import Results, next_manifest
from persistent.driver.effects import EFFECTS, Effect, perform
from persistent.driver.next_step import Draft
from persistent.driver.publish import collect, collect_dropped, index_folder, publish, sweep
from persistent.driver.report import StepReport
from persistent.driver.workbench import Workbench
from persistent.errors import InputGone
from persistent.sources.protocol import LosingSource
from persistent.worker.dispatch import Item, Result
from persistent.worker.job import Attempt, Closed, CloseShard, Folded, FoldRuns, Mapped, MapSplit

logger = logging.getLogger("persistent.driver")

_SHARD_ROWS = 200_000


class Step:
    """One step: each effect once, in order. ``sweeps``: whether it looks for files of abandoned attempts."""

    def __init__(self, bench: Workbench, last: Entry, draft: Draft, *, sweeps: bool) -> None:
        self._bench = bench
        self._last = last
        self._draft = draft
        self._sweeps = sweeps
        self.first_dead = ""
        self._began = monotonic_s()
        self._mapped_at = self._began
        self._committed_at = self._began
        self._results = Results((), (), ())
        self._index: tuple[Run, ...] = ()
        self._discarded = 0
        self._entry = last

    def run(self, effects: tuple[Effect, ...]) -> Entry:
        """Perform the effects; returns the entry of the new checkpoint."""
        how = {
            Effect.PLAN: self._plan,
            Effect.MAP: self._map,
            Effect.COMMIT: self._commit,
            Effect.CHECK: self._check,
            Effect.PUBLISH: self._publish,
            Effect.COLLECT: self._collect,
        }
        perform(how, effects, EFFECTS)
        return self._entry

    def _plan(self) -> None:
        if self._draft.is_put:
            return
        plan, bench = self._draft.plan, self._bench
        if self._draft.appended is not None:
            run = self._write_index(self._draft.appended)
            plan = replace(plan, sources={name: replace(one, appended=(run,)) for name, one in plan.sources.items()})
        self._draft = Draft(bench.log.put_plan(plan), is_put=True)
        if plan.number and not bench.adopts:
            logger.warning("a smaller step: reading from %s to %s", dict(plan.source.start), dict(plan.source.end))

    def _mapped(self, attempt: Attempt, others: Sequence[Item]) -> tuple[Sequence[Result], list[MapSplit]]:
        """The results of the plan's splits and of other items, and the splits as they were run.

        Inputs that are gone may become dead letters of the plan: a rerun finds the same ones gone.
        """
        bench, plan, last = self._bench, self._draft.plan, self._last.manifest
        # A time of day that was set back makes no dead letter of a timestamp that the clock has passed.
        ahead_ms = bench.options.max_future_ms if plan.max_future_ms is None else plan.max_future_ms
        limit = max(plan.wall_ms, last.clock.watermark) + ahead_ms
        types = last.operator.key_types
        splits, recorded = plan.source.splits, plan.source.recorded
        while True:
            maps = [
                MapSplit(attempt, split, recorded, last.clock.watermark, limit, last.source.since, types)
                for split in splits
            ]
            try:
                return bench.engine.map(bench.work, [*maps, *others]), maps
            except InputGone as error:
                source = bench.job.source
                found = source.without_lost(splits, recorded) if isinstance(source, LosingSource) else None
                if found is None:
                    raise
                splits = found
                logger.warning("%s; it is a dead letter", error)

    def _map(self) -> None:
        bench, plan, last = self._bench, self._draft.plan, self._last.manifest
        attempt = Attempt(last.epoch, last.id + 1)
        closes = self._closes(attempt)
        folds = self._folds(attempt)
        results, maps = self._mapped(attempt, [*closes, *folds])
        mapped = self._agreeing(maps, [result for result in results if isinstance(result, Mapped)])
        folded = [result for result in results if isinstance(result, Folded)]
        closed = [result for result in results if isinstance(result, Closed)]
        self.first_dead = next((result.first_dead for result in mapped if result.first_dead), "")
        self._results = Results(tuple(mapped), tuple(closed), tuple(zip(folds, folded)))
        bench.leave_unfolded(self._results)
        for run, panes in [(result.run, result.panes) for result in mapped] + [(one.run, one.panes) for one in folded]:
            if run is not None and panes is not None:
                bench.run_cache.learn(run, panes)
        self._index = self._next_index((*last.source.index, *plan.source.appended))
        self._mapped_at = monotonic_s()

    def _agreeing(self, maps: list[MapSplit], mapped: list[Mapped]) -> list[Mapped]:
        """The results of the splits, with agreeing key types: in the order of the records, the first key decides the
        type of its column. A split that began with keys of another type is mapped again with that type."""
        types = self._last.manifest.operator.key_types
        agreeing = []
        for item, result in zip(maps, mapped, strict=True):
            if not _agree(types, result.key_types):
                (again,) = self._bench.engine.map(self._bench.work, [replace(item, key_types=types)])
                assert isinstance(again, Mapped)
                result = again
            types = common_key_types([types, result.key_types])
            agreeing.append(result)
        return agreeing

    def _commit(self) -> None:
        bench, plan = self._bench, self._draft.plan
        lag_ms = plan.source.max_out_of_orderness_ms
        manifest = next_manifest(
            self._last,
            plan,
            self._results,
            window=bench.job.state.window,
            sink=bench.job.sink,
            index=self._index,
            lag_ms=bench.job.source.max_out_of_orderness if lag_ms is None else lag_ms,
            retention=bench.options.retention,
            nonce=new_nonce(),
            known=bench.job.state.known_from(self._last.manifest.clock.watermark),
        )
        self._entry = bench.log.put(manifest)
        bench.committed = manifest.id
        self._committed_at = monotonic_s()

    def _check(self) -> None:
        self._bench.log.check(self._entry.manifest.id)

    def _publish(self) -> None:
        publish(self._bench.job, self._bench.log, self._entry.manifest)

    def _collect(self) -> None:
        bench, manifest = self._bench, self._entry.manifest
        dropped = bench.keep(manifest)
        # First the known files: a sweep looks only into the folder of the current task.
        collect_dropped(bench.job, manifest, bench.kept.values(), dropped)
        if self._sweeps:
            sweep(bench.job, manifest)
            collect(bench.job, manifest, bench.kept.values(), None)
        bench.run_cache.forget_all_but(bench.runs(manifest))
        bench.job.source.acknowledge(bench.kept[min(bench.kept)].source.positions)

    # -- how -----------------------------------------------------------------------------------------------------

    def _closes(self, attempt: Attempt) -> list[CloseShard]:
        """The shards whose windows close, or whose changed keys are published."""
        bench, plan, last = self._bench, self._draft.plan, self._last.manifest
        state, close_at = last.operator.state, plan.task.close_at
        if bench.job.state.window is None:
            due = plan.task.ends and any(run.first > state.published for run in state.runs)
        else:
            due = bench.run_cache.is_due(state.runs, last.clock, close_at)
        if not due or bench.job.sink is None:
            self._discarded = bench.run_cache.windows_over(state.runs, last.clock, close_at) if due else 0
            return []
        rows = sum(run.rows_left for run in state.runs)
        least = bench.engine.parallelism if rows > _SHARD_ROWS else 1
        return [
            CloseShard(
                attempt,
                state.runs,
                low,
                high,
                last.clock.closed,
                close_at,
                state.published,
                last.operator.key_types,
                last.revision_base + attempt.id,
            )
            for low, high in bench.run_cache.shards(state.runs, last.clock, close_at, least)
        ]

    def _folds(self, attempt: Attempt) -> list[FoldRuns]:
        bench, last = self._bench, self._last.manifest
        state = last.operator.state
        recent = [run.rows for run in state.runs if run.first == run.last == last.base]
        merges = choose_all(state.runs, sum(recent), state.published, frozenset(bench.unfolded))
        return [FoldRuns(attempt, merge, last.clock.closed) for merge in merges]

    def _next_index(self, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        """The runs of the source's index, neighbours folded when there are many."""
        merge = choose(runs, sum(run.rows for run in runs))
        if merge is None:
            return runs
        tables = [read_table(self._bench.job.storage, run) for run in merge.inputs]
        whole = Merge(merge.inputs, 0, KEY_GROUPS)
        return replaced(runs, whole, self._write_index(pa.concat_tables(tables, promote_options="default")))

    def _write_index(self, table: pa.Table) -> Run:
        job, last = self._bench.job, self._last.manifest
        data, sha256 = encode_table(table)
        name = Attempt(last.epoch, last.id + 1).run_name(index_folder(job))
        job.storage.write(name, data)
        id = last.id + 1
        return Run(name, len(table), len(data), sha256, 0, 0, KEY_GROUPS, 0, 0, id, id)

    def report(self) -> StepReport:
        """What the step has done, once all its effects are performed."""
        results, manifest, before = self._results, self._entry.manifest, self._last.manifest
        folded_bytes = sum(folded.run.bytes for _, folded in results.folded if folded.run)
        delta_bytes = sum(mapped.run.bytes for mapped in results.mapped if mapped.run)
        accounts, old = manifest.accounts.values(), before.accounts.values()
        return StepReport(
            id=manifest.id,
            rows=sum(account.read for account in accounts) - sum(account.read for account in old),
            seconds=monotonic_s() - self._began,
            late=sum(account.late for account in accounts) - sum(account.late for account in old),
            dead=sum(account.dead for account in accounts) - sum(account.dead for account in old),
            outputs=sum(staged.rows for staged in results.staged()),
            clock_ms=manifest.clock.watermark,
            lag_ms=wall_ms() - manifest.clock.watermark,
            checkpoint_bytes=folded_bytes + delta_bytes + self._entry.bytes,
            compaction_bytes=folded_bytes,
            manifest_bytes=self._entry.bytes,
            commit_seconds=self._committed_at - self._mapped_at,
            discarded=self._discarded,
            set_aside=sum(staged.rows for staged in results.set_aside()),
            reached=self._bench.reached(manifest),
        )


def _agree(known: tuple[str, ...], found: tuple[str, ...]) -> bool:
    try:
        common_key_types([known, found])
    except TypeError:
        return False
    return True
