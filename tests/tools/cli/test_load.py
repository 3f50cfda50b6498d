"""Loading: FILE_OR_MODULE:NAME finds the user's pipeline, or says in one sentence why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from persistent import InvalidPipeline, Pipeline
from persistent.tools.cli.load import load_pipeline, names_pipeline

PIPELINE = """
from beside import ROWS
from monoids import Count
from persistent import MemorySource, NonWindowState, PersistentTask, Pipeline


class Rows(PersistentTask):
    def persistent_state(self):
        return NonWindowState(Count())

    def process_message(self, state, message):
        state.update(message.timestamp, 1)


pipeline = Pipeline(source=MemorySource(ROWS, timestamp="ts"), task=Rows(), checkpoint="memory://load")


def make():
    return pipeline


def needs(argument):
    return pipeline


def fails():
    return {}["page"]


number = 3
"""


@pytest.fixture
def folder(here: Path) -> Path:
    """The current folder, with a pipeline in it."""
    (here / "rows_of.py").write_text(PIPELINE)
    (here / "beside.py").write_text('ROWS = [{"ts": 1}]\n')
    return here


@pytest.mark.parametrize("target", ["rows_of.py:pipeline", "rows_of.py:make", "rows_of:pipeline"])
def test_files_modules_and_functions(folder: Path, target: str) -> None:
    """Without it one of the documented forms would not run; what stands beside the file is found too."""
    assert isinstance(load_pipeline(target), Pipeline)


def test_a_file_elsewhere_named_as_a_module_of_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a file called json.py would break Python, or not be shipped to Spark's workers."""
    (folder / "json.py").write_text(PIPELINE)
    monkeypatch.chdir("/")
    loaded = load_pipeline(f"{folder}/json.py:pipeline")
    assert type(loaded.task).__module__ == "json_file"
    assert sys.modules["json"].__file__ != str(folder / "json.py")


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("none.py:pipeline", "none.py: no such file"),
        ("rows_of.py", "name a pipeline as FILE.py:NAME"),
        ("rows_of.py:pipelines", "has no 'pipelines'; its pipelines: pipeline"),
        ("rows_of.py:number", "is int, not a Pipeline"),
        ("rows_of.py:needs", "missing 1 required positional argument"),
        ("rows_of.py:fails", r"fails\(\) raised KeyError: 'page' \(line \d+\)"),
        ("rows_of.py:Rows", "is type, not a Pipeline"),
        ("no_such_module:pipeline", "No module named 'no_such_module'"),
        ("broken.py:pipeline", r"cannot be loaded: ZeroDivisionError: division by zero \(line 2\)"),
    ],
)
def test_what_is_wrong_is_said(folder: Path, target: str, text: str) -> None:
    """Without it a typing error would end in a traceback from our code."""
    (folder / "broken.py").write_text("x = 1\nx / 0\n")
    with pytest.raises(InvalidPipeline, match=text):
        load_pipeline(target)


def test_urls_are_no_pipelines(folder: Path) -> None:
    """Without it the checkpoint commands would take a URL or a folder with a colon for a pipeline."""
    (folder / "day:monday").mkdir()
    assert not any(map(names_pipeline, ["s3://bucket/visits", "memory://x", "visits", "/a/b", "day:monday"]))
    assert names_pipeline("rows_of.py:pipeline")
