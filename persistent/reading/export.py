"""An export is a folded state in typed Parquet files, which any Parquet reader takes as one table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from persistent.checkpoint.copies import checkpoint_at, read_while_running
from persistent.checkpoint.log import Log
from persistent.checkpoint.successor import Entry
from persistent.codec.documents import canonical_json
from persistent.errors import InvalidPipeline
from persistent.pipeline import Pipeline
from persistent.reading.place import Place, checked_node, place
from persistent.storage.opening import open_storage
from persistent.storage.protocol import Storage
from persistent.worker.job import Node
from persistent.worker.state_tables import empty_table, folded_tables

_FILE_BYTES = 256 << 20
"""Before compression."""
LISTING = "_export.json"


@dataclass(frozen=True)
class File:
    """A file of an export."""

    name: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Exported:
    """An export: its place, its checkpoint and its files."""

    url: str
    checkpoint: int
    files: tuple[File, ...]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def export(
    pipeline: Pipeline,
    folder: str | Storage,
    at: int | None = None,
    *,
    name: str | None = None,
    file_bytes: int = _FILE_BYTES,
    on_progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Write the state of a checkpoint, by default the newest, into an empty folder, in files of about ``file_bytes``
    before compression, however large the state. ``name``: the state, if the task has several.

    The footer of each file describes it: ``persistent.job``, ``persistent.checkpoint``, ``persistent.clock_ms`` and
    more. ``_export.json`` is written last: an export with it is complete. ``on_progress`` receives the rows written and
    the approximate total.
    """
    target = open_storage(folder, private=False) if isinstance(folder, str) else folder
    checked_node(pipeline, place(pipeline.storage, at), name)
    there = target.list("")
    if there:
        raise InvalidPipeline(f"{target.url} must be empty, but holds {there[0]}: give a new folder")
    log = Log(pipeline.storage)

    def write(entry: Entry) -> Exported:
        for left in target.list(""):
            # Left by an attempt whose checkpoint was collected meanwhile.
            target.delete(left)
        here = Place(pipeline.storage, entry)
        return _exported(checked_node(pipeline, here, name), here, target, file_bytes, on_progress)

    return read_while_running(log, lambda: checkpoint_at(log, at), write)


def _exported(
    node: Node,
    here: Place,
    target: Storage,
    file_bytes: int,
    on_progress: Callable[[int, int], None] | None,
) -> Exported:
    files: list[File] = []
    rows = sum(run.rows_left for run in here.manifest.nodes[node.id].runs)
    for number, table in enumerate(_pieces(_tables(node, here), file_bytes)):
        files.append(_written(target, f"{node.id.replace('/', '-')}-{number:05d}.parquet", table))
        if on_progress is not None:
            on_progress(sum(file.rows for file in files), rows)
    listing = {**_facts(node, here), "files": [asdict(file) for file in files]}
    target.write(LISTING, json.dumps(listing, indent=1).encode() + b"\n")
    return Exported(target.url, here.manifest.id, tuple(files))


def _written(target: Storage, name: str, table: pa.Table) -> File:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data = sink.getvalue()
    target.write(name, data)
    return File(name, table.num_rows, data.size, hashlib.sha256(data).hexdigest())


def _tables(node: Node, here: Place) -> Iterator[pa.Table]:
    """Tables of one schema with descriptive metadata. The first has no rows, so that at least one file exists."""
    empty = empty_table(node, here.manifest)
    facts = _facts(node, here)
    schema = empty.schema.with_metadata({f"persistent.{name}": str(value) for name, value in facts.items()})
    yield empty.cast(schema)
    for table in folded_tables(node, here.manifest):
        yield table.cast(schema)


def _facts(node: Node, here: Place) -> dict[str, str | int]:
    """The description of the state in every file."""
    manifest = here.manifest
    clock = manifest.nodes[node.id].clock
    return {
        "url": here.storage.url,
        "job": manifest.job,
        "checkpoint": manifest.id,
        "base": manifest.base,
        "clock_ms": clock.watermark,
        "closed_ms": clock.closed,
        "state": node.id,
        "fingerprint": canonical_json(manifest.nodes[node.id].fingerprint),
    }


def _pieces(tables: Iterable[pa.Table], file_bytes: int) -> Iterator[pa.Table]:
    """The same rows in tables of about ``file_bytes``, at least one table."""
    waiting: list[pa.Table] = []
    for table in tables:
        rows = max(1, table.num_rows * file_bytes // max(table.nbytes, 1))
        for start in range(0, max(table.num_rows, 1), rows):
            piece = table.slice(start, rows)
            if waiting and sum(part.nbytes for part in (*waiting, piece)) > file_bytes:
                yield pa.concat_tables(waiting)
                waiting = []
            waiting.append(piece)
    yield pa.concat_tables(waiting)
