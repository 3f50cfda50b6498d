"""With --log-format json all that goes to the standard error is a JSON object a line; exit codes stay the same."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import warnings
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from persistent.driver.report import Idle
from persistent.tools.cli.run import json_lines
from tests.tools.cli.made import ROOT
from tests.tools.cli.visits import VISITS, command

RUN = ("run", "visits.py:pipeline", "--engine", "embedded", "--log-format", "json")


def lines_of(text: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    assert found and all(isinstance(one, dict) for one in found)
    return found


def test_each_line_of_a_run_is_an_object(folder: Path) -> None:
    """What collects the logs would cut a run into lines that nobody can search."""
    result = command("-v", *RUN)
    assert result.exit_code == 0, result.output
    lines = lines_of(result.stderr)
    for one in lines:
        when = datetime.fromisoformat(one["time"])
        assert when.tzinfo == UTC and one["time"].endswith("Z")
        assert (
            one.keys() >= {"level", "logger", "message", "pipeline"} and one["pipeline"] == f"{folder.name}-checkpoint"
        )
    assert {one["level"] for one in lines} <= {"info", "warning"}
    assert any(one["message"].startswith("epoch 1 begins") for one in lines), "the log of the package too"
    progress = next(one for one in lines if one["logger"] == "persistent.run" and "rows/s" in one["message"])
    assert progress["rows"] == 2 and progress["checkpoint"] > 0 and progress["clock_ms"] > 1_714_500_000_000
    last = lines[-1]
    assert (last["rows"], last["late"], last["dead"], last["outputs"]) == (7, 1, 1, 2)
    assert result.stdout.startswith("7 rows in"), "the report is where it was"


def test_an_error_is_a_line_with_its_traceback(folder: Path) -> None:
    """A traceback in twenty lines is twenty messages, and none of them says which job failed."""
    raises = "        raise ValueError('no\\nluck')\n        state.update"
    (folder / "visits.py").write_text(VISITS.replace("        state.update", raises))
    result = command(*RUN)
    assert result.exit_code == 1
    (line,) = [one for one in lines_of(result.stderr) if one["level"] == "error"]
    assert line["error"] == "UserCodeError" and "raised at visits.py, line 13" in line["message"]
    assert line["traceback"].startswith("Traceback") and "ValueError: no\nluck" in line["traceback"]
    assert line["pipeline"] == f"{folder.name}-checkpoint"


def test_the_exit_code_of_an_error_is_that_of_its_kind(folder: Path) -> None:
    """A supervisor would restart what it should not."""
    result = command("run", "nowhere.py:pipeline", "--log-format", "json")
    assert result.exit_code == 1
    (line,) = lines_of(result.stderr)
    assert line["error"] == "InvalidPipeline" and "no such file" in line["message"]


@pytest.mark.check
def test_a_real_process_writes_nothing_else(folder: Path) -> None:
    """A line of another package, or of Python itself, would break whoever reads the others."""
    (folder / "visits.py").write_text(
        "import warnings, logging\nwarnings.warn('old')\nlogging.error('theirs')\n" + VISITS
    )
    words = [sys.executable, "-W", "always", "-m", "persistent", *RUN, "--json"]
    done = subprocess.run(
        words, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=100
    )
    assert done.returncode == 0 and json.loads(done.stdout)["rows"] == 7
    lines = lines_of(done.stderr)
    assert {"root", "py.warnings", "persistent.run"} <= {one["logger"] for one in lines}


def test_what_was_set_is_set_back(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that calls a command would log in JSON from then on."""
    root, ours = logging.getLogger(), logging.getLogger("persistent")
    before = list(root.handlers), list(ours.handlers)
    common = {"pipeline": "visits"}
    with json_lines(common):
        logging.getLogger("other").warning("é %s", "\ud800", extra={"fields": {"time": 1, "path": Path("x")}})
        common["checkpoint"] = "5"
        warnings.warn("old", stacklevel=1)
    assert (list(root.handlers), list(ours.handlers)) == before
    first, second = lines_of(capsys.readouterr().err)
    assert first["message"] == "é \ud800" and first["time"].endswith("Z") and first["path"] == "x"
    assert second["checkpoint"] == "5" and second["logger"] == "py.warnings"


class Textless:
    """A value that no log can show."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


CIRCLE: dict[str, Any] = {}
CIRCLE["itself"] = CIRCLE


@pytest.mark.parametrize(
    ("message", "values", "extra"),
    [
        ("odd %d", ("two",), {}),
        ("odd %s %s", ("one",), {}),
        ("odd", (), {"fields": {"n": {(1, 2): 3}}}),
        ("odd", (), {"fields": {"n": Textless()}}),
        ("odd", (), {"fields": {"n": float("nan")}}),
        ("odd", (), {"fields": CIRCLE}),
        ("odd %s", (Textless(),), {}),
        (Textless(), (), {}),
    ],
)
def test_a_record_that_cannot_be_formatted_is_a_line_too(
    capsys: pytest.CaptureFixture[str], message: Any, values: tuple[Any, ...], extra: dict[str, Any]
) -> None:
    """Its error would reach the task that logs, and a good record would become a dead letter."""
    with json_lines({"pipeline": "visits"}):
        logging.getLogger("theirs").warning(message, *values, extra=extra)
    (line,) = lines_of(capsys.readouterr().err)
    assert line["level"] == "warning" and line["pipeline"] == "visits" and line["unformatted"]
    assert line["message"] == (message if isinstance(message, str) else "Textless")


def test_fields_of_another_package_may_be_anything(capsys: pytest.CaptureFixture[str]) -> None:
    """``fields`` is a name that others use as well, and not for a mapping."""
    with json_lines({}):
        logging.getLogger("theirs").warning("odd", extra={"fields": ["n"]})
        logging.getLogger("theirs").warning("odd", extra={"fields": {1: 2}})
    first, second = lines_of(capsys.readouterr().err)
    assert first["fields"] == ["n"] and second["1"] == 2


def test_a_task_that_logs_counts_the_same_when_nobody_reads_the_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With on_error="dead-letter", the records would be committed as dead letters when a collector of logs dies."""

    def broken(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    logs = "        __import__('logging').getLogger('theirs').warning('seen')\n        state.update"
    (folder / "visits.py").write_text(VISITS.replace("        state.update", logs))
    real = click.echo
    monkeypatch.setattr(click, "echo", lambda *given, err=False, **rest: (broken if err else real)(*given, **rest))
    result = command(*RUN)
    assert result.exit_code == 0 and result.stdout.startswith("7 rows in")


def test_no_secret_is_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Logs are kept for years, and read by many."""
    with pytest.raises(click.exceptions.Exit), json_lines({}):
        try:
            raise ValueError("http://me:hunter2@host/")
        except ValueError:
            logging.getLogger("other").exception("s3://key:hunter2@bucket/x?Signature=hunter2")
        raise RuntimeError("amqp://me:hunter2@host")
    assert "hunter2" not in capsys.readouterr().err


def test_an_idle_run_says_so_in_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that waits would look like one that hangs."""
    module = import_module("persistent.tools.cli.run")

    now = [0.0]
    monkeypatch.setattr(module, "monotonic_s", lambda: now[0])
    monkeypatch.setattr("persistent.progress.monotonic_s", lambda: now[0])
    told = module.Telling(as_json=True)
    with told.lines(), told.progress(follow=True) as shown:
        now[0] = 5.0
        shown.idle(Idle(None, 0, 0, None))
        told.say("running")
    idle, said = lines_of(capsys.readouterr().err)
    assert idle["message"].startswith("idle 5 s: waiting for input") and said["message"] == "running"
