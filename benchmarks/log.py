"""The log beside the plain thing: what an append costs over a plain one with as many syncs, and how fast it is read."""

from __future__ import annotations

import os
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

from benchmarks import measure
from persistent.log import SegmentedLog

_AT_ONCE = 1_000
_BATCH = 5
_SIZES = (100, 1_000)


def records(count: int, size: int, seed: int) -> pa.BinaryArray:
    data = np.random.default_rng(seed).bytes(count * size)
    return pa.array([data[at : at + size] for at in range(0, len(data), size)], pa.binary())


def appended(folder: Path, size: int, turns: int, seed: int) -> tuple[float, float]:
    """Seconds for an entry of a thousand records, and for a plain append of the same bytes with the same sync: medians
    of turns, so that whatever else uses the disk slows both."""
    column = records(_AT_ONCE, size, seed)
    data = b"".join(column.to_pylist())
    (folder / str(size)).mkdir(parents=True)
    plain = os.open(folder / str(size) / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append_plain() -> None:
        for _ in range(_BATCH):
            os.write(plain, data)
            os.fsync(plain)

    log = SegmentedLog(folder / str(size) / "log", segment_bytes=1 << 30)
    with log.writer() as writer:

        def append_ours() -> None:
            for _ in range(_BATCH):
                writer.append_many(column)

        pairs = [(measure.wall_seconds(append_ours), measure.wall_seconds(append_plain)) for _ in range(turns)]
    os.close(plain)
    if b"".join(b"".join(batch.records.to_pylist()) for batch in log.read()) != data * _BATCH * turns:
        raise measure.RowsDiffer("the log does not hold what was appended")
    return measure.median([ours for ours, _ in pairs]) / _BATCH, measure.median([one for _, one in pairs]) / _BATCH


def read(folder: Path, megabytes: int, runs: int, seed: int) -> float:
    """Bytes a second of reading a log from the cache of the system, every byte checked: the median of runs."""
    column = records(10_000, 100, seed)
    log = SegmentedLog(folder / "read", sync="never")
    with log.writer() as writer:
        for _ in range(megabytes):
            writer.append_many(column)
    size = megabytes * (column.nbytes + 8 * len(column))

    def read_all() -> None:
        found = sum(batch.records.nbytes + batch.times.nbytes for batch in log.read())
        if found != size:
            raise measure.RowsDiffer(f"{found} bytes were read, and {size} written")

    read_all()
    return size / measure.median([measure.wall_seconds(read_all) for _ in range(runs)])


@click.command(help="Appends to a log beside plain ones with the same syncs, and reading it.")
@click.option("--megabytes", default=400, show_default=True, help="To read.")
@click.option("--turns", default=60, show_default=True, help="Of five appends each.")
@click.option("--runs", default=5, show_default=True, help="Of reading.")
@measure.common
def main(megabytes: int, turns: int, runs: int, cache: Path, work: Path | None, seed: int) -> None:
    figures = []
    with measure.empty_folder(work or cache) as folder:
        for size in _SIZES:
            ours, plain = appended(folder, size, turns, seed)
            name = f"1,000 records of {size:,} bytes"
            figures += [
                measure.Figure(f"{name}: log", 1e3 * ours, "ms"),
                measure.Figure(f"{name}: plain append", 1e3 * plain, "ms"),
                measure.Figure(f"{name}: plain / log", plain / ours, "times", 0.9, 0.7),
            ]
        figures.append(measure.Figure("read", read(folder, megabytes, runs, seed) / 1e9, "GB/s", 2, 1))
    measure.publish("log", {"megabytes": megabytes, "turns": turns, "runs": runs}, figures)


if __name__ == "__main__":
    main()
