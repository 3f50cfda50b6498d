"""The command line, on real checkpoints of real pipelines, as a user types it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from persistent import (
    PersistentError,
    Refused,
    SinkMismatch,
    StagedMissing,
    StorageError,
    UnsupportedStore,
    __version__,
)
from persistent.tools.cli import main
from persistent.tools.cli.exits import EXITS, exit_code
from tests.tools.cli.visits import VISITS, command

ROOT = Path(__file__).parents[3]


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
        (("state", "checkpoint"), 2, "give the pipeline as FILE.py:NAME"),
        (("history", "nosuch://host/x"), 6, "nosuch:// is not a store"),
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


@pytest.mark.parametrize(
    ("error", "code"), [(StorageError, 6), (UnsupportedStore, 6), (SinkMismatch, 1), (StagedMissing, 4), (Refused, 1)]
)
def test_a_supervisor_restarts_only_what_a_restart_can_mend(error: type[PersistentError], code: int) -> None:
    """A store that is away comes back; the folder of another job stays its own, and was tried again for ever."""
    assert exit_code(error("...")) == code


def _in_front() -> None:
    # Tests that run in the background of a script ignore Ctrl-C, and all that they start.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("module", "stop", "code"),
    [
        ("click", signal.SIGINT, 130),
        ("pyarrow", signal.SIGINT, 130),
        ("click", signal.SIGTERM, -signal.SIGTERM),
        ("pyarrow", signal.SIGTERM, -signal.SIGTERM),
    ],
)
def test_a_stop_while_it_is_loaded_is_quiet(module: str, stop: signal.Signals, code: int, tmp_path: Path) -> None:
    """Ctrl-C after a typing error printed the modules that were being loaded. A shell says 143 of SIGTERM."""
    (tmp_path / f"{module}.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    words = [sys.executable, "-m", "persistent", "history", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": path}
    piped: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=environment, preexec_fn=_in_front, **piped) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "loading\n"
        run.send_signal(stop)
        assert (*run.communicate(timeout=30), run.returncode) == ("", "", code)


def test_an_interrupt_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """A command in the background of a script would end by the Ctrl-C that ends what is in front."""
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nprint('on')\n")
    run = subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", sys.executable, "-m", "persistent", "--version"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
        capture_output=True,
        text=True,
    )
    assert run.stdout == "on\n" and "has no attribute" in run.stderr


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
    assert len(main.commands) == 24
    for name in main.commands:
        assert re.search(rf"^  {name} ", told, re.M), name
        about = command(name, "--help").stdout
        assert re.search(rf"^  persistent {name} \S", about, re.M), f"{name} --help shows no example"
        assert "--json" in about, name
    for one in EXITS:
        assert re.search(rf"^  {one.code} +{one.text}$", told, re.M), one
    assert command("--version").stdout == f"persistent, version {__version__}\n"
