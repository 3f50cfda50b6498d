"""A project whose records come from a topic, and whose results go into one, on a real broker."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from persistent.tools.cli.load import load_pipeline
from tests.servers.kafka import KafkaServer
from tests.tools.cli.visits import command

pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]

HOUR = 3_600_000
FIRST = 1_714_989_600_000


def views() -> list[dict[str, Any]]:
    """Views of three hours; the first amounts are whole numbers, as JSON writes a price without cents."""
    return [
        {"ts": FIRST + n * 60_000, "page": "abc"[n % 3], "price": n if n < 50 else n + 0.25, "extra": [n]}
        for n in range(180)
    ]


def expected() -> dict[tuple[str, int], tuple[int, float]]:
    count: Counter[tuple[str, int]] = Counter()
    total: Counter[tuple[str, int]] = Counter()
    for view in views():
        place = view["page"], view["ts"] // HOUR * HOUR
        count[place] += 1
        total[place] += view["price"]
    return {place: (count[place], total[place]) for place in count}


@pytest.mark.parametrize("sink", ["files", "kafka"])
def test_a_project_reads_a_topic(sink: str, kafka: KafkaServer, here: Path) -> None:
    """Without it a column of prices could be whole numbers, as its first ones are, and the others be dead letters."""
    topic, results = kafka.create(3), kafka.create(1)
    produced = [(n % 3, json.dumps(view).encode()) for n, view in enumerate(views())]
    kafka.produce(topic, produced[:50])
    words = ["--source", f"kafka:{kafka.bootstrap}/{topic}", "--key", "page", "--value", "price"]
    words += ["--timestamp", "ts", "--timestamp-unit", "ms"]
    words += ["--sink", f"kafka:{kafka.bootstrap}/{results}" if sink == "kafka" else "files"]
    made = command("init", "job", *words)
    assert made.exit_code == 0, made.output
    assert load_pipeline("job/task.py:pipeline").run(engine="embedded").rows == 50
    kafka.produce(topic, produced[50:])
    report = load_pipeline("job/task.py:pipeline").run(engine="embedded", end_of_input=True)
    assert (report.rows, report.late, report.dead) == (130, 0, 0)
    assert report.outputs == len(expected())
    if sink == "files":
        lines = [json.loads(line) for path in (here / "job" / "results").glob("*.jsonl") for line in path.open()]
        found = {
            (row["page"], round(datetime.fromisoformat(row["window_start"]).timestamp() * 1000)): (
                row["count"],
                row["price_sum"],
            )
            for row in lines
        }
        assert found == expected()


def test_the_time_of_the_broker_is_proposed(kafka: KafkaServer, here: Path) -> None:
    """Without it a topic whose records hold no time could not be counted."""
    topic = kafka.create(1)
    kafka.produce(topic, [(0, json.dumps(view).encode()) for view in views()])
    made = command("init", "job", "--source", f"kafka:{kafka.bootstrap}/{topic}", "--key", "page", "--value", "price")
    assert made.exit_code == 0, made.output
    report = load_pipeline("job/task.py:pipeline").run(engine="embedded", end_of_input=True)
    assert (report.rows, report.dead) == (180, 0)
