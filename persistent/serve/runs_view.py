"""The storage of a checkpoint: its runs by key group and by the checkpoints they sum, and those that one key needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from persistent.checkpoint.manifest import Manifest
from persistent.codec import KEY_GROUPS, Run
from persistent.errors import InvalidPipeline
from persistent.serve.shown import Shown
from persistent.serve.state_reading import one_key

_RUNS_MAX = 2_000


def runs_view(shown: Shown, at: int | None = None, key: tuple[str | None, ...] | None = None) -> dict[str, Any]:
    """All runs of a checkpoint, the largest first if they are too many; with ``key``, its group and the runs that hold
    it."""
    entry = shown.entry(at)
    manifest = entry.manifest
    operator = max(manifest.operators.values(), key=lambda one: len(one.key_types))
    runs = sorted(_all(manifest), key=lambda one: -one["bytes"])
    answer: dict[str, Any] = {
        "id": manifest.id,
        "groups": KEY_GROUPS,
        "runs": runs[:_RUNS_MAX],
        "runs_more": max(0, len(runs) - _RUNS_MAX),
        "count": len(runs),
        "bytes": sum(one["bytes"] for one in runs),
        "manifest_bytes": entry.bytes,
        "manifests": len(shown.look().ids),
        "key": [f"{name}: {kind}" for name, kind in zip(operator.key_names, operator.key_types)],
    }
    if key is not None:
        if not operator.key_names:
            raise InvalidPipeline("the task has no key: every run holds its one sum")
        group = one_key(operator.key_names, operator.key_types, key).group
        answer["needed"] = {"group": group, "runs": list(_needed(manifest, key))}
    return answer


def _needed(manifest: Manifest, key: tuple[str | None, ...]) -> Iterator[str]:
    """The runs of every state that hold the key. The types of a key, and so its group, are those of each state; one
    that has counted no record has neither types nor runs."""
    for operator in manifest.operators.values():
        runs = [run for state in operator.states.values() for run in state.runs]
        if runs:
            group = one_key(operator.key_names, operator.key_types, key).group
            yield from (run.name for run in runs if run.low <= group < run.high)


def _all(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for task, operator in manifest.operators.items():
        for name, state in operator.states.items():
            called = task if len(operator.states) == 1 else f"{task}, {name}"
            yield from (_run(run, f"state {called}", "state", state.has_windows) for run in state.runs)
    for name, source in manifest.sources.items():
        yield from (_run(run, f"index of {name}", "index", False) for run in source.index)
        if source.seen is not None:
            yield from (_run(run, f"seen records of {name}", "seen", True) for run in source.seen.runs)


def _run(run: Run, of: str, kind: str, has_times: bool) -> dict[str, Any]:
    return {
        "name": run.name,
        "of": of,
        "kind": kind,
        "rows": run.rows,
        "rows_left": run.rows_left,
        "bytes": run.bytes,
        "start": run.start,
        "low": run.low,
        "high": run.high,
        "first": run.first,
        "last": run.last,
        "pane_min": run.pane_min if has_times else None,
        "pane_max": run.pane_max if has_times else None,
    }
