"""Every command on every bad input: the sentence that helps, its exit code, and nothing changed."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from persistent.checkpoint.log import Log
from persistent.checkpoint.running import put_mark
from persistent.names import manifest_name
from persistent.storage import LocalStorage
from persistent.storage.local import OsDisk
from tests.few import one_in
from tests.tools.cli.made import COMMANDS, READS, ROOT, contents, told

NOBODY = 65534


NO_RUNS = ("history", "show", "show of an id", "clock", "diff", "diff of two", "late", "dead-letters", "gc of nothing")
"""They read manifests, and no run of a state."""


# -- what may lie there ----------------------------------------------------------------------------------------------


def nothing(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)


def empty(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


def a_file(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.write_text("notes")


def without_format(checkpoint: Path) -> None:
    (checkpoint / "FORMAT").unlink()


def without_manifests(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "m")


def without_runs(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "d")


def garbage(checkpoint: Path) -> None:
    ids = Log(LocalStorage(checkpoint)).ids()
    (checkpoint / manifest_name(ids[-1] + 1)).write_bytes(b"\x00garbage" * 100)


def torn(checkpoint: Path) -> None:
    path = checkpoint / manifest_name(Log(LocalStorage(checkpoint)).ids()[-1])
    path.write_bytes(path.read_bytes()[:100])


BAD: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "nothing": (nothing, 3, "there is no checkpoint"),
    "an empty folder": (empty, 3, "there is no checkpoint"),
    "a file": (a_file, 6, "A file exists where a folder is needed"),
    "half copied: no FORMAT": (without_format, 4, "FORMAT: missing"),
    "half copied: no manifests": (without_manifests, 4, "from a copy"),
    "half copied: no runs": (without_runs, 4, "missing"),
    "garbage in m/": (garbage, 4, "rollback"),
    "a torn manifest": (torn, 4, "rollback"),
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_good_checkpoint_is_told_and_left(command: str, bad: str, copied: Path) -> None:
    """Without it a mistyped URL or a broken copy would be a traceback, a wrong answer, or made worse."""
    spoil, code, text = BAD[bad]
    spoil(copied / "checkpoint")
    before = contents(copied)
    if bad == "half copied: no runs" and command in (*NO_RUNS, "gc", "pin", "correct"):
        if command in READS:
            assert told(COMMANDS[command])[0] == 0
            assert contents(copied) == before
        return
    if command.startswith(("rollback", "clock set back")) and code == 4 and "rollback" in text:
        return  # It is the way out of just that.
    found, said = told(COMMANDS[command])
    if command == "merge" and bad == "half copied: no runs":
        assert found == 1 and "have read partition" in said
    else:
        assert found == code, said
        assert re.search(text, said), said
        assert "checkpoint" in said
    changed = {name for name, data in contents(copied).items() if before.get(name) != data}
    # What is missing is seen once nobody else writes there any more: a fence is no change of the job.
    assert len(changed) == (command == "compact" and bad == "half copied: no runs")
    assert before.keys() <= contents(copied).keys()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("show", "URL", "999"), "keeps no checkpoint 999"),
        (("show", "URL", "-1"), "No such option|keeps no checkpoint"),
        (("diff", "URL", "999"), "keeps no checkpoint 999"),
        (("diff", "URL", "2", "999"), "keeps no checkpoint 999"),
        (("state", "PIPELINE", "--at", "999"), "keeps no checkpoint 999"),
        (("export", "PIPELINE", "out", "--at", "999"), "keeps no checkpoint 999"),
        (("savepoint", "URL", "monday", "--at", "999"), "keeps no checkpoint 999"),
        (("rollback", "URL", "999", "--outputs=again"), "checkpoint 999 is not kept"),
        (("pin", "URL", "999"), "keeps no checkpoint 999"),
        (("pin", "URL", "3", "--remove"), "checkpoint 3 is not pinned"),
    ],
)
def test_an_unknown_id_is_told(words: tuple[str, ...], text: str, copied: Path) -> None:
    """Without it a mistyped id could be answered with another checkpoint."""
    before = contents(copied)
    code, said = told(words)
    assert code == (2 if "-1" in words else 3)
    assert re.search(text, said), said
    assert contents(copied) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_running_job_is_looked_at_and_left_alone(command: str, copied: Path) -> None:
    """Without it a command typed beside a running job would stop it."""
    storage = LocalStorage(copied / "checkpoint")
    newest = Log(storage).newest()
    assert newest is not None
    put_mark(storage, newest.manifest.epoch, "0" * 32)
    before = contents(copied)
    code, said = told(COMMANDS[command])
    if command in READS or command == "savepoint":
        # A savepoint only reads.
        assert code == 0, said
    else:
        assert code == 5
        assert "a driver runs: process" in said and ("--take-over" in said or command == "merge")
    grown = contents(copied)
    assert {name: grown.get(name) for name in before} == before
    if command not in ("savepoint", "export"):
        assert grown == before


class Refusing(OsDisk):
    """A disk that lets nobody in."""

    def read(self, path: str) -> object:  # type: ignore[override]
        raise PermissionError(errno.EACCES, "Permission denied", path)

    def file_names(self, path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", path)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_permission_is_told(command: str, copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a folder of somebody else would look like an empty one."""
    before = contents(copied)
    monkeypatch.setattr("persistent.storage.local.OsDisk", Refusing)
    code, said = told(COMMANDS[command])
    assert code == 6
    assert "Permission denied. Let this user read and write there" in said, said
    monkeypatch.undo()
    assert contents(copied) == before


@pytest.fixture
def in_view(made: Path) -> Iterator[Path]:
    """A copy where everybody may look, but for the checkpoint. Below pytest's own folder there is no such place: every
    pytest that starts closes it to others."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(made, folder, dirs_exist_ok=True))
        copy.chmod(0o755)
        (copy / "checkpoint").chmod(0o700)
        yield copy


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("command", one_in(4, ["state", "history", "verify", "gc"]))
def test_another_user_is_let_in_nowhere(command: str, in_view: Path) -> None:
    """Without it the disk of the test before could be stricter than a real one."""
    words = [{"URL": "checkpoint", "PIPELINE": "visits.py:pipeline"}.get(word, word) for word in COMMANDS[command]]
    code = (
        "import os, sys\n"
        "from persistent.tools.cli import main\n"
        "from persistent.tools.cli import COMMANDS, command_of\n"
        # Nobody may read the modules of this Python.
        "list(map(command_of, COMMANDS))\n"
        f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"main({words!r}, prog_name='persistent')\n"
    )
    before = contents(in_view)
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=in_view,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 6, done.stderr
    assert "Permission denied" in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(in_view) == before
