"""The rows of a run prove themselves: sorted, hashed as their keys say, in the key groups and panes of its manifest.

Everything here is checked on Arrow columns, without the user's code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.hashing import hash_keys, null_safe_equal
from persistent.codec import Run, decode_panes, decode_table, groups_of
from persistent.errors import CorruptCheckpoint

_KEY, _ELEMENT = "key:", "element:"


def state_faults(
    data: pa.Buffer, run: Run, place: str, key_names: Sequence[str], key_types: Sequence[str]
) -> Iterator[str]:
    """What is wrong with a run of state rows; every byte of it is looked at. CorruptCheckpoint if it cannot be read."""
    table = _table(data, run, place)
    yield from _size_faults(data, run, table)
    names = list(table.schema.names)
    keys = [f"{_KEY}{name}" for name in key_names]
    others = names[len(keys) + 2 :]
    if names[: len(keys) + 2] != ["hash", *keys, "pane"] or not all(name.startswith(_ELEMENT) for name in others):
        yield f"its columns are {', '.join(names)}; the state's keys are {', '.join(key_names) or 'none'}"
        return
    for name, known in zip(keys, key_types):
        found = str(table.schema.field(name).type)
        if found not in (known, "null"):
            yield f"column {name} holds {found}, its manifest says {known}"
    yield from _pane_faults(data, run, place, table)
    before: pa.RecordBatch | None = None
    for batch in table.to_batches():
        yield from _batch_faults(batch, run, len(keys))
        if before is not None:
            yield from _order_faults(pa.concat_batches([before, batch.slice(0, 1)]), len(keys))
        before = batch.slice(len(batch) - 1)


def index_faults(data: pa.Buffer, run: Run, place: str) -> Iterator[str]:
    """What is wrong with a run of a source's index."""
    yield from _size_faults(data, run, _table(data, run, place))


def _table(data: pa.Buffer, run: Run, place: str) -> pa.Table:
    table = decode_table(data, run.sha256, place)
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptCheckpoint(f"{place}: {error}") from error
    return table


def _size_faults(data: pa.Buffer, run: Run, table: pa.Table) -> Iterator[str]:
    if data.size != run.bytes:
        yield f"has {data.size:,} bytes, its manifest says {run.bytes:,}"
    if table.num_rows != run.rows:
        yield f"has {table.num_rows:,} rows, its manifest says {run.rows:,}"


def _pane_faults(data: pa.Buffer, run: Run, place: str, table: pa.Table) -> Iterator[str]:
    panes = np.unique(table["pane"].to_numpy())
    if len(panes) and (int(panes[0]), int(panes[-1])) != (run.pane_min, run.pane_max):
        yield f"holds panes {panes[0]} to {panes[-1]}, its manifest says {run.pane_min} to {run.pane_max}"
    if decode_panes(data, run, place) != panes.tolist():
        yield "its index lists other panes than its rows have"


def _batch_faults(batch: pa.RecordBatch, run: Run, keys: int) -> Iterator[str]:
    if not len(batch):
        return
    hashes = np.asarray(batch.column(0))
    groups = groups_of(hashes)
    if int(groups.min()) < run.start or int(groups.max()) >= run.high:
        yield f"holds key groups {groups.min()} to {groups.max()}, its manifest says {run.start} up to {run.high}"
    wrong = int((hash_keys(batch.columns[1 : 1 + keys], len(batch)) != hashes).sum())
    if wrong:
        yield f"{wrong:,} rows carry another hash than that of their key"
    yield from _order_faults(batch, keys)


def _order_faults(batch: pa.RecordBatch, keys: int) -> Iterator[str]:
    """Rows are sorted by (hash, key, pane), each (key, pane) once. The order of keys of one hash is not looked at."""
    hashes, panes = np.asarray(batch.column(0)), np.asarray(batch.column(keys + 1))
    descending = int((hashes[1:] < hashes[:-1]).sum())
    if descending:
        yield f"{descending:,} rows stand before one of a smaller hash"
    same: Any = hashes[1:] == hashes[:-1]
    for column in batch.columns[1 : 1 + keys]:
        same = same & null_safe_equal(column[1:], column[:-1])
    disordered = int((same & (panes[1:] <= panes[:-1])).sum())
    if disordered:
        yield f"{disordered:,} rows of a key stand before one of the same or an earlier pane"
