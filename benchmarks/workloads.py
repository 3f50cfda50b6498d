"""The workloads: seeded generators whose output depends on nothing but their parameters.

Each function returns a folder of input files below ``cache``, made on the first call and found again by later
ones. A folder appears under its name only when it is complete, so a generator killed half-way leaves nothing
to trust.

Modification times are set, one second apart in path order, because Spark's file source reads in that order.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

EPOCH_MS = 1_700_000_040_000
"""The first timestamp of every workload: a full minute in November 2023."""

KEYS = 100_000
DISORDER_MS = 5_000
ADS_PER_CAMPAIGN = 10
CAMPAIGNS = 100

_AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
_EVENT_TYPES = ("view", "click", "purchase")


def clicks(
    cache: Path, rows: int = 10_000_000, file_rows: int = 1_000_000, strings: bool = False, seed: int = 1
) -> Path:
    """W1: Parquet files of ``ts`` (timestamp[us, UTC]), ``key`` and ``value`` (float64).

    One row a millisecond, in disorder by less than ``DISORDER_MS``; keys zipf(1.2) modulo ``KEYS``, int64, or
    ``"user-000123"`` with ``strings``. Ten million rows have about 2.03 million groups of (key, minute).
    """
    kind = "string" if strings else "int"

    def write(folder: Path) -> Iterator[Path]:
        for file, start in enumerate(range(0, rows, file_rows)):
            path = folder / f"clicks-{file:05d}.parquet"
            table = _click_rows(start, min(file_rows, rows - start), strings, seed)
            pq.write_table(table, path)
            yield path

    return _generated(cache, f"clicks-{rows}-{file_rows}-{kind}-{seed}", write)


def views(cache: Path, lines: int = 2_000_000, seed: int = 1) -> Path:
    """W2: JSON lines of the Yahoo streaming benchmark, an event a millisecond, a third of them views."""

    def write(folder: Path) -> Iterator[Path]:
        path = folder / "views.jsonl"
        with path.open("w", encoding="ascii") as file:
            for start in range(0, lines, 100_000):
                file.write(_view_lines(start, min(100_000, lines - start), seed))
        yield path

    return _generated(cache, f"views-{lines}-{seed}", write)


def campaigns(seed: int = 1) -> dict[str, str]:
    """The 1,000 ads of W2, each with its campaign, of which there are 100."""
    identifiers = _identifiers(np.random.default_rng([seed, 0]), CAMPAIGNS * (ADS_PER_CAMPAIGN + 1))
    owners, ads = identifiers[:CAMPAIGNS], identifiers[CAMPAIGNS:]
    return {ad: owners[number // ADS_PER_CAMPAIGN] for number, ad in enumerate(ads)}


def deltas(cache: Path, state_keys: int, delta_keys: int = 100_000, steps: int = 200, seed: int = 1) -> Path:
    """W3: Parquet files of ``ts`` (timestamp[ms, UTC]), ``key`` (int64) and ``value`` (float64).

    ``0-state-*`` hold each of ``state_keys`` keys once; then ``1-delta-*``, one a step, hold ``delta_keys``
    distinct keys.
    """

    def write(folder: Path) -> Iterator[Path]:
        rng = np.random.default_rng([seed, state_keys])
        for file, start in enumerate(range(0, state_keys, 1_000_000)):
            path = folder / f"0-state-{file:05d}.parquet"
            pq.write_table(_delta_rows(rng, np.arange(start, min(start + 1_000_000, state_keys)), file), path)
            yield path
        for step in range(steps):
            path = folder / f"1-delta-{step:05d}.parquet"
            keys = rng.choice(state_keys, delta_keys, replace=False)
            pq.write_table(_delta_rows(rng, keys, 1_000 + step), path)
            yield path

    return _generated(cache, f"deltas-{state_keys}-{delta_keys}-{steps}-{seed}", write)


def readings(
    cache: Path, rows: int = 1_000_000, keys: int = 10_000, minutes: int = 120, file_rows: int = 100_000, seed: int = 1
) -> Path:
    """W7: Parquet files of ``ts`` (timestamp[us, UTC]), ``key`` and ``value`` (int64), spread over some minutes, in
    disorder by less than ``DISORDER_MS``."""

    def write(folder: Path) -> Iterator[Path]:
        for file, start in enumerate(range(0, rows, file_rows)):
            path = folder / f"readings-{file:05d}.parquet"
            count = min(file_rows, rows - start)
            rng = np.random.default_rng([seed, start])
            millis = EPOCH_MS + (start + np.arange(count)) * (minutes * 60_000) // rows
            micros = (millis + rng.integers(0, DISORDER_MS, count)) * 1000
            columns = {"key": rng.integers(0, keys, count), "value": rng.integers(0, 1 << 40, count)}
            pq.write_table(pa.table({"ts": pa.array(micros, pa.timestamp("us", "UTC")), **columns}), path)
            yield path

    return _generated(cache, f"readings-{rows}-{keys}-{minutes}-{file_rows}-{seed}", write)


def crumbs(cache: Path, files: int = 100_000, file_rows: int = 10, seed: int = 1) -> Path:
    """Very many small files: JSON lines of ``ts`` (integer milliseconds, in order) and ``key`` (0 to 99)."""

    def write(folder: Path) -> Iterator[Path]:
        keys = np.random.default_rng([seed, files]).integers(0, 100, (files, file_rows)).tolist()
        for file in range(files):
            path = folder / f"crumbs-{file:07d}.jsonl"
            start = EPOCH_MS + file * file_rows
            lines = [f'{{"ts":{start + row},"key":{key}}}\n' for row, key in enumerate(keys[file])]
            path.write_text("".join(lines), encoding="ascii")
            yield path

    return _generated(cache, f"crumbs-{files}-{file_rows}-{seed}", write)


def _generated(cache: Path, name: str, write: Callable[[Path], Iterator[Path]]) -> Path:
    """The folder ``name`` in ``cache``, generated by ``write`` unless it is there, by one of two at once."""
    folder = cache / name
    if folder.is_dir():
        return folder
    draft = cache / f".{name}-{uuid.uuid4().hex}"
    draft.mkdir(parents=True)
    try:
        for number, path in enumerate(write(draft)):
            modified = EPOCH_MS // 1000 + number
            os.utime(path, (modified, modified))
        try:
            draft.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _click_rows(start: int, rows: int, strings: bool, seed: int) -> pa.Table:
    rng = np.random.default_rng([seed, start])
    disorder = rng.integers(0, DISORDER_MS, rows)
    # Timestamps run ahead of their place by less than DISORDER_MS, so one may follow another that is as much
    # larger.
    micros = (EPOCH_MS + start + np.arange(rows) + disorder) * 1000
    codes = rng.zipf(1.2, rows) % KEYS
    keys = pa.array(codes)
    if strings:
        names = pa.array([f"user-{code:06d}" for code in range(KEYS)])
        keys = names.take(keys)
    return pa.table(
        {
            "ts": pa.array(micros, pa.timestamp("us", "UTC")),
            "key": keys,
            "value": pa.array(rng.random(rows)),
        }
    )


def _view_lines(start: int, lines: int, seed: int) -> str:
    rng = np.random.default_rng([seed, 1, start])
    users, pages = (_identifiers(np.random.default_rng([seed, 2 + kind]), 100) for kind in range(2))
    ads = list(campaigns(seed))
    head = [f'{{"user_id":"{user}","page_id":"' for user in users]
    middle = [f'{page}","ad_id":"' for page in pages]
    tails = [
        f'","ad_type":"{ad_type}","event_type":"{event_type}","event_time":'
        for ad_type in _AD_TYPES
        for event_type in _EVENT_TYPES
    ]
    end = ',"ip_address":"1.2.3.4"}\n'
    drawn = zip(
        rng.integers(0, len(users), lines).tolist(),
        rng.integers(0, len(pages), lines).tolist(),
        rng.integers(0, len(ads), lines).tolist(),
        rng.integers(0, len(tails), lines).tolist(),
    )
    return "".join(
        f"{head[user]}{middle[page]}{ads[ad]}{tails[tail]}{EPOCH_MS + start + number}{end}"
        for number, (user, page, ad, tail) in enumerate(drawn)
    )


def _delta_rows(rng: np.random.Generator, keys: np.ndarray, second: int) -> pa.Table:
    millis = np.full(len(keys), EPOCH_MS + second * 1000)
    return pa.table(
        {
            "ts": pa.array(millis, pa.timestamp("ms", "UTC")),
            "key": pa.array(rng.permutation(keys)),
            "value": pa.array(rng.random(len(keys))),
        }
    )


def _identifiers(rng: np.random.Generator, count: int) -> list[str]:
    return [str(uuid.UUID(bytes=rng.bytes(16), version=4)) for _ in range(count)]
