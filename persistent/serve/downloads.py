"""A download is the rows of a state as CSV, JSON lines or Parquet, made while it is sent: a few key groups at a time.

A download that cannot be finished breaks off, so that it is never taken for a whole one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from persistent.errors import InvalidPipeline
from persistent.serve.shown import Shown
from persistent.serve.state_reading import StateReading, Wanted, reading
from persistent.serve.wording import cell
from persistent.sinks.json_lines import encode_json_lines


@dataclass(frozen=True)
class Download:
    """The pieces of a file, its name and its type."""

    name: str
    media_type: str
    pieces: Iterator[bytes]


def download(shown: Shown, wanted: Wanted, form: str) -> Download:
    """The rows in a form: ``csv``, ``jsonl`` or ``parquet``. The first rows are read at once, so that what is wrong is
    said in words rather than in a broken file."""
    if form not in _FORMS:
        raise InvalidPipeline(f"format={form!r}: choose one of {', '.join(_FORMS)}")
    media_type, pieces = _FORMS[form]
    found = reading(shown, wanted)
    tables = _tables(found)
    first = next(tables)
    state = f"{found.job.name}-" if found.all_names else ""
    name = f"{shown.name}-{state}{found.manifest.id}.{form}"
    return Download(name, media_type, pieces(first, chain([first], tables)))


def _tables(found: StateReading) -> Iterator[pa.Table]:
    for _, _, table in found.slices():
        yield table


def _csv(first: pa.Table, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    yield (",".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in first.column_names) + "\n").encode()
    options = pyarrow.csv.WriteOptions(include_header=False)
    for table in tables:
        if table.num_rows:
            sink = io.BytesIO()
            # In one chunk: for an empty one Arrow's writer repeats a buffer that is no longer its own.
            pyarrow.csv.write_csv(_flat(table).combine_chunks(), sink, options)
            yield sink.getvalue()


def _flat(table: pa.Table) -> pa.Table:
    """Nested values and bytes as text, which CSV has no other form for."""
    for place, field in enumerate(table.schema):
        if pa.types.is_nested(field.type) or pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            texts = pa.array([cell(value) for value in table.column(place).to_pylist()], pa.string())
            table = table.set_column(place, field.name, texts)
    return table


def _json_lines(first: pa.Table, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    for table in tables:
        if table.num_rows:
            yield encode_json_lines(table).to_pybytes()


class _Pipe(io.RawIOBase):
    """Takes what is written, and gives it away."""

    def __init__(self) -> None:
        self._held: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        held = bytes(memoryview(data))  # type: ignore[arg-type]
        self._held.append(held)
        return len(held)

    def taken(self) -> bytes:
        data, self._held = b"".join(self._held), []
        return data


def _parquet(first: pa.Table, tables: Iterator[pa.Table]) -> Iterator[bytes]:
    pipe = _Pipe()
    with pa.PythonFile(pipe, mode="w") as file:
        writer = pyarrow.parquet.ParquetWriter(file, first.schema, compression="zstd")
        try:
            for table in tables:
                if table.num_rows:
                    writer.write_table(table)
                yield pipe.taken()
        finally:
            # Its footer goes nowhere if the file breaks off: what was sent before is not a Parquet file.
            writer.close()
        file.flush()
        yield pipe.taken()


_FORMS: Mapping[str, tuple[str, Callable[[pa.Table, Iterator[pa.Table]], Iterator[bytes]]]] = {
    "csv": ("text/csv", _csv),
    "jsonl": ("application/x-ndjson", _json_lines),
    "parquet": ("application/vnd.apache.parquet", _parquet),
}
