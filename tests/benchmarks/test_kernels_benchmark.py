"""The kernel benchmark runs, small, and refuses sides that differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import kernels, measure


def test_kernels(tmp_path: Path) -> None:
    """Without it the table of kernels could rot: every kind of key, merge and slide, rows compared."""
    sizes = ["--rows", "3000", "--distinct", "10,500", "--state-keys", "400", "--delta-keys", "40", "--slide-keys", "3"]
    result = CliRunner().invoke(kernels.main, ["--cache", str(tmp_path), "--runs", "1", *sizes])
    assert result.exit_code == 0, result.output
    line = json.loads(result.output.splitlines()[-1])
    names = [figure["name"] for figure in line["figures"]]
    assert len(names) == len(set(names)) == 3 * 2 * 2 + 3
    assert all(figure["value"] > 0 for figure in line["figures"])


def test_ours_and_arrow_give_the_same_rows() -> None:
    """Without it a faster group-by could be one that computes something else."""
    for kind in ("dense", "sparse", "string"):
        table = kernels.columns(kind, 50, 2_000, 3)
        found = kernels.listed(kernels.ours(table))
        assert found.equals(kernels.listed(kernels.with_pyarrow(table)))
        assert found.num_rows > 1_000


def test_a_wrong_side_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it rows would be assumed equal, not compared."""
    other = kernels.columns("dense", 50, 2_000, 4)
    monkeypatch.setattr(kernels, "polars_side", lambda table: lambda: kernels.with_pyarrow(other))
    monkeypatch.setattr(kernels, "duckdb_side", lambda table: lambda: kernels.with_pyarrow(table))
    with pytest.raises(measure.RowsDiffer, match="polars, dense keys, 50 distinct"):
        kernels.group_by("dense", 50, 2_000, 1, 3)
