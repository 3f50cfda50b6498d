"""A workbench holds the tools of a driver and what it has learned: one for each run of a job."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import new_nonce
from persistent.codec import Run
from persistent.driver.commit import Results, first_manifest
from persistent.driver.folds import unfolded
from persistent.driver.options import Options
from persistent.driver.quiet import QuietWatch
from persistent.driver.session_cache import run_cache_of
from persistent.engines.protocol import Engine
from persistent.sources.protocol import ConfirmingSource, LosingSource, MeasuredSource, Reached, SourceState, together
from persistent.worker.dispatch import Work
from persistent.worker.job import Job
from persistent.zone import Zone

logger = logging.getLogger("persistent.driver")


class Workbench:
    """``first``: the empty checkpoint of the job. ``kept``: the manifests whose files are kept, by id. ``committed``:
    the id of the last checkpoint that this driver has put. ``unfolded``: runs whose fold raised, with the error; this
    driver does not try them again. ``adopts``: whether the task changed before anything was committed; the next plan
    then has a new number. ``busy``: how many sources the last plan reads. ``quiet``: how long nothing was found to
    read. ``measured``, ``losing``, ``confirming``: the sources with these abilities, by name; each is asked once, not
    at every step."""

    def __init__(self, job: Job, engine: Engine, options: Options) -> None:
        self.job = job
        self._state = job.state
        self.engine = engine
        self.options = options
        self.work = Work(job)
        self.log = Log(job.storage)
        self.run_cache = run_cache_of(job)
        self.nonce = new_nonce()
        self.first = first_manifest(job, self.nonce)
        self.kept: dict[int, Manifest] = {}
        self.committed: int | None = None
        self.unfolded: dict[str, str] = {}
        self.adopts = False
        self.busy = len(job.sources)
        self.quiet = QuietWatch()
        self.measured = {name: one for name, one in job.sources.items() if isinstance(one, MeasuredSource)}
        self.losing = {name: one for name, one in job.sources.items() if isinstance(one, LosingSource)}
        self.confirming = {name: one for name, one in job.sources.items() if isinstance(one, ConfirmingSource)}

    @property
    def own_zone(self) -> Zone | None:
        """The rules of the time zone of the windows by the zone data of this machine."""
        return self._state.zone

    def keep_zone(self, zone: Zone | None) -> None:
        """Use these rules of the time zone of the windows, if they have one."""
        job = replace(self.job, state=self._state.in_zone(zone))
        if job.state.zone != self.job.state.zone:
            self.job, self.work = job, replace(self.work, job=job)
            self.run_cache.window = job.state.window

    def next_zone(self, manifest: Manifest) -> Zone | None:
        """The rules of the time zone of the windows after a manifest: those recorded, up to the end of the window that
        has begun last there; then those of this machine. A window that holds anything, or has closed, keeps its
        start."""
        clock, state = manifest.clock, manifest.operator.state
        begun = max([clock.watermark, *(run.pane_max for run in state.runs)])
        return self._state.zone_after(state.zone, begun)

    def runs(self, manifest: Manifest) -> tuple[Run, ...]:
        """The runs of the task's state."""
        return manifest.operator.state.runs

    def source_state(self, manifest: Manifest, source: str) -> SourceState:
        """The positions of a source, and its record."""
        at = manifest.sources[source]
        index = self.run_cache.index(manifest, source)
        return SourceState(at.positions, at.recorded, index, at.largest, manifest.job)

    def reached(self, manifest: Manifest) -> Reached | None:
        """How far all sources have been read, if all can report it in one unit."""
        found = [
            self.measured[name].reached(self.source_state(manifest, name)) if name in self.measured else None
            for name in self.job.sources
        ]
        return together(found)

    def leave_unfolded(self, results: Results) -> None:
        """Remember the runs whose fold raised, and log a warning."""
        folds = (*results.folded, *results.seen_folded)
        failures = [folded.failure for _, folded in folds if folded.failure]
        if failures:
            logger.warning("runs are left unfolded, which costs time and space but no row: %s", failures[0])
            self.unfolded |= dict.fromkeys(unfolded(folds), failures[0])

    def keep(self, manifest: Manifest) -> Sequence[Manifest]:
        """Keep what this newly committed manifest keeps; returns the manifests that are no longer kept."""
        dropped = [one for id, one in self.kept.items() if not manifest.keeps(id)]
        self.kept = {id: one for id, one in self.kept.items() if manifest.keeps(id)} | {manifest.id: manifest}
        return dropped
