"""A driver runs steps, one after the other, until nothing is left to do.

The effects of each, and their order, are in ``persistent.driver.effects``.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from persistent import stopping
from persistent.checkpoint.running import put_mark, sweep_dead_marks, sweep_marks
from persistent.checkpoint.successor import Entry
from persistent.clock import monotonic_s
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
from persistent.stopping import StopRequest
from persistent.worker.job import Job

logger = logging.getLogger("persistent.driver")

_ROWS_MIN = 1_000
_STEP_SECONDS = 1.0
_POLL_SECONDS = 0.2
_GRACE_SECONDS = 5.0
"""So long after a request to stop, a step may still wait for a server: for one that is only disturbed."""
_SWEEP_STEPS = 50
"""The first step sweeps, then one in this many: a sweep lists all files, to find those of abandoned attempts."""


class Driver:
    """One run of one job over one checkpoint."""

    def __init__(self, job: Job, engine: Engine, options: Options) -> None:
        self._bench = Workbench(job, engine, options)
        self._notes = Notes(self._bench)
        self._rows = ROWS_FIRST
        self._stop = StopRequest()

    def stop(self) -> None:
        """Stop after the current step, with everything committed and published; while a server is away, at once."""
        self._stop.make()

    def run(self) -> RunReport:
        """Drain the source, or follow it, step by step."""
        began, bench = monotonic_s(), self._bench
        found = bench.log.newest()
        # Checked without a checkpoint too: a pipeline that cannot run leaves none behind.
        last = found or Entry(bench.first, "", 0)
        if last.manifest.base == 0:
            check_can_begin(bench.first)
        view = as_it_will_be(bench, last.manifest)
        evolves, last = view is not last.manifest, replace(last, manifest=view)
        check_folder(bench.job, bench.log, last.manifest)
        self._show(last)
        self._notes.begin(last.manifest)
        self._notes.note_states((found or last).manifest)
        step = self._next(reading_all(bench, last))
        idle = step is None and not (evolves or bench.options.follow) and last.manifest.retract is None
        if idle and not is_lost(bench, found):
            publish(bench.job, bench.log, last.manifest)
            sweep_dead_marks(bench.job.storage)
            # Another driver may have gone on meanwhile, and have collected what the report counts.
            with bench.log.unless_fenced(last.manifest.id):
                return self._report(last, began, 0.0, recovered=found is not None)
        last = take_over(bench, self._notes, found)
        self._show(last)
        recovery_seconds = monotonic_s() - began
        with self._marked(last.manifest.epoch), _signals(self.stop):
            last = self._steps(last, step)
        with bench.log.unless_fenced(last.manifest.id):
            return self._report(last, began, recovery_seconds, recovered=found is not None)

    def _show(self, last: Entry) -> None:
        for observer in self._bench.options.observers:
            observer.begin(last.manifest, self._pauses)

    def _pauses(self) -> int:
        return self._stop.pauses

    def _steps(self, last: Entry, step: Step | None) -> Entry:
        """Run steps until the driver is stopped or nothing is left to do; returns the newest entry."""
        while not self._stop.is_made:
            try:
                # A step planned before the fence may no longer fit, if another driver has committed.
                step = (step and step.after(last)) or self._next(last)
            except Stopped as error:
                # Planning has written nothing.
                self._notes.note("stopped", str(error))
                break
            if step is not None:
                last, step = self._perform(step), None
            elif self._bench.options.follow:
                with self._bench.log.unless_fenced(last.manifest.id):
                    self._notes.tell_idle(last.manifest)
                self._stop.wait(_POLL_SECONDS)
            else:
                break
        return last

    def _next(self, last: Entry) -> Step | None:
        with self._bench.log.unless_fenced(last.manifest.id), stopping.heard(self._stop, 0):
            return next_step(self._bench, last, self._rows)

    def _perform(self, step: Step) -> Entry:
        step = replace(step, sweeps=self._notes.steps % _SWEEP_STEPS == 0)
        with self._bench.log.unless_fenced(step.entry.manifest.id), stopping.heard(self._stop, _GRACE_SECONDS):
            step, report = perform(self._bench, step)
        self._fit(report)
        self._notes.remember(report, step.results.first_dead, step.entry.manifest)
        return step.entry

    def _fit(self, report: StepReport) -> None:
        """Fit the size of the next step to the time of this one."""
        if report.rows >= self._rows // 2:
            factor = min(2.0, max(0.5, _STEP_SECONDS / max(report.seconds, 1e-3)))
            self._rows = int(min(ROWS_MAX, max(_ROWS_MIN, self._rows * factor)))

    def _report(self, last: Entry, began: float, recovery_seconds: float, *, recovered: bool) -> RunReport:
        return self._notes.report(last, began, recovery_seconds, recovered=recovered, stopped=self._stop.is_made)

    @contextmanager
    def _marked(self, epoch: int) -> Iterator[None]:
        """Put the mark of this driver, and delete it at the end."""
        storage = self._bench.job.storage
        for mark in sweep_marks(storage, epoch):
            self._notes.note(
                mark.name, f"another driver seemed to run: {mark}. It is now fenced, and commits nothing more"
            )
        name = put_mark(storage, epoch, self._bench.nonce)
        try:
            yield
        finally:
            try:
                with stopping.heard(self._stop, 0):
                    storage.delete(name)
            except (StorageError, Stopped) as error:
                # Nothing relies on it, and an earlier error takes precedence.
                logger.warning("%s could not be deleted, so this driver seems to be still running: %s", name, error)


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
