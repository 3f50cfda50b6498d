"""Kernels: the group-by that sums up a step, the merge that folds runs, and sliding windows, in one thread.

*Group-by*: rows of a key, one of 60 panes and an int64 value, summed up by (key, pane) to count, sum, min and max. Ours
is ``monoids.groupby.summing.group_by`` over ``record(count=Count(), sum=Sum(), min=Min(), max=Max())``, which is
what a step calls: it also hashes the keys, and orders its rows by (hash, key, pane). pyarrow, Polars and DuckDB are
given the same columns and one thread; the rows of all are compared.

*Merge*: a delta of some keys into the state of many, both sorted by hash: what compaction and reading do.

*Slide*: the largest of 60 panes, for every key and every window that holds a pane, from the sums of 240 panes.

Medians of alternating runs after a warm-up of each, in nanoseconds a row (of the state, a cell).
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # is read when Polars is imported

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks import measure
from monoids import Count, Max, Min, Sum, record
from monoids.groupby import summing
from monoids.groupby.sliding import PaneSums, slide
from monoids.groupby.summing import GroupSums
from persistent.state.rows import fold

PANES = 60
MINUTE = 60_000
STATS = record(count=Count(), sum=Sum(), min=Min(), max=Max())

TARGETS: Mapping[tuple[str, int], float] = {
    ("dense", 100): 1 / 1.5,
    ("sparse", 100): 1 / 1.5,
    ("string", 100): 1 / 1.5,
    ("dense", 100_000): 2.0,
    ("dense", 1_000_000): 2.0,
    ("sparse", 100_000): 1.5,
    ("sparse", 1_000_000): 0.9,
    ("string", 100_000): 1.5,
    ("string", 1_000_000): 1.5,
}
"""How many times faster than the best peer, at least, by kind and number of keys."""

ESTIMATES: Mapping[tuple[str, int], float] = {
    ("dense", 100): 0.7,
    ("sparse", 100): 0.6,
    ("string", 100): 0.6,
    ("dense", 100_000): 2.2,
    ("dense", 1_000_000): 2.0,
    ("sparse", 100_000): 1.6,
    ("sparse", 1_000_000): 1.0,
    ("string", 100_000): 1.6,
    ("string", 1_000_000): 1.4,
}

Work = Callable[[], Any]


def columns(kind: str, distinct: int, rows: int, seed: int) -> pa.Table:
    """Random rows: ``key`` of one of so many values, ``pane`` ms, ``value`` int64."""
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, distinct, rows)
    if kind == "dense":
        keys = pa.array(codes)
    elif kind == "sparse":
        keys = pa.array(generator.integers(-(2**63), 2**63 - 1, distinct)[codes])
    else:
        keys = pa.array([f"key-{number:08d}" for number in range(distinct)]).take(pa.array(codes))
    panes = generator.integers(0, PANES, rows) * MINUTE
    values = generator.integers(-(10**6), 10**6, rows)
    return pa.table({"key": keys.cast(keys.type), "pane": panes, "value": values})


def ours(table: pa.Table) -> GroupSums:
    """What a step does with its updates."""
    value = table["value"].chunk(0)
    lifted = STATS.lift_rows({"count": value, "sum": value, "min": value, "max": value}, len(value))
    return summing.group_by(STATS, [table["key"].chunk(0)], table["pane"].chunk(0).to_numpy(), lifted, MINUTE)


def with_pyarrow(table: pa.Table) -> pa.Table:
    wanted = [("value", "count"), ("value", "sum"), ("value", "min"), ("value", "max")]
    return pa.TableGroupBy(table, ["key", "pane"], use_threads=False).aggregate(wanted)


def polars_side(table: pa.Table) -> Work:
    import polars as pl

    frame = pl.from_arrow(table)
    value = pl.col("value")
    wanted = [value.count().alias("c"), value.sum().alias("s"), value.min().alias("lo"), value.max().alias("hi")]
    return lambda: frame.group_by("key", "pane").agg(*wanted)  # type: ignore[union-attr]


def duckdb_side(table: pa.Table) -> Work:
    import duckdb

    connection = duckdb.connect()
    connection.execute("set threads = 1")
    connection.register("rows", table)
    query = "select key, pane, count(value), sum(value)::bigint, min(value), max(value) from rows group by key, pane"
    return lambda: connection.sql(query).to_arrow_table()


def listed(result: Any) -> pa.Table:
    """The rows of any side: key, pane, count, sum, min, max, in one order."""
    if isinstance(result, GroupSums):
        shown = STATS.present_fields(result.columns).values()
        result = pa.table([result.keys[0], pa.array(result.panes), *shown], names=list("kpcsmx"))
    elif not isinstance(result, pa.Table):
        result = result.to_arrow()
    order = [result.column_names.index(name) for name in ("key", "pane")] if "key" in result.column_names else [0, 1]
    others = [number for number in range(6) if number not in order]
    found = result.select([*order, *others]).rename_columns(list("kpcsmx"))
    types = [pa.string() if pa.types.is_large_string(found["k"].type) else found["k"].type, *[pa.int64()] * 5]
    found = found.cast(pa.schema(list(zip("kpcsmx", types))))
    return found.take(pc.sort_indices(found, [("k", "ascending"), ("p", "ascending")]))


def nanoseconds(sides: Mapping[str, Work], runs: int, rows: int, check: Callable[[str, Any], None]) -> dict[str, float]:
    """Medians, of sides that take turns, by row; the result of every warm-up is checked."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(runs + 1):
        for name, work in sides.items():
            gc.collect()
            start = time.perf_counter()
            result = work()
            seconds = time.perf_counter() - start
            if turn:
                taken[name].append(seconds / rows * 1e9)
            else:
                check(name, result)
            del result
    return {name: statistics.median(each) for name, each in taken.items()}


def group_by(kind: str, distinct: int, rows: int, runs: int, seed: int) -> list[measure.Figure]:
    """One line of the table of group-bys."""
    table = columns(kind, distinct, rows, seed)
    sides: dict[str, Work] = {
        "ours": lambda: ours(table),
        "pyarrow": lambda: with_pyarrow(table),
        "polars": polars_side(table),
        "duckdb": duckdb_side(table),
    }
    expected = listed(with_pyarrow(table))

    def check(name: str, result: Any) -> None:
        if not listed(result).equals(expected):
            raise measure.RowsDiffer(f"{name}, {kind} keys, {distinct:,} distinct: other rows than pyarrow's")

    found = nanoseconds(sides, runs, rows, check)
    best = min(found[name] for name in sides if name != "ours")
    title = f"{kind} {distinct:,}"
    shown = ", ".join(f"{name} {value:.0f}" for name, value in found.items())
    click.echo(f"{title}: {shown} ns a row; {best / found['ours']:.2f} times the best peer")
    key = (kind, distinct)
    return [
        measure.Figure(f"{title}: ours", found["ours"], "ns/row"),
        measure.Figure(f"{title}: best peer / ours", best / found["ours"], "x", ESTIMATES.get(key), TARGETS.get(key)),
    ]


def merge(kind: str, state: int, delta: int, runs: int, seed: int) -> measure.Figure:
    """A delta of known and new keys into a state, in nanoseconds a key of the state."""
    generator = np.random.default_rng(seed)
    if kind == "string":
        every = pa.array([f"key-{number:08d}" for number in range(state + delta // 2)])
    else:
        every = pa.array(generator.choice(2**62, state + delta // 2, replace=False))

    def sums(keys: pa.Array) -> GroupSums:
        value = pa.array(generator.integers(0, 100, len(keys)))
        lifted = STATS.lift_rows({"count": value, "sum": value, "min": value, "max": value}, len(keys))
        return summing.group_by(STATS, [keys], np.full(len(keys), -1), lifted, 1)

    parts = [sums(every[:state]), sums(every[state - delta + delta // 2 :])]
    totals = [int(part.columns[1].sum()) for part in parts]

    def check(_: str, result: GroupSums) -> None:
        if len(result) != len(every) or int(result.columns[1].sum()) != sum(totals):
            raise measure.RowsDiffer(f"merge of {kind} keys: {len(result)} rows, {len(every)} expected")

    found = nanoseconds({"ours": lambda: fold(STATS, parts, 1)}, runs * 3, state, check)
    return measure.Figure(
        f"merge {delta:,} into {state:,} {kind} keys", found["ours"], "ns/key", 20, 20, at_least=False
    )


def sliding(keys: int, panes: int, runs: int, seed: int) -> measure.Figure:
    """The largest of 60 panes in every window, in nanoseconds an emitted cell."""
    values = np.random.default_rng(seed).integers(0, 10**9, keys * panes)
    rows, numbers = np.repeat(np.arange(keys), panes), np.tile(np.arange(panes), keys)
    elements = Max().lift_columns(values)
    windows = panes + PANES - 1

    def work() -> Any:
        return list(slide(Max(), PaneSums(rows, numbers, elements), PANES, 1 - PANES, panes - 1))

    def check(_: str, pieces: Any) -> None:
        largest = np.concatenate([Max().to_arrow(part)[0].to_numpy() for *_, part in pieces]).reshape(keys, windows)
        grid = values.reshape(keys, panes)
        for window in range(0, windows, 7):
            first = window - PANES + 1
            if not np.array_equal(largest[:, window], grid[:, max(first, 0) : first + PANES].max(axis=1)):
                raise measure.RowsDiffer(f"window {window} of the slide is wrong")

    found = nanoseconds({"ours": work}, runs, keys * windows, check)
    return measure.Figure(
        f"slide: largest of {PANES} panes, {keys:,} keys", found["ours"], "ns/cell", 12, 15, at_least=False
    )


def _numbers(_: click.Context, __: click.Parameter, text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


@click.command()
@click.option("--rows", default=5_000_000, show_default=True, help="Of the group-by.")
@click.option("--distinct", default="100,100000,1000000", show_default=True, callback=_numbers, help="Keys.")
@click.option("--kinds", default="dense,sparse,string", show_default=True, help="Of keys.")
@click.option("--state-keys", default=1_000_000, show_default=True, help="Of the merge.")
@click.option("--delta-keys", default=100_000, show_default=True, help="Of the merge.")
@click.option("--slide-keys", default=10_000, show_default=True, help="Of the sliding windows, over 240 panes.")
@click.option("--runs", default=5, show_default=True, help="After a warm-up; the median counts.")
@measure.common
def main(
    rows: int,
    distinct: list[int],
    kinds: str,
    state_keys: int,
    delta_keys: int,
    slide_keys: int,
    runs: int,
    cache: Path,
    work: Path | None,
    seed: int,
) -> None:
    """Nanoseconds a row of group-by, merge and sliding windows, beside pyarrow, Polars and DuckDB, in one thread."""
    pa.set_cpu_count(1)
    figures = [
        figure
        for kind in kinds.split(",")
        for number in distinct
        for figure in group_by(kind, number, rows, runs, seed)
    ]
    figures += [merge(kind, state_keys, delta_keys, runs, seed) for kind in ("integer", "string")]
    figures.append(sliding(slide_keys, 4 * PANES, runs, seed))
    parameters = {"rows": rows, "distinct": distinct, "state_keys": state_keys, "delta_keys": delta_keys, "runs": runs}
    measure.publish("kernels", parameters, figures)


if __name__ == "__main__":
    main()
