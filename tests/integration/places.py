"""A place is where a round of the matrix has its input or its output: it makes the source or sink, and reads what is
there without any of our code.

``Order`` is what a driver is told to run; it is sent to another process, so it holds names and addresses alone.
"""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from monoids import Bag
from persistent import (
    Dedupe,
    FileSink,
    FileSource,
    FunctionSink,
    KafkaSink,
    KafkaSource,
    LogSink,
    LogSource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    PostgresSink,
    RabbitQueueSource,
    RabbitStreamSink,
    RabbitStreamSource,
    SegmentedLog,
    SqliteSink,
    TopicSource,
    WindowState,
    tumbling,
)
from persistent.storage.fsspec_storage import FsspecStorage
from persistent.topic import JoinOptions
from tests.servers.drivers import PATIENCE
from tests.servers.streams import LOGIN

WINDOW_MS = 100
DISORDER_MS = 40
AWAY = "2 min"
_TIMES: Mapping[str, Any] = {"timestamp": "ts", "timestamp_unit": "ms", "max_out_of_orderness": f"{DISORDER_MS} ms"}
_SCHEMA = {"n": "int64", "ts": "int64", "page": "string"}

Record = Mapping[str, Any]


class ByWindow(PersistentTask):
    """Every number of a page, with how often it counted, in each window."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Bag(int), tumbling(f"{WINDOW_MS} ms"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


class ByPage(ByWindow):
    """The same of all times, published whenever the input ends."""

    def persistent_state(self) -> Any:
        return NonWindowState(Bag(int))


@dataclass(frozen=True)
class Order:
    """A run of a job from ``source`` to ``sink``, to the end of the input. ``address``: of the server."""

    source: str
    input: str
    sink: str
    output: str
    address: str
    checkpoint: str
    step_rows: int

    @property
    def options(self) -> dict[str, Any]:
        """Of ``run``."""
        return {"end_of_input": True}

    def pipeline(self) -> Pipeline:
        """The job."""
        return Pipeline(
            source=self._source(),
            task=ByPage() if self.sink.endswith("upsert") else ByWindow(),
            sink=self._sink(),
            checkpoint=self.checkpoint,
            step_rows=self.step_rows,
            dedupe=Dedupe.by_id("_message_id", within="1 day") if self.source.startswith("queue") else None,
        )

    def _source(self) -> Any:
        if self.source == "kafka":
            return KafkaSource(self.address, self.input, server_away=AWAY, connect_timeout=AWAY, **_TIMES)
        if self.source == "rabbit stream":
            streams = self.input.split(",")
            away = {"server_away": AWAY, "connect_timeout": AWAY}
            return RabbitStreamSource(self.address, streams, client=LOGIN, **away, **_TIMES)
        if self.source == "topic":
            join = JoinOptions(discovery="100 ms", attempts=1_000, retry="100 ms", silence="3 s")
            return TopicSource(self.address, "numbers", journal=self.input, join=join, schema=_SCHEMA, **_TIMES)
        if self.source == "log":
            return LogSource(self.input, **_TIMES)
        if self.source.startswith("queue"):
            away: dict[str, Any] = {"server_away": AWAY, "connect_timeout": AWAY, "recovery_interval": "200 ms"}
            return RabbitQueueSource(self.address, self.input, journal=f"{self.checkpoint}-journal", **away, **_TIMES)
        return FileSource(f"{self.input}/*", ordered=True, **_TIMES)

    def _sink(self) -> Any:
        kind, _, mode = self.sink.partition(" ")
        if kind == "kafka":
            return KafkaSink(self.address, self.output, server_away=AWAY, connect_timeout=AWAY)
        if self.sink == "rabbit stream":
            return RabbitStreamSink(self.address, self.output, client=LOGIN, server_away=AWAY, connect_timeout=AWAY)
        if kind == "postgres":
            away = {"server_away": AWAY, "connect_timeout": AWAY, "call_timeout": "20 s"}
            return PostgresSink(self.address, self.output, mode=mode, **away)
        if kind == "sqlite":
            return SqliteSink(self.output, "results", mode=mode)
        if kind == "log":
            return LogSink(self.output)
        if kind == "function":
            return FunctionSink(Noting(self.output))
        there = "://" in self.output
        return FileSink(FsspecStorage(self.output, patience=PATIENCE) if there else self.output, format="jsonl")


class Noting:
    """A function that appends what it is given to a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, table: pa.Table, id: int) -> None:
        line = json.dumps({"id": id, "rows": table.to_pylist()}, default=str)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")


def write_file(folder: str, name: str, format: str, records: Sequence[Record]) -> None:
    """A file of records, seen whole or not at all."""
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist([dict(one) for one in records])
    if format == "parquet":
        pq.write_table(table, sink, row_group_size=64)
    elif format == "csv":
        pa_csv.write_csv(table, sink)
    else:
        sink.write("".join(json.dumps(one) + "\n" for one in records).encode())
    files, path = fsspec.core.url_to_fs(folder, skip_instance_cache=True)
    files.makedirs(path, exist_ok=True)
    if "://" in folder:
        files.pipe_file(f"{path}/{name}.{format}", sink.getvalue().to_pybytes())
    else:
        hidden = Path(path) / f".{name}.{format}"
        hidden.write_bytes(sink.getvalue().to_pybytes())
        os.rename(hidden, Path(path) / f"{name}.{format}")


def append_to_log(folder: str, records: Sequence[Record]) -> None:
    """One entry of records."""
    with SegmentedLog(folder).writer() as writer:
        writer.append_many([json.dumps(one).encode() for one in records])


def file_rows(url: str) -> list[dict[str, Any]]:
    """The rows of the files that the lists of a sink name."""
    cached = {"use_listings_cache": False} if url.startswith("s3:") else {}
    files, path = fsspec.core.url_to_fs(url, skip_instance_cache=True, **cached)
    if not files.exists(f"{path}/_published"):
        return []
    rows: list[dict[str, Any]] = []
    for name in sorted(files.ls(f"{path}/_published", detail=False)):
        if name.endswith(".json"):
            for listed in json.loads(files.cat_file(name))["files"]:
                rows += map(json.loads, files.cat_file(f"{path}/{listed['name']}").splitlines())
    return rows


def sqlite_rows(path: str) -> list[dict[str, Any]]:
    """The rows of the table."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM results")]


def log_rows(folder: str) -> list[dict[str, Any]]:
    """The rows of a log."""
    return [json.loads(record.as_py()) for batch in SegmentedLog(folder).read() for record in batch.records]


def noted_rows(path: str) -> list[dict[str, Any]]:
    """The rows that the function was given, as often as it was."""
    if not Path(path).exists():
        return []
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [row for line in lines for row in json.loads(line)["rows"]]


def fresh(prefix: str) -> str:
    """A name that nobody has."""
    return f"{prefix}{uuid.uuid4().hex[:12]}"
