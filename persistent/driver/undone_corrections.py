"""What a rollback has undone stays published, if it has left the later outputs. The checkpoints that it has abandoned
are kept for a while, with the runs that they added: of the keys and windows that only a correction has changed, the
sinks may hold other values than the state has now, and of sessions other borders.

    the state  +  the identity at these keys and panes  =  the state          and these are published as they are now
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from monoids.groupby.summing import GroupSums
from persistent.checkpoint.corrections import Correction
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.names import Attempt
from persistent.codec import KEY_GROUPS, Run, canonical_json
from persistent.driver.agenda_cache import SessionCache
from persistent.driver.step import NodeStep
from persistent.driver.workbench import NodeBench, run_cache_of
from persistent.errors import Refused
from persistent.lateness import RETRACT
from persistent.session_window import SessionWindow
from persistent.state_rows import fold
from persistent.worker.correct_records import NOTHING
from persistent.worker.job import Closed, CloseShard, Job, Node
from persistent.worker.merge_runs import monoid_errors, read_rows
from persistent.worker.publish_shard import stage_differences
from persistent.worker.shard_views import undone_sessions

_BY_HAND = (
    "Apply it again, and then another one with add and remove exchanged: that publishes its keys and windows as they "
    "are now, if remove= is possible"
)
_CHANGE_NOTHING = ("checkpoint", "correction", "fence", "compaction")
"""The kinds of checkpoints of one line, of which each continues the one before."""


@dataclass(frozen=True)
class Left:
    """What is left to be seen of what was undone. ``runs``: by state, those that corrections added to it. ``sha256``:
    of their records. ``steps``: by state of sessions, what each step has closed and corrected, oldest first."""

    name: str
    runs: Mapping[str, tuple[Run, ...]]
    sha256: str
    steps: Mapping[str, tuple[CloseShard, ...]] = field(default_factory=dict)


def left_by(log: Log, newest: Manifest, name: str) -> Left:
    """What the corrections of that name have left, which rollbacks have undone without taking their outputs back.
    Refused if there is none, or its checkpoint is no longer kept."""
    url, found = log.storage.url, list(_corrections(log, newest, name))
    if found:
        return Left(name, _added(found, newest), _own(found[-1])[name].sha256)
    if name in newest.corrections:
        raise Refused(
            f"{url}: undone={name!r}: the state holds this correction, by checkpoint "
            f"{newest.corrections[name].checkpoint}. Go back to before it first. {NOTHING}"
        )
    raise Refused(
        f"{url}: undone={name!r}: no kept checkpoint is a correction of this name that a rollback has undone and left "
        f"to be seen. If there was one, its checkpoint is no longer kept. {_BY_HAND}. {NOTHING}"
    )


def left_since(job: Job, log: Log, newest: Manifest, id: int) -> Left:
    """What rollback ``id``, which is the newest checkpoint, has undone and left to be seen. Refused for any other, and
    if not every checkpoint since its target is kept."""
    url = log.storage.url
    back = log.read(id).manifest if id in log.kept_ids(newest) else None
    if back is None or back.kind != "rollback" or newest.base != id or back.target is None or back.retract is not None:
        raise Refused(
            f"{url}: undone={id}: the newest checkpoint is {newest.base}, and is to be that rollback, which has left "
            f"later outputs. Give it before the job runs again. {NOTHING}"
        )
    kept = [one for one in log.kept_ids(newest) if one < id]
    # The target is a checkpoint, or a fence on top of one.
    first = max((one for one in kept if one <= back.target and not newest.has_left(one)), default=id)
    line = [log.read(one).manifest for one in kept if one == first or one > back.target]
    if first < newest.oldest or any(one.kind not in _CHANGE_NOTHING for one in line[1:]):
        raise Refused(
            f"{url}: undone={id}: between checkpoint {back.target} and this rollback are others, or an evolution, or "
            f"not all are kept, so what they published is not known. Of each correction: {_BY_HAND[0].lower()}"
            f"{_BY_HAND[1:]}. {NOTHING}"
        )
    if len(line) == 1:
        raise Refused(
            f"{url}: undone={id}: this rollback to checkpoint {back.target} has undone nothing, so there is nothing to "
            f"make good. {NOTHING}"
        )
    corrections = [one for one in line[1:] if one.kind == "correction"]
    sha256 = hashlib.sha256(f"{newest.job} {id}".encode()).hexdigest()
    steps = {
        id: tuple(_steps(one, line))
        for id, one in job.nodes.items()
        if isinstance(one.state.window, SessionWindow) and one.state.lateness.answer == RETRACT
        if one.state.lateness.of_changes is None
        if all(id in manifest.nodes and _is_same(manifest, newest, id) for manifest in line)
    }
    return Left(str(id), _added(corrections, newest), sha256, steps)


def undone_outputs(bench: NodeBench, step: NodeStep, left: Left | None) -> Closed | None:
    """What brings readers of a state of sessions back, staged for its sinks; None for any other state, or if nothing
    of it is undone."""
    node, undone = bench.node, () if left is None else left.steps.get(bench.node.id, ())
    if not undone or not node.sinks:
        return None
    closing = replace(step.closing(), key_types=undone[-1].key_types)
    return stage_differences(node, closing, undone_sessions(node, undone))


def _steps(node: Node, line: Sequence[Manifest]) -> Iterator[CloseShard]:
    """What each checkpoint of a line has closed and corrected in a state of sessions, as its step did."""
    cache = run_cache_of(node)
    assert isinstance(cache, SessionCache)
    for manifest, (before, after) in zip(line[1:], pairwise(one.nodes[node.id] for one in line)):
        delta = tuple(run for run in after.runs if run.first == run.last == manifest.id)
        runs, closed, close_at = before.runs, before.clock.closed, after.clock.closed
        yield CloseShard(
            Attempt(0, manifest.id),
            node.id,
            runs,
            0,
            KEY_GROUPS,
            closed,
            close_at,
            after.key_types,
            0,
            final=after.final,
            delta=delta,
            corrected=cache.touched(delta, closed),
            hashes=cache.due((*runs, *delta), closed, close_at),
        )


def _corrections(log: Log, newest: Manifest, name: str) -> Iterator[Manifest]:
    """The kept checkpoints that are a correction of that name, and abandoned, but not their outputs."""
    for id in log.kept_ids(newest):
        manifest = log.read(id).manifest if _stays_published(newest, id) else None
        if manifest is not None and manifest.kind == "correction" and name in _own(manifest):
            yield manifest


def _added(corrections: Sequence[Manifest], newest: Manifest) -> dict[str, tuple[Run, ...]]:
    """The runs that these corrections added to the states that are still there."""
    runs = dict[str, tuple[Run, ...]]()
    for manifest in corrections:
        for id, one in manifest.nodes.items():
            if id in newest.nodes and _is_same(manifest, newest, id):
                added = tuple(run for run in one.runs if run.first == manifest.id)
                runs[id] = (*runs.get(id, ()), *added)
    return runs


def untouched_rows(job: Job, left: Left, final: Mapping[str, int]) -> tuple[dict[str, GroupSums], set[str]]:
    """Rows that change nothing, at the keys and panes of what was left, by state; and the states that cannot be
    published so. ``final``: of each state, the clock up to which windows take nothing. Refused if there are none."""
    rows, unable = dict[str, GroupSums](), dict[str, str]()
    for id, one in job.nodes.items():
        runs, why = left.runs.get(id, ()), _why_not(one)
        if id in left.steps:
            continue
        if why and (runs or isinstance(one.state.window, SessionWindow)):
            unable[one.name] = why
        elif runs and (found := _untouched(one, runs, final[id])) is not None:
            rows[id] = found
    if not (rows or any(left.steps.values())):
        nothing = "it has left nothing to publish: what it has changed is final, or the task is another one since"
        why, *_ = [*unable.values(), nothing]
        raise Refused(f"undone={left.name!r}: {why}. {NOTHING}")
    return rows, set(unable)


def _untouched(node: Node, runs: Sequence[Run], final: int) -> GroupSums | None:
    monoid, window = node.state.monoid, node.state.window
    parts = [read_rows(node, run, 0, KEY_GROUPS) for run in runs]
    with monoid_errors(node.task, node.id):
        parts = [replace(one, columns=monoid.pack([monoid.identity] * len(one))) for one in parts]
        rows = fold(monoid, parts, node.state.panes.step)
    if window is not None:
        rows = rows.take(np.flatnonzero(window.last_end(rows.panes) > final))
    return rows if len(rows) else None


def _why_not(node: Node) -> str:
    """Why a state cannot be published as it is now, key by key, over what stays of it; empty if it can."""
    if isinstance(node.state.window, SessionWindow):
        return (
            "sessions keep the times of their records, and have other borders now. With allowed_lateness= and "
            "emit='close' give the id of the rollback instead, before the job runs; else go back to the same "
            "checkpoint again, with --outputs=retract, which takes later outputs back"
        )
    if node.state.time_to_live is not None:
        return "a key with a time to live keeps the times of its records: take later outputs back instead"
    return ""


def _stays_published(newest: Manifest, id: int) -> bool:
    """Whether rollbacks have abandoned the checkpoint of that id, and none has taken back its outputs."""
    of_id = [taken_back for first, stop, taken_back in newest.left if first <= id < stop]
    return bool(of_id) and not any(of_id)


def _own(manifest: Manifest) -> dict[str, Correction]:
    """The correction that a checkpoint is, by its name."""
    return {name: one for name, one in manifest.corrections.items() if one.checkpoint == manifest.id}


def _is_same(manifest: Manifest, newest: Manifest, id: str) -> bool:
    """Whether a state has the same monoid, panes and key in both; its newest may have no key yet."""
    one, other = manifest.nodes[id], newest.nodes[id]
    prints = canonical_json(one.fingerprint), canonical_json(other.fingerprint)
    return prints[0] == prints[1] and one.key_names == other.key_names and other.key_types in ((), one.key_types)
