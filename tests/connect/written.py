"""Rows, and files that hold them."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2024, 1, 1, tzinfo=UTC)


def rows(first, count):
    """Rows with times as text, whole numbers, text beyond ASCII, and nulls where every format has them."""
    return [
        {"ts": f"{START + timedelta(seconds=i):%Y-%m-%dT%H:%M:%SZ}", "n": None if i % 5 == 3 else i, "v": f"é, {i}"}
        for i in range(first, first + count)
    ]


def write(path, records, row_group=7):
    """The records in the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(".parquet"):
        schema = pa.schema([("ts", pa.string()), ("n", pa.int64()), ("v", pa.string())])
        pq.write_table(pa.Table.from_pylist(records, schema), path, row_group_size=row_group)
        return path
    if name.endswith(".csv"):
        lines = ["ts,n,v"] + [f'{r["ts"]},{"" if r["n"] is None else r["n"]},"{r["v"]}"' for r in records]
    else:
        lines = [json.dumps(r, ensure_ascii=False) for r in records]
    data = "".join(line + "\n" for line in lines).encode()
    if path.name.endswith(".gz"):
        data = gzip.compress(data)
    elif path.name.endswith(".zst"):
        data = pa.Codec("zstd").compress(data, asbytes=True)
    path.write_bytes(data)
    return path
