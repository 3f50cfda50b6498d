"""A job may be run with any number of workers, splits and shards, another one from one run to the next."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from persistent import FileSink, MemorySink, Pipeline
from persistent.checkpoint import compaction
from persistent.checkpoint.log import Log
from persistent.engines.embedded import Embedded
from persistent.operations import compact
from persistent.storage import MemoryStorage
from persistent.testing.running import Calling
from persistent.verify import verify
from tests.few import one_in
from tests.jobs import BY_NAME, JOBS, Job, Record
from tests.test_spark_equality import published

ROOT = Path(__file__).parents[2]
SPARK_JOBS = ("visits", "totals")

DRIVER = """
    import sys
    from pathlib import Path
    from persistent.engines.spark_session import local_session
    from tests.operations.test_rescaling import ordered, pipeline_of

    spark = local_session(cores=int(sys.argv[2]))
    for name in sys.argv[4:]:
        pipeline_of(ordered(name), Path(sys.argv[1]), int(sys.argv[3])).run(spark)
"""


def ordered(name: str) -> Job:
    """A job whose rows come in order of time: so nothing is late, wherever steps end."""
    job = BY_NAME[name]
    return replace(job, rows=sorted(job.rows, key=lambda row: row["ts"]))


def stages(job: Job) -> list[list[Any]]:
    """The rows that are there at each run."""
    count = len(job.rows)
    return [list(job.rows[: count * part // 5]) for part in (1, 2, 3, 4, 5)]


def scales() -> list[tuple[Any, int | None, int]]:
    """Of each run: the engine, the rows of a step, and how many bytes are folded at once."""
    return [
        (Embedded(threads=1), 60, 1 << 29),
        (Calling(7), 200, 10_000),
        (Embedded(threads=4), None, 1 << 29),
        (Calling(2), 33, 40_000),
        (Embedded(threads=2), 90, 10_000),
    ]


@pytest.mark.parametrize("turned", one_in(2, [3, 0]))
@pytest.mark.parametrize("name", [job.name for job in JOBS])
def test_any_scale_follows_any_other(name: str, turned: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """State kept for four workers that only four can read would be lost with one of them."""
    job = ordered(name)
    sink, storage = MemorySink(), MemoryStorage(f"rescaling-{name}-{turned}")
    order = scales()[turned:] + scales()[:turned]
    splits = set()
    for number, (rows, (engine, step_rows, bytes_max)) in enumerate(zip(stages(job), order, strict=True)):
        monkeypatch.setattr(compaction, "_BYTES_MAX", bytes_max)
        pipeline = job.pipeline(rows, sink, storage, batch=bool(turned % 2), step_rows=step_rows)
        pipeline.run(engine=engine, end_of_input=number == 4)
        splits.add(engine.parallelism)
        if number == 2:
            before = shown(pipeline)
            compact(pipeline)
            assert shown(pipeline) == before
        engine.stop()
    assert len(splits) >= 3
    expected = job.expected([Record(row) for row in job.rows])
    assert job.read(sink.rows()) == expected
    if not job.window:
        assert job.read(pipeline.state().to_pylist()) == expected
    assert verify(storage).ok
    storage.clear()


def shown(pipeline: Pipeline) -> list[str]:
    return sorted(map(str, pipeline.state().to_pylist()))


def pipeline_of(job: Job, folder: Path, files: int) -> Pipeline:
    """From the first files of a job to files."""
    place = folder / job.name
    events, whole = place / "events", place / "whole"
    if not whole.exists():
        job.write(whole, "jsonl", files=3)
    events.mkdir(exist_ok=True)
    for path in sorted(whole.iterdir())[:files]:
        if not (events / path.name).exists():
            shutil.copy(path, events)
    sink = FileSink(place / "results", format="jsonl")
    return job.pipeline(job.files(events), sink, str(place / "checkpoint"), step_rows=70)


@pytest.mark.spark
@pytest.mark.check
def test_engines_take_turns_over_one_checkpoint(spark: Any, tmp_path: Path) -> None:
    """Who tries on a laptop what then runs on a cluster, and looks into it on the laptop again, has one state."""
    for name in SPARK_JOBS:
        pipeline_of(ordered(name), tmp_path, 1).run(engine=Embedded(threads=4))
    script = tmp_path / "driver.py"
    script.write_text("\n".join(line[4:] for line in DRIVER.splitlines()))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(tmp_path), "1", "2", *SPARK_JOBS]
    subprocess.run(command, env=environment, check=True, timeout=500, capture_output=True)
    for name in SPARK_JOBS:
        job = ordered(name)
        pipeline = pipeline_of(job, tmp_path, 3)
        pipeline.run(spark)
        pipeline.run(engine=Embedded(threads=1), end_of_input=True)
        assert job.read(published(job, tmp_path)) == job.expected([Record(row) for row in job.rows]), name
        newest = Log(pipeline.storage).newest()
        assert newest is not None
        assert sum(account.processed for account in newest.manifest.accounts.values()) == len(job.rows)
        assert verify(pipeline.storage).ok
