"""The ten lines of each connector's page run as they stand, but for the addresses of their servers."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration import places
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.queues import fresh_queue, send
from tests.servers.rabbit import RabbitServer
from tests.servers.reading import json_values
from tests.servers.streams import LOGIN, Streams

PAGES = Path(__file__).parents[2] / "docs" / "connectors"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
VIEWS = [{"ts": 1_000 * second, "page": "/ab"[: 1 + second % 3]} for second in range(150)]
EXPECTED = Counter((one["page"], one["ts"] // 60_000) for one in VIEWS)
BROKER, DSN = '"localhost:9092"', '"postgresql://writer@localhost/results"'


def ran(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **addresses: str) -> None:
    """Run the first block of a page in a folder; the texts of ``addresses`` must be in it."""
    (code, *_) = BLOCK.findall((PAGES / page).read_text(encoding="utf-8"))
    for text, other in addresses.items():
        assert text in code, f"{page} has no {text}"
        code = code.replace(text, other)
    monkeypatch.chdir(folder)
    exec(compile(code, page, "exec"), {"__name__": "page"})


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, int]]:
    """Visits by page and minute."""
    minutes = [int(re.findall(r":(\d\d):", str(row["window_start"]))[0]) for row in rows]
    return Counter({(row["page"], minute): row["value"] for row, minute in zip(rows, minutes)})


def write_views(folder: Path) -> None:
    places.write_file(str(folder / "views"), "1", "jsonl", VIEWS)


def test_of_kafka_source(kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's first lines would fail, or count something else."""
    topic = kafka.create(2)
    kafka.produce(topic, [(number % 2, json.dumps(view).encode()) for number, view in enumerate(VIEWS)])
    ran("kafka-source.md", tmp_path, monkeypatch, **{BROKER: repr(kafka.bootstrap), '"views"': repr(topic)})
    assert counted(places.file_rows(str(tmp_path / "visits"))) == EXPECTED


def test_of_kafka_sink(kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's first lines would fail, or publish something else."""
    topic = kafka.create(2)
    write_views(tmp_path)
    ran("kafka-sink.md", tmp_path, monkeypatch, **{BROKER: repr(kafka.bootstrap), '"visits"': repr(topic)})
    assert counted(json_values(kafka, topic)) == EXPECTED


def test_of_rabbitmq_streams(rabbit: RabbitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's first lines would fail, or count or publish something else."""
    streams = Streams(rabbit)
    read, written = streams.create(), streams.create()
    streams.append(read, [json.dumps(view).encode() for view in VIEWS])
    addresses = {'"localhost:5552"': repr(streams.address), '"views"': repr(read), '"visits"': repr(written)}
    login = {'{"username": "guest", "password": "guest"}': repr(LOGIN)}
    ran("rabbitmq-streams.md", tmp_path, monkeypatch, **addresses, **login)
    assert counted(streams.rows(written)) == EXPECTED


def test_of_rabbitmq(rabbit: RabbitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's first lines would fail, or count something else."""
    queue = fresh_queue(rabbit)
    send(rabbit, queue, [(str(number // 2 * 2), json.dumps(VIEWS[number // 2 * 2]).encode()) for number in range(150)])
    send(rabbit, queue, [(str(number), json.dumps(VIEWS[number]).encode()) for number in range(1, 150, 2)])
    ran("rabbitmq.md", tmp_path, monkeypatch, **{'"amqp://localhost"': repr(rabbit.url()), '"views"': repr(queue)})
    assert counted(places.file_rows(str(tmp_path / "visits"))) == EXPECTED


def test_of_postgres(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's first lines would fail, or publish something else."""
    table = places.fresh("visits_")
    write_views(tmp_path)
    ran("postgres.md", tmp_path, monkeypatch, **{DSN: repr(postgres.url()), '"visits"': repr(table)})
    rows = [row for (row,) in postgres.ask(f"SELECT row_to_json(v) FROM {table} v")]
    assert counted(rows) == EXPECTED


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_every_page_says_what_a_reader_asks(page: Path) -> None:
    """What is promised, what can be set, what is not promised, and what the other side needs."""
    text = page.read_text(encoding="utf-8")
    headings = set(re.findall(r"^## (.*)$", text, re.M))
    needed = {"The brokers", "The server", "The topic", "What the store needs", "What the file needs", "The sender"}
    assert {"The guarantee", "What is not promised"} <= headings
    assert "Options" in headings or page.name == "files.md"
    assert needed & headings or page.name == "function.md"
    assert BLOCK.search(text) or ">>> " in text
