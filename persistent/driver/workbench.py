"""A workbench holds the tools of a driver and what it has learned: one for each run of a job, and for each node."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart
from persistent.codec.fields import Positions, Run
from persistent.connect.source import Reached, SourcePlan, SourceState, together
from persistent.driver.commit import first_manifest
from persistent.driver.options import Options
from persistent.driver.results import Results, unfolded
from persistent.driver.run_cache import LifeCache, RunCache, SessionCache
from persistent.engines.protocol import Engine
from persistent.names import new_nonce
from persistent.time.clock import monotonic_s
from persistent.time.session_window import SessionWindow
from persistent.time.zone import Zone
from persistent.worker.dispatch import Work
from persistent.worker.job import Folded, Job, MappedNode, Node

logger = logging.getLogger("persistent.driver")

SPLIT_SECONDS: float = 0.02
"""The least time of a split: records that take less are not worth a split of their own."""


class NodeBench:
    """What a driver has learned of one node: its zone, and the panes of its runs. ``work``: of the whole job, whose
    items name their node."""

    def __init__(self, node: Node, engine: Engine, work: Work) -> None:
        self.node = node
        self.engine = engine
        self.work = work
        self.run_cache = run_cache_of(node)
        self._state = node.state

    @property
    def own_zone(self) -> Zone | None:
        """The rules of the time zone of the windows by the zone data of this machine."""
        return self._state.zone

    def keep_zone(self, zone: Zone | None) -> bool:
        """Use these rules of the time zone, if the windows have one; returns whether the rules have changed."""
        state = self._state.in_zone(zone)
        if state.zone == self.node.state.zone:
            return False
        self.node = replace(self.node, state=state)
        self.run_cache.window = state.window
        return True

    def next_zone(self, part: NodePart) -> Zone | None:
        """The rules of the time zone of the windows after a manifest with this part: those recorded, up to the end of
        the window that has begun last there; then those of this machine. A window that holds anything, or has closed,
        keeps its start."""
        begun = max([part.clock.watermark, *(run.pane_max for run in part.runs)])
        return self._state.zone_after(part.zone, begun)


def run_cache_of(node: Node) -> RunCache:
    """The run cache of a node."""
    window, ttl = node.state.window, node.state.time_to_live
    if ttl is not None:
        return LifeCache(node.storage, ttl)
    return SessionCache(node.storage, window) if isinstance(window, SessionWindow) else RunCache(node.storage, window)


class Workbench:
    """``first``: the empty checkpoint of the job. ``kept``: the manifests whose files are kept, by id. ``committed``:
    the id of the last checkpoint that this driver has put. ``unfolded``: runs whose fold raised, with the error; this
    driver does not try them again. ``adopts``: whether the task changed before anything was committed; the next plan
    then has a new number. ``corrects``: base and number of a plan that was put with other options; a plan with the next
    number replaces it. ``busy``: how many sources the last plan reads. ``split_rows``: how many records are worth a
    split of their own, by what they took in the last step. ``quiet``: how long nothing was found to read. ``measured``,
    ``losing``, ``confirming``: the sources with these abilities, by name; each is asked once, not at every step.
    ``nodes``: the bench of each node."""

    def __init__(self, job: Job, engine: Engine, options: Options) -> None:
        self.job = job
        self.engine = engine
        self.options = options
        self.work = Work(job)
        self.nodes = {id: NodeBench(node, engine, self.work) for id, node in job.nodes.items()}
        self.log = Log(job.storage)
        self.nonce = new_nonce()
        self.first = first_manifest(job, self.nonce)
        self.kept: dict[int, Manifest] = {}
        self.committed: int | None = None
        self.unfolded: dict[str, str] = {}
        self.adopts = False
        self.corrects: tuple[int, int] | None = None
        self.busy = len(job.sources)
        self.split_rows = 1
        self.quiet = QuietWatch()
        self._indexes = RunCache(job.storage, None)

    def keep_zones(self, zones: Mapping[str, Zone | None]) -> None:
        """Use these rules of the time zone of the windows of each state that has one."""
        moved = [bench.keep_zone(zones[id]) for id, bench in self.nodes.items() if id in zones]
        if any(moved):
            self.job = self.job.in_zones({id: bench.node.state.zone for id, bench in self.nodes.items()})
            self.work = replace(self.work, job=self.job)
            for bench in self.nodes.values():
                bench.work = self.work

    def keep_pace(self, rows: int, splits: int, seconds: float) -> None:
        """Store how long the splits of a step took, and how many records they read. A split costs a run and its files,
        so records that are mapped in an instant are not spread over several splits."""
        if rows and seconds > 0:
            self.split_rows = max(1, int(rows * SPLIT_SECONDS / (seconds * splits)))

    def learn(self, results: Results) -> None:
        """Store the panes of the runs that a step has written."""
        for id, node in results.nodes.items():
            written: list[MappedNode | Folded] = [*node.mapped, *(folded for _, folded in node.folded)]
            for result in written:
                if result.run is not None and result.panes is not None:
                    self.nodes[id].run_cache.learn(result.run, result.panes, result.agenda)

    def forget_all_but(self, manifest: Manifest) -> None:
        """Keep only the panes of the runs of this manifest."""
        for id, bench in self.nodes.items():
            bench.run_cache.forget_all_but(manifest.nodes[id].runs)

    def source_state(self, manifest: Manifest, source: str, appended: Sequence[Run] = ()) -> SourceState:
        """The positions of a source, and its record. ``appended``: runs of a plan, also of its index."""
        at = manifest.sources[source]
        if appended:
            whole = structs.replace(at, index=(*at.index, *appended))
            manifest = structs.replace(manifest, sources={**manifest.sources, source: whole})
        index = self._indexes.index(manifest, source)
        return SourceState(at.positions, at.recorded, index, at.largest, manifest.job)

    def reached(self, manifest: Manifest) -> Reached | None:
        """How far all sources have been read, if all can report it in one unit."""
        return together(
            [source.reached(self.source_state(manifest, name)) for name, source in self.job.sources.items()]
        )

    def leave_unfolded(self, results: Results) -> None:
        """Remember the runs whose fold raised, and log a warning."""
        failures = [folded.failure for _, folded in results.folded if folded.failure]
        if failures:
            logger.warning("runs are left unfolded, which costs time and space but no row: %s", failures[0])
            self.unfolded |= dict.fromkeys(unfolded(results.folded), failures[0])

    def keep(self, manifest: Manifest) -> Sequence[Manifest]:
        """Keep what this newly committed manifest keeps; returns the manifests that are no longer kept."""
        dropped = {id: old for id, old in self.kept.items() if not manifest.keeps(id)}
        self.kept = {id: old for id, old in self.kept.items() if id not in dropped} | {manifest.id: manifest}
        return [*dropped.values()]


class QuietWatch:
    """For how long a driver has seen every partition at its end, from its looks at the sources.

    Only the time between two looks that both found nothing counts: not the time before this driver, and not a look that
    waits for a server that is away. A record that arrives between two looks is found by the second, or another driver
    has read it, and then the positions differ. Either begins the watch anew.
    """

    def __init__(self) -> None:
        self._positions: dict[str, Positions] = {}
        self._before_ms = 0
        self._watched_s = 0.0
        self._looked_s: float | None = None

    def saw(self, planned: Mapping[str, SourcePlan], manifest: Manifest, began_s: float) -> None:
        """Remember a look from the positions of ``manifest``, which began at ``began_s`` and has just ended."""
        if not all(map(_is_at_its_end, planned.values())):
            self._looked_s = None
            return
        positions = {name: part.positions for name, part in manifest.sources.items()}
        if self._looked_s is None or positions != self._positions:
            # What drivers have watched since the last record stands in the manifest.
            self._before_ms, self._watched_s = manifest.quiet_ms, 0.0
        else:
            self._watched_s += began_s - self._looked_s
        self._positions, self._looked_s = positions, monotonic_s()

    def lasts_ms(self, quiet_after_ms: int) -> int:
        """For how long it has been quiet, earlier drivers included; 0 unless this one has watched that long."""
        watched_ms = round(self._watched_s * 1_000)
        return 0 if self._looked_s is None or watched_ms < quiet_after_ms else self._before_ms + watched_ms


def _is_at_its_end(planned: SourcePlan) -> bool:
    """Whether a plan reads nothing, waits for nothing that cannot be read yet, and skips nothing."""
    return not (planned.splits or planned.held or planned.skipped)
