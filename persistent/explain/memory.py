"""The memory of a worker is estimated from the rows of a step, the width of an element and the size of a shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from persistent.checkpoint.compaction import shards
from persistent.checkpoint.parts import NodePart
from persistent.driver.options import ROWS_MAX
from persistent.driver.step import SHARD_ROWS
from persistent.explain.explanation import Section
from persistent.session_window import values_of
from persistent.text.figures import bytes_text
from persistent.worker.job import Job, Node

_PYTHON_BYTES = 150 << 20
_RECORD_BYTES = 100
_KEY_BYTES = 32
_ELEMENT_BYTES = 64
_COPIES = 3


@dataclass(frozen=True)
class RowWidth:
    """The bytes of a row of a state, and where that figure is from: "measured", "fixed" or "assumed"."""

    row_bytes: int
    origin: str


def row_width(node: Node, part: NodePart | None) -> RowWidth:
    """The width of a row (hash, key, pane, element) of a node, from its runs if there are any."""
    runs = () if part is None else part.state.runs
    rows = sum(run.rows for run in runs)
    if rows:
        return RowWidth(max(1, sum(run.bytes for run in runs) // rows), "measured")
    widths = [_width(field.type) for field in values_of(node.state.monoid).schema]
    if None in widths:
        return RowWidth(_KEY_BYTES + _ELEMENT_BYTES, "assumed")
    return RowWidth(_KEY_BYTES + sum(one for one in widths if one is not None), "fixed")


def shard_sizes(part: NodePart | None, parallelism: int) -> tuple[int, int]:
    """In how many shards a node is folded now, and the bytes of the largest."""
    runs = () if part is None else part.state.runs
    if not runs:
        return 1, 0
    least = parallelism if sum(run.rows_left for run in runs) > SHARD_ROWS else 1
    count = len(shards(runs, least))
    return count, -(-sum(run.bytes for run in runs) // count)


def memory_section(job: Job, parts: Mapping[str, NodePart | None], step_rows: int | None, parallelism: int) -> Section:
    """The memory of one worker, with what is assumed. ``parts``: of each node in the newest checkpoint."""
    rows = -(-(step_rows or ROWS_MAX) // parallelism)
    widths = {name: row_width(one, parts[name]) for name, one in job.nodes.items()}
    folded = max(shard_sizes(parts[name], parallelism)[1] for name in widths)
    read = rows * _RECORD_BYTES
    delta = rows * sum(one.row_bytes for one in widths.values())
    whole = _PYTHON_BYTES + read + _COPIES * max(delta, folded)
    facts: dict[str, Any] = {
        "worker_bytes": whole,
        "split_rows": rows,
        "record_bytes": _RECORD_BYTES,
        "row_bytes": {name: one.row_bytes for name, one in widths.items()},
        "row_bytes_from": {name: one.origin for name, one in widths.items()},
        "shard_bytes": folded,
    }
    each = "; ".join(f"{one.row_bytes:,} bytes a row ({one.origin})" for one in widths.values())
    lines = (
        f"At most about {bytes_text(whole)} for each of {parallelism} workers (threads share the first part): "
        f"{bytes_text(_PYTHON_BYTES)} for Python and Arrow, {bytes_text(read)} for the records of a split, and three "
        f"times the larger of its delta ({bytes_text(delta)}) and a shard of the state ({bytes_text(folded)}).",
        f"Assumed: {rows:,} records a split, {_RECORD_BYTES} bytes a record, each with a key and pane of its own; "
        f"state: {each}.",
    )
    return Section("memory", lines, facts)


def _width(kind: pa.DataType) -> int | None:
    """The bytes of a value; None if they vary."""
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return None
