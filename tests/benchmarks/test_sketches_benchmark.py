"""The benchmark of sketches runs, small, so that it cannot rot; and what it compares with can fail."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from benchmarks import measure, sketches


def test_a_small_run_measures_every_side() -> None:
    """Without it the published figure could no longer be measured."""
    words = ["--rows", "3000", "--keys", "40", "--runs", "1"]
    result = CliRunner().invoke(sketches.main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    line = json.loads(result.output.splitlines()[-1])
    figures = {figure["name"]: figure["value"] for figure in line["figures"]}
    assert set(figures) == {
        "monoids",
        "datasketches, as rows come",
        "datasketches, sorted first",
        "HyperLogLog over DataSketches",
    }
    assert all(value > 0 for value in figures.values())


def test_all_sides_estimate_the_same_sets() -> None:
    """Without it one side could be fast because it drops rows."""
    random = np.random.default_rng(2)
    keys, values = pa.array(random.integers(-5, 5, 4_000)), pa.array(random.integers(0, 300, 4_000))
    truth = {key: float(len(set(values.filter(pa.array(keys.to_numpy() == key)).to_pylist()))) for key in range(-5, 5)}
    for side in (sketches.ours, sketches.in_a_dictionary, sketches.sorted_first):
        found = sketches.estimates(side(keys, values))
        sketches.compare(side.__name__, found, truth)
        with pytest.raises(measure.RowsDiffer, match="9 keys, 10 expected"):
            sketches.compare(side.__name__, {key: value for key, value in found.items() if key}, truth)
        with pytest.raises(measure.RowsDiffer, match="standard errors from the truth"):
            sketches.compare(side.__name__, found | {3: found[3] * 1.2}, truth)
