"""Undoing what a rollback takes back, in sinks that can only append: rows that turn the sign of those published since.

What a reader holds is the sum of what it was given. So the rows of the batches since the target are read once more, and
of each place (a key, or a key and window) is appended what brings its reader back:

both signs   the row that stood there at the target, and the last row, with ``retracted``
replace      the last row, with ``retracted``; the next publication gives the sink every row again

The staged rows of kept checkpoints are kept for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.sorting import Integers
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import SinkBatch, SinkPart
from persistent.checkpoint.parts import NodePart
from persistent.lateness import RETRACT
from persistent.worker.output_tables import RETRACTED, REVISION


def adds_up(node: NodePart) -> bool:
    """Whether readers of its rows add and subtract them; otherwise they let the newest of a place count."""
    return node.late == RETRACT


def batches_since(read: Callable[[int], Manifest], manifest: Manifest, sink: str, first: int) -> Iterator[SinkBatch]:
    """The batches of a sink from id ``first`` on that count, newest first, up to ``manifest``. A batch is listed by its
    own checkpoint, with the id of the one before; what a rollback has taken back is passed over. Raises what ``read``
    raises if one of these checkpoints cannot be read."""
    last = _last(manifest, sink)
    while last is not None and last >= first:
        found = read(last)
        own = [batch for batch in found.sinks[sink].owed if batch.id == last]
        if not own and (found.retract is None or found.target is None):
            raise KeyError(last)
        yield from own
        if own or found.target is None:
            last = own[0].before
        else:
            last = _last(read(found.target), sink) if found.target >= first else None


def undoing_rows(tables: Sequence[pa.Table], key: Sequence[str], revision: int, *, both_signs: bool) -> pa.Table:
    """What a sink is given to take back the rows of these tables, oldest first; ``key``: the columns of a place."""
    rows = pa.concat_tables(tables, promote_options="permissive")
    retracted = np.asarray(rows[RETRACTED])
    batch = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    places = _places([rows[name] for name in key], len(rows))
    # In a batch, a row that is taken back comes before the one in its place.
    order = np.lexsort((~retracted, batch, places))
    places, retracted = places[order], retracted[order]
    is_next = places[1:] == places[:-1]
    first, last = np.flatnonzero(np.append(True, ~is_next)), np.flatnonzero(np.append(~is_next, True))
    given, shown = first[retracted[first]], last[~retracted[last]]
    if both_signs:
        # Where rows do not alternate, as after an evolution, each of them is turned.
        odd = np.isin(places, places[1:][is_next & (retracted[1:] == retracted[:-1])])
        given, shown = (
            np.union1d(chosen[~odd[chosen]], np.flatnonzero(odd & which))
            for chosen, which in ((given, retracted), (shown, ~retracted))
        )
    chosen = np.concatenate([shown, given]) if both_signs else shown
    takes_back = np.arange(len(chosen)) < len(shown)
    undoing, end = rows.take(pa.array(order[chosen])), len(rows.column_names)
    for at, values in ((end - 2, np.full(len(chosen), revision)), (end - 1, takes_back)):
        undoing = undoing.set_column(at, undoing.schema.field(at), pa.array(values, undoing.schema.field(at).type))
    return undoing


def has_signs(node: NodePart, outputs: pa.Table) -> bool:
    """Whether rows of a node can say that they are taken back. Windows that are published once have fields alone, which
    may have these names."""
    names: list[str] = outputs.column_names
    return names[-2:] == [REVISION, RETRACTED] and not (node.has_windows and node.late is None)


def _places(keys: Sequence[pa.ChunkedArray], rows: int) -> Integers:
    """A number for each distinct row of these columns."""
    places = np.zeros(rows, np.int64)
    for column in keys:
        values = pc.fill_null(column.combine_chunks().dictionary_encode("encode").indices, -1)
        found = np.asarray(values, dtype=np.int64) + 1
        places = np.unique(places * (int(found.max(initial=0)) + 1) + found, return_inverse=True)[1]
    return places


def _last(manifest: Manifest, sink: str) -> int | None:
    return manifest.sinks.get(sink, SinkPart()).last
