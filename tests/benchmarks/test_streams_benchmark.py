"""The benchmark of streams runs, small, and compares what both sides have read and left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.test_benchmarks import run, values
from tests.few import turn


@turn(1, of=2)
@pytest.mark.check
@pytest.mark.timeout(600)
def test_a_stream_is_read_and_written_by_both_sides(tmp_path: Path) -> None:
    """A ratio of two sides that read different records would mean nothing."""
    figures = values(run("streams", tmp_path, "--rows", 3_000, "--runs", 1))
    assert figures["read: ours / plain consumer"] > 0 and figures["written: ours / plain producer"] > 0
