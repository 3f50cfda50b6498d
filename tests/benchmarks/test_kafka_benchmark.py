"""The benchmark of a topic runs, small, and compares what both sides have read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.test_benchmarks import run, values
from tests.few import turn


@turn(0, of=2)
@pytest.mark.check
@pytest.mark.timeout(600)
def test_a_topic_is_read_by_both_sides(tmp_path: Path) -> None:
    """A ratio of two sides that read different records would mean nothing."""
    figures = values(run("kafka", tmp_path, "--rows", 3_000, "--runs", 1))
    assert figures["ours"] > 0 and figures["ours / plain"] > 0
