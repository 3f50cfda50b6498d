"""The command line, on real checkpoints of real pipelines, as a user types it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from persistent import __version__
from persistent.checkpoint.running import put_mark
from persistent.cli import main
from persistent.cli.exits import EXITS
from persistent.storage import LocalStorage

ROOT = Path(__file__).parents[2]

VISITS = """
from monoids import Count, Sum, record
from persistent import FileSink, FileSource, PersistentTask, Pipeline, WindowState, tumbling


class Visits(PersistentTask):
    key = ("page", "status")

    def persistent_state(self):
        return WindowState(record(visits=Count(), bytes=Sum()), tumbling("1 min"))

    def process_message(self, state, message):
        state.update(message.timestamp, {"visits": 1, "bytes": message.value["bytes"]})


pipeline = Pipeline(
    source=FileSource("views/*.csv", timestamp="time", ordered=True),
    task=Visits(), sink=FileSink("visits"), checkpoint="checkpoint", step_rows=2,
)
"""

FIRST = """time,page,status,bytes
2024-05-01T10:00:03Z,/home,200,10
2024-05-01T10:00:40Z,/home,200,20
2024-05-01T10:00:58Z,/ä,404,30
2024-05-01T10:02:10Z,/home,200,40
2024-05-01T10:00:59Z,/home,200,50
a bad line
2024-05-01T10:02:11Z,/home,200,60
"""


@pytest.fixture
def folder(here: Path) -> Path:
    """The current folder, with a pipeline and its input."""
    (here / "visits.py").write_text(VISITS)
    (here / "views").mkdir()
    (here / "views" / "1.csv").write_text(FIRST)
    return here


@pytest.fixture
def done(folder: Path) -> Path:
    """The same after a run."""
    assert command("run", "visits.py:pipeline", "--engine", "embedded").exit_code == 0
    return folder


def command(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def json_of(*words: str) -> list[dict[str, Any]]:
    result = command(*words, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_run_says_what_it_did(folder: Path) -> None:
    """Without it nobody would know whether anything was read, set aside or left open."""
    result = command("run", "visits.py:pipeline", "--engine", "embedded")
    assert result.exit_code == 0, result.output
    assert re.match(r"7 rows in \d+ steps, .* embedded\); 2 rows published, 1 late, 1 dead letters; ", result.stdout)
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
    assert result.exit_code == 0 and "\nnote: another driver seemed to run: process" in result.stdout


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


def test_history(done: Path) -> None:
    """Without it nobody would see how a checkpoint came about."""
    lines = json_of("history", "checkpoint")
    assert [line["id"] for line in lines] == list(range(len(lines)))
    assert [line["kind"] for line in lines][:3] == ["checkpoint", "fence", "checkpoint"]
    assert (lines[-1]["read"], lines[-1]["processed"], lines[-1]["late"], lines[-1]["dead"]) == (7, 5, 1, 1)
    table = command("history", "visits.py:pipeline").stdout
    assert len(table.splitlines()) == len(lines) + 1
    assert "2024-05-01 10:02:11Z" in table.splitlines()[-1]


def test_show(done: Path) -> None:
    """Without it the content of a manifest could be read only by hand."""
    shown = command("show", "checkpoint").stdout
    assert "read 7, processed 5, late 1, dead 1" in shown
    assert "page: string, status: int64" in shown
    assert "record(visits=Count(), bytes=Sum(int))" in shown
    (manifest,) = json_of("show", "checkpoint", "0")
    assert (manifest["id"], manifest["kind"]) == (0, "checkpoint")
    missing = command("show", "checkpoint", "999")
    assert missing.exit_code == 3
    assert "keeps no checkpoint 999" in missing.stderr


def test_state(done: Path) -> None:
    """Without it the state could be read only from Python."""
    (row,) = json_of("state", "visits.py:pipeline")
    assert row == {
        "page": "/home",
        "status": 200,
        "window_start": "2024-05-01T10:02:00.000Z",
        "window_end": "2024-05-01T10:03:00.000Z",
        "visits": 2,
        "bytes": 100,
    }
    table = command("state", "visits.py:pipeline").stdout.splitlines()
    assert table[0].split() == list(row)
    assert table[1].split() == ["/home", "200", "2024-05-01", "10:02:00Z", "2024-05-01", "10:03:00Z", "2", "100"]


def test_state_of_a_key_at_a_checkpoint(done: Path) -> None:
    """Without it one key among millions could not be looked up, nor how it was."""
    state = ("state", "visits.py:pipeline")
    at = next(line["id"] for line in json_of("history", "checkpoint") if line["read"] == 2)
    assert [row["visits"] for row in json_of(*state, "--at", str(at), "--key", "/home", "--key", "200")] == [2]
    assert json_of(*state, "--at", str(at), "--key", "/home", "--key", "404") == []
    assert json_of(*state, "--limit", "0") == []
    assert "0 of 1 rows" in command(*state, "--limit", "0").stdout
    for words, text in (
        (("--key", "/home"), "the key is (page, status): give 2"),
        (("--key", "/home", "--key", "ok"), "column status holds int64"),
        (("--window", "2024-05-01T10:00:07Z"), "the one before starts at 2024-05-01 10:00:00Z"),
        (("--window", "noon"), "'noon' is no time"),
        (("--at", "1", "--as-of", "7"), "choose one"),
        (("--output", "state.txt"), "say --format"),
    ):
        result = command(*state, *words)
        assert result.exit_code == 2
        assert text in result.stderr


NULLS = """
from monoids import Count
from persistent import MemorySource, NonWindowState, PersistentTask, Pipeline


class Names(PersistentTask):
    key = "name"

    def persistent_state(self):
        return NonWindowState(Count())

    def process_message(self, state, message):
        state.update(message.timestamp, 1)


names = [None] + 2 * [""] + 3 * ["null"]
source = MemorySource([{"ts": n, "name": name} for n, name in enumerate(names)], timestamp="ts")
pipeline = Pipeline(source=source, task=Names(), checkpoint="checkpoint")
"""


def test_a_null_key_is_no_empty_text_nor_the_word(folder: Path) -> None:
    """The state of the null key could not be looked up."""
    (folder / "names.py").write_text(NULLS)
    state = ("state", "names.py:pipeline")
    assert command("run", "names.py:pipeline", "--engine", "embedded").exit_code == 0
    for words, count in (
        (("--key-json", "null"), 1),
        (("--key-json", "[null]"), 1),
        (("--key-json", '""'), 2),
        (("--key", ""), 2),
        (("--key-json", '"null"'), 3),
        (("--key", "null"), 3),
    ):
        assert [row["value"] for row in json_of(*state, *words)] == [count]
    for words, text in (
        (("--key", "a", "--key-json", "null"), "choose one"),
        (("--key-json", "de"), "Text stands in quotes"),
        (("--key-json", "[]"), "give 1"),
        (("--key-json", '[null, "de"]'), "give 1"),
        (("--key-json", '{"name": null}'), "column name holds string"),
    ):
        result = command(*state, *words)
        assert result.exit_code == 2 and text in result.stderr, result.output
    assert 'no record of the key "x" was counted' in command(*state, "--key", "x").stdout


def test_no_rows_of_a_key_says_what_that_means(done: Path) -> None:
    """Of a key whose windows are closed one would think that it was never seen."""
    state = ("state", "visits.py:pipeline")
    told = command(*state, "--key", "/ä", "--key", "404").stdout
    assert 'no open window holds a record of the key ["/ä", "404"]: none was ever counted, or its windows are' in told
    assert "closed (those that end by 2024-05-01 10:02:10Z), and what they held is in FileSink" in told
    told = command(*state, "--window", "2024-05-01T10:00Z").stdout
    assert "the window is closed by checkpoint" in told and "what it held is in FileSink" in told
    told = command(*state, "--key-json", "[null, 1]", "--window", "2024-05-01T10:02Z").stdout
    assert "no record of the key [null, 1] was counted in the window, which is not closed" in told


def test_late_rows_and_dead_letters(done: Path) -> None:
    """Without it what was set aside could not be found again."""
    (late,) = json_of("late", "checkpoint")
    assert (late["reason"], late["value"]["bytes"], late["file"]) == ("late", 50, "1.csv")
    (dead,) = json_of("dead-letters", "visits.py:pipeline")
    assert FIRST.encode()[dead["offset"] :].startswith(b"a bad line")
    table = command("dead-letters", "checkpoint").stdout
    assert "a bad line" in table
    assert dead["reason"] in table
    header, row = command("late", "checkpoint").stdout.splitlines()
    assert header.split() == ["file", "offset", "time", "reason", "record"]
    assert row.split()[2:5] == ["2024-05-01", "10:00:59Z", "late"]
    assert '"bytes":50' in row


def test_verify(done: Path) -> None:
    """Without it a damaged checkpoint would first be noticed when it is needed."""
    sound = command("verify", "checkpoint")
    assert sound.exit_code == 0, sound.output
    newest = json_of("history", "checkpoint")[-1]["id"]
    assert f"checkpoint {newest} verifies" in sound.stdout
    path = done / "checkpoint" / "m" / f"{newest:020d}.json"
    path.write_bytes(path.read_bytes().replace(b'"late":1', b'"late":0'))
    damaged = command("verify", "checkpoint")
    assert damaged.exit_code == 4
    assert f"fault: m/{newest:020d}.json: SHA-256 differs from its trailer" in damaged.stdout
    assert re.search(
        rf"1 fault: m/{newest:020d}.json: SHA-256 differs.*; checkpoint {newest - 1} is the", damaged.stderr
    )
    told = command("verify", "checkpoint", "--json")
    assert json.loads(told.stdout)["ok"] is False
    assert told.exit_code == 4


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("history", "nowhere"), 3, "there is no checkpoint here"),
        (("late", "nowhere"), 3, "there is no checkpoint here"),
        (("verify", "nowhere"), 3, "no checkpoint verifies"),
        (("run", "none.py:pipeline"), 1, "none.py: no such file"),
        (("run", "visits.py:pipeline", "--follow", "--end-of-input"), 2, "choose one"),
        (("run", "visits.py:pipeline", "--engine", "embedded", "--master", "local"), 2, "choose one"),
        (("run", "visits.py:pipeline", "--engine", "storm"), 2, "'storm' is not one of"),
        (("state", "checkpoint"), 2, "give its pipeline as FILE.py:NAME"),
        (("history", "nosuch://host/x"), 6, "nosuch:// is no store"),
        (("rollback", "checkpoint"), 2, "--outputs"),
        (("rollback", "checkpoint", "--outputs=again"), 2, "either its ID, or --clock"),
        (("diff", "checkpoint"), 2, "TARGET TARGET"),
    ],
)
def test_errors_are_one_line_and_have_their_exit_codes(
    folder: Path, words: tuple[str, ...], code: int, text: str
) -> None:
    """Without it scripts could not tell a typing error from a failed run, nor people read what is wrong."""
    result = command(*words)
    assert result.exit_code == code
    assert text in result.stderr
    assert len([line for line in result.stderr.splitlines() if line.startswith("Error: ")]) == 1
    assert "Traceback" not in result.stderr


def test_an_error_in_the_task_names_the_message(folder: Path) -> None:
    """Without it a user would look for a bad record among millions; with -v there is the traceback too."""
    (folder / "failing.py").write_text(VISITS.replace('message.value["bytes"]', '1 // (message.value["bytes"] - 20)'))
    result = command("run", "failing.py:pipeline", "--engine", "embedded")
    assert result.exit_code == 1
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("Error: ")]
    assert re.match(
        r"Error: Visits\.process_message raised at .*failing\.py, line \d+ \(`state\.update\(.*ZeroDivision", line
    )
    assert re.search(
        r"'bytes': 20}, in 1\.csv, the record at offset \d+ \(partition 'files', position \(0, \d+\)", line
    )
    assert "ZeroDivisionError" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in command("-v", "run", "failing.py:pipeline", "--engine", "embedded").stderr


def test_help_and_version() -> None:
    """Without it nobody would find the commands."""
    told = command("--help").stdout
    assert len(main.commands) == 19
    for name in main.commands:
        assert re.search(rf"^  {name} ", told, re.M), name
        about = command(name, "--help").stdout
        assert re.search(rf"^  persistent {name} \S", about, re.M), f"{name} --help shows no example"
        assert "--json" in about, name
    for one in EXITS:
        assert re.search(rf"^  {one.code} +{one.text}$", told, re.M), one
    assert command("--version").stdout == f"persistent, version {__version__}\n"


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


@pytest.mark.parametrize(("number", "follow"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
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
