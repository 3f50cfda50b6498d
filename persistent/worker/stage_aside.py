"""Late rows and dead letters are staged as files of the checkpoint, and late ones also for a sink of their own.

A failing key is a dead letter too: a key, or one window of it, without a result, because its fold raises, or the
monoid cannot present its sum. It is found by halves (``persistent.state.difference``) of the rows to present, or to
fold. All other keys get their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids import Monoid
from monoids.encoding import to_json
from monoids.groupby.sorting import Integers
from monoids.groupby.summing import GroupSums
from persistent.checkpoint.aside_columns import LATE_KEY, LATE_SCHEMA, aside_rows
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.checkpoint.runs import write_table
from persistent.connect.formats.json_rows import json_rows
from persistent.connect.outlet import stage_accepted
from persistent.connect.source import NO_TIMESTAMP, Records
from persistent.errors import InvalidPipeline, UserCodeError
from persistent.names import STATE, Attempt, Staged
from persistent.state.difference import Placed
from persistent.state.rows import ends_of, result_columns, values_of
from persistent.task.task import key_names
from persistent.text.figures import utc_text
from persistent.text.readable import readable, readable_list
from persistent.worker.job import Job, Node
from persistent.worker.output_tables import END, START

_TAKE_BYTES_MAX: Final = 1 << 30
"""Larger tables are put in order without a copy: ``take`` makes one array of a column, which holds 2 GiB."""


@dataclass(frozen=True)
class RowsAside:
    """Makes the rows of late records and dead letters of a batch. ``partition``, ``path``: where it was read;
    ``checkpoint``: the id of the step."""

    partition: str
    path: str
    records: Records
    checkpoint: int
    partly: dict[str, Integers] = field(default_factory=dict)
    """By the name of a state: the offsets of the records that it lacks because of their own time."""

    def rows(self, chosen: Integers, reasons: str | Sequence[str]) -> pa.RecordBatch:
        """These rows of the batch."""
        batch = self.records.batch.take(pa.array(chosen))
        columns = [_valid(column) for column in batch.columns]
        value = pa.StructArray.from_arrays(columns, fields=list(batch.schema)) if columns else None
        return self._rows(self.records.offsets[chosen], self.records.timestamps[chosen], reasons, value=value)

    def undecoded(self) -> pa.RecordBatch:
        """The records between the rows of the batch that cannot be decoded."""
        dead, kind = self.records.dead, pa.struct(list(self.records.batch.schema))
        offsets, times = np.array([record.offset for record in dead], np.int64), np.full(len(dead), NO_TIMESTAMP)
        reasons, data = [record.reason for record in dead], [record.data for record in dead]
        return self._rows(offsets, times, reasons, value=pa.nulls(len(dead), kind), data=data)

    def _rows(self, offsets: Integers, times: Integers, reasons: str | Sequence[str], **more: Any) -> pa.RecordBatch:
        return aside_rows(
            len(offsets),
            partition=self.partition,
            file=self.path,
            ordinal=self.records.ordinal,
            offset=offsets,
            timestamp=pa.array(times, mask=times == NO_TIMESTAMP),
            reason=reasons,
            checkpoint=self.checkpoint,
            **more,
        )


def _valid(column: pa.Array) -> pa.Array:
    """The column, with the bytes of a text escaped that is not UTF-8: a file that holds one cannot be read again."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array(readable_list(column), column.type)
    return column


def late_outputs(late: pa.Table) -> pa.Table:
    """Late records as rows for a sink."""
    kept = late.select([name for name in LATE_SCHEMA.names if name != "value"])
    return kept.append_column("value", _texts(late.column("value").combine_chunks())).cast(LATE_SCHEMA)


def _texts(values: pa.Array) -> pa.Array:
    """Records as JSON."""
    if pa.types.is_null(values.type):
        return values
    columns = pa.table(values.flatten(), names=[field.name for field in values.type])
    return pa.array(list(chain.from_iterable(json_rows(columns))), pa.binary()).cast(pa.string())


def stage_aside(job: Job, attempt: Attempt, batches: Sequence[pa.RecordBatch]) -> Staged | None:
    """Rows set aside, in the order of the source, as a file of the checkpoint; None if there are none."""
    return write_table(job.storage, job.folder, attempt, _together(batches)) if batches else None


def stage_late(
    job: Job, attempt: Attempt, batches: Sequence[pa.RecordBatch]
) -> tuple[Staged | None, list[pa.RecordBatch]]:
    """Stage the late records for their sink; None without a sink or late records. Also returns, as dead letters, the
    records that the sink can never hold. If the job has no dead letters, InvalidPipeline for the first of these."""
    if job.late_sink is None or not batches:
        return None, []
    place, late = job.all_outlets()[LATE_SINK], _together(batches)
    staged, refused = stage_accepted(place, late_outputs(late), attempt, LATE_KEY, all_refused=job.dead_letters)
    if refused and not job.dead_letters:
        raise InvalidPipeline(
            f"{refused[0][1]}. It is a late record. Nothing of this step is committed; let such late records be "
            'dead letters, with their reason: on_error="dead-letter"'
        ) from refused[0][1]
    if not refused:
        return staged, []
    dead = late.take(pa.array([row for row, _ in refused]))
    reasons = pa.array([f"late, and not in the sink of late records: {error}" for _, error in refused])
    place_of = dead.schema.get_field_index("reason")
    dead = dead.set_column(place_of, dead.schema.field(place_of), reasons.cast(dead.schema.field(place_of).type))
    return staged, dead.combine_chunks().to_batches()


def _together(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """The rows in the order of the source."""
    table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")
    order = pc.sort_indices(table, sort_keys=[("ordinal", "ascending"), ("offset", "ascending")])
    if table.nbytes < _TAKE_BYTES_MAX:
        return table.take(order)
    rows = order.to_numpy()
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    return pa.concat_tables([table.slice(int(run[0]), len(run)) for run in runs])


@dataclass(frozen=True)
class FailingKey:
    """``window``: start and end (ms), None without windows. ``element``: encoded, if it exists. ``result``: as JSON, if
    a sink cannot hold it."""

    key: tuple[Any, ...]
    window: tuple[int, int] | None
    error: Exception
    element: bytes | None = None
    result: str | None = None

    def text(self, names: Sequence[str]) -> str:
        """Its key and window, and the error."""
        parts = (
            [f"key ({', '.join(f'{name}={value!r:.200}' for name, value in zip(names, self.key))})"] if names else []
        )
        if self.window is not None:
            parts.append(f"window {utc_text(self.window[0])} to {utc_text(self.window[1])}")
        return f"{', '.join(parts) or 'the whole state'}: {type(self.error).__name__}: {self.error}"


def of_state(node: Node) -> str:
    """Which state it is, of a task with several."""
    return "" if node.name == STATE else f", of the state {node.name!r}"


def no_result(node: Node, failing: FailingKey) -> UserCodeError:
    """The error that stops a run, or a read."""
    another = "Keep the state and give it another monoid, with Pipeline(evolve=Evolution(before=..., change=...))"
    if node.state.gaps is not None:
        another = "Give the task another monoid, a new checkpoint and a new sink, and read the source again"
    key = f"{failing.text(key_names(node.task))}{of_state(node)}"
    error = UserCodeError(
        f"{type(node.task).__name__}: no result for {key}. Committed state stays. "
        f'{another}; or set such results aside, with their reason, and get all others: on_error="dead-letter"'
    )
    error.__cause__ = failing.error
    return error


def refused_result(node: Node, outputs: pa.Table, row: int, error: Exception) -> FailingKey:
    """A row of outputs that a sink can never hold."""
    ((result,),) = json_rows(outputs.slice(row, 1))
    start, end = (outputs[name][row].value if node.state.window else None for name in (START, END))
    key = tuple(readable(outputs[name][row]) for name in key_names(node.task))
    return FailingKey(key, None if start is None or end is None else (start, end), error, result=result.decode())


def not_published(node: Node, refused: FailingKey) -> InvalidPipeline:
    """The error that stops a run."""
    error = InvalidPipeline(
        f"{type(node.task).__name__}: not published: {refused.text(key_names(node.task))}{of_state(node)}. Another "
        "task does not change what has counted: set such results aside, with their reason, and get all others: "
        'on_error="dead-letter"'
    )
    error.__cause__ = refused.error
    return error


@dataclass
class Failures:
    """The keys without a result that were found so far. Without dead letters in the node, the first one raises
    UserCodeError."""

    node: Node
    keys: list[FailingKey] = field(default_factory=list)

    def folding(self, placed: Placed, error: Exception) -> tuple[()]:
        """The fold of a single row raises."""
        self._add(FailingKey(_first_key(placed.rows), _window(self.node, placed.rows), error))
        return ()

    def presenting(self, rows: GroupSums, error: Exception) -> tuple[()]:
        """The value of a single row cannot be presented."""
        encoded = _encoded(self.node.state.monoid, rows)
        self._add(FailingKey(_first_key(rows), _window(self.node, rows), error, encoded))
        return ()

    def _add(self, failing: FailingKey) -> None:
        if not self.node.dead_letters:
            raise no_result(self.node, failing)
        self.keys.append(failing)


def _window(node: Node, rows: GroupSums) -> tuple[int, int] | None:
    """The start and the end of the window of a single row; None without windows."""
    window = node.state.window
    return None if window is None else (int(rows.panes[0]), int(ends_of(window, rows)[0]))


def _first_key(rows: GroupSums) -> tuple[Any, ...]:
    return tuple(readable(column[0]) for column in rows.keys)


def _encoded(monoid: Monoid[Any], rows: GroupSums) -> bytes | None:
    """The element of a row, for its dead letter, by the monoid of its value; None if it cannot be encoded."""
    values = values_of(monoid)
    try:
        return values.encode(values.unpack(result_columns(monoid, rows.columns))[0])
    except Exception:
        return None


def stage_failing_keys(node: Node, attempt: Attempt, failing: Sequence[FailingKey]) -> Staged | None:
    """Write the failing keys as dead letters. A failing key belongs to no record, so no account counts it."""
    if not failing:
        return None
    names, rows = key_names(node.task), len(failing)
    letters = aside_rows(
        rows,
        partition="",
        file="",
        timestamp=[key.window[0] if key.window else None for key in failing],
        reason=[
            f"{'no result for' if key.result is None else 'not published:'} {key.text(names)}{of_state(node)}"
            for key in failing
        ],
        checkpoint=attempt.id,
        data=[_facts(key, names) for key in failing],
    )
    return write_table(node.storage, node.folder, attempt, pa.Table.from_batches([letters]))


def _facts(failing: FailingKey, names: Sequence[str]) -> bytes:
    """The key, the window (ms), the element (hexadecimal) and the refused result as JSON, for programs."""
    start, end = failing.window or (None, None)
    element = None if failing.element is None else failing.element.hex()
    key = dict(zip(names, failing.key))
    facts = to_json({"key": key, "window_start": start, "window_end": end, "element": element})
    if failing.result is not None:
        facts = f'{facts[:-1]},"result":{failing.result}}}'
    return facts.encode("utf-8", "replace")
