"""Files, then a topic of a real broker: each record counts once, on both sides of the border."""

from __future__ import annotations

import json
import random
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from monoids import Sum
from persistent import FileSource, KafkaSource, MemorySink, PersistentTask, Pipeline, WindowState, then, tumbling
from persistent.checkpoint.log import Log
from persistent.errors import RetentionGap
from persistent.storage import MemoryStorage
from persistent.testing.faults import FaultyStorage, Killed, Operations
from persistent.verify import verify, verify_source
from tests.servers.kafka import KafkaServer

pytestmark = [pytest.mark.check, pytest.mark.timeout(600)]

AT = 1_700_000_000_000
PARTITIONS = 3


class ByPage(PersistentTask):
    """The sum of n by page and second."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(Sum(), tumbling("1 s"))

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, batch["n"])


def stream(seed: int) -> list[dict[str, Any]]:
    """A record every 10 ms for a minute around the border, out of order by up to half a second."""
    drawn = random.Random(seed)
    rows = [{"ts": AT - 30_000 + 10 * n, "page": "abc"[n % 3], "n": n} for n in range(6_000)]
    return sorted(rows, key=lambda row: row["ts"] + drawn.randrange(500))


def archived(rows: list[dict[str, Any]], folder: Path) -> None:
    """What the files have: all before the border, and most of ten seconds behind it."""
    kept = [row for row in rows if row["ts"] < AT or (row["ts"] < AT + 10_000 and row["n"] % 7)]
    folder.mkdir()
    for part in range(4):
        (folder / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept[part::4]))


def produced(kafka: KafkaServer, topic: str, rows: list[dict[str, Any]]) -> None:
    """What the topic has: all from the border on, and most of the ten seconds before it, with the broker's times."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for row in rows:
        if row["ts"] >= AT or (row["ts"] >= AT - 10_000 and row["n"] % 5):
            value = json.dumps(row).encode()
            producer.produce(topic, value, partition=row["n"] % PARTITIONS, timestamp=row["ts"])
    producer.flush()


def job(kafka: KafkaServer, topic: str, folder: Path, checkpoint: Any, sink: Any, **options: Any) -> Pipeline:
    times = {"timestamp": "ts", "timestamp_unit": "ms", "max_out_of_orderness": "1 s"}
    source = then(
        FileSource(folder, **times),
        KafkaSource(kafka.bootstrap, topic, max_skew="1 s", **times, **options),
        at=AT,
        max_skew="2 s",
    )
    return Pipeline(source=source, task=ByPage(), sink=sink, checkpoint=checkpoint, step_rows=1_500)


def expected(rows: list[dict[str, Any]]) -> dict[tuple[str, int], int]:
    sums: dict[tuple[str, int], int] = {}
    for row in rows:
        window = row["page"], row["ts"] // 1_000 * 1_000
        sums[window] = sums.get(window, 0) + row["n"]
    return sums


def published(sink: MemorySink) -> dict[tuple[str, int], int]:
    found = {(row["page"], round(row["window_start"].timestamp() * 1_000)): row["value"] for row in sink.rows()}
    assert len(found) == len(sink.rows()), "a window was published twice"
    return found


def test_files_then_a_topic_count_each_record_once_whatever_kills_the_job(kafka: KafkaServer, tmp_path: Path) -> None:
    """Killed in the history, at the switch and behind it; over a topic that grows meanwhile."""
    rows, topic, storage, sink = stream(1), kafka.create(PARTITIONS), MemoryStorage(uuid.uuid4().hex), MemorySink()
    later = [{"ts": AT + 40_000 + n, "page": "a", "n": n} for n in range(300)]
    archived(rows, tmp_path / "in")
    produced(kafka, topic, rows)
    for death in (40, 45, 60, 60, 70, 90):
        with suppress(Killed):
            one = job(kafka, topic, tmp_path / "in", FaultyStorage(storage, Operations(at=death)), sink)
            one.run(engine="embedded")
    one = job(kafka, topic, tmp_path / "in", storage, sink)
    one.run(engine="embedded")
    produced(kafka, topic, later)
    report = one.run(engine="embedded", end_of_input=True)
    assert report.rows == 300
    assert published(sink) == expected([*rows, *later])
    before = sum(row["n"] % 5 > 0 for row in rows if AT - 10_000 <= row["ts"] < AT)
    duplicates = [account.duplicate for name, account in report.ledger.items() if name.startswith("live/")]
    assert len(duplicates) == PARTITIONS and 0 < sum(duplicates) < before, "it begins at the border, less max_skew"
    assert all(account.late == account.dead == 0 for account in report.ledger.values())
    entry = Log(storage).newest()
    assert entry is not None
    assert verify(storage).ok and verify_source(one, entry).ok


def test_a_topic_that_has_lost_the_border_is_refused_before_the_files_are_read(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    """Its retention has deleted what only the topic had."""
    rows, topic, storage = stream(2), kafka.create(PARTITIONS), MemoryStorage(uuid.uuid4().hex)
    archived(rows, tmp_path / "in")
    produced(kafka, topic, rows)
    kafka.truncate(topic, 1, 1_000)
    with pytest.raises(RetentionGap, match="the first kept record of partition 1 is not before"):
        job(kafka, topic, tmp_path / "in", storage, MemorySink()).run(engine="embedded")
    assert Log(storage).newest() is None
