"""A correction that a rollback has undone stays published, if the rollback has left the later outputs. Its checkpoint
is kept for a while, with the run that it added: of the keys and windows in it, the sinks may hold other values than the
state has now.

    the state  +  the identity at these keys and panes  =  the state          and these are published as they are now
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from monoids.groupby.summing import GroupSums
from persistent.checkpoint.corrections import Correction
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.codec import KEY_GROUPS, Run, canonical_json
from persistent.errors import Refused
from persistent.lateness import DELTA
from persistent.session_window import SessionWindow
from persistent.state_rows import fold
from persistent.worker.correct_records import NOTHING
from persistent.worker.job import Job
from persistent.worker.merge_runs import monoid_errors, read_rows

_BY_HAND = (
    "Apply it again, and then another one with add and remove exchanged: that publishes its keys and windows as they "
    "are now, if remove= is possible"
)


@dataclass(frozen=True)
class Left:
    """What an undone correction has left: by state, the runs that it added to it. ``sha256``: of its records."""

    name: str
    runs: Mapping[str, tuple[Run, ...]]
    sha256: str


def left_by(log: Log, newest: Manifest, name: str) -> Left:
    """What the corrections of that name have left, which rollbacks have undone without taking their outputs back.
    Refused if there is none, or its checkpoint is no longer kept."""
    url, runs, sha256 = log.storage.url, dict[str, tuple[Run, ...]](), ""
    for id in log.kept_ids(newest):
        manifest = log.read(id).manifest if _stays_published(newest, id) else None
        if manifest is None or manifest.kind != "correction" or _own(manifest).get(name) is None:
            continue
        sha256 = _own(manifest)[name].sha256
        for operator, one in manifest.operators.items():
            if operator in newest.operators and _is_same(manifest, newest, operator):
                added = tuple(run for run in one.state.runs if run.first == id)
                runs[operator] = (*runs.get(operator, ()), *added)
    if sha256:
        return Left(name, runs, sha256)
    if name in newest.corrections:
        raise Refused(
            f"{url}: undone={name!r}: the state holds this correction, by checkpoint "
            f"{newest.corrections[name].checkpoint}. Go back to before it first. {NOTHING}"
        )
    raise Refused(
        f"{url}: undone={name!r}: no kept checkpoint is a correction of this name that a rollback has undone and left "
        f"to be seen. If there was one, its checkpoint is no longer kept. {_BY_HAND}. {NOTHING}"
    )


def untouched_rows(job: Job, left: Left, final: Mapping[str, int]) -> tuple[dict[str, GroupSums], set[str]]:
    """Rows that change nothing, at the keys and panes of what was left, by state; and the states that cannot be
    published so. ``final``: of each state, the clock up to which windows take nothing. Refused if there are none."""
    rows, unable = dict[str, GroupSums](), dict[str, str]()
    for operator, one in job.each().items():
        runs = left.runs.get(operator, ())
        why = _why_not(one)
        if runs and why:
            unable[one.name] = why
        elif runs and (found := _untouched(one, runs, final[operator])) is not None:
            rows[operator] = found
    if not rows:
        why = next(iter(unable.values()), "all that it has changed is final, or the task is another one since")
        raise Refused(f"undone={left.name!r}: {why}. {NOTHING}")
    return rows, set(unable)


def _untouched(job: Job, runs: Sequence[Run], final: int) -> GroupSums | None:
    monoid, window = job.state.monoid, job.state.window
    parts = [read_rows(job, run, 0, KEY_GROUPS) for run in runs]
    with monoid_errors(job):
        parts = [replace(one, columns=monoid.pack([monoid.identity] * len(one))) for one in parts]
        rows = fold(monoid, parts, job.state.panes.step)
    if window is not None:
        rows = rows.take(np.flatnonzero(window.last_end(rows.panes) > final))
    return rows if len(rows) else None


def _why_not(job: Job) -> str:
    """Why a state cannot be published as it is now, key by key, over what stays of it; empty if it can."""
    if isinstance(job.state.window, SessionWindow):
        return "sessions keep the times of their records, and have other borders now: take later outputs back instead"
    if job.state.time_to_live is not None:
        return "a key with a time to live keeps the times of its records: take later outputs back instead"
    if job.state.lateness.answer == DELTA:
        return "its deltas are added up by readers, and nothing replaces them: take later outputs back instead"
    return ""


def _stays_published(newest: Manifest, id: int) -> bool:
    """Whether rollbacks have abandoned the checkpoint of that id, and none has taken back its outputs."""
    of_id = [taken_back for first, stop, taken_back in newest.left if first <= id < stop]
    return bool(of_id) and not any(of_id)


def _own(manifest: Manifest) -> dict[str, Correction]:
    """The correction that a checkpoint is, by its name."""
    return {name: one for name, one in manifest.corrections.items() if one.checkpoint == manifest.id}


def _is_same(manifest: Manifest, newest: Manifest, operator: str) -> bool:
    """Whether a state has the same monoid, panes and key in both; its newest may have no key yet."""
    one, other = manifest.operators[operator], newest.operators[operator]
    prints = canonical_json(one.state.fingerprint), canonical_json(other.state.fingerprint)
    return prints[0] == prints[1] and one.key_names == other.key_names and other.key_types in ((), one.key_types)
