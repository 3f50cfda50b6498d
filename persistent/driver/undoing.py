"""A rollback takes back outputs in a sink that can only append, by rows that turn the sign of those published since.

A reader holds the sum of the rows that it was given. So the batches since the target of the rollback are read once
more, and for each place (a key, or a key and window) the rows are appended that bring its reader back to the target:

both signs   the row that stood there at the target, and the last row, with ``retracted``
replace      the last row, with ``retracted``; the next publication gives the sink every row again

The staged rows of kept checkpoints are kept for this purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.sorting import Integers
from persistent.checkpoint.commit_change import Manifests
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import SinkBatch, SinkPart
from persistent.checkpoint.parts import NodePart
from persistent.codec.documents import canonical_json
from persistent.codec.sealed import decode_table
from persistent.names import STAGED
from persistent.time.lateness import RETRACT
from persistent.worker.output_tables import RETRACTED, REVISION


def adds_up(node: NodePart) -> bool:
    """Whether readers add and subtract the rows of the node; otherwise only the newest row of a place counts."""
    return node.late == RETRACT


def batches_since(read: Callable[[int], Manifest], manifest: Manifest, sink: str, first: int) -> Iterator[SinkBatch]:
    """The batches of a sink from id ``first`` on that count, newest first, up to ``manifest``. A batch is listed by its
    own checkpoint, with the id of the one before; what a rollback has taken back is passed over. Raises what ``read``
    raises if one of these checkpoints cannot be read."""
    last = _last(manifest, sink)
    while last is not None and last >= first:
        checkpoint = read(last)
        batches = [batch for batch in checkpoint.sinks[sink].owed if batch.id == last]
        if not batches and (checkpoint.retract is None or checkpoint.target is None):
            raise KeyError(last)
        yield from batches
        if batches or checkpoint.target is None:
            last = batches[0].before
        else:
            last = _last(read(checkpoint.target), sink) if checkpoint.target >= first else None


def why_not(log: Log, manifests: Manifests, target: Manifest, first: int, name: str, part: SinkPart) -> str:
    """Why a sink cannot be given rows that take back what it was given from id ``first`` on; empty if it can."""
    newest = manifests.newest.manifest
    fault = _why_not_known(manifests, target, first, name, part)
    if fault:
        return fault
    try:
        batches = list(batches_since(lambda id: manifests.entries[id].manifest, newest, name, first))
    except KeyError as error:
        return f"checkpoint {error} is not kept, so what it was given since then is not known"
    waiting = frozenset(f"{STAGED}/{staged}" for staged in log.storage.list(STAGED)) if batches else frozenset()
    for batch in batches:
        gone = [staged.name for staged in batch.staged if staged.name not in waiting]
        if gone:
            return f"{gone[0]} is missing, which holds rows that it was given"
        staged = batch.staged[0]
        outputs = decode_table(log.storage.read(staged.name), staged.sha256, f"{log.storage.url}/{staged.name}")
        if part.node is None or not has_signs(target.nodes[part.node], outputs):
            return f"the rows that it was given by checkpoint {batch.id} have no column 'retracted'"
    return ""


def _why_not_known(manifests: Manifests, target: Manifest, first: int, name: str, part: SinkPart) -> str:
    """Why it is not known what a sink was given since the target, or what it would be given; empty if it is."""
    newest = manifests.newest.manifest
    since = [entry.manifest for id, entry in manifests.entries.items() if id >= first]
    if manifests.is_lost:
        return "a checkpoint is lost, and nobody knows what it was given by that"
    if newest.retract is not None:
        return "the last rollback is not done: run the job, until it has made a step, and then go back"
    if any(manifest.kind == "rollback" and manifest.retract is None for manifest in since):
        return "a rollback or restart since then has left what it was given"
    if name not in newest.sinks:
        return "it was left out since then"
    batches = [batch for manifest in since if name in manifest.sinks for batch in manifest.sinks[name].unpublished]
    if not all(batch.staged for batch in batches):
        return "a run without a sink has discarded what it was to be given since then"
    nodes = [manifest.nodes.get(part.node or "") for manifest in (target, *since, newest)]
    texts = {None if node is None else canonical_json(node.described()) for node in nodes}
    if part.node is not None and (None in texts or len(texts) > 1):
        return "its state was added, or had another definition, since then"
    return ""


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
    restored, removed = first[retracted[first]], last[~retracted[last]]
    if both_signs:
        # Where rows do not alternate, each of them is turned.
        odd = np.isin(places, places[1:][is_next & (retracted[1:] == retracted[:-1])])
        restored, removed = (
            np.union1d(chosen[~odd[chosen]], np.flatnonzero(odd & which))
            for chosen, which in ((restored, retracted), (removed, ~retracted))
        )
    chosen = np.concatenate([removed, restored]) if both_signs else removed
    takes_back = np.arange(len(chosen)) < len(removed)
    undoing, end = rows.take(pa.array(order[chosen])), len(rows.column_names)
    for at, column in ((end - 2, np.full(len(chosen), revision)), (end - 1, takes_back)):
        undoing = undoing.set_column(at, undoing.schema.field(at), pa.array(column, undoing.schema.field(at).type))
    return undoing


def has_signs(node: NodePart, outputs: pa.Table) -> bool:
    """Whether the rows of a node have the columns that mark a row as taken back. Rows of windows that are published
    once have no such columns, although a field of a result may have the same name."""
    names: list[str] = outputs.column_names
    return names[-2:] == [REVISION, RETRACTED] and not (node.has_windows and node.late is None)


def _places(keys: Sequence[pa.ChunkedArray], rows: int) -> Integers:
    """A number for each distinct row of these columns."""
    places = np.zeros(rows, np.int64)
    for column in keys:
        indices = pc.fill_null(column.combine_chunks().dictionary_encode("encode").indices, -1)
        codes = np.asarray(indices, dtype=np.int64) + 1
        places = np.unique(places * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)[1]
    return places


def _last(manifest: Manifest, sink: str) -> int | None:
    return manifest.sinks.get(sink, SinkPart()).last
