"""The plugin of pytest: fixtures, and how many seeds."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
from persistent.time.clock import wall_ms
from persistent.storage import open_storage
from persistent.testing.simulating import SEEDS

def test_clock(manual_clock):
    manual_clock.set(5)
    assert wall_ms() == 5

def test_fresh(memory_checkpoint, request):
    storage = open_storage(memory_checkpoint)
    assert storage.list("") == []
    storage.write("x", b"1")

def test_seeds():
    print("seeds:", SEEDS.get())
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    installed = any(point.value == "pytest_persistent" for point in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "pytest_persistent"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, "-s", "-q", *words]
    environment = {"PYTHONPATH": str(ROOT), "PATH": ""}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=120)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_mine.py").write_text(TESTS)
    return tmp_path


def test_fixtures_and_seeds(folder: Path) -> None:
    """A user's own tests have them without importing anything."""
    done = run(folder, "--persistent-seeds=7")
    assert "3 passed" in done.stdout and "seeds: 7" in done.stdout, done.stdout + done.stderr
    assert "seeds: 100" in run(folder, "-k", "seeds").stdout


def test_no_seeds_are_refused(folder: Path) -> None:
    """Nothing would be tried, and all would pass."""
    assert "at least 1, not 0" in run(folder, "--persistent-seeds=0").stderr


def test_it_loads_nothing_until_it_is_used() -> None:
    """Every pytest of every project pays for what a plugin imports."""
    heavy = ("persistent", "pyarrow", "numpy")
    code = f"import pytest, sys, pytest_persistent; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_kit_needs_no_test_framework() -> None:
    """It serves in a notebook too, and the package does not load it."""
    code = (
        "import sys, persistent; assert 'persistent.testing' not in sys.modules; import persistent.testing; "
        "print([name for name in ('pytest', 'hypothesis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
