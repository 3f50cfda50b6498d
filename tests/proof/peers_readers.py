"""What pandas, Polars and DuckDB read from a file: its columns in their order, each a list of plain values.

A reader that refuses a file says nothing about it. Where one is known not to be exact, its cell is ``UNSURE``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa

from tests.proof.peers_values import UNSURE, Plain, exact, is_time, of_python, plain_column

View = list[list[Plain]]
_LINE_BYTES_MAX = 1 << 24


def views(readers: Sequence[Callable[[], View]], columns: int) -> list[View]:
    """What the readers say that read so many columns from the file."""
    found = []
    for reader in readers:
        with suppress(Exception, pl.exceptions.PanicException), quiet():
            view = reader()
            found += [view] if len(view) == columns else []
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """Without the standard error of the process, to which Polars writes when it panics."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@cache
def instant(text: str) -> Plain:
    """What a text says as a time, where Python and pandas agree on it."""
    try:
        time, other = datetime.fromisoformat(text), pd.Timestamp(text)
    except ValueError:
        return UNSURE
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    micros = (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    # Python has no nanoseconds.
    agree = micros == int(other.as_unit("us").asm8.astype("int64"))
    return ("time", micros * 1000 + other.nanosecond) if agree else UNSURE


# -- CSV -----------------------------------------------------------------------------------------------------------


def csv_readers(path: Path, options: Mapping[str, Any], *, as_text: bool) -> list[Callable[[], View]]:
    """Readers of a CSV file with a header: every field as text, or as they infer."""
    return [partial(read, path, options, as_text) for read in (_pandas_csv, _polars_csv, _duckdb_csv)]


def _pandas_csv(path: Path, options: Mapping[str, Any], as_text: bool) -> View:
    given: dict[str, Any] = {"sep": options.get("delimiter", ","), "encoding": options.get("encoding", "utf-8")}
    if as_text:
        frame = pd.read_csv(path, dtype=str, na_filter=False, index_col=False, **given)
        # It does not tell an empty field from a quoted one.
        return [[cell if cell else UNSURE for cell in frame.iloc[:, place]] for place in range(frame.shape[1])]
    rules: dict[str, Any] = {"keep_default_na": False, "na_values": [""], "float_precision": "round_trip"}
    frame = pd.read_csv(path, dtype_backend="numpy_nullable", index_col=False, **rules, **given)
    columns = (pa.array(frame.iloc[:, place], from_pandas=True) for place in range(frame.shape[1]))
    return [[UNSURE if cell is None else cell for cell in plain_column(column)] for column in columns]


def _polars_csv(path: Path, options: Mapping[str, Any], as_text: bool) -> View:
    how: dict[str, Any] = {"infer_schema": False} if as_text else {"infer_schema_length": None}
    given = {"separator": options.get("delimiter", ","), "encoding": options.get("encoding", "utf8")}
    return _of_polars(pl.read_csv(path, **how, **given))


def _duckdb_csv(path: Path, options: Mapping[str, Any], as_text: bool) -> View:
    if "encoding" in options:
        raise ValueError("its other encodings are an extension")
    query = (
        "select * from read_csv(?, header=true, delim=?, quote='\"', escape='\"', allow_quoted_nulls=false, "
        f"sample_size=-1, max_line_size={_LINE_BYTES_MAX}, all_varchar=?)"
    )
    relation = _duckdb().sql(query, params=[str(path), options.get("delimiter", ","), as_text])
    return [[UNSURE if is_time(cell) else cell for cell in column] for column in _of_duckdb(relation)]


# -- JSON lines ----------------------------------------------------------------------------------------------------


def json_readers(path: Path, names: Sequence[str]) -> list[Callable[[], View]]:
    """Readers of JSON lines; each column by its name, of nulls where it is in no line."""
    return [partial(read, path, names) for read in (_pandas_json, _polars_json, _duckdb_json)]


def _pandas_json(path: Path, names: Sequence[str]) -> View:
    exact: dict[str, Any] = {"dtype": False, "convert_dates": False, "precise_float": True}
    frame = pd.read_json(path, lines=True, **exact)
    return [[_of_pandas(cell) for cell in frame[name]] if name in frame else [None] * len(frame) for name in names]


def _of_pandas(cell: Any) -> Plain:
    """It keeps whole numbers beside nulls in floats."""
    if isinstance(cell, float) or hasattr(cell, "dtype"):
        number = cell.item() if hasattr(cell, "item") else cell
        if not isinstance(number, float):
            return of_python(number)
        return None if number != number else exact(number)
    return of_python(cell)


def _polars_json(path: Path, names: Sequence[str]) -> View:
    frame = pl.read_ndjson(path, infer_schema_length=None)
    columns = {name: list(map(exact, cells)) for name, cells in zip(frame.columns, _of_polars(frame), strict=True)}
    return [columns.get(name, [None] * len(frame)) for name in names]


def _duckdb_json(path: Path, names: Sequence[str]) -> View:
    if len({name.lower() for name in names}) < len(names):
        raise ValueError("its names differ in more than case")
    query = "select * from read_json(?, format='newline_delimited', sample_size=-1, map_inference_threshold=-1)"
    relation = _duckdb().sql(query, params=[str(path)])
    kinds = [str(column[1]) for column in relation.description]
    found = [column[0] for column in relation.description]
    cells = _of_duckdb(relation)
    rows = len(cells[0])
    # A column of mixed values is their JSON, as text.
    columns = {
        name: [UNSURE if "JSON" in kind or is_time(cell) else exact(cell) for cell in column]
        for name, kind, column in zip(found, kinds, cells, strict=True)
    }
    return [columns.get(name, [None] * rows) for name in names]


# -- Parquet -------------------------------------------------------------------------------------------------------


def parquet_readers(path: Path) -> list[Callable[[], View]]:
    """Readers of a Parquet file."""
    return [lambda: _pandas_parquet(path), lambda: _of_polars(pl.read_parquet(path)), lambda: _duckdb_parquet(path)]


def _pandas_parquet(path: Path) -> View:
    frame = pd.read_parquet(path, dtype_backend="pyarrow", engine="pyarrow")
    return [plain_column(pa.array(frame.iloc[:, place], from_pandas=True)) for place in range(frame.shape[1])]


def _duckdb_parquet(path: Path) -> View:
    return _of_duckdb(_duckdb().sql("select * from read_parquet(?)", params=[str(path)]))


# -- their frames --------------------------------------------------------------------------------------------------


def _of_polars(frame: pl.DataFrame) -> View:
    wide = [name for name, kind in frame.schema.items() if str(kind) in ("Int128", "UInt128")]
    table = frame.with_columns(pl.col(wide).cast(pl.Decimal(38, 0))).to_arrow()
    return [plain_column(column) for column in table.columns]


def _of_duckdb(relation: Any) -> View:
    return [plain_column(column) for column in relation.to_arrow_table().columns]


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'; set threads = 1; set preserve_insertion_order = true")
    return connection
