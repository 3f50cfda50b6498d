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


def ran(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, names: str = "", **addresses: str) -> None:
    """Run the first block of a page that has ``names``, in a folder; the texts of ``addresses`` must be in it."""
    blocks = BLOCK.findall((PAGES / page).read_text(encoding="utf-8"))
    code = next(block for block in blocks if names in block)
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


def test_of_kafka(kafka: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's first lines would fail, or count or publish something else."""
    read, written = kafka.create(2), kafka.create(2)
    kafka.produce(read, [(number % 2, json.dumps(view).encode()) for number, view in enumerate(VIEWS)])
    addresses = {BROKER: repr(kafka.bootstrap), '"views"': repr(read), '"visits"': repr(written)}
    ran("kafka.md", tmp_path, monkeypatch, **addresses)
    assert counted(json_values(kafka, written)) == EXPECTED


def test_of_rabbitmq_streams(rabbit: RabbitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's first lines would fail, or count or publish something else."""
    streams = Streams(rabbit)
    read, written = streams.create(), streams.create()
    streams.append(read, [json.dumps(view).encode() for view in VIEWS])
    addresses = {'"localhost:5552"': repr(streams.address), '"views"': repr(read), '"visits"': repr(written)}
    login = {'{"username": "guest", "password": "guest"}': repr(LOGIN)}
    ran("rabbitmq.md", tmp_path, monkeypatch, "RabbitStreamSource", **addresses, **login)
    assert counted(streams.rows(written)) == EXPECTED


def test_of_rabbitmq(rabbit: RabbitServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's first lines would fail, or count something else."""
    queue = fresh_queue(rabbit)
    send(rabbit, queue, [(str(number // 2 * 2), json.dumps(VIEWS[number // 2 * 2]).encode()) for number in range(150)])
    send(rabbit, queue, [(str(number), json.dumps(VIEWS[number]).encode()) for number in range(1, 150, 2)])
    addresses = {'"amqp://localhost"': repr(rabbit.url()), '"views"': repr(queue)}
    ran("rabbitmq.md", tmp_path, monkeypatch, "RabbitQueueSource", **addresses)
    assert counted(places.file_rows(str(tmp_path / "visits"))) == EXPECTED


def test_of_postgres(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader's first lines would fail, or publish something else."""
    table = places.fresh("visits_")
    write_views(tmp_path)
    ran("tables.md", tmp_path, monkeypatch, **{DSN: repr(postgres.url()), '"visits"': repr(table)})
    rows = [row for (row,) in postgres.ask(f"SELECT row_to_json(v) FROM {table} v")]
    assert counted(rows) == EXPECTED


CONNECTORS = [*sorted({*PAGES.glob("*.md")} - {PAGES / "writing.md"}), PAGES.parent / "log.md"]


@pytest.mark.parametrize("page", CONNECTORS, ids=lambda page: page.name)
def test_every_page_says_what_a_reader_asks(page: Path) -> None:
    """What is promised, what can be set, what is not promised, and what the other side needs."""
    text = page.read_text(encoding="utf-8")
    headings = set(re.findall(r"^##+ (.*)$", text, re.M))
    needed = {"The brokers", "The server", "What the store needs", "The sender"}
    assert {"The guarantee", "What is not promised"} <= headings
    assert page.name == "files.md" or any(heading.startswith("Options") for heading in headings)
    assert needed & headings
    assert BLOCK.search(text) or ">>> " in text
