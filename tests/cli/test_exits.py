"""The command line, on real checkpoints of real pipelines, as a user types it."""

from __future__ import annotations

import re
from pathlib import Path

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
from persistent.cli import main
from persistent.cli.exits import EXITS, exit_code
from tests.cli.visits import VISITS, command


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
    assert len(main.commands) == 25
    for name in main.commands:
        assert re.search(rf"^  {name} ", told, re.M), name
        about = command(name, "--help").stdout
        assert re.search(rf"^  persistent {name} \S", about, re.M), f"{name} --help shows no example"
        assert "--json" in about, name
    for one in EXITS:
        assert re.search(rf"^  {one.code} +{one.text}$", told, re.M), one
    assert command("--version").stdout == f"persistent, version {__version__}\n"
