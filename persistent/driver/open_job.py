"""An open job is looked at, then taken over, and from then on ours: it is stepped until it is closed.

job = open_job(...)      reads, and writes nothing
job.look()               whether there is anything to do; writes nothing either
job.take_over()          fences earlier drivers, and repeats their unfinished work
job.mark()               tells other drivers that this one runs
job.step()               commits and publishes what can be read; None if that is nothing
job.close()              deletes the mark

A driver steps it until nothing is left to do. The effects of a step, and their order, are in
``persistent.driver.step``.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType, TracebackType
from typing import Self

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.running import put_mark, sweep_dead_marks, sweep_marks
from persistent.checkpoint.successor import Entry
from persistent.driver.commit import check_can_begin
from persistent.driver.next_step import next_step
from persistent.driver.notes import Notes
from persistent.driver.options import ROWS_FIRST, ROWS_MAX, Options
from persistent.driver.publish import check_folder, publish
from persistent.driver.recover import as_it_will_be, is_lost, reading_all, take_over
from persistent.driver.report import RunReport, StepReport
from persistent.driver.step import Step
from persistent.driver.step_effects import perform
from persistent.driver.workbench import Workbench
from persistent.engines.protocol import Engine
from persistent.errors import Stopped, StorageError
from persistent.time import clock
from persistent.time.clock import StopRequest, monotonic_s
from persistent.worker.job import Job

logger = logging.getLogger("persistent.driver")

_ROWS_MIN = 1_000
_STEP_SECONDS = 1.0
_GRACE_SECONDS = 5.0
"""How long a step waits for a server after a request to stop: the server may only be disturbed."""
_SWEEP_STEPS = 50
"""The first step sweeps, then one in this many: a sweep lists all files, to find those of abandoned attempts."""


class OpenJob:
    """``found``: the newest entry when the job was opened; None without a checkpoint. ``last``: the newest entry now,
    which the next step follows."""

    def __init__(self, bench: Workbench, newest: Entry | None, stop: StopRequest) -> None:
        self.bench = bench
        self.notes = Notes(bench)
        self.found = newest
        self.last = newest or Entry(bench.first, "", 0)
        self._stop = stop
        self._rows = ROWS_FIRST
        self._planned: Step | None = None
        self._is_checked = self._is_ours = False
        self._mark = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def look(self) -> bool:
        """Whether there is anything to do. What cannot be continued is refused here, before anything is written."""
        bench, view = self.bench, self._checked()
        evolves, last = view is not self.last.manifest, replace(self.last, manifest=view)
        self.notes.begin(view)
        self.notes.note_states((self.found or last).manifest)
        self.last = last
        self._show()
        self._planned = self._next(reading_all(bench, last), is_fenced=False)
        # Whoever takes over a job that starts from a savepoint asks its sinks what they have.
        is_begun = self.last.manifest.kind != "savepoint"
        is_idle = self._planned is None and not (evolves or bench.options.follow) and view.retract is None and is_begun
        return not is_idle or is_lost(bench, self.found)

    def publish_owed(self) -> None:
        """Publish what an earlier driver has committed, and perhaps not published."""
        publish(self.bench.job, self.bench.log, self.last.manifest)
        sweep_dead_marks(self.bench.job.storage)

    def take_over(self) -> Entry:
        """The newest entry, which is ours. What cannot be continued is refused before anything is written."""
        if not self._is_checked:
            self._checked()
        self.last, self._is_ours = take_over(self.bench, self.notes, self.found), True
        return self.last

    def mark(self) -> None:
        """Put the mark of this driver, which ``close`` deletes. RuntimeError for a job that is not taken over."""
        self._require_ours()
        self._show()
        storage, epoch = self.bench.job.storage, self.last.manifest.epoch
        for mark in sweep_marks(storage, epoch):
            self.notes.note(
                mark.name, f"another driver seemed to run: {mark}. It is now fenced, and commits nothing more"
            )
        self._mark = put_mark(storage, epoch, self.bench.nonce)

    def step(self) -> StepReport | None:
        """The report of the next step, committed and published; None if there is nothing to do, or whoever asked to
        stop did so while it was planned. RuntimeError for a job that is not taken over."""
        self._require_ours()
        planned, self._planned = self._planned, None
        try:
            # A step planned before the fence may no longer fit, if another driver has committed.
            step = (planned and planned.after(self.last)) or self._next(self.last)
        except Stopped as error:
            # Planning has written nothing.
            self.notes.note("stopped", str(error))
            return None
        if step is None:
            return None
        step = replace(step, sweeps=self.notes.steps % _SWEEP_STEPS == 0)
        with self.bench.log.unless_fenced(step.entry.manifest.id), clock.heard(self._stop, _GRACE_SECONDS):
            step, report = perform(self.bench, step)
        self.last = step.entry
        self._fit(report)
        self.notes.remember(report, step.results, step.entry.manifest)
        return report

    def close(self) -> None:
        """Delete the mark of this driver."""
        if not self._mark:
            return
        try:
            with clock.heard(self._stop, 0):
                self.bench.job.storage.delete(self._mark)
        except (StorageError, Stopped) as error:
            # Nothing relies on it, and an earlier error takes precedence.
            logger.warning("%s could not be deleted, so this driver seems to be still running: %s", self._mark, error)

    def _checked(self) -> Manifest:
        """The manifest as it will be. Refused if this job cannot begin, or go on from it."""
        bench, manifest = self.bench, self.last.manifest
        if manifest.base == 0:
            check_can_begin(bench.first)
        view = as_it_will_be(bench, manifest)
        check_folder(bench.job, bench.log, view)
        self._is_checked = True
        return view

    def _require_ours(self) -> None:
        if not self._is_ours:
            raise RuntimeError("another driver may run this job: take it over first")

    def _next(self, last: Entry, *, is_fenced: bool = True) -> Step | None:
        with self.bench.log.unless_fenced(last.manifest.id), clock.heard(self._stop, 0):
            return next_step(self.bench, last, self._rows, is_fenced=is_fenced)

    def _fit(self, report: StepReport) -> None:
        """Fit the size of the next step to the time of this one."""
        if report.rows >= self._rows // 2:
            factor = min(2.0, max(0.5, _STEP_SECONDS / max(report.seconds, 1e-3)))
            self._rows = int(min(ROWS_MAX, max(_ROWS_MIN, self._rows * factor)))

    def _show(self) -> None:
        for observer in self.bench.options.observers:
            observer.begin(self.last.manifest, self._pauses)

    def _pauses(self) -> int:
        return self._stop.pauses


def open_job(job: Job, engine: Engine, options: Options, stop: StopRequest | None = None) -> OpenJob:
    """The job over its checkpoint. ``stop``: ends its waits for servers."""
    bench = Workbench(job, engine, options)
    return OpenJob(bench, bench.log.newest(), stop or StopRequest())


_POLL_SECONDS = 0.2


class Driver:
    """One run of one job over one checkpoint."""

    def __init__(self, job: Job, engine: Engine, options: Options) -> None:
        self._job, self._engine, self._options = job, engine, options
        self._stop = StopRequest()

    def stop(self) -> None:
        """Stop after the current step, with everything committed and published; while a server is away, at once."""
        self._stop.make()

    def run(self) -> RunReport:
        """Drain the source, or follow it, step by step."""
        began, recovery_seconds = monotonic_s(), 0.0
        job = open_job(self._job, self._engine, self._options, self._stop)
        if job.look():
            job.take_over()
            recovery_seconds = monotonic_s() - began
            with job:
                job.mark()
                with _signals(self.stop):
                    self._steps(job)
        else:
            job.publish_owed()
        # Another driver may have gone on meanwhile, and have collected what the report counts.
        with job.bench.log.unless_fenced(job.last.manifest.id):
            recovered = job.found is not None
            return job.notes.report(job.last, began, recovery_seconds, recovered=recovered, stopped=self._stop.is_made)

    def _steps(self, job: OpenJob) -> None:
        """Run steps until the driver is stopped or nothing is left to do."""
        while not self._stop.is_made:
            if job.step() is None:
                if self._stop.is_made or not self._options.follow:
                    break
                with job.bench.log.unless_fenced(job.last.manifest.id):
                    job.notes.tell_idle(job.last.manifest)
                self._stop.wait(_POLL_SECONDS)


@contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM stop after the current step; a second SIGINT stops at once. In the main thread only."""
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
