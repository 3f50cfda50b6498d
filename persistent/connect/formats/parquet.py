"""A Parquet file has row groups of columns with statistics; an offset is a row number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from persistent.codec.lru_cache import LruCache
from persistent.connect import remedies
from persistent.connect.files.reader import Reader, Unreadable
from persistent.connect.formats.conversion import converted, has_nanoseconds, of_int96
from persistent.connect.formats.protocol import UNKNOWN, Extent, Facts, InputFile, OpenSpan, Taken, attempted
from persistent.connect.formats.schemas import convertible, empty_batch, misfit, settled, widens
from persistent.connect.formats.timestamps import count_ms
from persistent.connect.source import Records

_ROWS_AT_ONCE = 1 << 20
_FOOTER_BYTES = 8
_SMALL_BYTES = 1 << 21
_DAY_S = 86_400
_FAULTS: Final = (pa.ArrowException, OSError)
"""What Arrow raises for a file, and also for a store; the reader can tell which."""

_LATEST: Final = 2**63 - 1
"""A time beyond this is no timestamp."""
T = TypeVar("T")
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}


@dataclass(frozen=True)
class _Groups:
    """The row groups of a file: group i is the rows ``bounds[i]`` to ``bounds[i + 1]``, none before ``smallest[i]``."""

    bounds: tuple[int, ...]
    smallest: tuple[int | None, ...]


@dataclass(frozen=True)
class _Opened:
    """An open file. ``micros`` reads INT96 as microseconds; ``nanos`` as nanoseconds modulo 2^64, if it has any."""

    micros: pq.ParquetFile
    nanos: pq.ParquetFile | None = None

    def int96(self, groups: Sequence[int], names: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        """The columns, among ``names``, that hold INT96, as nanoseconds."""
        if self.nanos is None:
            return {}
        pairs = zip(self.micros.schema_arrow, self.nanos.schema_arrow)
        columns = [micros.name for micros, nanos in pairs if micros.type != nanos.type and micros.name in names]
        table = self.nanos.read_row_groups(list(groups), columns=columns, use_threads=False)
        return dict(zip(table.column_names, table.columns))


@dataclass(frozen=True)
class _Rows:
    """Rows in the recorded types. ``misfits``: why a type does not hold a value, by row; ``table`` has null there."""

    table: pa.Table
    misfits: Mapping[int, str]

    def slice(self, start: int, rows: int) -> _Rows:
        inside = {row - start: why for row, why in self.misfits.items() if start <= row < start + rows}
        return _Rows(self.table.slice(start, rows), inside)


class Parquet:
    """``timestamp`` and ``unit`` say which column's statistics bound the clock; ``infers``, that no types are declared.

    Arrow reads INT96 as nanoseconds modulo 2^64, which end in 2262. Here it is read as microseconds, which any year
    fits, unless the first file has finer times or ``timestamp[ns]`` is declared.
    """

    def __init__(self, timestamp: str, unit: str | None, infers: bool) -> None:
        self._timestamp = timestamp
        self._unit = unit
        self._fits = widens if infers else convertible
        self._groups: LruCache[_Groups] = LruCache(256)
        self._cut_groups: LruCache[_Rows] = LruCache(2)

    # -- plans ---------------------------------------------------------------------------------------------------

    def infer(self, file: InputFile) -> pa.Schema | None:
        metadata = _metadata(file)
        return settled(_inferred(file, metadata), file.where) if metadata.num_rows else None

    def require_schema(self, schema: pa.Schema) -> None:
        """Accepts every Arrow type; each file is checked for whether it fits."""

    def inspect(self, file: InputFile, schema: pa.Schema) -> Facts:
        metadata = _metadata(file)
        if metadata.num_rows == 0:
            return Facts(0, 0, None)
        fault = misfit(_schema(metadata), schema, self._fits)
        if fault:
            raise Unreadable(fault)
        smallest = _least(self._smallest_per_group(metadata))
        return Facts(metadata.num_rows, metadata.num_rows, smallest)

    def fields(self, file: InputFile) -> Sequence[str]:
        return [*_schema(_metadata(file)).names]

    def take(self, file: InputFile, start: int, rows: int, *, exact: bool, at_least_one: bool) -> Taken:
        total = file.rows or 0
        if start == 0 and total * 4 <= rows:
            return Taken((Extent(0, total, total),), True)
        bounds = self._row_groups(file).bounds
        extents: list[Extent] = []
        for low, high in pairwise(bounds):
            low = max(low, start)
            if low >= high:
                continue
            if high - low > rows and exact:
                high = low + rows
            if high == low or (high - low > rows and not (at_least_one and not extents)):
                break
            extents.append(Extent(low, high, high - low))
            rows -= high - low
        return Taken(tuple(extents), bool(extents) and extents[-1].stop == total)

    def split(self, file: InputFile, extent: Extent, parts: int, *, exact: bool) -> Sequence[Extent]:
        if not exact:
            return (extent,)
        cuts = [extent.start + (extent.stop - extent.start) * part // parts for part in range(parts + 1)]
        return [Extent(a, b, b - a) for a, b in pairwise(cuts) if a < b]

    def smallest_from(self, file: InputFile, start: int) -> int | None:
        groups = self._row_groups(file)
        return _least([least for stop, least in zip(groups.bounds[1:], groups.smallest) if stop > start])

    def _row_groups(self, file: InputFile) -> _Groups:
        return self._groups.get((file.where, file.fingerprint), lambda: self._read_groups(file))

    def _read_groups(self, file: InputFile) -> _Groups:
        file.require_unchanged()
        metadata = _metadata(file)
        return _Groups(_bounds(metadata), tuple(self._smallest_per_group(metadata)))

    def _smallest_per_group(self, metadata: pq.FileMetaData) -> list[int | None]:
        """The smallest timestamp of each row group: None where every time is null, ``UNKNOWN`` without statistics."""
        groups = range(metadata.num_row_groups)
        leaves = (i for i in range(metadata.num_columns) if metadata.schema.column(i).path == self._timestamp)
        leaf = next(leaves, None)
        if leaf is None:
            return [UNKNOWN for _ in groups]
        return [_smallest(metadata.row_group(group).column(leaf).statistics, self._unit) for group in groups]

    # -- reading -------------------------------------------------------------------------------------------

    def read(self, span: OpenSpan) -> Iterator[Records]:
        file, start, stop = span.file, span.start, span.stop
        with file.open() as reader:
            parquet = _opened(reader, not file.files.local, _may_hold_times(span.schema))
            bounds = _bounds(parquet.micros.metadata)
            schema = _schema(parquet.micros.metadata)
            if fault := misfit(schema, span.schema, convertible) or span.layout.misfit(schema.names):
                yield span.unfit(fault)
                return
            if span.ignored is not None:
                span.ignored.update({*parquet.micros.schema_arrow.names} - {*span.schema.names})
            for groups in _groups_per_batch(bounds, start, stop):
                low, high = bounds[groups[0]], bounds[groups[-1] + 1]
                cut = start > low or stop < high
                try:
                    rows = self._rows(file, parquet, groups, span.schema, cut)
                except _FAULTS as error:
                    _require_files_fault(reader, error)
                    yield from _one_by_one(span, groups, bounds)
                    continue
                first = max(start, low)
                yield from _records(span, rows.slice(first - low, min(stop, high) - first) if cut else rows, first)

    def _rows(self, file: InputFile, parquet: _Opened, groups: Sequence[int], schema: pa.Schema, cut: bool) -> _Rows:
        """Row groups in the recorded types. A row group that a step cuts is cached, because the next step needs the
        rest."""
        if not cut:
            return _columns(parquet, groups, schema)
        key = (file.where, file.fingerprint, file.hint, groups[0], schema)
        return self._cut_groups.get(key, lambda: _columns(parquet, groups, schema))


def _one_by_one(span: OpenSpan, groups: Sequence[int], bounds: Sequence[int]) -> Iterator[Records]:
    """The rows of row groups one of which failed: now each is read on a new connection.

    A row group that fails again is a dead record at its first row; the others are records.
    """
    file, schema, start, stop = span.file, span.schema, span.start, span.stop
    for group in groups:
        low, high = bounds[group], bounds[group + 1]
        first = max(start, low)
        try:
            take = partial(_columns, schema=schema)
            rows = attempted(file.fresh(), partial(_of_group, take=take, group=group, rows=high - low))
        except Unreadable as error:
            if low >= start:
                dead = span.broken(low, str(error))
                yield span.records(empty_batch(schema), np.array([], np.int64), (dead,))
        else:
            yield from _records(span, rows.slice(first - low, min(stop, high) - first), first)


def _of_group(file: InputFile, take: Callable[[_Opened, Sequence[int]], T], *, group: int, rows: int) -> T:
    """What ``take`` makes of one row group; ``Unreadable`` unless the store is at fault."""
    with file.open() as reader:
        parquet = _opened(reader, not file.files.local, True)
        try:
            return take(parquet, [group])
        except _FAULTS as error:
            _require_files_fault(reader, error)
            raise Unreadable(f"its row group {group} of {rows:,} rows cannot be read: {_short(error)}") from error


def _opened(reader: Reader, pre_buffer: bool, times: bool) -> _Opened:
    # One read of a small file costs less than a call from Arrow into Python for each of its columns.
    source = pa.BufferReader(reader.read()) if reader.size() <= _SMALL_BYTES else reader.arrow()
    options = {"pre_buffer": pre_buffer, "page_checksum_verification": True}
    try:
        parquet = pq.ParquetFile(source, coerce_int96_timestamp_unit="us", **options)
        if not times or not _has_int96(parquet.metadata):
            return _Opened(parquet)
        return _Opened(parquet, pq.ParquetFile(source, metadata=parquet.metadata, **options))
    except _FAULTS as error:
        _require_files_fault(reader, error)
        raise Unreadable(f"its Parquet footer cannot be read: {_short(error)}") from error


def _may_hold_times(schema: pa.Schema) -> bool:
    return any(pa.types.is_timestamp(kind) or pa.types.is_nested(kind) for kind in schema.types)


def _has_int96(metadata: pq.FileMetaData) -> bool:
    schema = metadata.schema
    return any(schema.column(place).physical_type == "INT96" for place in range(metadata.num_columns))


def _schema(metadata: pq.FileMetaData) -> pa.Schema:
    """The columns of a file, with INT96 as microseconds."""
    schema = metadata.schema.to_arrow_schema()
    if not _may_hold_times(schema) or not _has_int96(metadata):
        return schema
    nothing = pa.BufferReader(b"")
    return pq.ParquetFile(nothing, metadata=metadata, coerce_int96_timestamp_unit="us").schema_arrow


def _inferred(file: InputFile, metadata: pq.FileMetaData) -> pa.Schema:
    """The columns of a file; those of INT96 as nanoseconds if its first rows have finer times than microseconds."""
    schema, finest = _schema(metadata), metadata.schema.to_arrow_schema()
    names = [field.name for field, fine in zip(schema, finest) if field.type != fine.type]
    if not names:
        return schema
    group = next(group for group, (low, high) in enumerate(pairwise(_bounds(metadata))) if low < high)
    finer = _of_group(file, partial(_finer, names=names), group=group, rows=metadata.row_group(group).num_rows)
    return pa.schema([fine if field.name in finer else field for field, fine in zip(schema, finest)])


def _finer(parquet: _Opened, groups: Sequence[int], names: Sequence[str]) -> list[str]:
    micros, nanos = parquet.micros.read_row_groups(groups, columns=names), parquet.int96(groups, names)
    return [name for name, column in nanos.items() if has_nanoseconds(micros.column(name), column)]


def _require_files_fault(reader: Reader, error: Any) -> None:
    """Raise errors that are not the file's: a store's, or this machine's."""
    reader.require_sound()
    if isinstance(error, MemoryError):
        raise error


def _columns(parquet: _Opened, groups: Sequence[int], schema: pa.Schema) -> _Rows:
    table = parquet.micros.read_row_groups(list(groups), columns=schema.names, use_threads=False)
    if parquet.nanos is None and table.replace_schema_metadata(None).schema.equals(schema, check_metadata=True):
        return _Rows(table, {})
    int96, misfits = parquet.int96(groups, schema.names), dict[int, str]()
    columns = [
        of_int96(table.column(field.name), int96[field.name], field, misfits)
        if field.name in int96
        else converted(table.column(field.name), field, misfits)
        for field in schema
    ]
    return _Rows(pa.Table.from_arrays(columns, schema=schema), misfits)


def _records(span: OpenSpan, rows: _Rows, start: int) -> Iterator[Records]:
    first = 0
    for batch in rows.table.to_batches(_ROWS_AT_ONCE):
        stop = first + batch.num_rows
        offsets = np.arange(start + first, start + stop, dtype=np.int64)
        misfits = sorted(row for row in rows.misfits if first <= row < stop)
        if misfits:
            kept = np.delete(np.arange(len(offsets)), np.array(misfits) - first)
            dead = [span.dead(start + row, f"{rows.misfits[row]}. {remedies.TYPES}") for row in misfits]
            yield span.records(batch.take(pa.array(kept)), offsets[kept], dead)
        else:
            yield span.records(batch, offsets)
        first = stop


def _groups_per_batch(bounds: Sequence[int], start: int, stop: int) -> Iterator[Sequence[int]]:
    """The row groups between two rows: a cut one alone, otherwise as many as make a batch of the usual size."""
    whole: list[int] = []
    for group, (low, high) in enumerate(pairwise(bounds)):
        if high <= start or low >= stop or low == high:
            continue
        cut = low < start or high > stop
        if whole and (cut or high - bounds[whole[0]] > _ROWS_AT_ONCE):
            yield whole
            whole = []
        if cut:
            yield [group]
        else:
            whole.append(group)
    if whole:
        yield whole


def _bounds(metadata: pq.FileMetaData) -> tuple[int, ...]:
    """The first row of each row group, and the number of all rows."""
    bounds = [0]
    for group in range(metadata.num_row_groups):
        bounds.append(bounds[-1] + metadata.row_group(group).num_rows)
    return tuple(bounds)


def _metadata(file: InputFile) -> pq.FileMetaData:
    """The footer, from the end of the file that was read for the fingerprint, if it fits there."""
    tail = file.edges[1]
    if file.size < 12 or tail[-4:] != b"PAR1":
        raise Unreadable("it is not a complete Parquet file: the footer at its end is missing")
    length = int.from_bytes(tail[-_FOOTER_BYTES:-4], "little") + _FOOTER_BYTES
    try:
        if length <= len(tail):
            return pq.read_metadata(pa.BufferReader(tail))
        with file.open() as reader:
            return _opened(reader, False, False).micros.metadata
    except pa.ArrowException as error:
        raise Unreadable(f"its Parquet footer cannot be read: {_short(error)}") from error


def _smallest(statistics: pq.Statistics | None, unit: str | None) -> int | None:
    """The smallest timestamp, in ms, that the statistics of a column chunk allow."""
    if statistics is None:
        return UNKNOWN
    if not statistics.has_min_max:
        return None if statistics.has_null_count and statistics.num_values == 0 else UNKNOWN
    least = statistics.min_raw
    if not isinstance(least, int):
        return UNKNOWN
    logical = json.loads(statistics.logical_type.to_json())
    if logical["Type"] == "Timestamp":
        return max(count_ms(least, _UNITS[logical["timeUnit"]]), UNKNOWN)
    if logical["Type"] == "Date":
        return max(count_ms(least * _DAY_S, "s"), UNKNOWN)
    if unit and logical["Type"] in ("None", "Int"):
        return min(max(count_ms(least, unit), UNKNOWN), _LATEST)
    return UNKNOWN


def _least(bounds: Sequence[int | None]) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
