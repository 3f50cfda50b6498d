"""A checkpoint of many steps, made once, and copies of it to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from persistent.checkpoint.log import Log
from persistent.storage import LocalStorage
from tests.verify.checkpoints import pipeline


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of many steps with folded runs, late rows, a dead letter, and two runs' fences."""
    folder = tmp_path_factory.mktemp("made") / "checkpoint"
    pipeline(folder, 1500).run(engine="embedded")
    pipeline(folder, 1860).run(engine="embedded")
    newest = Log(LocalStorage(folder)).newest()
    assert newest is not None
    assert len(newest.manifest.nodes["Visits"].runs) > 2
    return folder


@pytest.fixture
def checkpoint(made: Path, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(made, tmp_path / "checkpoint"))
