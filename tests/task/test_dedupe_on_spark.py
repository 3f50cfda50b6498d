"""Copies are recognised on Spark as on the embedded engine: across files, splits, steps and a restart."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import Dedupe, Embedded, FileSource, NonWindowState, PersistentTask, Pipeline
from persistent.checkpoint.log import Log
from persistent.verify import verify

pytestmark = pytest.mark.spark

DEDUPE = {
    "clicks": Dedupe(origin="sender", sequence="number", epoch="life", within="1 h"),
    "orders": Dedupe.by_id("id", within="1 h"),
}
ROWS = 400


class Visits(PersistentTask):
    """Messages by sender."""

    key = "sender"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def sent(seed: int) -> list[dict[str, Any]]:
    """Messages of three senders with gaps, one of which begins again; every third comes twice, somewhere after."""
    drawn = random.Random(seed)
    rows: list[dict[str, Any]] = []
    for at in range(ROWS):
        sender, life = drawn.choice("abc"), int(at > ROWS // 2)
        named = {"sender": sender, "life": life, "number": at - 150 * life, "id": f"{seed}-{at}"}
        rows.append({"ts": 1_000 + at, **named})
    for row in drawn.sample(rows, ROWS // 3):
        rows.insert(rows.index(row) + drawn.choice((1, 3, 60, 200)), row)
    return rows


def write(folder: Path, rows: list[dict[str, Any]], first: int) -> None:
    """The rows in three more files."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(3):
        lines = rows[part * len(rows) // 3 : (part + 1) * len(rows) // 3]
        (folder / f"{first + part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))


def pipeline(folder: Path, checkpoint: Path) -> Pipeline:
    options = {"timestamp": "ts", "timestamp_unit": "ms", "max_out_of_orderness": "1 h"}
    sources = {name: FileSource(str(folder / name / "*.jsonl"), **options) for name in DEDUPE}
    return Pipeline(source=sources, task=Visits(), checkpoint=str(checkpoint), dedupe=DEDUPE, step_rows=170)


def found(job: Pipeline) -> tuple[Mapping[str, int], dict[str, tuple[int, int, int]]]:
    """The state, and what was read, processed and a copy in each source."""
    newest = Log(job.storage).newest()
    assert newest is not None
    (task,) = newest.manifest.tasks.values()
    counts = {
        name: (sum(one.read for one in some.values()), sum(one.processed for one in some.values()))
        + (sum(one.duplicate for one in some.values()),)
        for name, some in task.inputs.items()
    }
    return {row["sender"]: row["value"] for row in job.state().to_pylist()}, counts


def test_spark_recognises_what_the_embedded_engine_does(spark: Any, tmp_path: Path) -> None:
    """Splits are judged on other machines, and what each has seen goes back to the driver: a copy that passes there
    counts twice, and so does one of what a run before has seen."""
    given = {name: sent(seed) for seed, name in enumerate(DEDUPE, 1)}
    names = {name: [tuple(row[column] for column in DEDUPE[name].names) for row in given[name]] for name in given}
    here, there = (pipeline(tmp_path, tmp_path / place) for place in ("embedded", "spark"))
    for half in range(2):
        for name, rows in given.items():
            write(tmp_path / name, rows[half::2] if half else rows[::2], 3 * half)
        here.run(engine=Embedded(threads=2))
        there.run(spark)
    expected = Counter(key[1].get("sender") for name in given for key in _distinct(given[name], names[name]))
    state, counts = found(there)
    assert state == expected == found(here)[0]
    for name, rows in given.items():
        assert counts[name] == (len(rows), len(set(names[name])), len(rows) - len(set(names[name])))
    assert found(here)[1] == counts and verify(there.storage).ok


def _distinct(rows: list[dict[str, Any]], names: list[Any]) -> list[tuple[Any, dict[str, Any]]]:
    return list(dict(zip(names, rows, strict=True)).items())
