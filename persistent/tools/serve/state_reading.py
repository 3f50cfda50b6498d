"""The rows of a state are read a few key groups at a time, so any state is browsed, searched and downloaded in bounded
memory.

A page walks the key groups from a cursor, ``<group>.<rows to skip there>``, until it is full or its time is over; then
it says how far it has come. Only a sorted page sees the whole state, so sorting is refused for large
states.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from persistent.checkpoint.as_of import checkpoint_as_of
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodeClock
from persistent.codec.decimals import from_text
from persistent.codec.fields import KEY_GROUPS, type_of
from persistent.connect.formats.json_rows import beyond_digits
from persistent.errors import InvalidPipeline
from persistent.names import STATE
from persistent.pipeline import Pipeline
from persistent.reading import Place, check_window
from persistent.reading.place import checked_node
from persistent.task.task import key_names
from persistent.text.readable import readable_list
from persistent.time.clock import instant_ms
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.wording import NeedsPipeline, place_text
from persistent.worker.job import Node
from persistent.worker.stage_aside import FailingKey
from persistent.worker.state_tables import OneKey, StatePart, empty_table, folded_tables

_SLICE_ROWS = 20_000
_ONE_KEY_ROWS_MAX = 20
SORTED_ROWS_MAX = 300_000


@dataclass(frozen=True)
class Wanted:
    """The rows to show. ``at``: a checkpoint; ``as_of``: a clock; ``key``: the texts of one key, None for null;
    ``window``: its start; ``find``: text within a key, in any case; ``name``: the state, if the task has several; by
    default the first state that the checkpoint has."""

    at: int | None = None
    as_of: str = ""
    key: tuple[str | None, ...] | None = None
    window: str = ""
    find: str = ""
    name: str = ""


@dataclass(frozen=True)
class StateReading:
    """A state of one checkpoint, ready to be read in slices of key groups."""

    node: Node
    place: Place
    part: StatePart
    find: str
    all_names: tuple[str, ...] = ()
    """The names of all states of the task; empty if its only state has no name."""
    omitted: list[FailingKey] | None = None
    """The keys whose results the monoid cannot present, and the page omits; None: the first such key raises."""

    @property
    def manifest(self) -> Manifest:
        return self.place.manifest

    @property
    def clock(self) -> NodeClock:
        """The clock of the state in this checkpoint."""
        return self.manifest.nodes[self.node.id].clock

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return key_names(self.node.task)

    @property
    def rows(self) -> int:
        """About how many rows its runs hold: at least as many as the state."""
        return sum(run.rows_left for run in self.manifest.nodes[self.node.id].runs)

    @property
    def empty(self) -> pa.Table:
        return empty_table(self.node, self.manifest)

    def folded(self, part: StatePart, manifest: Manifest | None = None) -> Iterator[pa.Table]:
        """The tables of a part of the state; of another manifest, if one is given."""
        return folded_tables(self.node, self.manifest if manifest is None else manifest, part, self.omitted)

    def slices(self, low: int = 0) -> Iterator[tuple[int, int, pa.Table]]:
        """From group ``low`` on: each slice's first group, the group after its last, and its rows."""
        step = max(1, KEY_GROUPS * _SLICE_ROWS // max(self.rows, 1))
        low = max(low, self.part.low)
        while low < self.part.high:
            high = min(low + step, self.part.high)
            tables = self.folded(replace(self.part, low=low, high=high))
            yield low, high, self._found(pa.concat_tables([self.empty, *tables]))
            low = high

    def of_the_key(self) -> pa.Table:
        """The rows whose key equals the searched text, from the key group of that key alone. Empty if the key is not
        one text column, or has more rows than are read at once."""
        table = self.empty
        if self.find and self.part.key is None and len(self.names) == 1:
            kind = table.schema.field(self.names[0]).type
            if pa.types.is_string(kind):
                key = OneKey.of([pa.array([self.find], kind)])
                part = replace(self.part, low=key.group, high=key.group + 1, key=key)
                table = pa.concat_tables([table, *self.folded(part)])
        return table if table.num_rows <= _ONE_KEY_ROWS_MAX else self.empty

    def _found(self, table: pa.Table) -> pa.Table:
        if not self.find or not table.num_rows:
            return table
        mask = None
        for name in self.names:
            same = pc.match_substring(_text(table.column(name)), self.find, ignore_case=True)
            same = pc.fill_null(same, False)
            mask = same if mask is None else pc.or_(mask, same)
        return table if mask is None else table.filter(mask)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column
    kind = column.type
    far = (pa.types.is_timestamp(kind) or pa.types.is_date(kind)) and pc.any(beyond_digits(column)).as_py()
    try:
        return column.cast(pa.string()) if not far else _each_as_text(column)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return _each_as_text(column)


def _each_as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([str(value) for value in readable_list(column)], pa.string())])


def reading(job: Shown, wanted: Wanted) -> StateReading:
    """What to read. NeedsPipeline if no pipeline is given."""
    pipeline = job.pipeline
    if pipeline is None:
        url = place_text(job.storage.url)
        raise NeedsPipeline(
            f"{url}: a state is read with the monoid of its task, and only a URL was given. Start the page with the "
            "pipeline: persistent serve FILE.py:NAME"
        )
    if wanted.at is not None and wanted.as_of:
        raise InvalidPipeline("at names a checkpoint, as_of a clock: give one of them")
    place = job.place(wanted.at)
    name = chosen(pipeline, place.manifest, wanted.name)
    node, part = checked_node(pipeline, place, name), StatePart()
    if wanted.as_of:
        clock = _instant(wanted.as_of, "as_of")
        place = Place(job.storage, checkpoint_as_of(job.log, node.task, {node.name: node.state}, clock), place.at)
        node, part = checked_node(pipeline, place, name), StatePart(as_of=clock)
    if wanted.window:
        start = _instant(wanted.window, "window")
        check_window(pipeline, place, start, name)
        assert node.state.window is not None
        part = replace(part, window=int(node.state.window.last_number(start)))
    if wanted.key is not None:
        key = one_key(key_names(node.task), place.manifest.nodes[node.id].key_types, wanted.key)
        part = replace(part, low=key.group, high=key.group + 1, key=key)
    return StateReading(node, place, part, wanted.find, names_of(pipeline))


def chosen(pipeline: Pipeline, manifest: Manifest, name: str) -> str:
    """The state to read: ``name``, or if that is empty the first state of the pipeline that the manifest has."""
    nodes = pipeline.job().nodes
    there = [node.name for id, node in nodes.items() if id in manifest.nodes]
    return name or [*there, *(node.name for node in nodes.values())][0]


def names_of(pipeline: Pipeline) -> tuple[str, ...]:
    """The names of the states of the pipeline; none if its only one has no name."""
    return tuple(name for name in pipeline.job().states if name != STATE)


def _instant(text: str, name: str) -> int:
    """A time as the page writes it: ``2024-05-06 10:00:00Z``, or ms since the epoch."""
    try:
        return instant_ms(text.strip().replace(" ", "T", 1), name)
    except ValueError as error:
        raise InvalidPipeline(f"{error}: write it as 2024-05-06 10:00Z") from error


def key_of(text: str) -> tuple[str | None, ...] | None:
    """The texts of a key, from JSON: one value, or a list of them; null is a key too. None without a key."""
    if not text:
        return None
    try:
        decoded = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidPipeline(f"the key {text!r} is no JSON: {error}") from error
    values = decoded if isinstance(decoded, list) else [decoded]
    if not values or not all(value is None or isinstance(value, str) for value in values):
        raise InvalidPipeline(f"the key {text!r} must be one text for each key column, or null")
    return tuple(values)


def one_key(names: Sequence[str], types: Sequence[str], values: Sequence[str | None]) -> OneKey:
    """A key given as text, in the types of its columns."""
    if len(values) != len(names):
        expected = f"the key is ({', '.join(names)}): give {len(names)}" if names else "the task has no key"
        raise InvalidPipeline(f"the given key has {len(values)} values, but {expected}")
    if len(types) < len(names):
        raise InvalidPipeline("no record has been counted yet, so no key is known")
    return OneKey.of([_column(*column) for column in zip(values, names, types)])


def _column(value: str | None, name: str, kind: str) -> pa.Array:
    type_: Any = type_of(kind)
    try:
        return from_text(pa.array([value], pa.string()), type_)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidPipeline(f"the key {value!r}: column {name} holds {kind}: {error}") from error
