"""A diff lists what changed between two checkpoints: clock, positions, account, runs, and values by key."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec.structs import asdict

from monoids import Sum, record
from monoids.groupby.sorting import Integers, Mask
from monoids.groupby.summing import group_by
from monoids.hashing import key_column
from persistent.checkpoint.compaction import shards
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import partition_name
from persistent.codec.fields import Run
from persistent.pipeline import Pipeline
from persistent.reading.place import Place, checked_node, read_place
from persistent.task.task import key_names
from persistent.text.fingerprints import shown_text, window_text
from persistent.time.session_window import SessionWindow
from persistent.worker.job import Node
from persistent.worker.output_tables import END, START, equal_values
from persistent.worker.state_tables import StatePart, empty_table, folded_tables

_SIDES = record(before=Sum(), after=Sum())


@dataclass(frozen=True)
class Change:
    """A change of ``name`` in ``part`` (checkpoint, clock, position, account, correction, run). A side is None where
    ``name`` is missing."""

    part: str
    name: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Diff:
    """The differences between two places.

    ``rows``: the keys and windows with different values, up to the limit, and how each differs: ``added``, ``removed``,
    ``closed`` (a window published since) or ``changed``; None if values were not compared. The end of a session is one
    of its values, and a session that has become part of another one is ``removed``. ``differing``, ``equal``: the
    total numbers of each.
    """

    before: Place
    after: Place
    changes: tuple[Change, ...]
    rows: pa.Table | None = None
    differing: int = 0
    equal: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.differing


def diff(
    before: Place, after: Place, *, pipeline: Pipeline | None = None, limit: int = 100, name: str | None = None
) -> Diff:
    """What changed from one place to another. With the pipeline, also up to ``limit`` keys and windows whose values
    differ, compared shard by shard in bounded memory. ``name``: the state, if the task has several.

    The job can run meanwhile: if a newest checkpoint is collected before it is read, the next newest replaces it.
    """
    if pipeline is None:
        return Diff(before, after, tuple(_changes(before.manifest, after.manifest)))
    return read_place(
        before, lambda first: read_place(after, lambda second: _with_values((first, second), pipeline, limit, name))
    )


def _with_values(places: tuple[Place, Place], pipeline: Pipeline, limit: int, name: str | None) -> Diff:
    before, after = places
    changes = tuple(_changes(before.manifest, after.manifest))
    nodes = checked_node(pipeline, before, name), checked_node(pipeline, after, name)
    differing = equal = 0
    tables: list[pa.Table] = []
    for rows, same in _different(nodes, before.manifest, after.manifest):
        room = limit - sum(table.num_rows for table in tables)
        tables.append(rows.slice(0, max(room, 0)))
        differing, equal = differing + rows.num_rows, equal + same
    return Diff(before, after, changes, pa.concat_tables(tables, promote_options="permissive"), differing, equal)


# -- manifests -------------------------------------------------------------------------------------------------------


def _changes(before: Manifest, after: Manifest) -> Iterator[Change]:
    yield from _named("checkpoint", _checkpoint(before), _checkpoint(after))
    yield from _named("clock", _clock(before), _clock(after))
    yield from _named("position", _positions(before), _positions(after))
    yield from _named("account", _accounts(before), _accounts(after))
    yield from _named("correction", _corrections(before), _corrections(after))
    for name in sorted({*before.nodes, *after.nodes}):
        yield from _runs(_runs_of(before, name), _runs_of(after, name))


def _named(part: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield Change(part, name, before.get(name), after.get(name))


def _checkpoint(manifest: Manifest) -> dict[str, Any]:
    fields = asdict(manifest)
    states = {
        f"{part} of {name}": text
        for name, node in manifest.nodes.items()
        for part, text in (
            ("monoid", shown_text(node.fingerprint["monoid"])),
            ("window", window_text(node.fingerprint["window"])),
        )
    }
    keys = {f"key of {name}": _typed(node.key_names, node.key_types) for name, node in manifest.nodes.items()}
    return {**{name: fields[name] for name in ("job", "kind", "epoch", "base", "oldest")}, **states, **keys}


def _typed(names: tuple[str, ...], types: tuple[str, ...]) -> list[str]:
    return [f"{name}: {types[i] if i < len(types) else 'unknown'}" for i, name in enumerate(names)]


def _clock(manifest: Manifest) -> dict[str, Any]:
    clock = manifest.clock
    largest = {f"largest of {partition}": time for partition, time in clock.largest.items()}
    limit = {} if manifest.not_after is None else {"not_after": manifest.not_after}
    moves = {"clock": clock.watermark, "closed": clock.closed, "end_of_input": clock.end_of_input}
    if len(manifest.nodes) > 1:
        moves = {
            f"{what} of {name}": value
            for name, clock in ((name, node.clock) for name, node in manifest.nodes.items())
            for what, value in (("clock", clock.watermark), ("closed", clock.closed), ("end_of_input", clock.ended))
        }
    return {**moves, **limit, **largest}


def _positions(manifest: Manifest) -> dict[str, Any]:
    return {
        partition_name(name, partition, len(manifest.sources)): list(position)
        if isinstance(position, tuple)
        else position
        for name, source in manifest.sources.items()
        for partition, position in source.positions.items()
    }


def _accounts(manifest: Manifest) -> dict[str, Any]:
    return {
        f"{fate} of {partition}": count
        for partition, account in manifest.accounts.items()
        for fate, count in account.fates.items()
    }


def _corrections(manifest: Manifest) -> dict[str, str]:
    return {name: f"{one}, by checkpoint {one.checkpoint}" for name, one in manifest.corrections.items()}


def _runs_of(manifest: Manifest, node: str) -> dict[str, Run]:
    return {run.name: run for run in manifest.nodes[node].runs} if node in manifest.nodes else {}


def _runs(before: Mapping[str, Run], after: Mapping[str, Run]) -> Iterator[Change]:
    """The runs that are gone or new. A new run is a delta, or the sum of runs that no longer exist. A run that was
    compacted in part counts from a later key group on: both groups are listed."""
    gone = [run for name, run in before.items() if name not in after]
    come = [run for name, run in after.items() if name not in before]
    for run in gone:
        into = [whole.name for whole in come if whole.first <= run.first and run.last <= whole.last]
        yield Change("run", run.name, _run_text(run), f"compacted into {', '.join(into)}" if into else None)
    for run in come:
        sums = sum(run.first <= part.first and part.last <= run.last for part in before.values())
        text = f"{_run_text(run)}{f', sums {sums} of the runs before' if sums else ''}"
        yield Change("run", run.name, None, text)
    for name in before.keys() & after.keys():
        if before[name].low != after[name].low:
            yield Change("run", name, f"from key group {before[name].low}", f"from key group {after[name].low}")


def _run_text(run: Run) -> str:
    return f"{run.rows:,} rows, {run.bytes:,} bytes, deltas {run.first} to {run.last}"


# -- values ----------------------------------------------------------------------------------------------------------


def _different(nodes: tuple[Node, Node], before: Manifest, after: Manifest) -> Iterator[tuple[pa.Table, int]]:
    """For each shard, the rows that differ and the number of equal rows."""
    runs = [run for node, manifest in zip(nodes, (before, after)) for run in manifest.nodes[node.id].runs]
    for low, high in shards(runs, 1):
        tables = [
            pa.concat_tables([empty_table(node, manifest), *folded_tables(node, manifest, StatePart(low, high))])
            for node, manifest in zip(nodes, (before, after))
        ]
        yield _compared(nodes, tables[0], tables[1], after.nodes[nodes[1].id].clock.closed)


def _compared(nodes: tuple[Node, Node], before: pa.Table, after: pa.Table, closed: int) -> tuple[pa.Table, int]:
    node = nodes[0]
    borders = (START,) if isinstance(node.state.window, SessionWindow) else (START, END)
    names = [*key_names(node.task), *(borders if node.state.window else ())]
    ours, theirs = _aligned(nodes, before, after)
    both = (ours >= 0) & (theirs >= 0)
    same = both.copy()
    for name in before.column_names:
        if name not in names:
            same[both] &= equal_values(_taken(before[name], ours[both]), _taken(after[name], theirs[both]))
    ours, theirs = ours[~same], theirs[~same]
    identities = pa.concat_tables([before.select(names), after.select(names)], promote_options="permissive")
    where = pa.array(np.where(ours >= 0, ours, theirs + before.num_rows))
    columns = {"change": _kinds(node, before, after, ours, theirs, closed)}
    columns |= {name: _taken(identities[name], where) for name in names}
    for name in before.column_names:
        if name not in names:
            columns[f"{name} before"] = _taken(before[name], pa.array(ours, mask=ours < 0))
            columns[f"{name} after"] = _taken(after[name], pa.array(theirs, mask=theirs < 0))
    return pa.table(columns), int(same.sum())


def _kinds(node: Node, before: pa.Table, after: pa.Table, ours: Integers, theirs: Integers, closed: int) -> pa.Array:
    kinds = np.where(ours < 0, "added", np.where(theirs < 0, "removed", "changed")).astype(object)
    if node.state.window is not None and len(kinds):
        gone = np.flatnonzero(kinds == "removed")
        is_over = _times(before, END)[ours[gone]] <= closed
        if isinstance(node.state.window, SessionWindow):
            is_over &= ~_is_part(key_names(node.task), before.take(pa.array(ours[gone])), after)
        kinds[gone[is_over]] = "closed"
    return pa.array(kinds, pa.string())


def _is_part(names: Sequence[str], gone: pa.Table, after: pa.Table) -> Mask:
    """Whether each session of ``gone`` begins within a session of the same key in ``after``."""
    both = pa.concat_tables([after.select(names), gone.select(names)], promote_options="permissive")
    keys = np.zeros(len(after) + len(gone), np.int64)
    for name in names:
        codes = key_column(both[name].combine_chunks()).dictionary_encode("encode").indices.to_numpy()
        _, keys = np.unique(keys * len(keys) + codes, return_inverse=True)
    starts, is_gone = np.concatenate([_times(after, START), _times(gone, START)]), np.arange(len(keys)) >= len(after)
    order = np.lexsort((is_gone, starts, keys))
    # The last session of ``after`` at or before each, in this order; the first place stands for none.
    last = order[np.maximum.accumulate(np.where(is_gone[order], 0, np.arange(len(order))))]
    ends = np.append(_times(after, END), np.zeros(len(gone), np.int64))
    is_part = np.zeros(len(order), bool)
    is_part[order] = (keys[last] == keys[order]) & (ends[last] > starts[order])
    return is_part[len(after) :]


def _times(table: pa.Table, name: str) -> Integers:
    return np.asarray(table[name].cast(pa.int64()).to_numpy())


def _aligned(nodes: tuple[Node, Node], before: pa.Table, after: pa.Table) -> tuple[Integers, Integers]:
    """The row of each key and window in either table; -1 where it is missing.

    A table has each key and window once, so the sum of their row numbers, counted from one, is the row.
    """
    names, windows = key_names(nodes[0].task), [node.state.window for node in nodes]
    whole = pa.concat_tables([before.select(names), after.select(names)], promote_options="permissive")
    keys = [key_column(whole[name].combine_chunks()) for name in names]
    first, second = before.num_rows, after.num_rows
    rows = (
        np.concatenate([np.arange(1, first + 1), np.zeros(second, np.int64)]),
        np.concatenate([np.zeros(first, np.int64), np.arange(1, second + 1)]),
    )
    panes, step = np.zeros(first + second, np.int64), 1
    if windows[0] is not None and first + second:
        panes = np.concatenate([_times(table, START) for table in (before, after)])
        # The rules of a time zone may have changed in between, and the borders of a calendar with them.
        steps = [1 if window is None or isinstance(window, SessionWindow) else window.step for window in windows]
        panes, step = panes - panes.min(), math.gcd(*steps)
    sums = group_by(_SIDES, keys, panes, rows, step)
    return sums.columns[0] - 1, sums.columns[1] - 1


def _taken(column: pa.ChunkedArray, rows: Any) -> pa.Array:
    taken = column.take(rows if isinstance(rows, pa.Array) else pa.array(rows))
    return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken
