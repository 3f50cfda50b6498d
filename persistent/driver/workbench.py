"""A workbench holds the tools of a driver and what it has learned: one for each run of a job."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import new_nonce
from persistent.driver.commit import Results, first_manifest
from persistent.driver.folds import Fold, unfolded
from persistent.driver.options import Options
from persistent.driver.quiet import QuietWatch
from persistent.driver.run_cache import RunCache
from persistent.driver.state_bench import StateBench
from persistent.engines.protocol import Engine
from persistent.sources.protocol import ConfirmingSource, LosingSource, MeasuredSource, Reached, SourceState, together
from persistent.worker.dispatch import Work
from persistent.worker.job import Folded, Job, Mapped
from persistent.zone import Zone

logger = logging.getLogger("persistent.driver")


class Workbench:
    """``first``: the empty checkpoint of the job. ``kept``: the manifests whose files are kept, by id. ``committed``:
    the id of the last checkpoint that this driver has put. ``unfolded``: runs whose fold raised, with the error; this
    driver does not try them again. ``adopts``: whether the task changed before anything was committed; the next plan
    then has a new number. ``busy``: how many sources the last plan reads. ``quiet``: how long nothing was found to
    read. ``measured``, ``losing``, ``confirming``: the sources with these abilities, by name; each is asked once, not
    at every step. ``states``: the bench of each state, by its name in the checkpoint."""

    def __init__(self, job: Job, engine: Engine, options: Options) -> None:
        self.job = job
        self.engine = engine
        self.options = options
        self.work = Work(job)
        self.states = {operator: StateBench(one, engine, self.work) for operator, one in job.each().items()}
        self.log = Log(job.storage)
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
        self._indexes = RunCache(job.storage, None)

    def keep_zones(self, zones: Mapping[str, Zone | None]) -> None:
        """Use these rules of the time zone of the windows of each state that has one."""
        moved = [one.keep_zone(zones[operator]) for operator, one in self.states.items() if operator in zones]
        if any(moved):
            self.job = self.job.in_zones({operator: one.job.state.zone for operator, one in self.states.items()})
            self.work = replace(self.work, job=self.job)
            for one in self.states.values():
                one.work = self.work

    def each(self, manifest: Manifest) -> Iterator[tuple[StateBench, Manifest]]:
        """Each state, with the manifest of it alone."""
        for operator, one in self.states.items():
            yield one, manifest.of(operator)

    def learn(self, mapped: Sequence[Mapped], folds: Sequence[Fold]) -> None:
        """Store the panes of the runs that a step has written."""
        for one in self.states.values():
            name = one.job.name
            written: list[Mapped | Folded] = [split.of(name) for split in mapped]
            written += [folded for item, folded in folds if item.state == name]
            for result in written:
                if result.run is not None and result.panes is not None:
                    one.run_cache.learn(result.run, result.panes, result.agenda)

    def forget_all_but(self, manifest: Manifest) -> None:
        """Keep only the panes of the runs of this manifest."""
        for one, view in self.each(manifest):
            one.run_cache.forget_all_but(one.runs(view))

    def source_state(self, manifest: Manifest, source: str) -> SourceState:
        """The positions of a source, and its record."""
        at = manifest.sources[source]
        index = self._indexes.index(manifest, source)
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
