"""A run that has published nothing says why, and what would be published when."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from monoids import Count
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    RunReport,
    WindowState,
    tumbling,
)
from persistent.connect.source import Reached
from persistent.driver.cautions import Ended, why
from persistent.driver.open_job import Driver
from persistent.driver.options import Options
from persistent.driver.report import Idle
from persistent.engines.embedded import Embedded

ROWS = [{"ts": 1_700_000_000_000 + 1_000 * at, "page": "a"} for at in range(5)]


class Visits(PersistentTask):
    """Counts visits by page and minute, or in all."""

    key = "page"

    def __init__(self, windows: bool = True, counts: bool = True) -> None:
        self._windows = windows
        self._counts = counts

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("1 min")) if self._windows else NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        if self._counts:
            state.update(message.timestamp, 1)


def pipeline(task: PersistentTask, rows: Any = ROWS, **options: Any) -> Pipeline:
    options = {"sink": MemorySink(), **options}
    source = MemorySource(rows, ordered=True)
    return Pipeline(source=source, task=task, checkpoint=f"memory://unpublished-{uuid.uuid4().hex}", **options)


def run(job: Pipeline, **how: Any) -> RunReport:
    return job.run(engine=Embedded(1), **how)


def test_windows_that_are_open_are_told_with_the_clock_that_closes_them() -> None:
    """A newcomer's first run publishes nothing, and nobody would tell her what she has to do."""
    job = pipeline(Visits())
    report = run(job)
    assert report.unpublished == (
        "1 window is open, until the clock reaches 2023-11-14 22:14:00Z; it is at 2023-11-14 22:13:24Z until "
        "later records arrive; if the input is complete, run with --end-of-input (from Python end_of_input=True)"
    )
    assert f"\nnothing published: {report.unpublished}" in str(report)
    again = run(job).unpublished
    assert again.startswith("there was nothing new to read; 1 window is open")
    ended = run(job, end_of_input=True)
    assert (ended.outputs, ended.unpublished) == (1, "")
    assert "nothing published" not in str(ended)
    assert run(job).unpublished == "there was nothing new to read; no window is open"


def test_a_pipeline_without_sink_says_where_its_state_is() -> None:
    """'0 rows published' would look like a failure."""
    assert run(pipeline(Visits(windows=False), sink=None)).unpublished.startswith("the pipeline has no sink, the state")
    discarding = run(pipeline(Visits(), sink=None, discard_closed=True)).unpublished
    assert discarding.startswith("the pipeline has no sink, only its open windows are kept")


def test_a_state_without_windows_waits_for_the_end_of_the_input() -> None:
    """Its sink stays empty, whatever is read, until somebody knows of end_of_input."""
    job = pipeline(Visits(windows=False))
    assert run(job).unpublished.startswith("a state without windows is published at the end of the input: if")
    assert run(job, end_of_input=True).outputs == 1
    assert run(job).unpublished == "there was nothing new to read; no key has changed since its value was published"


def test_records_that_were_all_set_aside_are_the_reason() -> None:
    """The end of the input would be asked for, and would help nobody."""
    task = Visits()
    report = run(pipeline(task, [{"ts": 2**60, "page": "a"}] * 3))
    assert report.unpublished == "all 3 records read were set aside (0 late, 3 dead letters)"
    assert run(pipeline(Visits(counts=False))).unpublished.startswith(
        "the task has updated no window: process_message adds"
    )


def test_a_clock_that_waits_for_unread_files_says_so() -> None:
    """A run that was stopped would ask for later records, of which there are plenty."""
    reached = Reached(10, 100, "bytes", 1, 3)
    text = why(Ended(50, 0, 0, True, True, 4, 60_000, 0, False, reached))
    assert text.startswith("4 windows are open, the first until the clock reaches 1970-01-01 00:01:00Z; it has not")
    assert text.endswith("and waits for listed files that are not read yet (ordered=True: for none)")


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_follows_tells_that_it_is_idle(steps: int) -> None:
    """It would look as if it hung; the figures are those of the last step, made once."""
    job = pipeline(Visits(), ROWS if steps else [])
    told: list[Idle] = []

    def on_idle(idle: Idle) -> None:
        told.append(idle)
        if len(told) == 3:
            driver.stop()

    driver = Driver(job.job(), Embedded(1), Options(follow=True, on_idle=on_idle))
    driver.run()
    assert len(told) == 3 and told[0] is told[2]
    expected = Idle(Reached(5, 5, "rows"), 1_700_000_004_000, 1, 1_700_000_040_000)
    assert told[0] == (expected if steps else Idle(Reached(0, 0, "rows"), 0, 0, None))
