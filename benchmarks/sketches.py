"""Sketches: distinct values of many keys at once, against one DataSketches object for each key.

Rows of random 64-bit integers under random keys; one HyperLogLog of precision 12 a key. Ours is the whole path from
the two columns: hash, group by key, sum up. DataSketches is given the rows in the better of two ways: as they come,
with a dictionary of sketches; or sorted by key first (that is measured too), then one sketch after the other. What
each side estimates is compared with the true counts.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa

from benchmarks import measure
from monoids import HyperLogLog
from monoids.groupby.summing import GroupSums, group_by

PRECISION = 12
DEVIATIONS_MAX = 6.0
_STANDARD_ERROR = 1.04 / 2 ** (PRECISION / 2)

Estimates = dict[int, float]


def ours(keys: pa.Array, values: pa.Array) -> GroupSums:
    """A sketch for each key, as columns."""
    sketch = HyperLogLog(PRECISION)
    panes = np.broadcast_to(np.int64(0), len(keys))
    return group_by(sketch, [keys], panes, sketch.lift_columns(values), 1)


def in_a_dictionary(keys: pa.Array, values: pa.Array) -> dict[int, Any]:
    """A DataSketches object for each key, updated as the rows come."""
    from datasketches import hll_sketch

    sketches: dict[int, Any] = {}
    for key, value in zip(keys.to_pylist(), values.to_pylist()):
        sketch = sketches.get(key)
        if sketch is None:
            sketch = sketches[key] = hll_sketch(PRECISION)
        sketch.update(value)
    return sketches


def sorted_first(keys: pa.Array, values: pa.Array) -> dict[int, Any]:
    """A DataSketches object for each key, each updated with its rows in one go."""
    from datasketches import hll_sketch

    numbers = keys.to_numpy()
    order = np.argsort(numbers, kind="stable")
    numbers = numbers[order]
    rows = values.to_numpy()[order].tolist()
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    sketches: dict[int, Any] = {}
    for key, start, end in zip(numbers[starts].tolist(), starts.tolist(), [*starts[1:].tolist(), len(rows)]):
        sketch = sketches[key] = hll_sketch(PRECISION)
        update = sketch.update
        for value in rows[start:end]:
            update(value)
    return sketches


def estimates(result: Any) -> Estimates:
    """What a side says about each key."""
    if isinstance(result, GroupSums):
        shown = HyperLogLog(PRECISION).present_columns(result.columns)
        return dict(zip(result.keys[0].to_pylist(), shown.to_pylist()))
    return {key: sketch.get_estimate() for key, sketch in result.items()}


def compare(name: str, found: Estimates, truth: Estimates) -> None:
    """RowsDiffer unless every key is there, and estimated within what a sketch may be wrong by."""
    if found.keys() != truth.keys():
        raise measure.RowsDiffer(f"{name}: {len(found)} keys, {len(truth)} expected")
    worst = max(abs(found[key] - count) / max(count * _STANDARD_ERROR, 1.0) for key, count in truth.items())
    if worst > DEVIATIONS_MAX:
        raise measure.RowsDiffer(f"{name}: an estimate is {worst:.1f} standard errors from the truth")


@click.command(help="HyperLogLog of many keys against DataSketches objects in a dictionary.")
@click.option("--rows", default=5_000_000, show_default=True)
@click.option("--keys", default=100_000, show_default=True)
@click.option("--runs", default=5, show_default=True)
@measure.common
def main(rows: int, keys: int, runs: int, cache: Path, work: Path | None, seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = pa.array(random.integers(0, keys, rows)), pa.array(random.integers(-(2**62), 2**62, rows))
    names, counts = np.unique(columns[0].to_numpy(), return_counts=True)
    truth: Estimates = dict(zip(names.tolist(), counts.tolist()))
    sides: dict[str, Callable[[pa.Array, pa.Array], Any]] = {
        "monoids": ours,
        "datasketches, as rows come": in_a_dictionary,
        "datasketches, sorted first": sorted_first,
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(runs + 1):
        for name, side in sides.items():
            result: list[Any] = []
            taken = measure.wall_seconds(lambda: result.append(side(*columns)))  # noqa: B023
            compare(name, estimates(result.pop()), truth)
            click.echo(f"{f'run {turn} of {runs}' if turn else 'warm-up'}: {name} {taken:.3f} s")
            if turn:
                seconds[name].append(taken)
    each = {name: measure.median(taken) / rows * 1e9 for name, taken in seconds.items()}
    best = min(each["datasketches, as rows come"], each["datasketches, sorted first"])
    figures = [measure.Figure(name, value, "ns/row") for name, value in each.items()]
    figures.append(measure.Figure("HyperLogLog over DataSketches", best / each["monoids"], "", 10.0, 10.0))
    return measure.publish("sketches", {"rows": rows, "keys": keys, "runs": runs, "seed": seed}, figures)


if __name__ == "__main__":
    main()
