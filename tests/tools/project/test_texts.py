"""What a project begins with runs as it is: its task, its test, and the tools that check both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from persistent.tools.cli.load import load_pipeline
from persistent.tools.project import Answers, Field
from tests.few import one_in
from tests.figures import ROOT
from tests.tools.project.made import ALL, KEYS, RUN, SERVED, VALUES, WINDOWS, answers, expected, project, published

SPREAD = [answers(*case) for case in ALL[::5]]
"""A fifth: each key with each window, and each kind of values with each sink."""


def name_of(made: Answers) -> str:
    key = made.key.name if made.key else "no key"
    return f"{key}, {made.window.kind} {made.window.length}, {len(made.values)} values, {made.sink.kind}"


def test_the_spread_is_one() -> None:
    """Without it a kind of answer could be tried with nothing."""
    assert {(made.key, made.window) for made in SPREAD} >= {
        (key, answers(key, window, ()).window) for key in KEYS for window in WINDOWS
    }
    assert {(len(made.values), made.sink.kind) for made in SPREAD} == {(len(v), s) for v in VALUES for s in RUN}


@pytest.mark.parametrize("made", one_in(9, SPREAD), ids=name_of)
def test_a_project_runs_and_is_exact(made: Answers, here: Path) -> None:
    """Without it the first thing that a newcomer runs could fail, or come to a wrong number."""
    folder = project(here, made)
    pipeline = load_pipeline(f"{folder}/task.py:pipeline")
    report = pipeline.run(engine="embedded", end_of_input=True)
    assert (report.rows, report.late, report.dead) == (60, 0, 0)
    assert published(folder, made) == expected(made)
    assert pipeline.run(engine="embedded", end_of_input=True).rows == 0
    assert published(folder, made) == expected(made), "a run without anything new has changed something"


@pytest.mark.parametrize("made", one_in(len(SPREAD), SPREAD[::3]), ids=name_of)
def test_the_test_of_a_project_passes(made: Answers, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the example that teaches to test would fail."""
    folder = project(here, made)
    monkeypatch.syspath_prepend(str(folder))
    module: dict[str, object] = {"__name__": "test_task"}
    exec(compile((folder / "test_task.py").read_text(), "test_task.py", "exec"), module)
    test = module["test_totals"]
    assert callable(test)
    test()


@pytest.mark.parametrize("window", ["hour", pytest.param("session", marks=pytest.mark.check)])
def test_the_test_of_a_project_notices_a_mistake(window: str, here: Path) -> None:
    """Without it the test would pass whatever the task does."""
    folder = project(here, answers(Field("user", "str"), window, (Field("millis", "int"),)))
    task = folder / "task.py"
    task.write_text(task.read_text().replace('"millis_max": value["millis"]', '"millis_max": value["millis"] + 1'))
    done = pytest_in(folder, "-k", "totals")
    assert done.returncode == 1 and "differs from the expected result" in done.stdout


@pytest.mark.parametrize(
    "name", one_in(6, ["it's.csv", 'a "b".csv', 'it\'s "b".csv', "back\\slash.csv", "{x} y.csv", "ä.csv"])
)
def test_a_file_of_any_name_is_read(name: str, here: Path) -> None:
    """Without it a path could end the text that it stands in, and be code."""
    made = answers(None, "hour", (), source=f"files:{name}")
    folder = project(here, made)
    (here / "rows.csv").rename(here / name)
    assert load_pipeline(f"{folder}/task.py:pipeline").run(engine="embedded").rows == 60
    ruff(folder, "format", "--check", "--config", str(ROOT / "pyproject.toml"), "task.py")


def pytest_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.check
@pytest.mark.parametrize("window", ["hour", "session", "none"])
def test_pytest_runs_the_test_and_the_laws(window: str, here: Path) -> None:
    """Without it the plugin of laws could be missing where it is shown."""
    folder = project(here, answers(Field("user", "str"), window, VALUES[1]))
    done = pytest_in(folder)
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout and "failed" not in done.stdout


@pytest.mark.check
def test_the_tools_find_nothing(here: Path) -> None:
    """Without it the first commit of a newcomer would be about our style."""
    folders = []
    sources = "files:rows.csv", "kafka:localhost:9092/views", "sample"
    for place, (key, window, values) in enumerate((k, w, v) for k in KEYS for w in WINDOWS for v in VALUES):
        made = answers(key, window, values, (*RUN, *SERVED)[place % 4], sources[place % 3])
        (here / str(place)).mkdir()
        folders.append(project(here / str(place), made))
    config = ["--config", str(ROOT / "pyproject.toml")]
    for folder in folders:
        ruff(folder, "check", *config, ".")
    ruff(here, "format", "--check", *config, ".")
    for folder in folders[::25]:
        typed = subprocess.run(
            [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "setup.cfg"), "task.py", "test_task.py"],
            cwd=folder,
            env=os.environ | {"MYPYPATH": str(ROOT), "MYPY_CACHE_DIR": str(here / "cache")},
            capture_output=True,
            text=True,
        )
        assert typed.returncode == 0, typed.stdout


def ruff(folder: Path, *words: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ruff", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
