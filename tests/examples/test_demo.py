"""The demo, small: a driver killed twice, every row compared, on both engines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def demo(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "demo.py"), *map(str, arguments)]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, timeout=800, env=environment)


def check(result: subprocess.CompletedProcess[str]) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("killed with -9") >= 2
    assert "every row is what the plain computation gives" in result.stdout


@pytest.mark.crash
def test_the_demo_survives_its_kills_embedded(tmp_path: Path) -> None:
    """Without it the first command a new user types could fail where there is no Java; here in a folder it keeps."""
    folder = tmp_path / "kept"
    check(demo("--engine", "embedded", "--rows", 800_000, "--step-rows", 40_000, "--seed", 11, "--folder", folder))
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["checkpoint", "events", "visits"]


@pytest.mark.crash
@pytest.mark.spark
@pytest.mark.slow
def test_the_demo_survives_its_kills_on_spark() -> None:
    """Without it the first command a new user types could fail."""
    check(demo("--engine", "spark", "--rows", 400_000, "--step-rows", 40_000, "--seed", 12))
