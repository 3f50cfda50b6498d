"""The benchmark of the log runs, small, so that it cannot rot; and what it compares with can fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import log, measure
from persistent.messaging.log.cursor import Cursor


def test_a_small_run_measures_every_side(tmp_path: Path) -> None:
    """Without it the published figure could no longer be measured."""
    words = ["--megabytes", "2", "--turns", "2", "--runs", "1", "--work", str(tmp_path)]
    result = CliRunner().invoke(log.main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    figures = json.loads(result.output.splitlines()[-1])["figures"]
    assert len(figures) == 7 and all(figure["value"] > 0 for figure in figures)


def test_a_log_that_loses_records_is_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fastest log of all writes nothing."""
    monkeypatch.setattr(Cursor, "take", lambda self: iter(()))
    with pytest.raises(measure.RowsDiffer):
        log.appended(tmp_path, 100, 1, 0)
    with pytest.raises(measure.RowsDiffer):
        log.read(tmp_path, 1, 1, 0)
