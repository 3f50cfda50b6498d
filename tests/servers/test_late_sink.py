"""Late records reach a sink of their own on a real server, each once, although drivers are killed with -9."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import (
    FileSink,
    FileSource,
    KafkaSink,
    MemorySink,
    PersistentTask,
    Pipeline,
    PostgresSink,
    RabbitQueueSink,
    RabbitStreamSink,
    WindowState,
    tumbling,
)
from persistent.storage import MemoryStorage
from tests.integration import places
from tests.servers.drivers import driver
from tests.servers.queues import fresh_queue, taken
from tests.servers.reading import json_values
from tests.servers.shared import shared_kafka, shared_postgres, shared_rabbit
from tests.servers.streams import LOGIN, Streams

pytestmark = [pytest.mark.check, pytest.mark.timeout(240)]

Row = dict[str, Any]
_STEP_ROWS = 12
_DRAWN = random.Random("late")
RECORDS = [
    {"n": number, "ts": max(0, 10 * number - _DRAWN.choice((0, 0, 0, 400))), "page": "ab"[number % 2]}
    for number in range(180)
]


class Visits(PersistentTask):
    """Visits by page and window."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("100 ms"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


@dataclass(frozen=True)
class Order:
    """A run whose late records go to a place on a server; it is sent to another process."""

    kind: str
    address: str
    place: str
    folder: str

    @property
    def options(self) -> dict[str, Any]:
        return {"end_of_input": True}

    def pipeline(self) -> Pipeline:
        return job(
            self.folder, FileSink(f"{self.folder}/results", format="jsonl"), self._sink(), f"{self.folder}/checkpoint"
        )

    def _sink(self) -> Any:
        if self.kind == "kafka":
            return KafkaSink(self.address, self.place)
        if self.kind == "postgres":
            return PostgresSink(self.address, self.place)
        if self.kind == "rabbit stream":
            return RabbitStreamSink(self.address, self.place, client=LOGIN)
        return RabbitQueueSink(self.address, self.place)


def job(folder: str, sink: Any, late_sink: Any, checkpoint: Any) -> Pipeline:
    source = FileSource(f"{folder}/input/*", timestamp="ts", timestamp_unit="ms", ordered=True)
    return Pipeline(
        source=source,
        task=Visits(),
        sink=sink,
        late_sink=late_sink,
        checkpoint=checkpoint,
        step_rows=_STEP_ROWS,
    )


def on_kafka(folder: Path) -> tuple[Order, Callable[[], Sequence[Row]]]:
    server = shared_kafka()
    topic = server.create(2)
    return Order("kafka", server.bootstrap, topic, str(folder)), lambda: json_values(server, topic)


def on_postgres(folder: Path) -> tuple[Order, Callable[[], Sequence[Row]]]:
    server, table = shared_postgres(), places.fresh("late_")
    ask = f"SELECT row_to_json(v) FROM {table} v"
    return Order("postgres", server.url(), table, str(folder)), lambda: [row for (row,) in server.ask(ask)]


def on_a_stream(folder: Path) -> tuple[Order, Callable[[], Sequence[Row]]]:
    streams = Streams(shared_rabbit())
    name = streams.create()
    return Order("rabbit stream", streams.address, name, str(folder)), lambda: streams.rows(name)


def on_a_queue(folder: Path) -> tuple[Order, Callable[[], Sequence[Row]]]:
    """What is sent again has the same id."""
    server = shared_rabbit()
    queue = fresh_queue(server, "quorum")

    def rows() -> list[Row]:
        found: dict[str, Row] = {}
        for properties, body in taken(server, queue):
            row = json.loads(body)
            assert found.setdefault(properties.message_id, row) == row
        return list(found.values())

    return Order("rabbit queue", server.url(), queue, str(folder)), rows


@pytest.mark.parametrize("place", [on_postgres, on_kafka, on_a_stream, on_a_queue], ids=lambda place: place.__name__)
def test_each_late_record_is_there_once(place: Callable[..., Any], tmp_path: Path) -> None:
    """Two drivers are killed at some moment, in a step or while they publish; the third comes to the end."""
    drawn = random.Random(place.__name__)
    for start in range(0, len(RECORDS), 30):
        places.write_file(str(tmp_path / "input"), f"{start:04}", "jsonl", RECORDS[start : start + 30])
    calm = MemorySink()
    report = job(str(tmp_path), MemorySink(), calm, MemoryStorage(tmp_path.name)).run(
        engine="embedded", end_of_input=True
    )
    assert report.late > 30
    order, rows = place(tmp_path)
    for kill in range(2):
        with driver("embedded", tmp_path / f"{kill}.log") as doomed:
            doomed.begin(order)
            doomed.wait_for_steps(drawn.randrange(2, 5))
            time.sleep(drawn.random() * doomed.step_seconds)
            doomed.kill()
    with driver("embedded", tmp_path / "last.log") as last:
        answer = last.run(order)
        assert not answer.error, answer
    assert sorted(numbers(rows())) == sorted(numbers(calm.rows()))


def numbers(rows: Sequence[Row]) -> list[tuple[int, int]]:
    """Where each was read, and its number."""
    return [(row["ordinal"], json.loads(row["value"])["n"]) for row in rows]
