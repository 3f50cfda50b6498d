"""Late rows and dead letters are staged as files of the checkpoint, and late ones also for a sink of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.groupby.sorting import Integers
from persistent.checkpoint.aside_columns import LATE_KEY, LATE_SCHEMA, aside_rows
from persistent.checkpoint.names import Attempt, Staged
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.checkpoint.runs import write_table
from persistent.errors import InvalidPipeline
from persistent.sinks.json_lines import json_rows
from persistent.sources.protocol import NO_TIMESTAMP, Records
from persistent.worker.job import Job


@dataclass(frozen=True)
class RowsAside:
    """Makes the rows of late records and dead letters of a batch. ``partition``, ``path``: where it was read;
    ``checkpoint``: the id of the step."""

    partition: str
    path: str
    records: Records
    checkpoint: int
    partly: dict[str, Integers] = field(default_factory=dict)
    """The offsets of those that are partly late by their own time, by the state that lacks them; an only one is ""."""

    def rows(self, chosen: Integers, reasons: str | Sequence[str]) -> pa.RecordBatch:
        """These rows of the batch."""
        batch = self.records.batch.take(pa.array(chosen))
        value = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)) if batch.num_columns else None
        return self._rows(self.records.offsets[chosen], self.records.timestamps[chosen], reasons, value=value)

    def undecoded(self) -> pa.RecordBatch:
        """The records between the rows of the batch that cannot be decoded."""
        dead, kind = self.records.dead, pa.struct(list(self.records.batch.schema))
        offsets, times = np.array([one.offset for one in dead], np.int64), np.full(len(dead), NO_TIMESTAMP)
        reasons, data = [one.reason for one in dead], [one.data for one in dead]
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


def late_outputs(late: pa.Table) -> pa.Table:
    """Late records as rows for a sink."""
    kept = late.select([name for name in LATE_SCHEMA.names if name != "value"])
    return kept.append_column("value", _texts(late.column("value").combine_chunks())).cast(LATE_SCHEMA)


def _texts(values: pa.Array) -> pa.Array:
    """Records as JSON. A time too far away for a text is the number that it is stored as: a sink must not stop a job
    that has set the record aside."""
    if pa.types.is_null(values.type):
        return values
    columns = pa.table(values.flatten(), names=[field.name for field in values.type])
    try:
        texts = list(chain.from_iterable(json_rows(columns)))
    except InvalidPipeline:
        plain = [
            field.with_type(pa.int64()) if pa.types.is_timestamp(field.type) else field for field in columns.schema
        ]
        texts = list(chain.from_iterable(json_rows(columns.cast(pa.schema(plain)))))
    return pa.array(texts, pa.binary()).cast(pa.string())


def stage_aside(job: Job, attempt: Attempt, batches: Sequence[pa.RecordBatch]) -> Staged | None:
    """Rows set aside, in the order of the source, as a file of the checkpoint; None if there are none."""
    return write_table(job.storage, job.folder(), attempt, _together(batches)) if batches else None


def stage_late(job: Job, attempt: Attempt, batches: Sequence[pa.RecordBatch]) -> Staged | None:
    """Late records for their sink; None without one, or if there are none."""
    if job.late_sink is None or not batches:
        return None
    outlet = job.all_outlets()[LATE_SINK]
    return outlet.stage(late_outputs(_together(batches)), attempt.id, attempt.name(), LATE_KEY)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")
    return table.sort_by([("ordinal", "ascending"), ("offset", "ascending")])
