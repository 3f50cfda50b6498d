"""Options as somebody writes them for the first time: what is wrong is said by name, with what to write instead."""

from __future__ import annotations

import inspect
import pydoc
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import (
    FileSink,
    FileSource,
    InvalidPipeline,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
)
from persistent.tools.cli.load import load_pipeline

ROWS = [{"ts": 1, "id": "a"}]


class Counts(PersistentTask):
    key = "id"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def pipeline(**options: Any) -> Pipeline:
    given: dict[str, Any] = {"source": MemorySource(ROWS), "task": Counts(), "checkpoint": f"memory://{uuid.uuid4()}"}
    return Pipeline(**{**given, **options})


class Halfway:
    """A source that somebody is about to write."""

    kind = "Halfway"
    max_out_of_orderness = 0

    def partitions(self) -> list[str]:
        return ["one"]

    def plan(self) -> None: ...

    def read(self) -> None: ...

    def __repr__(self) -> str:
        return "Halfway()"


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("checkpoint", None, r"^checkpoint=None names no place: give the path of a folder, or a URL such as"),
        ("checkpoint", 3, r"^checkpoint=3 names no place"),
        ("checkpoint", b"ck", r"^checkpoint=b'ck' names no place"),
        ("checkpoint", "", r"^checkpoint='' names no place.*write '\.' for the current folder"),
        ("start_from", 3, r"^start_from=3 names no place"),
        ("source", None, r"^source=None is not a source: use FileSource\(\.\.\.\)"),
        (
            "source",
            Halfway(),
            r"^source=Halfway\(\) is not a source: one of your own is a subclass of Source; or use File",
        ),
        ("source", "events", r"^source='events' is not a source: use FileSource\('events', timestamp="),
        ("source", FileSource, r"^source=FileSource is a class: give an instance, FileSource\(\.\.\.\)"),
        ("task", None, r"^task=None is not a task: give an instance of a class that subclasses PersistentTask"),
        ("task", Counts, r"^task=Counts: give an instance, Counts\(\)"),
        ("sink", "out", r"^sink='out' is not a sink: use FileSink\('out'\)"),
        ("sink", Path("out"), r"^sink=.*Path\('out'\) is not a sink: use FileSink\('out'\)"),
        ("sink", FileSink, r"^sink=FileSink is a class: give an instance, FileSink\(\.\.\.\)"),
        ("max_future", None, r"^max_future: None is neither"),
        ("max_future", "soon", r"^max_future: 'soon' is not a duration"),
    ],
)
def test_what_an_option_cannot_be_is_told_by_its_name(
    option: str, value: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """'NoneType' object has no attribute 'shared' says neither which option nor what to write; and a checkpoint in ''
    is one in whatever folder is the current one."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidPipeline, match=told):
        pipeline(**{option: value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [None, 3, ""])
def test_a_sink_without_a_place_is_told(value: Any) -> None:
    """As for a checkpoint."""
    with pytest.raises(InvalidPipeline, match=r"^url=.* names no place"):
        FileSink(value)
    with pytest.raises(InvalidPipeline, match="choose one of parquet, jsonl"):
        FileSink("out", format=["jsonl"])  # type: ignore[arg-type]


def test_a_schema_without_the_timestamp_says_so() -> None:
    """'The columns are id' is untrue of her files, and 'say timestamp= with one of them' leads away from the remedy."""
    with pytest.raises(InvalidPipeline) as error:
        FileSource("events", timestamp="when", schema={"id": "string", "amount": "double"})
    told = str(error.value)
    assert told.startswith("schema= lists id, amount, but not the timestamp column 'when'")
    assert "every column that is read" in told and "schema={'when': 'string', ...}" in told
    with pytest.raises(InvalidPipeline, match=r"schema=\{'when': 'int64', \.\.\.\}"):
        FileSource("events", timestamp="when", timestamp_unit="s", schema={"id": "string"})
    FileSource("events", timestamp="when", schema={"when": "string", "id": "string"})


@pytest.mark.parametrize("kind", ["text", 42, "decimal128(10, 2)"])
def test_a_type_that_is_none_is_told_with_those_that_are(kind: Any) -> None:
    """Whoever does not know Arrow cannot guess that text is called string."""
    with pytest.raises(InvalidPipeline) as error:
        FileSource("events", timestamp="when", schema={"when": "string", "id": kind})
    told = str(error.value)
    assert told.startswith(f"schema= gives column 'id' the type {kind!r}, which is unknown. Give 'string', ")
    assert "pa.decimal128(10, 2)" in told
    for name in told.partition("Give ")[2].partition("; or")[0].replace(" or ", ", ").split(", "):
        FileSource("events", timestamp="when", schema={"when": "string", "id": name.strip("'")})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: FileSource("e", timestap="ts"), "FileSource() has no option 'timestap'. Did you mean timestamp="),  # type: ignore[call-arg]
        (lambda: FileSource("e", timestamp="ts", unit="s"), "FileSource() has no option 'unit'. Its options: path, "),  # type: ignore[call-arg]
        (lambda: FileSink("o", fromat="jsonl"), "FileSink() has no option 'fromat'. Did you mean format="),  # type: ignore[call-arg]
        (lambda: MemorySource(ROWS, order=True), "MemorySource() has no option 'order'. Did you mean ordered="),  # type: ignore[call-arg]
        (lambda: pipeline(chekpoint="x"), "Pipeline() has no option 'chekpoint'. Did you mean checkpoint="),
        (lambda: pipeline().run(folow=True), "Pipeline.run() has no option 'folow'. Did you mean follow="),  # type: ignore[call-arg]
    ],
)
def test_a_misspelt_option_is_told_with_the_one_that_is_meant(make: Callable[[], object], told: str) -> None:
    """Python names the wrong option and not the right one."""
    with pytest.raises(TypeError) as error:
        make()
    assert str(error.value).startswith(told)


def test_signatures_and_help_are_those_of_the_options() -> None:
    """A check of spelling that hides the options would cost more than it gives."""
    for what in (Pipeline, FileSource, FileSink, MemorySource, Pipeline.run):
        assert not {"args", "kwargs"} & inspect.signature(what).parameters.keys()
    assert "on_error: 'str' = 'stop'" in pydoc.render_doc(Pipeline)
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'timestamp'"):
        FileSource("events")  # type: ignore[call-arg]


def test_persistent_run_tells_it_with_the_line(tmp_path: Path) -> None:
    """The command reads the same file, and is where most mistakes are met."""
    job = tmp_path / "job_of_hers.py"
    job.write_text("from persistent import FileSource\n\nsource = FileSource('events', timestap='ts')\n")
    with pytest.raises(InvalidPipeline, match=r"Did you mean timestamp=\?.*\(line 3\)$"):
        load_pipeline(f"{job}:pipeline")
