"""A migration rewrites the state of a changed task according to its evolution, and commits it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import structs

from monoids import Monoid, record
from monoids.column import Columns
from monoids.groupby.summing import GroupSums
from monoids.monoid import check_schema
from monoids.records import RecordMonoid
from persistent.checkpoint.compaction import shards
from persistent.checkpoint.manifest import Manifest, commits_of
from persistent.checkpoint.parts import NodePart
from persistent.checkpoint.runs import read_run, run_place, with_recovery_advice, write_new
from persistent.codec.fields import Run
from persistent.codec.runs import is_wide
from persistent.codec.sealed import open_sealed, read_index, seal
from persistent.driver.evolution import Evolution, Evolutions, column_sources, fields_of, is_same
from persistent.errors import CorruptCheckpoint, UserCodeError
from persistent.names import Attempt, garbage, runs_folder
from persistent.state.rows import OPEN_PANE
from persistent.state.state import PersistentState
from persistent.worker.job import Job, Node
from persistent.worker.merge_runs import fold_runs, key_text, write_run

logger = logging.getLogger("persistent.driver")


def migrated(
    job: Job,
    attempt: Attempt,
    old: Manifest,
    view: Manifest,
    evolve: Evolutions,
    kept: Sequence[Manifest],
) -> dict[str, Any]:
    """Rewrite the state of ``old`` as ``view`` describes it; returns the fields of the migration.

    One run at a time, each verified while it is read; with a function, one shard of the keys at a time. ``kept``: the
    manifests whose files are kept.
    """
    nodes = {}
    for name, node in job.nodes.items():
        before, new, how = old.nodes.get(name), view.nodes[name], evolve.get(node.name)
        if before is None or how is None or is_same(before, new):
            nodes[name] = new
        else:
            runs = tuple(_evolved_runs(node, attempt, before, how))
            # What the old monoid has published is final: a correction would mix values of both.
            evolved = structs.replace(new, runs=runs, lowest=before.lowest if runs else None, final_at=None)
            # A sink has what the keys were before, without windows or in open ones: it gets every key anew.
            is_shown = node.state.window is None or node.state.lateness.of_changes
            nodes[name] = evolved.unpublished() if is_shown else evolved
    _sweep_dropped(job, old, [name for name in old.nodes if name not in nodes], kept)
    logger.info("%s: manifest %d holds the migrated state", job.storage.url, attempt.id)
    return {
        "commits": commits_of({**old.bases, attempt.id: old.committed_ms}),
        "tasks": view.tasks,
        "nodes": nodes,
        "sinks": view.sinks,
        "fences": old.fences if view.replan == old.replan else 1,
        "replan": view.replan,
    }


def _evolved_runs(node: Node, attempt: Attempt, before: NodePart, evolve: Evolution) -> Iterator[Run]:
    if evolve.change is not None:
        yield from _changed_runs(node, attempt, before, evolve)
        return
    stored = before.fingerprint["monoid"]
    monoid = node.state.monoid
    assert isinstance(monoid, RecordMonoid)
    columns = _columns(monoid, column_sources(fields_of(stored) or (), monoid.fields, evolve))
    old_names = [f"element:{name}" for name, _ in stored["schema"]]
    for run in before.runs:
        yield _with_columns(node, attempt, run, read_run(node.storage, run), old_names, columns)


def _columns(monoid: RecordMonoid, sources: Mapping[str, str | None]) -> list[str | pa.Array]:
    """For each element column: the name of the old one, or its value in the identity, as an array of one row."""
    columns: list[str | pa.Array] = []
    for name, part in monoid.fields.items():
        source = sources[name]
        if source is None:
            columns += part.to_arrow(part.pack([part.identity]))
        else:
            columns += [f"element:{column}" for column in record(**{source: part}).schema.names]
    return columns


def _with_columns(
    node: Node, attempt: Attempt, run: Run, data: pa.Buffer, old_names: list[str], columns: list[str | pa.Array]
) -> Run:
    """The same rows with other element columns, as a new run."""
    place = run_place(node.storage, run)
    with with_recovery_advice(node.storage.url):
        index = read_index(data, run.sha256, place)
        schema, batches = open_sealed(data, index, place)
        start = schema.names.index("pane") + 1 if "pane" in schema.names else 0
        if schema.names[start:] != old_names or index.rows != run.rows:
            raise CorruptCheckpoint(
                f"{place}: holds {index.rows} rows of {schema.names}, which contradicts its manifest"
            )
    monoid = node.state.monoid
    names = [*schema.names[:start], *(f"element:{name}" for name in monoid.schema.names)]
    written = [_batch(monoid, batch, names, start, columns, place) for batch in batches]
    hashes = np.concatenate([np.asarray(batch.column(0)) for batch in batches])
    sealed, sha256 = seal(written, hashes, index.panes)
    name = write_new(node.storage, node.folder, attempt, sealed)
    return structs.replace(run, name=name, bytes=len(sealed), sha256=sha256, wide=is_wide(monoid, sealed))


def _batch(
    monoid: Monoid[Any], batch: pa.RecordBatch, names: list[str], start: int, columns: list[str | pa.Array], place: str
) -> pa.RecordBatch:
    first = pa.array(np.zeros(len(batch), np.int64))
    elements = [batch.column(column) if isinstance(column, str) else column.take(first) for column in columns]
    try:
        check_schema(monoid, elements)
    except ValueError as error:
        raise CorruptCheckpoint(f"{place}: {error}") from error
    return pa.RecordBatch.from_arrays([*batch.columns[:start], *elements], names)


def _changed_runs(node: Node, attempt: Attempt, before: NodePart, evolve: Evolution) -> Iterator[Run]:
    """The sum of each key and pane by the old monoid, changed."""
    assert evolve.before is not None
    was = replace(node, state=_with_monoid(node.state, evolve.before))
    for low, high in shards(before.runs) if before.runs else ():
        inputs = [run for run in before.runs if run.low < high and low < run.high]
        rows = fold_runs(was, inputs, low, high)
        if rows is not None and node.state.window is not None:
            rows = rows.take(np.flatnonzero(node.state.window.last_end(rows.panes) > before.clock.closed))
        if rows is not None and len(rows):
            first, last = min(run.first for run in inputs), max(run.last for run in inputs)
            yield write_run(node, attempt, _changed(node, rows, evolve), first, last, low, high)[0]


def _with_monoid(state: PersistentState, monoid: Monoid[Any]) -> PersistentState:
    was = copy(state)
    was.monoid = monoid
    return was


def _changed(node: Node, rows: GroupSums, evolve: Evolution) -> GroupSums:
    """The rows with every element changed by the user's function."""
    assert evolve.before is not None and evolve.change is not None
    monoid, elements = node.state.monoid, evolve.before.unpack(rows.columns)
    try:
        return replace(rows, columns=_packed(monoid, [evolve.change(element) for element in elements]))
    except Exception:
        for row, element in enumerate(elements):
            try:
                _packed(monoid, [evolve.change(element)])
            except Exception as error:
                pane = "" if rows.panes[row] == OPEN_PANE else f", pane {rows.panes[row]}"
                raise UserCodeError(
                    f"{evolve!r} fails for the state of key ({key_text(rows, row)}){pane}: "
                    f"{type(error).__name__}: {error}. The state is unchanged; fix the function: it takes an element "
                    f"of {evolve.before!r} and returns one of {monoid!r}"
                ) from error
        raise


def _packed(monoid: Monoid[Any], elements: list[Any]) -> Columns:
    """Elements as columns; an error if one is not an element of this monoid."""
    if isinstance(monoid, RecordMonoid):
        for element in elements:
            if len(element) != len(monoid.fields):
                raise ValueError(f"{len(element)} parts, where the fields are {', '.join(monoid.fields)}")
    columns = monoid.pack(elements)
    check_schema(monoid, monoid.to_arrow(columns))
    return columns


def _sweep_dropped(job: Job, fence: Manifest, names: Sequence[str], kept: Sequence[Manifest]) -> None:
    """Delete the files of dropped nodes that no kept manifest names; no later sweep looks into their folders."""
    live = {name for manifest in (*kept, fence) for name in manifest.files()}
    live |= fence.unpublished()
    # A task can have the name of a source's kind: then the index runs of the pending plan are in its folder.
    for folder in {runs_folder(name) for name in names} - fence.index_folders():
        there = [f"{folder}/{name}" for name in job.storage.list(folder)]
        for name in garbage(there, live, fence.epoch, fence.id):
            job.storage.delete(name)
