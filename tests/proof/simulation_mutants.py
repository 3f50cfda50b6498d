"""A mutant of the simulation is the production code with one safety rule taken out of it, as it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from msgspec import structs

from persistent import names
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import SeenPart
from persistent.checkpoint.successor import Entry
from persistent.connect.files.sink import FileSink
from persistent.connect.then import ThenSource
from persistent.driver import commit, publish, publish_after, recover, results, step_effects
from persistent.driver.run_cache import SessionCache
from persistent.driver.workbench import QuietWatch
from persistent.state import difference
from persistent.state.time_to_live import TimeToLive
from persistent.time.clock import wall_ms
from persistent.time.session_window import SessionWindow, last_sessions
from persistent.worker import map_split, merge_runs, publish_shard
from persistent.worker import publish_shard as shard_views
from tests.proof.emission import Emission


def _put_any(self: Log, name: str, data: bytes, is_ours: Callable[[bytes], bool]) -> bool:
    self.storage.put_if_absent(name, data)
    return True


def _fence_without_outputs(self: Log, manifest: Manifest) -> Entry:
    return _PUT(self, structs.replace(manifest, sinks={}, aside=()) if manifest.kind == "fence" else manifest)


def _fence_without_epoch(self: Log, manifest: Manifest) -> Entry:
    return _PUT(
        self, structs.replace(manifest, epoch=max(1, manifest.epoch - 1)) if manifest.kind == "fence" else manifest
    )


def _under_the_current_id(job: Any, log: Log, manifest: Manifest) -> None:
    id = manifest.id
    sinks = {
        name: structs.replace(sink, unpublished=tuple(structs.replace(batch, id=id) for batch in sink.unpublished))
        for name, sink in manifest.sinks.items()
    }
    aside = tuple(structs.replace(one, id=id) for one in manifest.aside)
    _PUBLISH(job, log, structs.replace(manifest, sinks=sinks, aside=aside))


def _inputs_stay(runs: Any, folds: Any) -> Any:
    return (*runs, *(folded.run for _, folded in folds if folded.run is not None))


def _inputs_go(runs: Any, folds: Any) -> Any:
    return tuple(run for run in runs if not any(run in item.merge.inputs for item, _ in folds))


def _early(self: SeenPart, watermark: int, within_ms: int) -> int:
    return max(self.expired, (watermark - within_ms // 2) // self.pane_ms * self.pane_ms)


def _fence_without_seen(self: Log, manifest: Manifest) -> Entry:
    if manifest.kind != "fence":
        return _PUT(self, manifest)
    parts = {
        name: structs.replace(one, seen=one.seen and structs.replace(one.seen, runs=()))
        for name, one in manifest.sources.items()
    }
    return _PUT(self, structs.replace(manifest, sources=parts))


def _fused(node: Any, step: Any) -> bool:
    return publish_after.publishes_changes(node, step)


def _by_its_own_clock(item: Any, clocks: Any, aside: Any, *rest: Any) -> Any:
    own = int(aside.records.timestamps.max(initial=0))
    return _JUDGE(item, {name: (window, max(final, own)) for name, (window, final) in clocks.items()}, aside, *rest)


def _twice(node: Any, item: Any) -> Any:
    is_late = item.corrected and not isinstance(node.state.window, SessionWindow)
    return _SIDES(node, replace(item, runs=(*item.runs, *item.delta)) if is_late else item)


def _drops_fragments(node: Any, item: Any) -> Any:
    return _COMPACTED(node, replace(item, over=item.final + node.state.window.gap_ms))


def _as_a_window(self: SessionWindow, timestamps: Any, watermark: int) -> Any:
    return self.ends(timestamps) <= watermark, np.zeros(len(timestamps), bool)


def _stays_published(view: Any, old: Any, rows: Any, changed: Any, **more: Any) -> Any:
    return _BETWEEN(view, [] if view.joins else old, rows, changed, **more)


def _as_if_closed(node: Any, item: Any, window: Any, **more: Any) -> Any:
    comparison = _SESSIONS(node, item, window, **more)
    return replace(comparison, view=replace(comparison.view, closed=item.closed))


def _without_the_delta(node: Any, item: Any, window: Any, **more: Any) -> Any:
    changes = item.changes or item.corrected
    return _SESSIONS(node, replace(item, delta=()) if changes else item, window, **more)


def _to_today(self: QuietWatch, quiet_after_ms: int) -> int:
    return wall_ms() if _LASTS(self, quiet_after_ms) else 0


def _watched_before(self: QuietWatch, planned: Any, manifest: Manifest, began_s: float) -> None:
    if self._looked_s is None:
        self._looked_s, self._positions = 0.0, {name: one.positions for name, one in manifest.sources.items()}
    _SAW(self, planned, manifest, began_s)


def _last_life(gaps: Any, rows: Any, over: int) -> Any:
    return last_sessions(gaps, rows, over) if isinstance(gaps, TimeToLive) else _AFTER(gaps, rows, over)


def _by_the_clock_after(bench: Any, step: Any, mapped: Any, **options: Any) -> Any:
    ttl_ms = bench.node.state.time_to_live.ttl_ms
    reached = max([step.task.close_at, *(int(one.agenda.ends[-1]) - ttl_ms for one in mapped if one.agenda)])
    return _EXPIRES(bench, replace(step, task=structs.replace(step.task, close_at=reached)), mapped, **options)


def _seen_at_once(job: Any, attempt: Any, batches: Any) -> Any:
    staged = _LATE(job, attempt, batches)
    if staged is not None:
        job.late_sink.publish(attempt.id, [staged])
    return staged


_AFTER, _EXPIRES, _LATE = merge_runs.sessions_after, publish_after._closing_lives, map_split.stage_late
_PUT, _PUBLISH, _JUDGE, _SIDES = Log.put, publish.publish, map_split.judge, publish_shard.comparisons_of
_COMPACTED, _LASTS, _SAW = merge_runs._compacted, QuietWatch.lasts_ms, QuietWatch.saw
_BETWEEN, _SESSIONS = difference.between, shard_views._sessions

Patch = tuple[Any, str, Any]

MUTANTS: Mapping[str, Patch] = {
    "a put that was lost counts as won": (Log, "_put", _put_any),
    "no look at the log before an effect": (Log, "check", lambda self, id: None),
    "a fence drops the outputs not yet published": (Log, "put", _fence_without_outputs),
    "a fence does not raise the epoch": (Log, "put", _fence_without_epoch),
    "outputs are published under the id of who publishes": (recover, "publish", _under_the_current_id),
    "a list is put before its files are there": (FileSink, "_published_all", lambda self, id, staged: None),
    "garbage is collected without a look at bases": (Manifest, "keeps", lambda self, id: id >= self.base),
    "a step does not publish": (step_effects, "publish", lambda job, log, manifest: None),
    "garbage is whatever is not live": (names, "is_abandoned", lambda name, epoch, id: True),
    "only what the newest manifest names is live": (publish, "_live", lambda manifest, kept: manifest.files()),
    "a fold does not replace its inputs": (commit, "runs_after", _inputs_stay),
    "what was seen is not committed": (commit, "seen_after", lambda seen, *rest: seen),
    "what was seen is forgotten where it is folded": (results, "runs_after", _inputs_go),
    "what was seen expires too early": (SeenPart, "horizon", _early),
    "splits that have seen the same both count it": (step_effects, "set_apart", lambda bench, *found: found),
    "a fence forgets what was seen": (Log, "put", _fence_without_seen),
    "publishing is fused with mapping": (step_effects, "publishes_after", _fused),
    "a row is judged by the clock committed with it": (map_split, "judge", _by_its_own_clock),
    "a correction counts late rows twice": (publish_shard, "comparisons_of", _twice),
    "a fold drops a fragment of a session": (merge_runs, "_compacted", _drops_fragments),
    "a session is judged like a window": (SessionWindow, "late", _as_a_window),
    "a session loses its bridge": (SessionCache, "touched", lambda self, delta, closed: ()),
    "a session is corrected without its bridge": (shard_views, "_sessions", _without_the_delta),
    "sessions that others take in stay published": (difference, "between", _stays_published),
    "open sessions are taken for unpublished": (shard_views, "_sessions", _as_if_closed),
    "a session closes with what it held back": (publish_after, "_closes_unpublished", lambda *_: False),
    "early results wait for their clock alone": (publish_after, "_must_publish", lambda *_: False),
    "a quiet clock jumps to today": (QuietWatch, "lasts_ms", _to_today),
    "a time without a driver counts as quiet": (QuietWatch, "saw", _watched_before),
    "a time to live keeps the last life alone": (merge_runs, "sessions_after", _last_life),
    "a key expires by the clock committed with it": (publish_after, "_closing_lives", _by_the_clock_after),
    "a late row is published by the attempt that finds it": (map_split, "stage_late", _seen_at_once),
    "the live half counts what the history has": (ThenSource, "_of_live", lambda self, records, reached: records),
}

Needs = Callable[[Emission, bool], bool]


def _joins(emission: Emission, quiet: bool) -> bool:
    return emission.joins_again


NEEDS: Mapping[str, Needs] = {
    "a fold drops a fragment of a session": lambda emission, quiet: emission.has_sessions,
    "a session is judged like a window": lambda emission, quiet: emission.has_sessions,
    "a session loses its bridge": _joins,
    "a session is corrected without its bridge": _joins,
    "sessions that others take in stay published": lambda emission, quiet: emission.grows,
    "open sessions are taken for unpublished": lambda emission, quiet: emission.grows and emission.of_changes,
    "a session closes with what it held back": lambda emission, quiet: emission.grows and emission.early is not None,
    "early results wait for their clock alone": lambda emission, quiet: emission.early is not None,
    "a time to live keeps the last life alone": lambda emission, quiet: emission.has_lives,
    "a key expires by the clock committed with it": lambda emission, quiet: emission.has_lives,
    "a quiet clock jumps to today": lambda emission, quiet: quiet,
    "a time without a driver counts as quiet": lambda emission, quiet: quiet,
}
"""What a job must have, an emission and whether its clock moves on in quiet times, for a mutant to be seen."""


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """While inside, the production code is without that rule."""
    where, what, instead = MUTANTS[name]
    assert hasattr(where, what), f"{where.__name__} has no {what} any more"
    with mock.patch.object(where, what, instead):
        yield
