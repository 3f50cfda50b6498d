"""Folders with a job of visits, before and after a run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.cli import made as whole
from tests.tools.cli.made import ROOT
from tests.tools.cli.visits import FIRST, VISITS, command


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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    (folder / "visits.py").write_text(whole.VISITS)
    (folder / "more.jsonl").write_text('{"ts": 50000, "page": "a"}\n')
    done = subprocess.run(
        [sys.executable, "-m", "persistent", "run", "visits.py:pipeline", "--engine", "embedded"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copied(made: Path, here: Path) -> Path:
    """A copy of it as the current folder."""
    shutil.copytree(made, here, dirs_exist_ok=True)
    return here
