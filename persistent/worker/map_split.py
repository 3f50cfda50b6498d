"""Mapping a split reads it, judges every record, runs the task over those that count, and writes their sum."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.cells import Integers
from monoids.groupby.sorting import Mask
from persistent.checkpoint.parts import Account
from persistent.codec.fields import type_of
from persistent.connect import remedies
from persistent.errors import UserCodeError
from persistent.state.state import PersistentState
from persistent.state.time_to_live import Judge
from persistent.task.delta import Delta
from persistent.task.message import Batch
from persistent.task.processing import Deltas, TaskFailure, key_columns, process
from persistent.task.task import key_names
from persistent.worker.duplicates import Duplicates
from persistent.worker.job import Job, LateWindows, Mapped, MappedNode, MapSplit, Node, SplitOfNode
from persistent.worker.judge_records import PARTLY_LATE, SplitTally, judge
from persistent.worker.merge_runs import monoid_errors, write_run
from persistent.worker.seen_items import SeenAfter
from persistent.worker.seen_state import SeenCache, seen_node
from persistent.worker.stage_aside import RowsAside, stage_aside, stage_late

_WHOLE = r"^\s*[+-]?[0-9]+\s*$"
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_COLUMN_OF_TEXT = "column of string"

_NONE = np.zeros(0, np.int64)


def map_split(job: Job, item: MapSplit, cache: SeenCache | None = None) -> Mapped:
    """Process one split. ``cache``: the runs of seen records that this worker has read."""
    nodes = {id: node for id, node in job.nodes.items() if id in item.nodes}
    item = replace(item, limit=item.limit.within(node.state.window for node in nodes.values()))
    each = {node.name: _delta_of(node, item, item.nodes[id]) for id, node in nodes.items()}
    deltas = Deltas(each, named=job.named)
    tally, seen, source = SplitTally(), _duplicates(job, item, cache), job.sources[item.source]
    guessed = source.text_columns(item.recorded) - {item.recorded.get("timestamp")} if source.infers else frozenset()
    for batch, aside in _counting(job, item, tally, seen):
        _process(job, deltas, batch, aside, tally, guessed)
    assert tally.account.balances, f"the account of {item.split} does not balance: {tally.account}"
    late_output, refused = stage_late(job, item.attempt, tally.late)
    return Mapped(
        source=item.source,
        partition=item.split.partition,
        nodes={
            id: _written(node, item, deltas[node.name], tally.late_windows.get(id, {})) for id, node in nodes.items()
        },
        account=tally.account,
        largest=tally.largest,
        late=stage_aside(job, item.attempt, tally.late),
        dead=stage_aside(job, item.attempt, [*tally.dead, *refused]),
        first_dead=tally.dead[0].column("reason")[0].as_py() if tally.dead else "",
        seen=None if seen is None else _seen_after(job, item, seen),
        late_output=late_output,
        ignored=tally.ignored,
        valued=frozenset(tally.valued),
    )


def _counting(
    job: Job, item: MapSplit, tally: SplitTally, seen: Duplicates | None
) -> Iterator[tuple[Batch, RowsAside]]:
    """Read a split and judge each record; yields the records that count, by batch, with the ``RowsAside`` of each."""
    parts, nodes = item.nodes, job.nodes.items()
    clocks = {id: (_judge_of(node.state), parts[id].final) for id, node in nodes if id in parts}
    paths = {span.ordinal: str(span.at.get("path", "")) for span in item.split.spans}
    key_of = key_columns(job.task)
    for records in job.sources[item.source].read(item.split, item.recorded):
        path = paths.get(records.ordinal, "")
        tally.note_columns(records, path or item.partition)
        aside = RowsAside(item.partition, path, records, item.attempt.id)
        kept = judge(item, clocks, aside, tally, seen)
        batch = Batch(records.batch, records.timestamps, item.partition, records.ordinal, records.offsets, key_of)
        batch = batch if kept is None else batch.take(kept)
        if len(batch):
            yield batch, aside


def _judge_of(state: PersistentState) -> Judge | None:
    return state.window or state.time_to_live


def _delta_of(node: Node, item: MapSplit, part: SplitOfNode) -> Delta:
    """The delta of one node. ``part``: what the split is for it."""
    return Delta(
        node.state,
        key_names(node.task),
        part.watermark if _judge_of(node.state) is None else part.final,
        item.limit.ahead,
        [type_of(name) for name in part.key_types],
        drops=len(item.nodes) > 1,
        since=item.since,
        sinks=node.sinks.values(),
    )


def _written(node: Node, item: MapSplit, delta: Delta, missed: LateWindows) -> MappedNode:
    """What a split is to one node, whose delta is written as a run. ``missed``: the late records by window."""
    with monoid_errors(node.task, node.id):
        rows = delta.rows()
    if rows is None:
        return MappedNode(late_windows=missed)
    types = tuple(str(column.type) for column in rows.keys)
    if not len(rows):
        return MappedNode(key_types=types, late_windows=missed)
    id = item.attempt.id
    return MappedNode(*write_run(node, item.attempt, rows, id, id), types, missed)


def _duplicates(job: Job, item: MapSplit, cache: SeenCache | None) -> Duplicates | None:
    if item.seen is None:
        return None
    return Duplicates(job.storage, job.dedupe[item.source], item.seen, cache or SeenCache())


def _seen_after(job: Job, item: MapSplit, seen: Duplicates) -> SeenAfter:
    """The records that the split has seen, written as a run."""
    rows, oldest = seen.rows(), seen.oldest_copy
    watermark = min(part.watermark for part in item.nodes.values())
    behind_ms = 0 if oldest is None else max(0, watermark - oldest)
    run = None
    if rows is not None:
        assert item.seen is not None
        run, *_ = write_run(
            seen_node(job, item.source, item.seen.pane_ms), item.attempt, rows, item.attempt.id, item.attempt.id
        )
    return SeenAfter(run, seen.span(), seen.doubtful(), behind_ms)


def _process(
    job: Job,
    deltas: Deltas,
    batch: Batch,
    aside: RowsAside,
    tally: SplitTally,
    guessed: frozenset[str],
) -> None:
    """``guessed``: the columns of the source whose types are inferred from text."""
    failures: list[TaskFailure] = []
    with monoid_errors(job.task):
        process(job.task, deltas, batch, failures, stop=not job.dead_letters)
    times, failed = batch.timestamps, _NONE
    if failures:
        odd = odd_field(failures[0].error, failures[0].message, guessed, aside)
        if not job.dead_letters:
            raise UserCodeError(
                f"{failures[0].text(aside.path)}{odd}. Nothing of this step is committed; fix the task, or set "
                'on_error="dead-letter" to set such messages aside'
            ) from failures[0].error
        failed = np.concatenate([failure.message.offsets for failure in failures])
        reasons = {int(failure.message.offsets[0]): failure.reason for failure in failures}
        reasons[int(failures[0].message.offsets[0])] += odd
        chosen = np.flatnonzero(np.isin(aside.records.offsets, failed))
        tally.dead.append(aside.rows(chosen, [reasons[offset] for offset in aside.records.offsets[chosen].tolist()]))
        tally.account += Account(0, -len(failures), 0, len(failures), 0, 0)
        times = times[~np.isin(batch.offsets, failed)]
    noted = deltas.noted()
    if len(failed) or noted:
        listed = tally.late[:-1] if aside.partly else tally.late
        missing = {name: np.union1d(noted.get(name, _NONE), aside.partly.get(name, _NONE)) for name in deltas}
        tally.late = [*listed, *_partly_late(missing, failed, aside)]
    if len(times):
        largest = int(times.max())
        tally.largest = largest if tally.largest is None else max(tally.largest, largest)


def _partly_late(missing: Mapping[str, Integers], failed: Integers, aside: RowsAside) -> list[pa.RecordBatch]:
    """The messages that a state or a final window lacks: by their own times, which the judge has listed last, and by
    updates at other times. Failed messages are left out: they count nowhere, and are dead letters alone."""
    offsets = np.setdiff1d(np.concatenate(list(missing.values())), failed)
    if not len(offsets):
        return []
    chosen = np.flatnonzero(np.isin(aside.records.offsets, offsets))
    if len(missing) == 1:
        return [aside.rows(chosen, PARTLY_LATE)]
    names: list[list[str]] = [[] for _ in chosen]
    for name, state_offsets in missing.items():
        for place in np.flatnonzero(np.isin(aside.records.offsets[chosen], state_offsets)).tolist():
            names[place].append(name)
    return [aside.rows(chosen, [f"{PARTLY_LATE} in {', '.join(states)}" for states in names])]


def odd_field(error: Exception, batch: Batch, columns: frozenset[str], aside: RowsAside) -> str:
    """Why a value that the task does not take is text, if it could be a number; otherwise empty. ``batch``: the message
    for which the task raised; ``columns``: those whose types were inferred from text."""
    if not columns or not isinstance(error, TypeError | ValueError):
        return ""
    (message,) = batch.messages()
    texts = [name for name, value in message.value.items() if name in columns and isinstance(value, str)]
    reason = str(error)
    odd = [name for name in texts if _COLUMN_OF_TEXT in reason or repr(message.value[name]) in reason]
    masks = {name: _numbers(aside.records.batch.column(name)) for name in odd if re.match(_NUMBER, message.value[name])}
    # The column with the most numbers is the one that may be meant.
    name = max(masks, key=lambda name: int(masks[name].sum()), default=None)
    return "" if name is None else _explained(name, masks[name], aside)


def _numbers(column: pa.Array) -> Mask:
    """Which values can be numbers, or are null."""
    return np.asarray(pc.match_substring_regex(column, _NUMBER).fill_null(True))


def _explained(name: str, numbers: Mask, aside: RowsAside) -> str:
    column, odd = aside.records.batch.column(name), np.flatnonzero(~numbers)
    whole = pc.match_substring_regex(column.filter(pa.array(numbers)), _WHOLE)
    kind = "int64" if pc.all(whole, min_count=0).as_py() else "double"
    cause = "the first lines of the first file have a field that is"
    if len(odd):
        offset = int(aside.records.offsets[odd[0]])
        cause = f"the record at offset {offset} of {aside.path} has {column[int(odd[0])].as_py()[:40]!r}, which is"
    return (
        f". Column {name!r} was inferred to be text, as {cause} no number: {remedies.COLUMNS}, this one {kind!r}, and "
        "such a record is a dead letter"
    )
