"""Every job on Spark, from files to files, is equal to its plain twin; four with their driver killed with -9."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from persistent import FileSink, Pipeline
from persistent.checkpoint.log import Log
from persistent.storage import LocalStorage
from tests.few import one_in, share
from tests.jobs import BY_NAME, JOBS, Job
from tests.test_equality import check_equal

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[1]
STEP_ROWS = 90
KILLED = share(2, ("visits", "words", "sliding-not-dividing", "trails"))
WAIT_SECONDS = 120

DRIVER = """
    import sys
    from pathlib import Path
    from persistent.engines.spark_session import local_session
    from tests.jobs import BY_NAME
    from tests.test_spark_equality import pipeline_of

    spark = local_session(cores=2)
    for name in sys.argv[2:]:
        pipeline_of(BY_NAME[name], Path(sys.argv[1])).run(spark, end_of_input=True)
"""


def format_of(job: Job) -> str:
    """Half of the jobs read Parquet, the others JSON lines."""
    return ("parquet", "jsonl")[JOBS.index(job) % 2]


def source_of(job: Job, folder: Path) -> Any:
    """The job's files, written once."""
    events = folder / job.name / "events"
    if not events.exists():
        job.write(events, format_of(job), files=3)
    return job.files(events)


def pipeline_of(job: Job, folder: Path) -> Pipeline:
    """From files to files, by message or by batch."""
    place = folder / job.name
    results = FileSink(place / "results", format=format_of(job))
    batch = JOBS.index(job) % 3 == 0
    return job.pipeline(source_of(job, folder), results, str(place / "checkpoint"), batch=batch, step_rows=STEP_ROWS)


def published(job: Job, folder: Path) -> list[dict[str, Any]]:
    """The rows of every published file; those of JSON lines as a reader of Parquet would see them."""
    rows: list[dict[str, Any]] = []
    for path in sorted((folder / job.name / "results").iterdir()):
        if path.suffix == ".parquet":
            rows += pq.read_table(path).to_pylist()
        elif path.suffix == ".jsonl":
            rows += map(json.loads, path.read_text(encoding="utf-8").splitlines())
    for row in rows:
        for name in ("window_start", "window_end"):
            if isinstance(row.get(name), str):
                row[name] = datetime.fromisoformat(row[name])
    return rows


def check(job: Job, folder: Path) -> None:
    """All that the job has left is what its twin computes, and every manifest balances."""
    pipeline = pipeline_of(job, folder)
    check_equal(job, pipeline, published(job, folder), STEP_ROWS)
    assert pipeline.state().num_rows == (0 if job.window else len({row["user"] for row in job.rows}))
    log = Log(pipeline.storage)
    for id in log.ids():
        for account in log.read(id).manifest.accounts.values():
            assert account.read == account.processed + account.late + account.dead + account.duplicate


@pytest.mark.parametrize("job", one_in(5, JOBS), ids=repr)
def test_a_run_on_spark_equals_the_plain_computation(job: Job, spark: Any, tmp_path: Path) -> None:
    """The engine that users run would be the one that nobody compares."""
    report = pipeline_of(job, tmp_path).run(spark, end_of_input=True)
    assert (report.engine, report.rows, report.dead) == ("spark", len(job.rows), 0)
    assert report.steps > len(job.rows) // STEP_ROWS
    check(job, tmp_path)
    assert pipeline_of(job, tmp_path).run(spark, end_of_input=True).steps == 0


class Driver:
    """A process that runs jobs one after the other on a Spark of its own; nothing of it is left afterwards."""

    def __init__(self, script: Path, folder: Path) -> None:
        self.errors = folder / f"errors-{time.monotonic_ns()}"
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), str(folder), *KILLED],
                stdout=errors,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )

    def kill(self) -> None:
        """The driver and its Java, as when a machine is lost."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_for(self, checkpoint: Path, id: int) -> bool:
        """Wait until the checkpoint is there (True), or the process has ended."""
        log = Log(LocalStorage(checkpoint))
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            if max(log.ids(), default=-1) >= id:
                return True
            if ended:
                return False
            time.sleep(0.005)
        raise AssertionError(f"no checkpoint {id} within {WAIT_SECONDS} s: {self.errors.read_text()[-2000:]}")


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "driver.py"
    path.write_text(textwrap.dedent(DRIVER))
    yield path


@pytest.mark.crash
@pytest.mark.slow
def test_a_driver_killed_on_spark_equals_the_plain_computation(script: Path, tmp_path: Path) -> None:
    """What the simulated deaths leave out: workers that go on, Java that dies with its driver, files half written."""
    rng = random.Random(10)
    drawn = {}
    for name in KILLED:
        job = BY_NAME[name]
        source_of(job, tmp_path)
        checkpoint = tmp_path / name / "checkpoint"
        drawn[name] = rng.randint(1, len(job.rows) // STEP_ROWS)
        driver = Driver(script, tmp_path)
        try:
            assert driver.wait_for(checkpoint, drawn[name]), driver.errors.read_text()[-3000:]
        finally:
            driver.kill()
        assert driver.process.returncode == -signal.SIGKILL, "it had come to its end before"
        newest = Log(LocalStorage(checkpoint)).newest()
        assert newest is not None and not newest.manifest.clock.end_of_input
    driver = Driver(script, tmp_path)
    try:
        assert driver.process.wait(WAIT_SECONDS) == 0, driver.errors.read_text()[-3000:]
    finally:
        driver.kill()
    for name in KILLED:
        epochs = {Log(LocalStorage(tmp_path / name / "checkpoint")).newest().manifest.epoch}  # type: ignore[union-attr]
        assert epochs == {2}, f"{name} was to be killed once, at {drawn[name]}"
        check(BY_NAME[name], tmp_path)
