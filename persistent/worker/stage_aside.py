"""Late rows and dead letters are staged as files of the checkpoint, and late ones also for a sink of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.sorting import Integers
from persistent.checkpoint.aside_columns import LATE_KEY, LATE_SCHEMA, aside_rows
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.checkpoint.runs import write_table
from persistent.connect.formats.json_rows import json_rows
from persistent.connect.outlet import stage_accepted
from persistent.connect.source import NO_TIMESTAMP, Records
from persistent.errors import InvalidPipeline
from persistent.names import Attempt, Staged
from persistent.text.readable import readable_list
from persistent.worker.job import Job

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
