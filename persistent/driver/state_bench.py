"""A state bench holds what a driver has learned of one state of a job: its zone, and the panes of its runs."""

from __future__ import annotations

from dataclasses import replace

from persistent.checkpoint.manifest import Manifest
from persistent.codec import Run
from persistent.driver.agenda_cache import run_cache_of
from persistent.engines.protocol import Engine
from persistent.worker.dispatch import Work
from persistent.worker.job import Job
from persistent.zone import Zone


class StateBench:
    """``job``: of the state alone. ``work``: of the whole job, whose items name their state. Manifests and steps are
    those of the state alone."""

    def __init__(self, job: Job, engine: Engine, work: Work) -> None:
        self.job = job
        self._state = job.state
        self.engine = engine
        self.work = work
        self.run_cache = run_cache_of(job)

    @property
    def own_zone(self) -> Zone | None:
        """The rules of the time zone of the windows by the zone data of this machine."""
        return self._state.zone

    def keep_zone(self, zone: Zone | None) -> bool:
        """Use these rules of the time zone of the windows, if they have one; returns whether they are others."""
        job = replace(self.job, declared=self._state.in_zone(zone))
        if job.state.zone == self.job.state.zone:
            return False
        self.job = job
        self.run_cache.window = job.state.window
        return True

    def next_zone(self, manifest: Manifest) -> Zone | None:
        """The rules of the time zone of the windows after a manifest: those recorded, up to the end of the window that
        has begun last there; then those of this machine. A window that holds anything, or has closed, keeps its
        start."""
        clock, state = manifest.clock, manifest.operator.state
        begun = max([clock.watermark, *(run.pane_max for run in state.runs)])
        return self._state.zone_after(state.zone, begun)

    def runs(self, manifest: Manifest) -> tuple[Run, ...]:
        """The runs of the state."""
        return manifest.operator.state.runs
