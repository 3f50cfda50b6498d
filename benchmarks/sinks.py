"""Sinks: batches of outputs published exactly once, against a plain client that writes the same rows to a like place.

Real servers of this machine (``tests/servers``). A batch is one transaction on both sides. The plain side of an append
to PostgreSQL is COPY of the same CSV; of an upsert, COPY into a temporary table and INSERT ... ON CONFLICT; of Kafka, a
transactional producer of the same JSON; of SQLite, ``executemany``, for an upsert with ON CONFLICT. Ours is ``deliver``
of the sink, which reads the mark and moves it, and of an upsert keeps what it replaces. What both leave is compared.
The figures are rows a second, and the ratio of processor time, of this process and of the server: other work on the
machine counts less in it.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

from benchmarks import measure
from persistent import KafkaSink, PostgresSink, SqliteSink
from persistent.connect.formats.json_rows import json_rows, with_revision
from persistent.connect.postgres.columns import csv_pieces
from persistent.connect.sink import Claim, OutputBatch
from persistent.names import Staged
from tests.servers.kafka import KafkaServer, kafka_server
from tests.servers.postgres import PostgresServer, postgres_server

KEY = ("page", "window_start", "window_end")
TARGET = 0.8
SINKS = ("sqlite", "postgres", "kafka")
_TIME = pa.timestamp("ms", "UTC")
_TICKS = 100
"""A second of processor time in /proc."""


@dataclass(frozen=True)
class Case:
    """A comparison: each side writes all batches into a new place, and gives what it has left there. ``make``: what
    makes a place, outside of what is measured."""

    name: str
    plain: Callable[[str], Any]
    ours: Callable[[str], Any]
    make: Callable[[str], Any] = str


def tables(batches: int, rows: int, seed: int) -> list[pa.Table]:
    """Outputs of windows: each batch has half of the keys of the one before it."""
    random = np.random.default_rng(seed)
    found = []
    for batch in range(batches):
        number = np.arange(rows) + batch * rows // 2
        starts = pa.array(number // 1_000 * 60_000)
        found.append(
            pa.table(
                {
                    "page": pa.array([f"/page/{one % 1_000}" for one in number.tolist()]),
                    "window_start": starts.cast(_TIME),
                    "window_end": pa.array(number // 1_000 * 60_000 + 60_000).cast(_TIME),
                    "visits": pa.array(random.integers(1, 1_000, rows)),
                    "share": pa.array(random.random(rows)),
                }
            )
        )
    return found


def deliver(sink: Any, outputs: Sequence[pa.Table]) -> None:
    """Publish each table as a batch, as a driver does."""
    sink.claim(Claim("job", schema=outputs[0].schema, key=KEY))
    for number, table in enumerate(outputs, 1):
        staged = Staged(f"s{number}", table.num_rows, 0, "")
        sink.deliver(
            OutputBatch("job", number, number - 1, 0, number, "memory://x", KEY, (staged,), lambda _, t=table: t)
        )
    sink.close()


# -- sides ---------------------------------------------------------------------------------------------------------


def postgres_cases(server: PostgresServer, outputs: Sequence[pa.Table]) -> Iterator[Case]:
    import psycopg

    columns = (
        "page text, window_start timestamptz, window_end timestamptz, visits bigint, share float8, revision bigint"
    )
    names = "page, window_start, window_end, visits, share, revision"
    changes = ", ".join(f"{name} = excluded.{name}" for name in ("visits", "share", "revision"))

    def plain(place: str, mode: str) -> Any:
        with closing(psycopg.connect(server.url(), prepare_threshold=None)) as connection:
            key = ", PRIMARY KEY (page, window_start, window_end)" if mode == "upsert" else ""
            connection.execute(f"CREATE TABLE {place} ({columns}{key})")
            for number, table in enumerate(outputs, 1):
                target = place
                if mode == "upsert":
                    target = "incoming"
                    connection.execute(f"CREATE TEMP TABLE incoming ({columns}) ON COMMIT DROP")
                with connection.cursor().copy(f"COPY {target} ({names}) FROM STDIN (FORMAT csv)") as copy:
                    for piece in csv_pieces(with_revision(table, number)):
                        copy.write(piece)
                if mode == "upsert":
                    connection.execute(
                        f"INSERT INTO {place} SELECT {names} FROM incoming "
                        f"ON CONFLICT (page, window_start, window_end) DO UPDATE SET {changes}"
                    )
                connection.commit()
        return left(place)

    def ours(place: str, mode: str) -> Any:
        deliver(PostgresSink(server.url(), place, mode=mode), outputs)
        return left(place)

    def left(place: str) -> Any:
        return server.ask(f"SELECT count(*), sum(visits), sum(revision) FROM {place}")

    for mode in ("append", "upsert"):
        yield Case(f"PostgreSQL, {mode}", lambda place, m=mode: plain(place, m), lambda place, m=mode: ours(place, m))


def sqlite_cases(folder: Path, outputs: Sequence[pa.Table]) -> Iterator[Case]:
    columns = "page TEXT, window_start TEXT, window_end TEXT, visits INTEGER, share REAL, revision INTEGER"
    changes = ", ".join(f"{name} = excluded.{name}" for name in ("visits", "share", "revision"))

    def plain(place: str, mode: str) -> Any:
        with closing(sqlite3.connect(folder / place, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous=FULL")
            key = ", PRIMARY KEY (page, window_start, window_end)" if mode == "upsert" else ""
            database.execute(f"CREATE TABLE visits ({columns}{key})")
            put = f" ON CONFLICT (page, window_start, window_end) DO UPDATE SET {changes}" if mode == "upsert" else ""
            for number, table in enumerate(outputs, 1):
                values = [
                    column.cast(pa.string()) if pa.types.is_timestamp(column.type) else column
                    for column in with_revision(table, number).columns
                ]
                database.execute("BEGIN")
                rows = zip(*(column.to_pylist() for column in values))
                database.executemany(f"INSERT INTO visits VALUES (?, ?, ?, ?, ?, ?){put}", rows)
                database.execute("COMMIT")
        return left(place)

    def ours(place: str, mode: str) -> Any:
        deliver(SqliteSink(folder / place, "visits", mode=mode), outputs)
        return left(place)

    def left(place: str) -> Any:
        with closing(sqlite3.connect(folder / place)) as database:
            return database.execute("SELECT count(*), sum(visits), sum(revision) FROM visits").fetchall()

    for mode in ("append", "upsert"):
        yield Case(f"SQLite, {mode}", lambda place, m=mode: plain(place, m), lambda place, m=mode: ours(place, m))


def kafka_cases(server: KafkaServer, outputs: Sequence[pa.Table]) -> Iterator[Case]:
    from confluent_kafka import Producer

    def plain(place: str) -> Any:
        settings = {"bootstrap.servers": server.bootstrap, "transactional.id": place, "log_level": 0}
        producer = Producer({**settings, "partitioner": "murmur2_random"})
        producer.init_transactions(60)
        for number, table in enumerate(outputs, 1):
            producer.begin_transaction()
            rows = chain.from_iterable(json_rows(with_revision(table, number)))
            keys = chain.from_iterable(json_rows(table.select(["page"])))
            for count, (key, value) in enumerate(zip(keys, rows)):
                try:
                    producer.produce(place, value, key)
                except BufferError:
                    producer.poll(1)
                    producer.produce(place, value, key)
                if count % 10_000 == 0:
                    producer.poll(0)
            producer.commit_transaction(60)
        return sum(table.num_rows for table in outputs)

    def ours(place: str) -> Any:
        deliver(KafkaSink(server.bootstrap, place), outputs)
        return sum(table.num_rows for table in outputs)

    yield Case("Kafka", plain, ours, lambda place: server.create(3, place))


# -- measuring -----------------------------------------------------------------------------------------------------


def server_seconds(pid: int | None) -> float:
    """Processor seconds of a server and of its children, the dead ones too."""
    if pid is None:
        return 0.0
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    ticks = sum(map(int, _stat(pid)[11:15]))
    return (ticks + sum(sum(map(int, _stat(int(child))[11:13])) for child in children)) / _TICKS


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 20


def compare(case: Case, pid: int | None, rows: int, runs: int) -> list[measure.Figure]:
    """The figures of a case, of alternating runs after a warm-up."""
    wall: dict[str, list[float]] = {"plain": [], "ours": []}
    processor: dict[str, list[float]] = {"plain": [], "ours": []}
    for turn in range(runs + 1):
        found = {}
        for side, write in (("plain", case.plain), ("ours", case.ours)):
            place = f"t{uuid.uuid4().hex[:12]}"
            case.make(place)
            before, own, began = server_seconds(pid), time.process_time(), time.perf_counter()
            found[side] = write(place)
            taken = time.perf_counter() - began
            used = time.process_time() - own + server_seconds(pid) - before
            click.echo(
                f"{case.name}, run {turn} of {runs}: {side} {rows / taken:,.0f} rows/s, {used:.2f} s of processor"
            )
            if turn:
                wall[side].append(taken)
                processor[side].append(used)
        if found["plain"] != found["ours"]:
            raise measure.RowsDiffer(f"{case.name}: {found}")
    rate = {side: rows / measure.median(taken) for side, taken in wall.items()}
    by_processor = measure.median(processor["plain"]) / measure.median(processor["ours"])
    return [
        measure.Figure(f"{case.name}: ours", rate["ours"], "rows/s"),
        measure.Figure(f"{case.name}: plain", rate["plain"], "rows/s"),
        measure.Figure(f"{case.name}: ours / plain, wall", rate["ours"] / rate["plain"], "times"),
        measure.Figure(f"{case.name}: ours / plain, processor", by_processor, "times", target=TARGET),
    ]


@click.command(help="Each sink against a plain client of the same server, in rows a second.")
@click.option("--batches", default=5, show_default=True)
@click.option("--rows", default=100_000, show_default=True, help="Of a batch.")
@click.option("--runs", default=5, show_default=True)
@click.option("--sinks", default=",".join(SINKS), show_default=True, help="With commas between.")
@measure.common
def main(batches: int, rows: int, runs: int, sinks: str, cache: Path, work: Path | None, seed: int) -> None:
    outputs, figures = tables(batches, rows, seed), []
    with ExitStack() as stack:
        for name in sinks.split(","):
            if name == "sqlite":
                folder = stack.enter_context(measure.empty_folder(work or cache))
                for case in sqlite_cases(folder, outputs):
                    figures += compare(case, None, batches * rows, runs)
            elif name == "postgres":
                postgres = stack.enter_context(postgres_server())
                for case in postgres_cases(postgres, outputs):
                    figures += compare(case, postgres.server.pid, batches * rows, runs)
            elif name == "kafka":
                kafka = stack.enter_context(kafka_server())
                for case in kafka_cases(kafka, outputs):
                    figures += compare(case, kafka.broker.pid, batches * rows, runs)
    measure.publish("sinks", {"batches": batches, "rows": rows, "runs": runs}, figures)


if __name__ == "__main__":
    main()
