"""``persistent init`` asks little, proposes what the file suggests, and writes what runs."""

from __future__ import annotations

import os
import pty
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from persistent.tools.cli.load import load_pipeline
from tests.figures import ROOT
from tests.tools.cli.visits import FIRST, command, json_of


def test_without_a_word_there_is_a_project_that_runs(here: Path) -> None:
    """Without it the first command of a newcomer would be a question that she cannot answer."""
    result = command("init", "first")
    assert result.exit_code == 0, result.output
    assert "cd first" in result.stdout and "persistent run task.py:pipeline" in result.stdout
    assert sorted(path.name for path in (here / "first").iterdir()) == [
        "README.md", "events.csv", "task.py", "test_task.py",
    ]  # fmt: skip
    report = load_pipeline("first/task.py:pipeline").run(engine="embedded", end_of_input=True)
    assert (report.rows, report.dead, report.late) == (72, 0, 0) and report.outputs > 6


def test_a_file_of_ones_own(here: Path) -> None:
    """Without it the columns would have to be typed, and be mistyped."""
    (here / "views.csv").write_text(FIRST)
    result = command("init", "job", "--source", "files:views.csv", "--window", "minute", "--sink", "sqlite")
    assert result.exit_code == 0, result.output
    assert "read 7 records of the columns time, page, status, bytes" in result.stderr
    assert "1 of them cannot be decoded" in result.stderr
    task = (here / "job" / "task.py").read_text()
    assert 'key = "page"' in task and "bytes_sum=Sum()" in task and 'HERE.parent / "views.csv"' in task
    assert '"time": "string", "page": "string"' in task
    (here / "job").rename(here / "moved")
    report = load_pipeline("moved/task.py:pipeline").run(engine="embedded", end_of_input=True)
    assert (report.rows, report.dead) == (7, 1)


def test_names_of_other_letters(here: Path) -> None:
    """Without it the key of a German file would be passed over without a word, and another be proposed."""
    lines = [
        "Zeit;Geschäft;Größe;Betrag (€)",
        *(f"2024-05-01T10:0{n}:00+02:00;{'aü'[n % 2]};{n};1.5" for n in range(6)),
    ]
    (here / "käufe.csv").write_text("\n".join(lines), "utf-8")
    result = command("init", "job", "--source", "files:käufe.csv", "--sink", "sqlite", "--yes")
    assert result.exit_code == 0, result.output
    assert "Not proposed, as their names are none in Python: 'Betrag (€)'" in result.stderr
    report = load_pipeline("job/task.py:pipeline").run(engine="embedded", end_of_input=True)
    assert (report.rows, report.dead, report.outputs) == (6, 0, 2)
    with closing(sqlite3.connect(here / "job" / "results.db")) as database:
        rows = database.execute("SELECT * FROM totals ORDER BY 1").fetchall()
    assert [row[:1] + row[3:6] for row in rows] == [("a", 3, 6, 4), ("ü", 3, 9, 5)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "job"], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout


def test_the_file_of_a_spreadsheet(here: Path) -> None:
    """Without it the first file of many people would be refused, or be read with other letters than theirs."""
    lines = ["time;wer;n;notiz", '2024-05-01T10:00:00Z;Zoë;1;"a', 'b;c"', "2024-05-01T11:00:00Z;Zoë;2;d"]
    (here / "views.csv").write_bytes("\n".join(lines).encode("cp1252"))
    result = command("init", "job", "--source", "views.csv", "--key", "wer", "--yes")
    assert result.exit_code == 0, result.output
    told = "They are read with delimiter=';', encoding='cp1252', multiline=True; --encoding names another"
    assert told in result.stderr
    pipeline = load_pipeline("job/task.py:pipeline")
    report = pipeline.run(engine="embedded", end_of_input=True)
    assert (report.rows, report.dead) == (2, 0)
    rows = "".join(path.read_text() for path in (here / "job" / "results").glob("*.jsonl"))
    assert rows.count('"Zoë"') == 2 and '"n_sum":1' in rows and '"n_sum":2' in rows
    given = ["--delimiter", ";", "--encoding", "latin-1"]
    assert command("init", "other", "--source", "views.csv", "--yes", *given).exit_code == 0
    assert 'encoding="iso8859-1"' in (here / "other" / "task.py").read_text()


def test_every_answer_can_be_an_option(here: Path) -> None:
    """Without it a script could not make a project."""
    words = ["--source", "kafka:localhost:9092/views", "--timestamp", "ts", "--timestamp-unit", "s", "--key", "page"]
    words += [
        "--value",
        "bytes",
        "--value",
        "millis",
        "--window",
        "session 5 min",
        "--sink",
        "kafka:localhost:9092/out",
    ]
    result = command("init", *words)
    assert result.exit_code == 0, result.output
    task = (here / "task.py").read_text()
    options = " ".join(task.split())
    assert '"localhost:9092", "views", timestamp="ts", timestamp_unit="s", max_out_of_orderness="10 s",' in options
    assert 'schema={"ts": "int64", "page": "string", "bytes": "double", "millis": "double"}' in options
    for part in ('session("5 min")', "millis_max"):
        assert part in task
    assert "persistent-monoids[kafka]" in (here / "README.md").read_text()
    assert "cd " not in result.stdout
    written = json_of("init", "again", *words)
    assert written == [{"file": f"again/{name}"} for name in ("task.py", "test_task.py", "README.md")]


@pytest.mark.parametrize(
    ("words", "code", "parts"),
    [
        (["--source", "kafka:a:1/b", "--key", "n", "--value", "n"], 1, ["--value 'n'", "is the key", "choose another"]),
        (["--source", "kafka:a:1/b", "--key", "_timestamp"], 1, ["--key '_timestamp'", "is the time"]),
        (["--source", "kafka:a:1/b"], 1, ["--key is missing", "give it"]),
        (["--source", "files:none.csv"], 1, ["none.csv", "check the path"]),
        (["--source", "none.csv"], 1, ["--source 'none.csv'", "no such file or folder below /", "correct the path"]),
        (["--source", "csv/*.csv"], 1, ["csv/*.csv", "check the path"]),
        (["--source", "csv"], 1, ["--source 'csv' names no source", "kafka:HOST:PORT/TOPIC"]),
        (["--source", "files:views.csv", "--key", "pgae"], 1, ["--key 'pgae'", "is no column", "page"]),
        (["--source", "files:views.csv", "--timestamp", "page"], 1, ["--timestamp 'page'", "choose one of time"]),
        (
            ["--source", "files:views.csv", "--key", "status", "--value", "page"],
            1,
            ["--value 'page'", "is of type str", "numbers"],
        ),
        (["--source", "files:views.csv", "--key", "time"], 1, ["--key 'time'", "is the time", "another field"]),
        (["--value", "time"], 1, ["--value 'time'", "choose"]),
        (["--source", "files:numbers.csv", "--value", "ts"], 1, ["--value 'ts'", "is the time", "choose another"]),
        (["--timestamp-unit", "min"], 2, ["--timestamp-unit", "'ms'"]),
        (["--sink", "postgres:postgresql://a:b@c/d"], 1, ["password", "PGPASSWORD"]),
    ],
)
def test_a_wrong_answer_writes_nothing(words: list[str], code: int, parts: list[str], here: Path) -> None:
    """Without it half a project would be in the way of the next try."""
    (here / "views.csv").write_text(FIRST)
    (here / "numbers.csv").write_text("ts,n\n1700000000,1\n")
    result = command("init", *words)
    assert result.exit_code == code
    assert [part for part in parts if part not in result.stderr] == [], result.stderr
    assert sorted(path.name for path in here.iterdir()) == ["numbers.csv", "views.csv"]


@pytest.mark.parametrize(
    ("lines", "words", "parts"),
    [
        ("t,n,N\n2024-05-01,1,2\n", ["--sink", "sqlite"], ["'n_sum' and 'N_sum'", "the same to SQLite"]),
        (
            "t,user\n2024-05-01,a\n2024-05-01,\n",
            ["--window", "none", "--sink", "sqlite"],
            ["--key 'user' is empty in some records", "--sink files"],
        ),
    ],
)
def test_a_project_whose_run_is_refused_is_not_written(
    lines: str, words: list[str], parts: list[str], here: Path
) -> None:
    """Without it the test of the project would pass, and its first run fail."""
    (here / "a.csv").write_text(lines)
    result = command("init", "job", "--source", "files:a.csv", "--yes", *words)
    assert result.exit_code == 1 and not (here / "job").exists()
    assert [part for part in parts if part not in result.stderr] == [], result.stderr


def test_what_will_be_dead_is_told_with_its_reason(here: Path) -> None:
    """Without it half of the records would be missing, and nobody know why."""
    (here / "a.csv").write_text("t,n\n" + "2024-05-01,1\n" * 20 + "n/a,2\nwrong\n")
    result = command("init", "job", "--source", "files:a.csv", "--yes")
    assert result.exit_code == 0, result.output
    assert "1 of them cannot be decoded, and will be dead letters: " in result.stderr
    assert "1 of them have no time in 't', and will be dead letters" in result.stderr


def test_a_second_project_replaces_nothing(here: Path) -> None:
    """Without it a command from the history of the shell would undo a day's work."""
    assert command("init").exit_code == 0
    (here / "task.py").write_text("mine")
    result = command("init")
    assert result.exit_code == 1 and "nothing is replaced" in result.stderr
    assert (here / "task.py").read_text() == "mine"


def test_it_asks_on_a_terminal(here: Path) -> None:
    """Without it the questions that most users meet would be asked by nobody here."""
    (here / "views.csv").write_text(FIRST)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "persistent", "init", "asked"],
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(theirs)
    os.write(ours, b"veiws.csv\nviews.csv\nstatsu\n\nusr\n-\nbits\nbytes\n1 hou\nday\n\n")
    said, _ = process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0, said
    for part in (
        "Where are the records",
        "'veiws.csv': no such file",
        "--timestamp 'statsu'",
        "--key 'usr'",
        "--value 'bits'",
        "--window '1 hou'",
        "[files:views.csv]",
        "Whose state does a record change",
        "[page]",
        "[hour]",
        "[files]",
    ):
        assert part in said
    task = (here / "asked" / "task.py").read_text()
    assert "key = None" in task and 'tumbling("1 day")' in task and "status" not in task
