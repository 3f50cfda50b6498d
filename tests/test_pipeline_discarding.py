"""What a window held is lost once it has closed without a sink: only where that was said, and never without a word."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from monoids import Count
from persistent import (
    FileSink,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    RunReport,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.driver.commit import next_manifest
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage

ROWS = [{"ts": time, "page": f"p{time % 3}"} for time in range(1, 40)]


class Visits(PersistentTask):
    """Counts, in windows of ten milliseconds or for ever."""

    key = "page"

    def __init__(self, *, windows: bool = True) -> None:
        self.windows = windows

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10)) if self.windows else NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def pipeline(
    checkpoint: Any = "memory://discarding", rows: int = len(ROWS), *, windows: bool = True, **options: Any
) -> Pipeline:
    source = MemorySource(ROWS[:rows], timestamp="ts", ordered=True)
    return Pipeline(source=source, task=Visits(windows=windows), checkpoint=checkpoint, step_rows=15, **options)


def run(pipeline: Pipeline, *, ends: bool = False) -> RunReport:
    return pipeline.run(engine=Embedded(threads=1), end_of_input=ends)


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage(f"discarding-{uuid.uuid4().hex}")


def test_windows_without_a_sink_are_refused() -> None:
    """Every closed window would be gone for good, while the guarantee says exactly-once."""
    with pytest.raises(InvalidPipeline, match=r"a WindowState without sink=.*FileSink\(\.\.\.\).*discard_closed=True"):
        pipeline()
    pipeline(windows=False)
    pipeline(discard_closed=True)


@pytest.mark.parametrize(
    ("options", "part"), [({"sink": MemorySink()}, "omit one of them"), ({}, "give True or False")]
)
def test_what_is_said_of_closed_windows_is_one_thing(options: Any, part: str) -> None:
    """A flag that is left in the code would let the sink be taken away unseen."""
    with pytest.raises(InvalidPipeline, match=part):
        pipeline(discard_closed=True if options else 1, **options)


def test_what_is_discarded_is_named(storage: MemoryStorage) -> None:
    """Nobody would know that the results of a run are nowhere."""
    made = pipeline(storage, discard_closed=True, require="exactly-once")
    assert made.guarantee().endswith("; for the open windows only: those that close are discarded")
    report = run(made)
    assert (report.outputs, report.discarded, report.open_windows) == (0, 3, 1)
    assert str(report).splitlines()[0].endswith("; 3 windows closed and discarded (discard_closed=True)")
    assert run(made, ends=True).discarded == 1
    assert run(made).discarded == 0
    assert "discarded" not in pipeline(windows=False, discard_closed=True).guarantee()


def test_a_sink_that_comes_publishes_what_closes_from_then_on(storage: MemoryStorage) -> None:
    """Whoever reads the sink would take it for all there was."""
    run(pipeline(storage, 25, discard_closed=True))
    sink = MemorySink()
    report = run(pipeline(storage, sink=sink), ends=True)
    assert report.notes == (
        "the sink is new: windows that closed up to 1970-01-01 00:00:00.025Z were discarded, later ones are published",
    )
    assert report.notes[0] in str(report)
    assert {row["window_start"].microsecond // 1000 for row in sink.rows()} == {20, 30}
    assert run(pipeline(storage, sink=sink), ends=True).notes == ()


def test_a_sink_that_is_taken_away_is_told(storage: MemoryStorage) -> None:
    """Its last windows may be staged and not shown: a run would go on past them without a word."""
    results = FileSink(MemoryStorage(storage.name + "-results"))
    run(pipeline(storage, 25, sink=results))
    report = run(pipeline(storage, discard_closed=True))
    assert report.notes == (
        "the sink is gone: windows that closed up to 1970-01-01 00:00:00.025Z were published there, later ones are "
        "discarded",
        "the outputs that checkpoint 4 staged for it are discarded, unless it published them",
    )
    assert report.discarded == 1
    assert run(pipeline(storage, discard_closed=True)).notes == ()


def test_a_state_without_windows_loses_nothing(storage: MemoryStorage) -> None:
    """A warning of what is not so would hide those that are."""
    assert run(pipeline(storage, 25, windows=False)).notes == ()
    sink = MemorySink()
    report = run(pipeline(storage, windows=False, sink=sink), ends=True)
    assert (report.notes, report.discarded) == ((), 0)
    assert sum(row["value"] for row in sink.rows()) == len(ROWS)


def test_a_checkpoint_that_does_not_say_is_not_guessed_at(
    storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that begins with a savepoint may have had a sink, or none."""
    with monkeypatch.context() as older:
        older.setattr("persistent.driver.step_effects.next_manifest", _without_record)
        run(pipeline(storage, 25, discard_closed=True))
    newest = Log(storage).newest()
    assert newest is not None and newest.manifest.publishes is None
    assert b'"publishes"' not in newest.manifest.encode()
    assert run(pipeline(storage, sink=MemorySink())).notes == ()
    newest = Log(storage).newest()
    assert newest is not None and newest.manifest.publishes is True


def _without_record(*args: Any, **options: Any) -> Any:
    return replace(next_manifest(*args, **options), publishes=None)
