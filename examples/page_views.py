"""Page views with disorder, and what a plain computation makes of them: NumPy and Arrow, nothing of this package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MINUTE_MS = 60_000
START_MS = 1_700_000_040_000
PAGES = 2_000


def generate(folder: Path, rows: int, file_rows: int, seed: int) -> None:
    """Page views in Parquet files: one a millisecond, up to 3 s in disorder, 2 in 1,000 up to ten minutes."""
    folder.mkdir(parents=True)
    pages = pa.array([f"/page/{page:04d}" for page in range(PAGES)])
    for number, start in enumerate(range(0, rows, file_rows)):
        rng = np.random.default_rng([seed, number])
        count = min(file_rows, rows - start)
        behind = rng.integers(0, 3_000, count)
        stragglers = rng.random(count) < 0.002
        behind[stragglers] = rng.integers(0, 600_000, int(stragglers.sum()))
        millis = START_MS + 600_000 + start + np.arange(count) - behind
        table = {
            "ts": pa.array(millis, pa.timestamp("ms", "UTC")),
            "page": pages.take(pa.array(rng.zipf(1.3, count) % PAGES)),
            "bytes": rng.integers(200, 100_000, count),
            "millis": rng.gamma(2.0, 40.0, count).astype(np.int64),
        }
        pq.write_table(pa.table(table), folder / f"{number:05d}.parquet")


@dataclass(frozen=True)
class Verdict:
    """What the comparison found; all but ``rows``, ``late`` and ``windows`` must be zero."""

    rows: int
    late: int
    windows: int
    duplicates: int
    lost: int
    invented: int
    different: int
    late_wrongly: int
    late_unrecorded: int

    @property
    def passed(self) -> bool:
        wrong = (
            self.duplicates,
            self.lost,
            self.invented,
            self.different,
            self.late_wrongly,
            self.late_unrecorded,
        )
        return not any(wrong)


def late_rows(events: pa.Table, files: list[int], recorded: pa.Table, step_rows: int) -> tuple[np.ndarray, int, int]:
    """Which events are recorded as late; how many of these wrongly; how many that should be are not.

    Row i belongs to step ``i // step_rows``; the clock of a step is the largest timestamp of all steps before
    it. A row is late if its window had ended by then.
    """
    millis = events["ts"].cast(pa.int64()).to_numpy()
    starts = np.concatenate([[0], np.cumsum(files)])
    places = starts[recorded["ordinal"].to_numpy()] + recorded["offset"].to_numpy()
    largest = np.maximum.accumulate(millis)
    first_rows = np.arange(len(millis)) // step_rows * step_rows
    clock = np.where(first_rows > 0, largest[first_rows - 1], 0)
    window_ends = millis // MINUTE_MS * MINUTE_MS + MINUTE_MS
    is_recorded = np.zeros(len(millis), dtype=bool)
    is_recorded[places] = True
    twice = len(places) - int(is_recorded.sum())
    misplaced = recorded["timestamp"].cast(pa.int64()).to_numpy() != millis[places]
    is_late = window_ends <= clock
    wrongly = twice + int(misplaced.sum()) + int((is_recorded & ~is_late).sum())
    return is_recorded, wrongly, int((is_late & ~is_recorded).sum())


def expected_windows(events: pa.Table, left_out: np.ndarray) -> pa.Table:
    """Page, minute (its start in ms), visits, bytes, slowest: by Arrow's group-by over the rows not left out."""
    millis = events["ts"].cast(pa.int64()).to_numpy()
    minutes = pa.array(millis // MINUTE_MS * MINUTE_MS)
    kept = events.append_column("minute", minutes).filter(pa.array(~left_out))
    grouped = kept.group_by(["page", "minute"])
    found = grouped.aggregate([([], "count_all"), ("bytes", "sum"), ("millis", "max")])
    names = {"count_all": "visits", "bytes_sum": "bytes", "millis_max": "slowest"}
    return found.rename_columns([names.get(name, name) for name in found.column_names])


def published_windows(results: Path) -> pa.Table:
    """The same columns, from every published file."""
    rows = pa.concat_tables([pq.read_table(file) for file in sorted(results.glob("*.parquet"))])
    minutes = rows["window_start"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    return rows.select(["page", "visits", "bytes", "slowest"]).append_column("minute", minutes)


def compare(folder: Path, results: Path, recorded: pa.Table, step_rows: int) -> Verdict:
    """Hold what was published in ``results``, and the late rows ``recorded``, against the plain computation."""
    tables = [pq.read_table(file) for file in sorted(folder.glob("*.parquet"))]
    events = pa.concat_tables(tables).combine_chunks()
    left_out, wrongly, unrecorded = late_rows(events, [table.num_rows for table in tables], recorded, step_rows)
    expected = expected_windows(events, left_out)
    published = published_windows(results)
    names = pc.unique(pa.concat_arrays([*expected["page"].chunks, *published["page"].chunks]))
    keys, found = (_codes(table, names) for table in (expected, published))
    order, positions = np.argsort(keys), np.unique(found, return_index=True)[1]
    known = np.isin(found[positions], keys)
    rows = order[np.searchsorted(keys[order], found[positions][known])]
    same = np.ones(len(rows), dtype=bool)
    for column in ("visits", "bytes", "slowest"):
        same &= published[column].to_numpy()[positions][known] == expected[column].to_numpy()[rows]
    return Verdict(
        rows=events.num_rows,
        late=recorded.num_rows,
        windows=published.num_rows,
        duplicates=len(found) - len(positions),
        lost=len(keys) - int(known.sum()),
        invented=int((~known).sum()),
        different=int((~same).sum()),
        late_wrongly=wrongly,
        late_unrecorded=unrecorded,
    )


def _codes(table: pa.Table, names: pa.Array) -> np.ndarray:
    minutes = (table["minute"].to_numpy() - START_MS) // MINUTE_MS
    return np.asarray(minutes * len(names) + pc.index_in(table["page"], names).to_numpy())
