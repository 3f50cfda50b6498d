"""What a sink can never hold is set aside, and everything else is published, in each way of publishing."""

from __future__ import annotations

import json
import random
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Sum
from persistent import (
    InvalidPipeline,
    LogSink,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    session,
    sliding,
    tumbling,
)
from persistent.engines.embedded import Embedded
from persistent.log import SegmentedLog

WAYS: dict[str, Any] = {
    "windows": lambda: WindowState(Sum(), tumbling(10)),
    "sliding, corrected": lambda: WindowState(Sum(), sliding(20, every=10), allowed_lateness=15, late="retract"),
    "corrected anew": lambda: WindowState(Sum(), tumbling(10), allowed_lateness=15, late="accumulate"),
    "windows that change": lambda: WindowState(Sum(), tumbling(10), emit="change", changes="retract"),
    "sessions": lambda: WindowState(Sum(), session(5)),
    "sessions, corrected": lambda: WindowState(Sum(), session(5), allowed_lateness=15),
    "sessions that change": lambda: WindowState(Sum(), session(5), emit="change"),
    "keys": lambda: NonWindowState(Sum()),
    "keys that change": lambda: NonWindowState(Sum(), emit="change", changes="retract"),
    "keys that expire": lambda: NonWindowState(Sum(), ttl="8 ms", emit="change"),
}


class NoThirds(MemorySink):
    """Refuses results that are divisible by three."""

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        for value in outputs["value"].to_pylist():
            if value % 3 == 0:
                raise InvalidPipeline(f"{value} is divisible by three")


class Totals(PersistentTask):
    key = "k"

    def __init__(self, way: str) -> None:
        self.way = way

    def persistent_state(self) -> Any:
        return WAYS[self.way]()

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, batch["v"])


def run(way: str, rows: Any, sinks: Any, **options: Any) -> Pipeline:
    source = MemorySource(rows, timestamp="ts", ordered=True)
    checkpoint = options.pop("checkpoint", f"memory://refused-{uuid.uuid4().hex}")
    pipeline = Pipeline(source=source, task=Totals(way), sink=sinks, checkpoint=checkpoint, step_rows=4, **options)
    pipeline.run(engine=Embedded(threads=1), end_of_input=True)
    return pipeline


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("way", WAYS)
def test_everything_else_is_published(way: str, seed: int) -> None:
    """One result would withhold all others; or be lost, with nothing that says so."""
    rng = random.Random(f"{way} {seed}")
    times = np.cumsum([rng.choice([0, 1, 1, 2, 9]) for _ in range(60)]).tolist()
    rows = [
        {"ts": max(0, time - rng.choice([0, 0, 0, 12])), "k": rng.choice("abc"), "v": rng.randrange(1, 9)}
        for time in times
    ]
    everything, some = MemorySink(), NoThirds()
    pipeline = run(way, rows, {"all": everything, "some": some}, on_error="dead-letter")
    expected = [row for row in everything.rows() if row["value"] % 3]
    assert some.rows() == expected and 0 < len(expected) < len(everything.rows())
    dead = [row for row in pipeline.dead_letters().to_pylist() if row["data"]]
    results = [json.loads(row["data"])["result"] for row in dead]
    # What was never published is taken back from no sink, which is new until something is.
    refused = [row for row in everything.rows() if row["value"] % 3 == 0 and not row.get("retracted")]
    assert sorted(row["value"] for row in results if not row.get("retracted")) == sorted(
        row["value"] for row in refused
    )
    assert all(row["reason"].startswith("not published: key (k=") for row in dead)


def test_without_dead_letters_the_run_stops_and_names_the_result() -> None:
    """The advice must work on what the run has stopped for."""
    rows = [{"ts": number, "k": "abc"[number % 3], "v": number % 3} for number in range(9)]
    sink, checkpoint = NoThirds(), f"memory://refused-{uuid.uuid4().hex}"
    for _ in range(2):
        with pytest.raises(InvalidPipeline, match=r"not published: key \(k='a'\), window .* divisible by"):
            run("windows", rows, sink, checkpoint=checkpoint)
    run("windows", rows, sink, checkpoint=checkpoint, on_error="dead-letter")
    assert sink.table is None


def test_a_late_record_that_its_sink_refuses_is_a_dead_letter(tmp_path: Path) -> None:
    """It would stop every run, although it counts nowhere."""
    texts = ["a", "x" * (17 << 20), "b"]
    rows = [{"ts": 100, "k": "a", "v": 1, "text": ""} for _ in range(4)]
    rows += [{"ts": 1, "k": "a", "v": 1, "text": text} for text in texts]
    checkpoint, late = f"memory://refused-{uuid.uuid4().hex}", LogSink(tmp_path / "log")
    sink = MemorySink()
    with pytest.raises(InvalidPipeline, match=r'It is a late record.*on_error="dead-letter"'):
        run("windows", rows, sink, late_sink=late, checkpoint=checkpoint)
    again = run("windows", rows, sink, late_sink=late, checkpoint=checkpoint, on_error="dead-letter")
    records = [
        json.loads(bytes(one.as_py())) for batch in SegmentedLog(tmp_path / "log").read() for one in batch.records
    ]
    assert [json.loads(one["value"])["text"] for one in records] == ["a", "b"]
    assert again.late().num_rows == 3 and again.dead_letters().num_rows == 1
    assert again.dead_letters()["reason"][0].as_py().startswith("late, and not in the sink of late records: LogSink(")
    assert [row["value"] for row in sink.rows()] == [4]
