"""A driver steps a job, until nothing is left to do.

The effects of a step, and their order, are in ``persistent.driver.effects``.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from persistent.clock import monotonic_s
from persistent.driver.open_job import OpenJob, open_job
from persistent.driver.options import Options
from persistent.driver.report import RunReport
from persistent.engines.protocol import Engine
from persistent.stopping import StopRequest
from persistent.worker.job import Job

logger = logging.getLogger("persistent.driver")

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
