"""A run that publishes what changes, killed at any storage operation and resumed, equals the run that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Sum, record
from persistent import NonWindowState, PersistentTask, WindowState, sliding, tumbling
from tests.crash.sweep import calm, sweep
from tests.crash.worlds import ROWS, CrashJob


class Running(PersistentTask):
    """A running sum by page, published as it changes."""

    key = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(visits=Count(), total=Sum()), emit="change")

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "total": message.value["n"]})


class Open(Running):
    """The same by windows that overlap and take late records; what has changed is taken back."""

    def persistent_state(self) -> Any:
        window = sliding(10, every=5)
        monoid = record(visits=Count(), total=Sum())
        return WindowState(monoid, window, emit="change", changes="retract", allowed_lateness=5)


class Early(Running):
    """The same by windows, published now and then before they close."""

    def persistent_state(self) -> Any:
        monoid = record(visits=Count(), total=Sum())
        return WindowState(monoid, tumbling(20), early=6, late="retract", allowed_lateness=5)


class EarlyTotals(Running):
    """Totals published now and then; what has changed is taken back."""

    def persistent_state(self) -> Any:
        return NonWindowState(record(visits=Count(), total=Sum()), early=6, changes="retract")


JOBS = (
    CrashJob("running", Running, ROWS, 3, splits=2),
    CrashJob("open windows", Open, ROWS, 3),
    CrashJob("early", Early, ROWS, 2),
    CrashJob("early totals", EarlyTotals, ROWS, 2),
)


@pytest.mark.check
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_run_killed_anywhere_publishes_each_change_once(job: CrashJob, folder: Path) -> None:
    """A change that is lost is a wrong row until the key changes again; one that comes twice is taken back once."""
    assert sweep(job, folder) >= 200


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_the_jobs_change_what_they_have_published(job: CrashJob, folder: Path) -> None:
    """A sweep over a run in which each key comes once would prove little."""
    shown = calm(job, folder).outcome.published
    assert len(shown) > 6
    assert job.task is Running or any("'retracted', True" in row for row in shown), shown
