"""Reading a state returns a table in output columns: all of it, one key or one window, now or at an earlier time.

An export is a folded state in typed Parquet files, which any Parquet reader takes as one table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from persistent.checkpoint.as_of import checkpoint_as_of
from persistent.checkpoint.copies import checkpoint_at, read_while_running
from persistent.checkpoint.log import Log
from persistent.checkpoint.successor import Entry
from persistent.codec.decimals import from_text
from persistent.codec.documents import canonical_json
from persistent.codec.fields import type_of
from persistent.errors import InvalidPipeline
from persistent.pipeline import Pipeline
from persistent.reading.place import Place, checked_node, place
from persistent.storage.opening import open_storage
from persistent.storage.protocol import Storage
from persistent.task.task import key_names
from persistent.text.figures import utc_text
from persistent.time.clock import Instant, instant_ms
from persistent.time.session_window import SessionWindow
from persistent.time.window import AnyWindow
from persistent.worker.job import Node
from persistent.worker.state_tables import OneKey, StatePart, empty_table, folded_tables


def state_table(
    pipeline: Pipeline,
    *,
    name: str | None = None,
    at: int | None = None,
    as_of: Instant | None = None,
    key: Any = None,
    window: Instant | None = None,
) -> pa.Table:
    """The folded state as an Arrow table in output columns. A state with windows shows every open window that holds
    records.

    ``name``: the state, if the task has several. ``at``: the state of that kept checkpoint. ``as_of``: the state
    before that clock. ``key``: only this key, a value or a tuple of values (``(None,)`` is the null key); this reads
    little more than the key's slice of the runs. ``window``: only the window that starts then. Times are ms since the
    epoch, datetimes or ISO 8601.

    >>> from monoids import Count
    >>> from persistent import MemorySource, NonWindowState, PersistentTask
    >>> class Visits(PersistentTask):
    ...     key = "page"
    ...     def persistent_state(self): return NonWindowState(Count())
    ...     def process_message(self, state, message): state.update(message.timestamp, 1)
    >>> source = MemorySource([{"ts": 1, "page": "a"}, {"ts": 2, "page": "b"}], timestamp="ts")
    >>> pipeline = Pipeline(source=source, task=Visits(), checkpoint="memory://doctest-reading")
    >>> pipeline.run(engine="embedded").rows
    2
    >>> state_table(pipeline, key="b").to_pylist()
    [{'page': 'b', 'value': 1}]
    """
    if at is not None and as_of is not None:
        raise InvalidPipeline("at= names a checkpoint, as_of= a clock: give one of them")
    log, node = Log(pipeline.storage), checked_node(pipeline, place(pipeline.storage, at), name)
    number = None if window is None else _number(node.state.window, instant_ms(window, "window"))
    part = StatePart(window=number, as_of=None if as_of is None else instant_ms(as_of, "as_of"))

    def find() -> Entry:
        if part.as_of is None:
            return checkpoint_at(log, at)
        return checkpoint_as_of(log, node.task, {node.name: node.state}, part.as_of)

    def read(entry: Entry) -> pa.Table:
        return _table(checked_node(pipeline, Place(log.storage, entry), name), entry, part, key)

    return read_while_running(log, find, read)


def _table(node: Node, entry: Entry, part: StatePart, key: Any) -> pa.Table:
    names, types = key_names(node.task), entry.manifest.nodes[node.id].key_types
    empty = empty_table(node, entry.manifest)
    if key is not None:
        values = _checked(names, key if isinstance(key, tuple) else (key,))
        if names and not types:
            return empty
        typed_key = OneKey.of(_columns(values, names, types))
        part = replace(StatePart.of_key(typed_key, part.window), as_of=part.as_of)
    return pa.concat_tables([empty, *folded_tables(node, entry.manifest, part)])


def check_key(pipeline: Pipeline, here: Place, values: Sequence[Any], name: str | None = None) -> None:
    """InvalidPipeline unless every key column has a value, of its type or as text."""
    node = checked_node(pipeline, here, name)
    names, types = key_names(node.task), here.manifest.nodes[node.id].key_types
    _columns(_checked(names, values), names[: len(types)], types)


def check_window(pipeline: Pipeline, here: Place, start: Instant, name: str | None = None) -> None:
    """InvalidPipeline unless a window starts at that time."""
    _number(checked_node(pipeline, here, name).state.window, instant_ms(start, "window"))


def _checked(names: Sequence[str], values: Sequence[Any]) -> tuple[Any, ...]:
    if len(values) != len(names):
        expected = f"the key is ({', '.join(names)}): give {len(names)}" if names else "the task has no key"
        raise InvalidPipeline(f"the given key has {len(values)} values, but {expected}")
    return tuple(values)


def _number(window: AnyWindow | None, start: int) -> int:
    if window is None:
        raise InvalidPipeline("this state has no windows")
    if isinstance(window, SessionWindow):
        raise InvalidPipeline(
            f"{window} has no windows that are the same for all keys: omit window=, and choose from the sessions of "
            "the state, or of one key"
        )
    try:
        number = int(window.last_number(start))
    except ValueError as error:
        raise InvalidPipeline(str(error)) from error
    before = int(window.start_of(number))
    if start != before:
        raise InvalidPipeline(
            f"no window starts at {utc_text(start)}: the previous one starts at {utc_text(before)}, the next at "
            f"{utc_text(int(window.start_of(number + 1)))}"
        )
    return number


def _columns(values: Sequence[Any], names: Sequence[str], types: Sequence[str]) -> list[pa.Array]:
    columns = []
    for value, name, type_ in zip(values, names, types):
        try:
            columns.append(from_text(pa.array([value]), type_of(type_)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise InvalidPipeline(f"the key {value!r}: column {name} holds {type_}: {error}") from error
    return columns


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
