"""Runs whose fold raises stay unfolded, and what is beside them is folded by itself."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from monoids import CountMin, Monoid
from persistent import (
    Pipeline,
)
from persistent.checkpoint.compaction import Merge, choose_all
from persistent.codec.fields import Run
from persistent.driver.results import runs_after
from persistent.names import Attempt
from persistent.operations import compact
from persistent.verify import verify
from persistent.worker.job import Folded, FoldRuns
from tests.totals import One, Totals, newest, pipeline, rows, run


@pytest.mark.parametrize("monoid", [One(), CountMin(int, width=4, depth=2)], ids=repr)
def test_runs_whose_fold_raises_stay_unfolded_and_the_run_says_so(
    monoid: Monoid[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Compaction is a matter of speed: a fold that raises must not stop what would run without it."""
    is_one = isinstance(monoid, One)
    given = rows(*[("a" if number % 5 else "b", number // 25 if is_one else number) for number in range(50)])

    class Weighted(Totals):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, (message.value["v"], 2**62 + 2**61))

    job = pipeline(given, monoid, step_rows=1)
    if not is_one:
        job = Pipeline(source=job.source, task=Weighted(monoid), sink=job.sink, checkpoint=job.storage, step_rows=1)
    with caplog.at_level(logging.WARNING):
        report = run(job, end_of_input=False)
    assert report.rows == 50 and report.unfolded >= 8 and "stay unfolded" in str(report)
    assert ("runs are left unfolded" in caplog.text and "are not one" in caplog.text) or not is_one
    found = verify(job.storage)
    assert found.ok, found.findings
    runs = newest(job).nodes["totals"].runs
    assert sum(one.rows for one in runs) <= 50
    with caplog.at_level(logging.WARNING):
        compact(job)
    assert newest(job).nodes["totals"].runs == runs and verify(job.storage).ok


def _run(name: str, rows: int, at: int) -> Run:
    return Run(name, rows, 1, "0" * 64, 0, 0, 1024, -1, -1, at, at)


def test_what_is_beside_unfolded_runs_is_folded_by_itself() -> None:
    """One fold that raises must not end compaction for good, nor bring together what is not side by side."""
    runs = [_run(f"d/t/{at}", 10, at) for at in range(1, 25)]
    (first,) = choose_all(runs, 100)
    assert [one.first for one in first.inputs] == list(range(1, 25))
    stuck = frozenset(one.name for one in runs[9:11])
    (merge,) = choose_all(runs, 100, 0, stuck)
    assert [one.first for one in merge.inputs] == list(range(1, 10))
    (merge,) = choose_all(runs[5:], 100, 0, stuck)
    assert [one.first for one in merge.inputs] == list(range(12, 25))


def test_no_piece_of_a_fold_counts_after_one_that_raised() -> None:
    """It would end where it begins for its inputs: what lies before would be dropped in silence."""
    runs = tuple(_run(f"d/t/{at}", 10, at) for at in range(1, 9))
    attempt, half = Attempt(1, 9), Run("d/t/half", 40, 1, "0" * 64, 512, 512, 1024, -1, -1, 1, 8)
    folds = (
        (FoldRuns(attempt, Merge(runs, 0, 512), 0), Folded(None, None, "raised")),
        (FoldRuns(attempt, Merge(runs, 512, 1024), 0), Folded(half, None)),
    )
    assert runs_after(runs, folds) == runs
