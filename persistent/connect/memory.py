"""A memory source is a list of rows in this process, for tests and first experiments.

A memory sink is a list of published rows in this process, for tests and for inspecting results.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.arrays import plain_array
from persistent.codec.fields import Position
from persistent.connect import options
from persistent.connect.formats.conversion import converted
from persistent.connect.formats.schemas import convertible, from_json, misfit, plain, settled, to_json, widens
from persistent.connect.formats.timestamps import milliseconds, require_readable, why_none
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import StagingSink
from persistent.connect.source import (
    NO_TIMESTAMP,
    Budget,
    DeadRecord,
    Reached,
    Records,
    Source,
    SourcePlan,
    SourceState,
    Span,
    Split,
)
from persistent.errors import InvalidPipeline, SinkMismatch, SourceChanged, SourceError, StagedMissing
from persistent.names import Staged, garbage, published_id, published_name, published_stem
from persistent.text.readable import readable_list
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, bare, option_ms

_PARTITION = "memory"
_ROWS_AT_ONCE = 1 << 18
_NONE = type(None)
_NUMBERS = frozenset({int, float, np.int64, np.float64})


class MemorySource(Source):
    """The rows of a list of mappings, or of an Arrow table; row n is at position (0, n).

    The next plan sees rows appended to the list; rows already read must not change. An integer timestamp counts
    milliseconds unless ``timestamp_unit`` says otherwise. A row that is not a mapping, or holds a value of another type
    than the first plan found in its field, is a dead letter, regardless of its neighbours.
    ``ordered=True`` promises rows in time order.

    >>> source = MemorySource([{"ts": 5, "page": "a"}, {"ts": 7, "page": "b"}])
    >>> plan = source.plan(SourceState({}), Budget(rows=10))
    >>> [records.timestamps.tolist() for records in source.read(plan.splits[0], plan.recorded)]
    [[5, 7]]
    """

    finds_times = True

    kind: str = "MemorySource"

    @spelled
    def __init__(
        self,
        rows: Sequence[Any] | pa.Table,
        *,
        timestamp: str = "ts",
        timestamp_unit: str | None = "ms",
        max_out_of_orderness: Duration = 0,
        ordered: bool = False,
    ) -> None:
        if not isinstance(rows, (list, tuple, pa.Table)):
            raise InvalidPipeline(f"rows is a {type(rows).__name__}; give a list of mappings or an Arrow table")
        options.require_type("timestamp", timestamp, str, "'ts'")
        options.require_unit(timestamp_unit)
        options.require_type("ordered", ordered, bool, "True")
        self.rows = rows
        self.timestamp: str = timestamp
        self.timestamp_unit = timestamp_unit
        self.ordered = ordered
        self.max_out_of_orderness: int = option_ms(max_out_of_orderness, "max_out_of_orderness")
        self.bare = bare(max_out_of_orderness=max_out_of_orderness)

    def __repr__(self) -> str:
        return f"MemorySource({len(self.rows):,} rows, timestamp={self.timestamp!r})"

    def partitions(self) -> Sequence[str]:
        return (_PARTITION,)

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """The new rows, up to the budget, in as many slices as it says."""
        start = state.positions.get(_PARTITION, (0, 0))[1]
        total = len(self.rows)
        if start > total:
            raise SourceChanged(
                f"MemorySource: the checkpoint has read {start:,} rows, but there are only {total:,}; "
                "give it the same list again, rows may only be appended"
            )
        if total == 0 and not follow:
            raise SourceError("MemorySource: the list is empty; add rows, or run with follow=True")
        stop = start if _PARTITION in budget.ahead else min(total, start + max(budget.rows, 1))
        self._require_recorded(state.recorded)
        if start == total:
            return SourcePlan((), {_PARTITION: (0, start)}, {_PARTITION: None}, state.recorded)
        schema = self._fixed_schema(state.recorded)
        pieces = min(budget.splits_of(stop - start), stop - start)
        cuts = [start + (stop - start) * piece // max(pieces, 1) for piece in range(pieces + 1)]
        splits = tuple(Split(_PARTITION, (Span(0, a, b),)) for a, b in pairwise(cuts))
        cap = {_PARTITION: self._cap(stop, schema)}
        return SourcePlan(splits, {_PARTITION: (0, stop)}, cap, self._record(schema))

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same rows in the present columns. None if they are gone: the list is another one."""
        stop = put.end[_PARTITION][1]
        if stop > len(self.rows):
            return None
        self._require_recorded(state.recorded)
        schema = self._fixed_schema(state.recorded)
        return replace(put, cap={_PARTITION: self._cap(stop, schema)}, recorded=self._record(schema))

    def position_at(self, partition: str, clock: int) -> Position:
        """The first row with a timestamp of ``clock`` or later; without one, the end of the list."""
        if not len(self.rows):
            return 0, 0
        only_time = pa.schema([self._fixed_schema({}).field(self.timestamp)])
        records = self._records(0, len(self.rows), only_time)
        offsets = records.offsets[records.timestamps >= clock]
        return 0, int(offsets[0]) if len(offsets) else len(self.rows)

    def reached(self, state: SourceState) -> Reached:
        """How many of all rows have been read at these positions."""
        return Reached(state.positions.get(_PARTITION, (0, 0))[1], len(self.rows), "rows")

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        self._require_recorded(recorded)
        return from_json(recorded["schema"])

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        schema = self.schema(recorded)
        for span in split.spans:
            if span.stop > len(self.rows):
                raise SourceChanged(
                    f"MemorySource: rows {span.start:,} to {span.stop:,} were planned, but there are only "
                    f"{len(self.rows):,}; give it the same list again, rows may only be appended"
                )
            for start in range(span.start, span.stop, _ROWS_AT_ONCE):
                yield self._records(start, min(start + _ROWS_AT_ONCE, span.stop), schema)

    def guarantee(self) -> Promise:
        """Exactly-once, as long as rows are only appended."""
        return Promise(EXACTLY_ONCE, "rows are read from the same place again")

    def _require_recorded(self, recorded: Mapping[str, Any]) -> None:
        options.require_recorded(recorded, self._times())

    def _record(self, schema: pa.Schema) -> dict[str, Any]:
        return {"format": "memory", "schema": to_json(schema), **self._times()}

    def _times(self) -> dict[str, Any]:
        return {"timestamp": self.timestamp, "timestamp_unit": self.timestamp_unit}

    # -- rows into columns -----------------------------------------------------------------------------------

    def _fixed_schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        if "schema" in recorded:
            schema = from_json(recorded["schema"])
        elif isinstance(self.rows, pa.Table):
            schema = plain(self.rows.schema, "MemorySource")
        else:
            mappings = [row for row in self.rows if isinstance(row, Mapping)]
            if self.rows and not mappings:
                raise SourceError(
                    f"MemorySource: rows[0] is a {type(self.rows[0]).__name__}, and none of the rows has fields: give "
                    f"mappings, as in [{{{self.timestamp!r}: 1714557600000, 'page': '/home'}}]"
                )
            schema = settled(_inferred(mappings), "MemorySource")
        require_readable(schema, self.timestamp, self.timestamp_unit)
        return schema

    def _records(self, start: int, stop: int, schema: pa.Schema) -> Records:
        dead: list[DeadRecord] = []
        if isinstance(self.rows, pa.Table):
            batch, offsets, dead = _of_table(self.rows.slice(start, stop - start), start, schema)
        else:
            batch, offsets, dead = _of_rows(self.rows[start:stop], start, schema)
        times = milliseconds(column := batch.column(self.timestamp), self.timestamp_unit)
        return Records(0, batch, times, offsets, dead, partial(why_none, column, self.timestamp, self.timestamp_unit))

    def _cap(self, start: int, schema: pa.Schema) -> int | None:
        """The smallest timestamp of the rows from ``start`` on, which are listed but not read yet."""
        if self.ordered:
            return None
        only_time = pa.schema([schema.field(self.timestamp)])
        times = self._records(start, len(self.rows), only_time).timestamps
        times = times[times != NO_TIMESTAMP]
        return max(int(times.min()), -1) if len(times) else None


def _inferred(rows: Sequence[Mapping[str, Any]]) -> pa.Schema:
    """A column for every field of any row. Its type fits all values of the same kind as the first that is not None."""
    names = dict.fromkeys(name for row in rows for name in row)
    fields = []
    for name in names:
        values = [row[name] for row in rows if row.get(name) is not None]
        if len(_kinds(values)) > 1:
            first = _kinds(values[:1])
            values = [value for value in values if _kinds([value]) == first]
        try:
            kind = pa.infer_type(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            kind = pa.infer_type(values[:1])
        fields.append(pa.field(str(name), kind))
    return pa.schema(fields)


def _of_table(table: pa.Table, start: int, schema: pa.Schema) -> tuple[pa.RecordBatch, Any, list[DeadRecord]]:
    """The rows in the recorded types, their row numbers, and a dead record for each row with a misfit."""
    fault = misfit(table.schema, schema, convertible)
    if fault:
        raise SourceError(f"MemorySource: {fault}. A fresh checkpoint and sink take the table as it is")
    misfits = dict[int, str]()
    columns = [
        plain_array(converted(pa.chunked_array([plain_array(table.column(field.name))]), field, misfits))
        for field in schema
    ]
    kept = np.delete(np.arange(table.num_rows), sorted(misfits))
    dead = [DeadRecord(0, start + row, misfits[row]) for row in sorted(misfits)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return batch.take(pa.array(kept)) if dead else batch, kept + start, dead


def _of_rows(rows: Sequence[Any], start: int, schema: pa.Schema) -> tuple[pa.RecordBatch, Any, list[DeadRecord]]:
    """The rows that convert, their row numbers, and the others as dead records."""
    try:
        return _converted(rows, schema), np.arange(start, start + len(rows), dtype=np.int64), []
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if len(rows) == 1:
            dead = DeadRecord(0, start, _reason(rows[0], error), repr(rows[0]).encode(errors="backslashreplace"))
            return _converted([], schema), np.array([], np.int64), [dead]
    half = len(rows) // 2
    before, offsets_before, dead_before = _of_rows(rows[:half], start, schema)
    after, offsets_after, dead_after = _of_rows(rows[half:], start + half, schema)
    return (
        pa.concat_batches([before, after]),
        np.concatenate([offsets_before, offsets_after]),
        dead_before + dead_after,
    )


def _converted(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    for row in rows:
        if not isinstance(row, Mapping):
            raise TypeError("not a mapping")
    columns = [_column([row.get(field.name) for row in rows], field) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: list[Any], field: pa.Field) -> pa.Array:
    """The values as a column if all of them have its type; Arrow alone would truncate 1.5 to 1.

    Values of several kinds raise, so that each is tried by itself: together Arrow would make 1.0 of True beside 1.5,
    and which values are together depends on the split.
    """
    if len(_kinds(values)) > 1:
        raise TypeError(f"column {field.name!r} is of type {field.type}, but its values are of several kinds")
    column = pa.array(values)
    if column.type == field.type:
        return column
    whole_to_real = pa.types.is_integer(column.type) and pa.types.is_floating(field.type)
    if not (pa.types.is_null(column.type) or whole_to_real or widens(column.type, field.type)):
        raise TypeError(f"column {field.name!r} is of type {field.type}, but the value of type {column.type}")
    return column.cast(field.type)


def _kinds(values: list[Any]) -> set[type]:
    """The types of values that are not None; integers and floats are one kind, numbers."""
    return {float if kind in _NUMBERS else kind for kind in set(map(type, values)) if kind is not _NONE}


def _reason(row: Any, error: Exception) -> str:
    if not isinstance(row, Mapping):
        return f"a row must be a mapping of names to values, not {type(row).__name__}"
    return f"a value does not fit its column: {error}"


class MemorySink(StagingSink):
    """Publishes into ``table``. Works on the embedded engine only.

    >>> sink = MemorySink()
    >>> sink.publish(7, [sink.stage(pa.table({"page": ["a"], "visits": [2]}), 7, "e1-c7-0f8fad5b")])
    >>> sink.rows()
    [{'page': 'a', 'visits': 2}]
    """

    abilities = frozenset({"newest", "retract", "staged"})

    shared = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._job: str | None = None
        self._staged: dict[str, pa.Table] = {}
        self._published: dict[str, pa.Table] = {}

    def __repr__(self) -> str:
        return "MemorySink()"

    def __reduce__(self) -> Any:
        raise InvalidPipeline(
            "MemorySink lives in one process and works on the embedded engine only: other processes cannot "
            "reach it. Use FileSink, or engine=Embedded()."
        )

    def guarantee(self) -> Promise:
        """Exactly-once while this process lives."""
        return Promise(EXACTLY_ONCE, "rows are shown once, while this process lives")

    @property
    def table(self) -> pa.Table | None:
        """All published rows, by checkpoint; None before anything is published."""
        with self._lock:
            tables = [self._published[name] for name in sorted(self._published)]
        return pa.concat_tables(tables, promote_options="permissive") if tables else None

    def rows(self) -> list[dict[str, Any]]:
        """All published rows as dictionaries. A time for which Python has no value is ISO 8601, as ``10000-01-01``."""
        table = self.table
        return [] if table is None else readable_list(table)

    def claim(self, job: str) -> None:
        """Reserve the sink for one job. SinkMismatch if it belongs to another job."""
        with self._lock:
            if self._job not in (None, job):
                raise SinkMismatch(
                    f"this MemorySink holds the results of job {self._job}, but this checkpoint is of job {job}. Two "
                    "jobs, or one with a new checkpoint, write here: give each its own MemorySink()."
                )
            self._job = job

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str) -> Staged:
        """Keep ``outputs`` out of sight. ValueError if ``attempt`` is malformed."""
        published_stem(staging_id, attempt)
        with self._lock:
            if attempt in self._staged:
                raise ValueError(f"attempt {attempt} was staged before; each needs a new uuid")
            self._staged[attempt] = outputs
        return Staged(name=attempt, rows=outputs.num_rows, bytes=outputs.nbytes)

    def publish(self, staging_id: int, staged: Sequence[Staged]) -> None:
        """Show the staged rows; rows that are shown already stay. StagedMissing, StorageError."""
        with self._lock:
            listed = {published_name(staging_id, file.name) for file in staged}
            published = {name for name in self._published if published_id(name) == staging_id}
            if staged and not published <= listed:
                raise SinkMismatch(
                    f"MemorySink: checkpoint {staging_id} was published here with other rows. Two checkpoints write "
                    "here: give each its own MemorySink()."
                )
            for file in staged:
                final = published_name(staging_id, file.name)
                if final in self._published:
                    continue
                if file.name not in self._staged:
                    raise StagedMissing(
                        f"MemorySink: {file.name} is neither staged nor published here: it is in another MemorySink, "
                        "or was in that of a process that has ended. A checkpoint continues with the sink it began "
                        "with: give it the same MemorySink; or, if that is gone, start a new checkpoint, with a "
                        'FileSink("results", format="jsonl") if other processes continue it'
                    )
                self._published[final] = self._staged.pop(file.name)

    def retract(self, first: int, stop: int) -> None:
        """Delete what was published under the ids ``first <= id < stop``."""
        with self._lock:
            for name in [name for name in self._published if first <= published_id(name) < stop]:
                del self._published[name]

    def newest(self) -> int:
        """The highest id under which anything is published; -1 if none."""
        with self._lock:
            return max(map(published_id, self._published), default=-1)

    def staged(self, job: str) -> list[str]:
        """The names of the staged outputs of this job. SinkMismatch if the sink belongs to another job."""
        self.claim(job)
        with self._lock:
            return sorted(self._staged)

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        """Delete the staged rows that no driver will publish."""
        with self._lock:
            for name in garbage(self._staged, live, epoch, id):
                del self._staged[name]
