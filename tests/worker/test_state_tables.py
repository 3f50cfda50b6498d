"""A folded state is the sum of its runs, in output columns."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from monoids import Sum
from persistent import (
    Pipeline,
    UserCodeError,
)
from persistent.reading import export, state_table
from tests.totals import HIGH, pipeline, rows, run


def test_the_state_names_its_key_or_leaves_it_out_with_a_warning(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Without a word, a table of the state would look complete."""
    job = pipeline(rows(("b", 1), ("a", HIGH), ("a", 1), ("b", 2)), Sum())
    run(job, end_of_input=False)
    for read in (job.state, lambda: export(job, str(tmp_path / "stopped"))):
        with pytest.raises(UserCodeError, match=r"no result for key \(k='a'\): OverflowError"):
            read()
    assert state_table(job, key="b").to_pylist() == [{"k": "b", "value": 3}]
    lenient = Pipeline(source=job.source, task=job.task, sink=job.sink, checkpoint=job.storage, on_error="dead-letter")
    with caplog.at_level(logging.WARNING):
        assert lenient.state().to_pylist() == [{"k": "b", "value": 3}]
        exported = export(lenient, str(tmp_path / "out"))
    assert exported.rows == 1 and pq.read_table(tmp_path / "out").to_pylist() == [{"k": "b", "value": 3}]
    assert caplog.text.count("omitted from the state: no result for key (k='a')") == 2
