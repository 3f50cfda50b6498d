"""A driver runs steps, one after the other, until there is nothing more to do.

Its effects, and their order, are those of ``persistent.effects``: first of taking over, then of each step.
A crash anywhere is silence: what was not committed does not exist, what was committed is published again.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import pyarrow as pa

from persistent.cautions import of_job, of_records
from persistent.checkpoint.compaction import Merge, choose, choose_all, replaced
from persistent.checkpoint.garbage import Retention
from persistent.checkpoint.log import Entry, Log, manifest_name, new_nonce, plan_name
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.plan import Limits, StepPlan
from persistent.checkpoint.running import marks, put_mark, sweep_dead_marks, sweep_marks
from persistent.clock import monotonic_s, wall_ms
from persistent.codec import KEY_GROUPS, Run, common_key_types, decode_table, encode_table
from persistent.commit import Results, first_manifest, next_manifest
from persistent.contents import Contents
from persistent.effects import EFFECTS, TAKING_OVER, Effect, perform
from persistent.engine import Engine
from persistent.errors import CorruptCheckpoint, FingerprintChanged, InputGone, StorageError
from persistent.evolution import Evolution, adapted, adopted, changes, migrate
from persistent.figures import utc_text
from persistent.job import Attempt, Closed, CloseShard, Folded, FoldRuns, Job, Mapped, MapSplit
from persistent.publish import (
    check_folder,
    claim,
    collect,
    collect_dropped,
    index_folder,
    mark_retracted,
    publish,
    shown,
    sweep,
    take_back,
)
from persistent.report import Idle, RunReport, StepReport
from persistent.sources.protocol import Budget, LosingSource, MeasuredSource, Reached, SourceState, Split
from persistent.step import Item, Result, Work
from persistent.task import check_key, operator_name
from persistent.unpublished import Ended, why

logger = logging.getLogger("persistent.driver")

_ROWS_FIRST = 1_000_000
_ROWS_MIN = 1_000
_ROWS_MAX = 4_000_000
_STEP_SECONDS = 1.0
_SHARD_ROWS = 200_000
_FENCES_MAX = 3
_POLL_SECONDS = 0.2
_SWEEP_STEPS = 50
_SUMMED = ("rows", "late", "dead", "outputs", "discarded", "checkpoint_bytes", "set_aside")


@dataclass(frozen=True)
class Options:
    """How to run. ``step_rows``: exactly so many rows a step; None: steps adapt. ``max_future_ms``: how far
    ahead of both the plan's time of day and the clock a timestamp may be. ``retention``: which checkpoints are kept.
    ``evolve``, ``dropped``: how the state of the task as it was becomes that of the task as it is. ``bare``: durations
    of these that were numbers without a unit, as ``persistent.clock.bare`` tells them."""

    step_rows: int | None = None
    follow: bool = False
    end_of_input: bool = False
    max_future_ms: int = 86_400_000
    retention: Retention = field(default_factory=Retention)
    on_step: Callable[[StepReport], None] | None = None
    on_idle: Callable[[Idle], None] | None = None
    evolve: Evolution | None = None
    dropped: tuple[str, ...] = ()
    bare: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Draft:
    """A plan on its way: ``appended`` are index rows not yet written; ``is_put`` once it cannot change any more."""

    plan: StepPlan
    appended: pa.Table | None = None
    is_put: bool = False


class Driver:
    """One run of one job over one checkpoint."""

    taking_over = TAKING_OVER
    effects = EFFECTS

    def __init__(self, job: Job, engine: Engine, options: Options) -> None:
        self.job = job
        self.work = Work(job)
        self.engine = engine
        self.options = options
        self.log = Log(job.storage)
        self.contents = Contents(job.storage, job.state.window)
        self.operator = operator_name(job.task)
        self.limits = Limits(options.max_future_ms, job.source.max_out_of_orderness)
        self.nonce = new_nonce()
        self._first = first_manifest(job, self.nonce)
        self.kept: dict[int, Manifest] = {}
        self._steps = 0
        self._committed: int | None = None
        self._totals: Counter[str] = Counter()
        self._notes: dict[str, str] = {}
        self._first_dead = ""
        self._idle: Idle | None = None
        self.adopts = False
        """Whether the task was changed while nothing had been committed: the next plan has a new number for that."""
        self._rows = _ROWS_FIRST
        self.unfolded: dict[str, str] = {}
        """Runs whose fold raised, and what it raised: not tried again by this driver."""
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End at the next step's edge, with everything committed and published."""
        self._stopped.set()

    def run(self) -> RunReport:
        """Drain the source, or follow it, step by step."""
        began = monotonic_s()
        found = self.log.newest()
        # Without a checkpoint too: a pipeline that cannot run leaves none behind.
        last = found or Entry(self._first, "", 0)
        view = self._adapted(last.manifest)
        evolves, last = view is not last.manifest, replace(last, manifest=view)
        check_folder(self.job, self.log, last.manifest)
        recovered = found is not None
        self._note_sink(last.manifest)
        for text in of_job(self.job, self.options.bare) if last.manifest.base == 0 else ():
            self._note(text, text)
        with self.log.unless_fenced(last.manifest.id):
            draft = self._next(last)
        idle = draft is None and not (evolves or self.options.follow) and last.manifest.retract is None
        if idle and not self._is_lost(found):
            publish(self.job, self.log, last.manifest)
            sweep_dead_marks(self.job.storage)
            return self._report(last, began, 0.0, recovered=recovered)
        last = self._take_over(found)
        recovery_seconds = monotonic_s() - began
        with self._marked(last.manifest.epoch), _signals(self.stop):
            while not self._stopped.is_set():
                with self.log.unless_fenced(last.manifest.id):
                    if draft is None or not self._fits(draft, last.manifest):
                        draft = self._next(last)
                    step = Step(self, last, draft) if draft is not None else None
                    if step is not None:
                        last = step.run(self.effects)
                        report = step.report()
                    elif self.options.follow:
                        self._tell_idle(last.manifest)
                if step is not None:
                    self._remember(report)
                    draft = None
                elif self.options.follow:
                    self._stopped.wait(_POLL_SECONDS)
                else:
                    break
        with self.log.unless_fenced(last.manifest.id):
            return self._report(last, began, recovery_seconds, recovered=recovered)

    def committed(self, id: int) -> None:
        """This driver has put checkpoint ``id``."""
        self._committed = id

    def without_lost(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> Sequence[Split] | None:
        """The splits without inputs that are gone, if the source allows it."""
        source = self.job.source
        return source.without_lost(splits, recorded) if isinstance(source, LosingSource) else None

    def first_dead(self, reason: str) -> None:
        """Why the first dead letter of a step is one; of the first such step it is kept."""
        self._first_dead = self._first_dead or reason

    def is_to_sweep(self) -> bool:
        """Whether to look for files of attempts that came to nothing, first of our predecessors: a look lists all."""
        return self._steps % _SWEEP_STEPS == 0

    def leave_unfolded(self, results: Results) -> None:
        """Remember the runs whose fold raised, and say so."""
        failures = [folded.failure for _, folded in results.folded if folded.failure]
        if failures:
            logger.warning("runs are left unfolded, which costs time and space but no row: %s", failures[0])
            self.unfolded |= dict.fromkeys(results.unfolded(), failures[0])

    def runs(self, manifest: Manifest) -> tuple[Run, ...]:
        """The runs of the task's state."""
        return manifest.operators[self.operator].runs

    def _remember(self, report: StepReport) -> None:
        """A step is done: tell, and fit the size of the next to the time it took."""
        self._steps += 1
        self._idle = None
        self._totals.update({name: getattr(report, name) for name in _SUMMED})
        if report.rows >= self._rows // 2:
            factor = min(2.0, max(0.5, _STEP_SECONDS / max(report.seconds, 1e-3)))
            self._rows = int(min(_ROWS_MAX, max(_ROWS_MIN, self._rows * factor)))
        logger.debug("step %s", report)
        self._note_fates(ended=False)
        if self.options.on_step is not None:
            self.options.on_step(report)

    def _note(self, what: str, text: str) -> None:
        """Tell once, when it is known; the report tells it as it is in the end."""
        if what not in self._notes:
            logger.warning("%s: %s", self.job.storage.url, text)
        self._notes[what] = text

    def _note_fates(self, *, ended: bool) -> None:
        totals = self._totals
        fates = of_records(totals["rows"], totals["late"], totals["dead"], self._first_dead, ended=ended)
        for what, text in fates:
            self._note(what, text)

    @contextmanager
    def _marked(self, epoch: int) -> Iterator[None]:
        """While inside, others can see that this driver runs."""
        storage = self.job.storage
        for mark in sweep_marks(storage, epoch):
            self._note(mark.name, f"another driver seemed to run: {mark}. It is fenced off, and commits nothing more")
        name = put_mark(storage, epoch, self.nonce)
        try:
            yield
        finally:
            try:
                storage.delete(name)
            except StorageError as error:
                # Nothing relies on it; what has gone wrong before is what should be told.
                logger.warning("%s is left behind, as if this driver still ran: %s", name, error)

    # -- taking over ---------------------------------------------------------------------------------------------

    def _take_over(self, last: Entry | None) -> Entry:
        """Fence off whoever else works here, repeat what they may not have finished, sweep up what they left."""
        if last is None or last.manifest.id == 0:
            last = self.log.create(self._first)
            self._adapted(last.manifest)
        claim(self.job, last.manifest)
        above = self.log.check_whole(last.manifest, shown(self.job))
        self._read_kept(last.manifest)
        taking_over = TakeOver(self, last, above)
        perform(taking_over.effects(), self.taking_over, TAKING_OVER)
        return self._evolved(taking_over.fence)

    def _read_kept(self, last: Manifest) -> None:
        """Before the fence, as every try would leave one. CorruptCheckpoint where one is damaged that is kept."""
        try:
            self.kept = self.log.kept(last)
        except CorruptCheckpoint as error:
            if self.log.ids()[-1:] != [last.id]:
                # Or collected, by a driver that goes on: who is read once that is fenced off.
                return
            url = self.job.storage.url
            if not self.log.names_what_is_there(last):
                raise CorruptCheckpoint(
                    f"{error}, and runs of the newest state are missing too: restore the folder from a copy"
                ) from error
            raise CorruptCheckpoint(
                f"{error}. The newest state does not need it: 'persistent rollback {url} {last.id} --outputs=retract' "
                "goes on from there without it, and takes back nothing; or restore it from a copy"
            ) from error

    def _is_lost(self, found: Entry | None) -> bool:
        """Whether there is something of a newer checkpoint, and nothing has been said of it: who takes over tells."""
        if found is None or found.manifest.target is not None:
            return False
        return self.log.lost(found.manifest.base, found.manifest.id, shown(self.job)) is not None

    def _adapted(self, manifest: Manifest) -> Manifest:
        """The manifest as the state of this job will be in it; itself, where it is so already."""
        view = adopted(manifest, self._first)
        if view is not manifest:
            self._check_abandoned(manifest)
            self.adopts = True
        evolve, dropped = self.options.evolve, self.options.dropped
        return adapted(view, self._first, evolve, dropped, self.job.storage.url)

    def _check_abandoned(self, manifest: Manifest) -> None:
        """FingerprintChanged where a driver of the task as it was certainly runs."""
        changed = changes(manifest, self._first)
        for mark in marks(self.job.storage):
            if mark.epoch >= manifest.epoch and mark.runs:
                raise FingerprintChanged(
                    f"{self.job.storage.url}: the task has changed, {changed}, while a driver of the one before runs: "
                    f"{mark}. Nothing has been committed yet: stop it, and the next run takes the task as it is now"
                )

    def _evolved(self, fence: Entry) -> Entry:
        """The fence; or, where the task has changed, the manifest above it that holds its state as it is now."""
        view = self._adapted(fence.manifest)
        if view is fence.manifest:
            return fence
        if view.replan != fence.manifest.replan:
            changed = changes(fence.manifest, self._first)
            self._note(
                "task", f"the task has changed, {changed}: nothing had been committed, so it is taken as it is now"
            )
        with self.log.unless_fenced(fence.manifest.id):
            entry = migrate(self.job, self.log, fence, view, self.options.evolve, list(self.kept.values()))
        self.kept[entry.manifest.id] = entry.manifest
        return entry

    def replan(self, last: Manifest) -> int:
        """Which plan to run: another, of smaller steps, after three fences over one that never came to its end."""
        if last.fences < _FENCES_MAX or self.log.plan(last.base, last.replan) is None:
            return last.replan
        plan = f"{self.job.storage.url}/{plan_name(last.base, last.replan)}"
        begun = f"the step of {plan} was begun {last.fences} times and never committed"
        if self.options.step_rows is not None:
            logger.warning("%s; with step_rows its plan stays as it is (without, smaller steps are tried)", begun)
            return last.replan
        logger.warning("%s: trying smaller steps", begun)
        return last.replan + 1

    # -- what to do next -----------------------------------------------------------------------------------------

    def _fits(self, draft: Draft, last: Manifest) -> bool:
        plan = draft.plan
        return (plan.job, plan.base, plan.number) == (last.job, last.base, last.replan)

    def _next(self, last: Entry) -> Draft | None:
        """The step after ``last``: the plan that was put for it, or a new one; None if there is nothing to
        do. Writes nothing."""
        manifest = last.manifest
        # After a checkpoint of our own nobody else plans, unless we are fenced: then the put of our plan finds theirs.
        put = self.log.plan(manifest.base, manifest.replan) if manifest.id != self._committed else None
        if put is not None:
            if put.start != manifest.source.positions:
                raise CorruptCheckpoint(
                    f"{self.job.storage.url}/{plan_name(put.base, put.number)}: starts at {dict(put.start)}, the "
                    f"checkpoint is at {dict(manifest.source.positions)}. Nothing of its step was committed: delete "
                    "the file and run again"
                )
            if put.splits or any(position != (0, 0) for position in put.start.values()):
                # So the source has recorded its options: what is given now may not contradict them.
                self.job.source.schema(put.recorded)
            return Draft(put, is_put=True)
        clock, options, runs = manifest.clock, self.options, self.runs(manifest)
        source = manifest.source
        state = SourceState(source.positions, source.recorded, self.contents.index(manifest))
        planned = self.job.source.plan(state, self._budget(manifest.replan), follow=options.follow)
        close_at, ends = clock.watermark, False
        if planned.splits:
            check_key(self.job.task, self.job.source.schema(planned.recorded))
        else:
            ends = options.end_of_input and not clock.end_of_input
            if ends:
                close_at = max(close_at, self.contents.largest_end(runs, clock))
            moves = clock.advanced({}, planned.cap, self.job.source.max_out_of_orderness).watermark > clock.watermark
            if not (ends or moves or self.contents.is_due(runs, clock, close_at)):
                return None
        plan = StepPlan(
            job=manifest.job,
            base=manifest.base,
            number=manifest.replan,
            nonce=new_nonce(),
            wall_ms=wall_ms(),
            close_at=close_at,
            end_of_input=ends,
            start=source.positions,
            end=planned.end,
            splits=planned.splits,
            cap=planned.cap,
            recorded=planned.recorded,
            limits=self.limits,
        )
        return Draft(plan, planned.appended)

    def _budget(self, replan: int) -> Budget:
        exact = self.options.step_rows
        smaller = 0 if self.adopts else replan
        rows = exact if exact is not None else max(1, self._rows >> (3 * smaller))
        return Budget(rows, exact is not None, self.engine.parallelism)

    def _report(self, last: Entry, began: float, recovery_seconds: float, *, recovered: bool) -> RunReport:
        manifest, totals = last.manifest, self._totals
        self._note_fates(ended=True)
        open_windows, reached = self.contents.open_windows(self.runs(manifest), manifest.clock), self.reached(manifest)
        return RunReport(
            engine=self.engine.name,
            steps=self._steps,
            rows=totals["rows"],
            seconds=monotonic_s() - began,
            recovery_seconds=recovery_seconds,
            late=totals["late"],
            dead=totals["dead"],
            duplicates=sum(account.duplicate for account in manifest.ledger.values()),
            outputs=totals["outputs"],
            checkpoint=manifest.base,
            clock_ms=manifest.clock.watermark,
            checkpoint_bytes=totals["checkpoint_bytes"],
            open_windows=open_windows,
            recovered=recovered,
            ledger=dict(manifest.ledger),
            stopped=self._stopped.is_set(),
            discarded=totals["discarded"],
            notes=tuple(self._notes.values()),
            unfolded=len(self.unfolded.keys() & {run.name for run in self.runs(manifest)}),
            set_aside=totals["set_aside"],
            reached=reached,
            unpublished="" if totals["outputs"] else self._unpublished(manifest, open_windows, reached),
        )

    def _unpublished(self, manifest: Manifest, open_windows: int, reached: Reached | None) -> str:
        """Why nothing was published."""
        totals, job, clock = self._totals, self.job, manifest.clock
        return why(
            Ended(
                rows=totals["rows"],
                late=totals["late"],
                dead=totals["dead"],
                has_sink=job.sink is not None,
                has_windows=job.state.window is not None,
                open_windows=open_windows,
                first_end=self.contents.first_end(self.runs(manifest), clock),
                clock_ms=clock.watermark,
                ended=clock.end_of_input,
                reached=reached,
            )
        )

    def reached(self, manifest: Manifest) -> Reached | None:
        """How far the source has been read, if it can say."""
        source, at = self.job.source, manifest.source
        if not isinstance(source, MeasuredSource):
            return None
        return source.reached(SourceState(at.positions, at.recorded, self.contents.index(manifest)))

    def _tell_idle(self, manifest: Manifest) -> None:
        """Tell that there is nothing to do; what is told stays the same until there is."""
        if self.options.on_idle is None:
            return
        if self._idle is None:
            runs, clock = self.runs(manifest), manifest.clock
            windows = self.contents.open_windows(runs, clock), self.contents.first_end(runs, clock)
            self._idle = Idle(self.reached(manifest), clock.watermark, *windows)
        self.options.on_idle(self._idle)

    def _note_sink(self, found: Manifest) -> None:
        """What a sink that has come or gone means for what closes."""
        had, has = found.publishes, self.job.sink is not None
        closed = utc_text(found.clock.closed)
        if self.job.state.window is not None and had is not None and had != has:
            self._note(
                "sink",
                f"the sink is new: windows that closed before, up to {closed}, were discarded, the next are published"
                if has
                else f"the sink was taken away: windows that closed up to {closed} went there, the next are discarded",
            )
        if not has and any(outputs.sink for outputs in found.outputs):
            staged = f"what checkpoint {found.base} staged for the sink it had is discarded, unless it was shown"
            self._note("staged", staged)


class TakeOver:
    """What a driver does before its first step: each effect once, in order."""

    def __init__(self, driver: Driver, last: Entry, above: int) -> None:
        self._driver = driver
        self._above = above
        self.fence = last

    def effects(self) -> dict[Effect, Callable[[], None]]:
        """How each of them is performed."""
        return {
            Effect.FENCE: self._fence,
            Effect.CHECK: self._check,
            Effect.MARK: lambda: mark_retracted(self._driver.job, self.fence.manifest),
            Effect.SWEEP: lambda: sweep(self._driver.job, self.fence.manifest),
            Effect.TAKE_BACK: lambda: take_back(self._driver.job, self.fence.manifest),
            Effect.PUBLISH: lambda: publish(self._driver.job, self._driver.log, self.fence.manifest),
            Effect.COLLECT: self._collect,
        }

    def _fence(self) -> None:
        driver, last = self._driver, self.fence
        self.fence = driver.log.fence(last, driver.nonce, driver.replan(last.manifest), above=self._above)
        manifest = self.fence.manifest
        logger.info("epoch %d begins with %s", manifest.epoch, manifest_name(manifest.id))

    def _check(self) -> None:
        driver, manifest = self._driver, self.fence.manifest
        driver.log.check(manifest.id)
        with driver.log.unless_fenced(manifest.id):
            driver.kept = driver.log.kept(manifest, driver.kept)

    def _collect(self) -> None:
        driver, manifest = self._driver, self.fence.manifest
        pending = driver.log.plan(manifest.base, manifest.replan)
        collect(driver.job, manifest, driver.kept.values(), pending)


class Step:
    """One step of a driver: each effect once, in order."""

    def __init__(self, driver: Driver, last: Entry, draft: Draft) -> None:
        self._driver = driver
        self._last = last
        self._draft = draft
        self._began = monotonic_s()
        self._mapped_at = self._began
        self._committed_at = self._began
        self._results = Results((), (), ())
        self._index: tuple[Run, ...] = ()
        self._discarded = 0
        self._entry = last

    def run(self, effects: tuple[Effect, ...]) -> Entry:
        """Perform the effects; the entry of the new checkpoint."""
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
        plan, driver = self._draft.plan, self._driver
        if self._draft.appended is not None:
            run = self._write_index(self._draft.appended)
            plan = replace(plan, appended=(run,))
        self._draft = Draft(driver.log.put_plan(plan), is_put=True)
        if plan.number and not driver.adopts:
            logger.warning("a smaller step: reading from %s to %s", dict(plan.start), dict(plan.end))

    def _mapped(self, attempt: Attempt, others: Sequence[Item]) -> tuple[Sequence[Result], list[MapSplit]]:
        """The results of the splits of the plan and of other items; and the splits as they were worked on.

        Inputs that are gone may be dead letters of the plan: whoever runs it again finds the same ones gone.
        """
        driver, plan, last = self._driver, self._draft.plan, self._last.manifest
        # A time of day that was set back makes nothing dead that the clock has passed long ago.
        limit = max(plan.wall_ms, last.clock.watermark) + (plan.limits or driver.limits).max_future_ms
        types = last.operators[driver.operator].key_types
        splits: Sequence[Split] = plan.splits
        while True:
            maps = [
                MapSplit(attempt, split, plan.recorded, last.clock.watermark, limit, last.source.since, types)
                for split in splits
            ]
            try:
                return driver.engine.map(driver.work, [*maps, *others]), maps
            except InputGone as error:
                found = driver.without_lost(splits, plan.recorded)
                if found is None:
                    raise
                splits = found
                logger.warning("%s; it is a dead letter", error)

    def _map(self) -> None:
        driver, plan, last = self._driver, self._draft.plan, self._last.manifest
        attempt = Attempt(last.epoch, last.id + 1)
        closes = self._closes(attempt)
        folds = self._folds(attempt)
        results, maps = self._mapped(attempt, [*closes, *folds])
        mapped = self._agreeing(maps, [result for result in results if isinstance(result, Mapped)])
        folded = [result for result in results if isinstance(result, Folded)]
        closed = [result for result in results if isinstance(result, Closed)]
        driver.first_dead(next((result.first_dead for result in mapped if result.first_dead), ""))
        self._results = Results(tuple(mapped), tuple(closed), tuple(zip(folds, folded)))
        driver.leave_unfolded(self._results)
        for run, panes in [(result.run, result.panes) for result in mapped] + [(one.run, one.panes) for one in folded]:
            if run is not None and panes is not None:
                driver.contents.learn(run, panes)
        self._index = self._next_index((*last.source.index, *plan.appended))
        self._mapped_at = monotonic_s()

    def _agreeing(self, maps: list[MapSplit], mapped: list[Mapped]) -> list[Mapped]:
        """What the splits came to where the first key decides the type of its column, in the order of the records: a
        split that began with keys of another type is mapped again, knowing it."""
        types = self._last.manifest.operators[self._driver.operator].key_types
        agreeing = []
        for item, result in zip(maps, mapped, strict=True):
            if not _agree(types, result.key_types):
                (again,) = self._driver.engine.map(self._driver.work, [replace(item, key_types=types)])
                assert isinstance(again, Mapped)
                result = again
            types = common_key_types([types, result.key_types])
            agreeing.append(result)
        return agreeing

    def _commit(self) -> None:
        driver, plan = self._driver, self._draft.plan
        manifest = next_manifest(
            self._last,
            plan,
            self._results,
            window=driver.job.state.window,
            operator=driver.operator,
            index=self._index,
            lag_ms=(plan.limits or driver.limits).max_out_of_orderness_ms,
            retention=driver.options.retention,
            publishes=driver.job.sink is not None,
            nonce=new_nonce(),
            known=driver.job.state.known_from(self._last.manifest.clock.watermark),
        )
        self._entry = driver.log.put(manifest)
        driver.committed(manifest.id)
        self._committed_at = monotonic_s()

    def _check(self) -> None:
        self._driver.log.check(self._entry.manifest.id)

    def _publish(self) -> None:
        publish(self._driver.job, self._driver.log, self._entry.manifest)

    def _collect(self) -> None:
        driver, manifest = self._driver, self._entry.manifest
        dropped = [kept for id, kept in driver.kept.items() if not manifest.keeps(id)]
        driver.kept = {id: kept for id, kept in driver.kept.items() if manifest.keeps(id)} | {manifest.id: manifest}
        # First what is known: a sweep looks only where the task of today has its files.
        collect_dropped(driver.job, manifest, driver.kept.values(), dropped)
        if driver.is_to_sweep():
            sweep(driver.job, manifest)
            collect(driver.job, manifest, driver.kept.values(), None)
        driver.contents.forget_all_but(driver.runs(manifest))
        driver.job.source.acknowledge(driver.kept[min(driver.kept)].source.positions)

    # -- how -----------------------------------------------------------------------------------------------------

    def _closes(self, attempt: Attempt) -> list[CloseShard]:
        """The shards whose windows are to be closed, or whose changed keys are to be published."""
        driver, plan, last = self._driver, self._draft.plan, self._last.manifest
        operator = last.operators[driver.operator]
        if driver.job.state.window is None:
            due = plan.end_of_input and any(run.first > operator.published for run in operator.runs)
        else:
            due = driver.contents.is_due(operator.runs, last.clock, plan.close_at)
        if not due or driver.job.sink is None:
            self._discarded = driver.contents.windows_over(operator.runs, last.clock, plan.close_at) if due else 0
            return []
        rows = sum(run.rows_left for run in operator.runs)
        least = driver.engine.parallelism if rows > _SHARD_ROWS else 1
        return [
            CloseShard(
                attempt,
                operator.runs,
                low,
                high,
                last.clock.closed,
                plan.close_at,
                operator.published,
                operator.key_types,
            )
            for low, high in driver.contents.shards(operator.runs, last.clock, plan.close_at, least)
        ]

    def _folds(self, attempt: Attempt) -> list[FoldRuns]:
        driver, last = self._driver, self._last.manifest
        operator = last.operators[driver.operator]
        recent = [run.rows for run in operator.runs if run.first == run.last == last.base]
        merges = choose_all(operator.runs, sum(recent), operator.published, frozenset(driver.unfolded))
        return [FoldRuns(attempt, merge, last.clock.closed) for merge in merges]

    def _next_index(self, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        """The runs of the source's index, neighbours folded when there are many."""
        merge = choose(runs, sum(run.rows for run in runs))
        if merge is None:
            return runs
        contents, storage = self._driver.contents, self._driver.job.storage
        inputs = merge.inputs
        tables = [decode_table(contents.read(run), run.sha256, f"{storage.url}/{run.name}") for run in inputs]
        whole = Merge(inputs, 0, KEY_GROUPS)
        return replaced(runs, whole, self._write_index(pa.concat_tables(tables, promote_options="default")))

    def _write_index(self, table: pa.Table) -> Run:
        job, last = self._driver.job, self._last.manifest
        data, sha256 = encode_table(table)
        name = f"{index_folder(job)}/{Attempt(last.epoch, last.id + 1).name()}.arrow"
        job.storage.write(name, data)
        id = last.id + 1
        return Run(name, len(table), len(data), sha256, 0, 0, KEY_GROUPS, 0, 0, id, id)

    def report(self) -> StepReport:
        """What the step has done, once all its effects are performed."""
        results, manifest, before = self._results, self._entry.manifest, self._last.manifest
        folded_bytes = sum(folded.run.bytes for _, folded in results.folded if folded.run)
        delta_bytes = sum(mapped.run.bytes for mapped in results.mapped if mapped.run)
        ledger, old = manifest.ledger.values(), before.ledger.values()
        return StepReport(
            id=manifest.id,
            rows=sum(account.read for account in ledger) - sum(account.read for account in old),
            seconds=monotonic_s() - self._began,
            late=sum(account.late for account in ledger) - sum(account.late for account in old),
            dead=sum(account.dead for account in ledger) - sum(account.dead for account in old),
            outputs=sum(staged.rows for staged in results.staged()),
            clock_ms=manifest.clock.watermark,
            lag_ms=wall_ms() - manifest.clock.watermark,
            checkpoint_bytes=folded_bytes + delta_bytes + self._entry.bytes,
            compaction_bytes=folded_bytes,
            manifest_bytes=self._entry.bytes,
            commit_seconds=self._committed_at - self._mapped_at,
            discarded=self._discarded,
            set_aside=sum(staged.rows for staged in results.set_aside()),
            reached=self._driver.reached(manifest),
        )


def _agree(known: tuple[str, ...], found: tuple[str, ...]) -> bool:
    try:
        common_key_types([known, found])
    except TypeError:
        return False
    return True


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM stop at a step's edge; a second SIGINT at once. In the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked = 0

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if asked > 1 and number == signal.SIGINT:
            raise KeyboardInterrupt
        logger.warning("stopping after this step")
        stop()

    before = {number: signal.signal(number, asked_to_stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
