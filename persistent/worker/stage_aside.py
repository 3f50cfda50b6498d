"""Records that are set aside are staged as files of the checkpoint, and late ones also as rows for a sink of their own,
in columns that never change:

    partition  file  ordinal  offset      where the record was read
    timestamp  reason  checkpoint         its time (ms), "late" or "partly-late", and the step that found it so
    value                                 the record as JSON: its own columns can be others in another file
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

import pyarrow as pa

from persistent.checkpoint.names import Attempt, Staged
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.checkpoint.runs import write_table
from persistent.errors import InvalidPipeline
from persistent.sinks.json_lines import json_rows
from persistent.worker.job import Job

LATE_KEY: Final = ("partition", "ordinal", "offset")
"""The columns that identify a late record."""
LATE_SCHEMA: Final = pa.schema(
    [
        ("partition", pa.string()),
        ("file", pa.string()),
        ("ordinal", pa.int64()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("reason", pa.string()),
        ("checkpoint", pa.int64()),
        ("value", pa.string()),
    ]
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
