"""persistent run says what it did, goes on where it ended, and ends when it is told to."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from persistent.checkpoint.running import put_mark
from persistent.storage import LocalStorage
from tests.few import one_in
from tests.tools.cli.visits import VISITS, command, json_of

ROOT = Path(__file__).parents[3]


def test_run_says_what_it_did(folder: Path) -> None:
    """Without it nobody would know whether anything was read, set aside or left open."""
    result = command("run", "visits.py:pipeline", "--engine", "embedded")
    assert result.exit_code == 0, result.output
    assert re.match(r"7 rows in \d+ steps, .* embedded\); 2 rows published, 1 late, 1 dead letter; ", result.stdout)
    assert "clock 2024-05-01 10:02:11Z; open windows: 1 (if the input is complete, run with --end" in result.stdout
    assert " rows/s  clock 2024-05-01 10:0" in result.stderr


def test_run_is_refused_where_a_driver_certainly_runs(folder: Path) -> None:
    """A second terminal must not end the run of the first; a restart after a crash must never need a flag."""
    (folder / "slow.py").write_text(VISITS.replace("        state.update", "        input()\n        state.update"))
    words = [sys.executable, "-m", "persistent", "run", "slow.py:pipeline", "--engine", "embedded"]
    first = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment())
    try:
        while not LocalStorage(folder / "checkpoint").list("r"):
            assert first.poll() is None
        refused = command("run", "visits.py:pipeline", "--engine", "embedded")
        assert refused.exit_code == 5, refused.output
        assert f"a driver runs: process {first.pid} on " in refused.stderr and "--take-over" in refused.stderr
    finally:
        first.kill()
        first.communicate()
    result = command("run", "visits.py:pipeline", "--engine", "embedded")
    assert result.exit_code == 0 and "note:" not in result.stdout, result.output


def test_run_takes_over_where_that_is_said(folder: Path) -> None:
    """Whoever knows better than the mark must be able to go on; what was done to the other is told."""
    put_mark(LocalStorage(folder / "checkpoint"), 1, "0" * 32)
    assert command("run", "visits.py:pipeline", "--engine", "embedded").exit_code == 0, "no checkpoint yet: of whom?"
    put_mark(LocalStorage(folder / "checkpoint"), 1, "0" * 32)
    (folder / "views" / "2.csv").write_text("time,page,status,bytes\n2024-05-01T10:02:20Z,/home,200,1\n")
    refused = command("run", "visits.py:pipeline", "--engine", "embedded")
    assert (refused.exit_code, LocalStorage(folder / "checkpoint").list("r")) == (5, [f"e1-{'0' * 32}.json"])
    result = command("run", "visits.py:pipeline", "--engine", "embedded", "--take-over")
    assert result.exit_code == 0 and ": another driver seemed to run: process" in result.stderr


def test_run_goes_on_where_it_ended(done: Path) -> None:
    """Without it the command line could process a file twice."""
    assert "0 rows in 0 steps" in command("run", "visits.py:pipeline", "--engine", "embedded").stdout
    (done / "views" / "2.csv").write_text("time,page,status,bytes\n2024-05-01T10:02:20Z,/home,200,1\n")
    (report,) = json_of("run", "visits.py:pipeline", "--engine", "embedded", "--end-of-input")
    assert (report["rows"], report["open_windows"], report["recovered"]) == (1, 0, True)
    assert report["ledger"]["files"]["read"] == 8
    rows = [row for file in sorted((done / "visits").glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
    assert [(row["page"], row["status"], row["visits"], row["bytes"]) for row in rows] == [
        *sorted([("/home", 200, 2, 30), ("/ä", 404, 1, 30)], key=lambda row: [r["page"] for r in rows].index(row[0])),
        ("/home", 200, 3, 101),
    ]


def test_without_java_it_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the first run on a machine without Java would fail, or change the engine in silence."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    result = command("run", "visits.py:pipeline")
    assert result.exit_code == 0, result.output
    assert "no Java found" in result.stderr
    assert "embedded" in result.stdout


@pytest.mark.spark
@pytest.mark.slow
def test_run_on_spark(folder: Path) -> None:
    """Without it a class of the user's own file might not reach Spark's workers."""
    finished = run_process("run", "visits.py:pipeline", "--engine", "spark")
    assert finished.returncode == 0, finished.stderr
    assert re.search(r"7 rows in \d+ steps, .* spark\)", finished.stdout)
    assert "running on a local Spark, local[" in finished.stderr and "--master" in finished.stderr
    assert command("verify", "checkpoint").exit_code == 0


def test_the_master_is_the_one_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ran on this machine, whatever was configured."""
    from persistent.errors import InvalidPipeline

    asked: list[str | None] = []

    def session_at(master: str | None) -> None:
        asked.append(master)
        raise InvalidPipeline("no such Spark")

    monkeypatch.setattr("persistent.engines.spark_session.session_at", session_at)
    for words in (("--master", "spark://far:7077"), ("--engine", "spark")):
        assert "no such Spark" in command("run", "visits.py:pipeline", *words).stderr
    assert asked == ["spark://far:7077", None]


def run_process(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "persistent", *words], capture_output=True, text=True, timeout=600, env=environment()
    )


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


HELD = VISITS.replace(
    "    def process_message",
    "    def process_batch(self, state, batch):\n"
    "        import pathlib, time\n"
    "        if batch.timestamps[0] % 3_600_000 >= 600_000:\n"
    "            pathlib.Path('held').touch()\n"
    "            while not pathlib.Path('go').exists():\n"
    "                time.sleep(0.01)\n"
    "        super().process_batch(state, batch)\n\n"
    "    def process_message",
)
"""From ten minutes past the hour on a step waits until it is let go."""


@pytest.mark.parametrize(("number", "follow"), one_in(2, [(signal.SIGTERM, True), (signal.SIGINT, False)]))
def test_a_signal_ends_a_run_with_everything_committed(folder: Path, number: int, follow: bool) -> None:
    """Without it a deployment would lose or repeat what was under way, or take a stopped run for a finished one."""
    (folder / "held.py").write_text(HELD)
    rows = 30
    lines = "".join(f"2024-05-01T10:{i:02d}:00Z,/home,200,1\n" for i in range(rows))
    (folder / "views" / "1.csv").write_text("time,page,status,bytes\n" + lines)
    words = ["run", "held.py:pipeline", "--engine", "embedded", "--json", *(["--follow"] if follow else [])]
    running = subprocess.Popen(
        [sys.executable, "-m", "persistent", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    deadline = time.monotonic() + 60
    while not (folder / "held").exists():
        assert running.poll() is None and time.monotonic() < deadline, running.communicate()
        time.sleep(0.01)
    running.send_signal(number)
    (folder / "go").touch()
    out, err = running.communicate(timeout=300)
    assert running.returncode == (0 if follow else 130), err
    report = json.loads(out)
    assert report["stopped"] is True
    assert report["rows"] == 12
    assert json_of("history", "checkpoint")[-1]["read"] == report["rows"]
    assert command("verify", "checkpoint").exit_code == 0
    (rest,) = json_of("run", "visits.py:pipeline", "--engine", "embedded", "--end-of-input")
    assert rest["rows"] == rows - report["rows"]
    published = [row for file in (folder / "visits").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    assert len(published) == rows
    assert sum(row["visits"] for row in published) == rows


def test_the_first_line_names_the_checkpoint(folder: Path) -> None:
    """Started in another folder, a job with a relative checkpoint would begin anew there, and nobody would see it."""
    first = command("run", "visits.py:pipeline", "--engine", "embedded").stderr.splitlines()[0]
    assert first == f"pipeline visits.py:pipeline, checkpoint {folder}/checkpoint"
    named = VISITS.replace("step_rows=2,", 'step_rows=2, name="shop-visits",')
    (folder / "visits.py").write_text(named)
    result = command("run", "visits.py:pipeline", "--engine", "embedded")
    assert result.stderr.startswith(f"pipeline shop-visits (visits.py:pipeline), checkpoint {folder}/checkpoint\n")
    assert result.stdout.startswith("shop-visits: 0 rows in 0 steps")
    assert command("explain", "visits.py:pipeline").stdout.startswith("pipeline    shop-visits, task Visits")
    (report,) = json_of("run", "visits.py:pipeline", "--engine", "embedded")
    assert report["name"] == "shop-visits"


TOTALS = """
from monoids import Count
from persistent import FileSink, FileSource, MemorySink, NonWindowState, PersistentTask, Pipeline


class Totals(PersistentTask):
    def persistent_state(self):
        return NonWindowState(Count())

    def process_message(self, state, message):
        state.update(message.timestamp, 1)


source = FileSource("views/*.csv", timestamp="time", max_out_of_orderness=60)
pipeline = Pipeline(source=source, task=Totals(), sink=MemorySink(), checkpoint="checkpoint")
"""


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_each_warning_is_printed_once(folder: Path, log_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence that comes again at the end is read as a second fault, and hides the line of figures."""
    monkeypatch.setattr("persistent.driver.notes._LOGGED", set())
    (folder / "totals.py").write_text(TOTALS)
    words = ("run", "totals.py:pipeline", "--engine", "embedded", "--end-of-input", "--log-format", log_format)
    result = command(*words)
    assert result.exit_code == 0, result.output
    for text in ("declares no key", "max_out_of_orderness=60 is 60 ms", "MemorySink() are gone when this command ends"):
        assert result.output.count(text) == 1 == result.stderr.count(text), result.output
    (folder / "again.py").write_text(TOTALS.replace('"checkpoint"', '"fresh"'))
    (report,) = json_of("run", "again.py:pipeline", "--engine", "embedded")
    assert any("MemorySink() are gone" in note for note in report["notes"]) and "logged" not in report


def test_what_is_kept_in_this_process_alone_is_said(folder: Path) -> None:
    """A report of published rows that nobody can read; and its advice is tried."""
    for made, gone in (
        (TOTALS, ["the rows of MemorySink() are gone"]),
        (
            TOTALS.replace('"checkpoint"', '"memory://run-totals"'),
            ["the rows of", "the checkpoint memory://run-totals"],
        ),
        (VISITS, []),
    ):
        (folder / "job.py").write_text(made)
        shown = command("run", "job.py:pipeline", "--engine", "embedded").stderr
        assert [line for line in shown.splitlines() if "gone when this command ends" in line] == [
            line for line in shown.splitlines() for text in gone if text in line
        ]
    kept = TOTALS.replace("MemorySink()", 'FileSink("results", format="jsonl")')
    (folder / "job.py").write_text(kept.replace('"checkpoint"', '"results-checkpoint"'))
    result = command("run", "job.py:pipeline", "--engine", "embedded", "--end-of-input")
    assert "gone" not in result.output and "1 row published" in result.stdout
    assert [json.loads(path.read_text())["value"] for path in (folder / "results").glob("*.jsonl")] == [6]
