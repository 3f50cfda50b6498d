"""Drawn columns of every Arrow type that a Parquet file can hold, at their limits, and files by three writers."""

from __future__ import annotations

import random
import tempfile
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tests.proof.peers_readers import quiet

_TEXTS = ["", "a", "é", "日本", "🦆", " ", "NA", "x" * 300, "é" * 40_000, "\x00", "a\nb", '"']
_FLOATS = [0.0, -0.0, 0.5, float("nan"), float("inf"), float("-inf"), 2.0**53, 2.0**63, 1e22, 65504.0]
_DAYS = [0, -1, 19_844, -719_162, 2_932_896, -719_163, 2_932_897]
"""1970, 1969, 2024, years 1 and 9999, and a day beyond each."""
_SECONDS = [day * 86_400 for day in _DAYS[:5]] + [9_223_372_036, -9_223_372_036, 1_714_557_600]
_UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_ZONES = [None, None, "UTC", "Europe/Berlin", "+05:30"]

Make = Callable[[random.Random, int], pa.Array]


def _of(kind: pa.DataType, pool: Sequence[Any]) -> Make:
    return lambda drawn, rows: pa.array(_nulled(drawn, [drawn.choice(pool) for _ in range(rows)]), kind)


def _nulled(drawn: random.Random, values: list[Any]) -> list[Any]:
    share = drawn.choice([0, 0, 0.2, 0.9, 1])
    return [None if drawn.random() < share else value for value in values]


def _integers(kind: pa.DataType) -> Make:
    bits, signed = kind.bit_width, pa.types.is_signed_integer(kind)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    pool = [0, 1, 7, low, high, high - 1, 2**53 + 1, 2**63 - 1]
    return _of(kind, [number for number in pool if low <= number <= high])


def _timestamps(drawn: random.Random, rows: int) -> pa.Array:
    unit = drawn.choice(list(_UNITS))
    limit = 2**63 - 1
    pool = [second * _UNITS[unit] + drawn.choice([0, 0, 1, -1]) for second in _SECONDS]
    kind = pa.timestamp(unit, drawn.choice(_ZONES))
    return _of(kind, [count for count in pool if -limit <= count <= limit])(drawn, rows)


def _decimals(drawn: random.Random, rows: int) -> pa.Array:
    precision, scale = drawn.choice([(5, 2), (9, 0), (18, 6), (38, 10), (38, 0), (50, 5)])
    pool = [Decimal((sign, digits, -scale)) for sign in (0, 1) for digits in ((0,), (1,), (9,) * precision)]
    kind = pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
    return _of(kind, pool)(drawn, rows)


def _dictionary(drawn: random.Random, rows: int) -> pa.Array:
    return _of(pa.string(), _TEXTS[:6])(drawn, rows).dictionary_encode()


def _list_of(make: Make, form: str) -> Make:
    def draw(drawn: random.Random, rows: int) -> pa.Array:
        lengths = [2 if form == "fixed" else drawn.choice([0, 1, 3]) for _ in range(rows)]
        items = make(drawn, sum(lengths))
        if form == "fixed":
            return pa.FixedSizeListArray.from_arrays(items, 2)
        offsets = [sum(lengths[:row]) for row in range(rows + 1)]
        kind: Any = pa.LargeListArray if form == "large" else pa.ListArray
        offset_type = pa.int64() if form == "large" else pa.int32()
        mask = pa.array([drawn.random() < 0.1 for _ in range(rows)], pa.bool_())
        return kind.from_arrays(pa.array(offsets, offset_type), items, mask=mask)

    return draw


def _struct(drawn: random.Random, rows: int) -> pa.Array:
    fields = {"x": MAKES["int64"](drawn, rows), "y": MAKES["string"](drawn, rows), "é": MAKES["timestamp"](drawn, rows)}
    mask = pa.array([drawn.random() < 0.1 for _ in range(rows)], pa.bool_())
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=mask)


def _map(drawn: random.Random, rows: int) -> pa.Array:
    values = [
        [(f"k{n}", drawn.choice([None, 1, 2**53 + 1])) for n in range(drawn.choice([0, 1, 2]))] for _ in range(rows)
    ]
    return pa.array(_nulled(drawn, values), pa.map_(pa.string(), pa.int64()))


def _extension(kind: Any, pool: Sequence[Any]) -> Make:
    return lambda drawn, rows: pa.ExtensionArray.from_storage(kind, _of(kind.storage_type, pool)(drawn, rows))


MAKES: dict[str, Make] = {
    **{str(kind): _integers(kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    **{str(kind): _integers(kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
    "float": _of(pa.float32(), [*_FLOATS, 1.4e-45, 3.4e38]),
    "double": _of(pa.float64(), [*_FLOATS, 5e-324, 1.7e308, 0.1]),
    "halffloat": _of(pa.float16(), [0.0, -0.0, 0.5, float("nan"), float("inf"), 65504.0, 6e-8]),
    "bool": _of(pa.bool_(), [True, False]),
    "string": _of(pa.string(), _TEXTS),
    "large_string": _of(pa.large_string(), _TEXTS),
    "string_view": _of(pa.string_view(), _TEXTS),
    "binary": _of(pa.binary(), [b"", b"a", b"\x00\xff", b"x" * 5_000]),
    "fixed binary": _of(pa.binary(3), [b"abc", b"\x00\xff\x00"]),
    "date32": _of(pa.date32(), _DAYS),
    "date64": _of(pa.date64(), [day * 86_400_000 for day in _DAYS[:5]]),
    "time32": _of(pa.time32("ms"), [0, 86_399_999]),
    "time64": _of(pa.time64("us"), [0, 86_399_999_999, 1]),
    "time64 ns": _of(pa.time64("ns"), [0, 86_399_999_999_999, 1]),
    "duration": _of(pa.duration("us"), [0, 1, -1, 2**62]),
    "timestamp": _timestamps,
    "timestamp more": _timestamps,
    "decimal": _decimals,
    "dictionary": _dictionary,
    "null": lambda drawn, rows: pa.nulls(rows),
    "uuid": _extension(pa.uuid(), [uuid.UUID(int=0).bytes, uuid.UUID(int=2**128 - 1).bytes]),
    "json": _extension(pa.json_(), ['{"a": 1}', "[]", "null"]),
    "bool8": _extension(pa.bool8(), [0, 1]),
}
MAKES |= {
    "list": _list_of(MAKES["int64"], ""),
    "large list": _list_of(MAKES["string"], "large"),
    "fixed list": _list_of(MAKES["int32"], "fixed"),
    "list of times": _list_of(_timestamps, ""),
    "struct": _struct,
    "map": _map,
    "list of structs": _list_of(_struct, ""),
    "list of uuids": _list_of(MAKES["uuid"], ""),
}
NAMES = ["a", "b c", "é", "日本", "x.y", "count", "🦆", "A"]

Columns = list[tuple[str, pa.Array]]


def parquet_columns(drawn: random.Random) -> list[tuple[Columns, dict[str, Any]]]:
    """One to three files of the same columns, but for those that change, each with how it is written."""
    kinds = {name: drawn.choice(list(MAKES)) for name in drawn.sample(NAMES, drawn.randint(1, 5))}
    times = drawn.choice(["int64", "int64", "timestamp", "date32"])
    files = []
    for number in range(drawn.choice([1, 1, 2, 3])):
        if number and drawn.random() < 0.4:
            kinds = _changed(drawn, kinds)
        rows = drawn.choice([0, 1, 2, 8, 40])
        columns = [("ts", _times(drawn, rows, times))]
        columns += [(name, MAKES[kind](drawn, rows)) for name, kind in kinds.items()]
        if drawn.random() < 0.2:
            columns = [*columns[1:], columns[0]]
        files.append((columns, _style(drawn)))
    return files


def _changed(drawn: random.Random, kinds: dict[str, str]) -> dict[str, str]:
    near = {"int32": "int64", "int64": "double", "string": "large_string", "uint32": "int64", "date32": "timestamp"}
    kinds = {name: near.get(kind, kind) if drawn.random() < 0.3 else kind for name, kind in kinds.items()}
    name = drawn.choice([*kinds, "more"])
    match drawn.randrange(4):
        case 0:
            kinds[name] = drawn.choice(list(MAKES))
        case 1:
            kinds = {other: kind for other, kind in kinds.items() if other != name}
        case 2:
            kinds["more"] = drawn.choice(list(MAKES))
    return kinds


def _times(drawn: random.Random, rows: int, kind: str) -> pa.Array:
    if kind == "timestamp":
        return _timestamps(drawn, rows)
    return pa.array([drawn.randrange(20_000) for _ in range(rows)], pa.date32() if kind == "date32" else pa.int64())


def _style(drawn: random.Random) -> dict[str, Any]:
    return {
        "writer": drawn.choice(["pyarrow"] * 3 + ["polars", "duckdb"]),
        "row_group_size": drawn.choice([1, 3, 7, 1_000]),
        "compression": drawn.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "use_dictionary": drawn.random() < 0.5,
        "version": drawn.choice(["1.0", "2.4", "2.6"]),
        "data_page_version": drawn.choice(["1.0", "2.0"]),
        "data_page_size": drawn.choice([None, 64]),
        "store_schema": drawn.random() < 0.7,
        "write_statistics": drawn.random() < 0.7,
        "write_page_checksum": drawn.random() < 0.5,
        "use_deprecated_int96_timestamps": drawn.random() < 0.15,
    }


def parquet_bytes(columns: Sequence[tuple[str, pa.Array]], style: dict[str, Any]) -> bytes:
    """The file, by the writer that the style names, or by pyarrow in its usual style where that fails."""
    table = pa.Table.from_arrays([array for _, array in columns], names=[name for name, _ in columns])
    style = dict(style)
    writer = style.pop("writer", "pyarrow")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        for write in (partial(WRITERS[writer], style=style), partial(_by_pyarrow, style={})):
            with suppress(Exception, pl.exceptions.PanicException), quiet():
                write(table, path)
                return path.read_bytes()
    raise ValueError(f"no writer can write {table.schema}")


def _by_pyarrow(table: pa.Table, path: Path, style: dict[str, Any]) -> None:
    pq.write_table(table, path, **style)


def _by_polars(table: pa.Table, path: Path, style: dict[str, Any]) -> None:
    pl.DataFrame(pl.from_arrow(table)).write_parquet(path, row_group_size=style.get("row_group_size"))


def _by_duckdb(table: pa.Table, path: Path, style: dict[str, Any]) -> None:
    if len({name.lower() for name in table.column_names}) < table.num_columns:
        raise ValueError("it would give a column another name")
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    connection.register("drawn", table)
    connection.execute(f"copy (select * from drawn) to '{path}' (format parquet)")
    connection.close()


WRITERS: dict[str, Callable[..., None]] = {"pyarrow": _by_pyarrow, "polars": _by_polars, "duckdb": _by_duckdb}
