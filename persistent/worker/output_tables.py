"""An output table has one row per key, or per key and window, in the columns that readers see.

<key>...  window_start  window_end  <field>... or value               of a state with windows
<key>...  window_start  window_end  <field>... or value  revision     of one that allows lateness, or names an answer
                                                         retracted    unless it publishes each window once: true in a
                                                                      row that takes back the one before it
<key>...  <field>... or value  revision  retracted                    of a state without: the largest revision wins
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids import Monoid
from monoids.groupby.sorting import Mask
from monoids.groupby.summing import GroupSums
from persistent.connect.sink import NUMBERED, Sink
from persistent.errors import InvalidPipeline
from persistent.state.rows import ends_of, presented_fields, values_of
from persistent.state.state import PersistentState
from persistent.time.lateness import FINAL, RETRACT
from persistent.time.window import AnyWindow

START, END, REVISION, RETRACTED = "window_start", "window_end", "revision", "retracted"
TIMESTAMP = pa.timestamp("ms", "UTC")

Marks = Mapping[pa.Field, int | bool]
"""The columns after the values of a row, and what they hold in every row: see ``marks_of``."""


def marks_of(state: PersistentState, revision: int, *, retracted: bool = False) -> Marks:
    """The marks of the rows of a state that a checkpoint of this ``revision`` publishes. ``retracted``: they take back
    earlier ones."""
    if state.window is not None and state.lateness.answer is None:
        return {}
    metadata = None if state.window is None else NUMBERED
    marks: dict[pa.Field, int | bool] = {pa.field(REVISION, pa.int64(), metadata=metadata): revision}
    is_final = state.lateness.emit == FINAL
    return marks if is_final else marks | {pa.field(RETRACTED, pa.bool_()): retracted}


def check_names(state: PersistentState, key_names: Sequence[str]) -> None:
    """InvalidPipeline if two output columns would share a name."""
    names = output_names(state, key_names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidPipeline(
            f"the output would have two columns named {twice[0]!r} (its columns: {', '.join(names)}): rename the field "
            'of the record, or give the key another name with key = {"other": lambda message: message.value[...]}'
        )


def output_names(state: PersistentState, key_names: Sequence[str]) -> list[str]:
    """The names of the output columns."""
    monoid, borders = state.monoid, (START, END) if state.window else ()
    return [*key_names, *borders, *values_of(monoid).output_fields(), *(mark.name for mark in marks_of(state, 0))]


def output_key(state: PersistentState, key_names: Sequence[str], sink: Sink) -> tuple[str, ...]:
    """The columns that identify each row that a checkpoint gives to a sink: see ``newest_rows``."""
    retracted = (RETRACTED,) if state.lateness.answer == RETRACT and not sink.replaces else ()
    return (*key_names, START, END, *retracted) if state.window else (*key_names, *retracted)


def newest_rows(outputs: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows for a sink that keeps one row per key and window: the last of each. In one revision, the new row of a
    window counts as later than the row that takes the old one back, whatever their order in ``outputs``. Outputs in
    which nothing is taken back stay as they are: they have one row per key and window already."""
    names = outputs.schema.names
    takes_back = names[-2:] == [REVISION, RETRACTED] and outputs.schema.field(REVISION).metadata == NUMBERED
    if not takes_back or not pc.any(outputs[RETRACTED]).as_py():
        return outputs
    order = np.asarray(pc.sort_indices(outputs, sort_keys=[(REVISION, "ascending"), (RETRACTED, "descending")]))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    keys = pa.table([*(outputs[name] for name in key), pa.array(places)], [*map(str, range(len(key))), "place"])
    last = keys.group_by(keys.column_names[:-1]).aggregate([("place", "max")])["place_max"].to_numpy()
    return outputs if len(last) == len(order) else outputs.take(pa.array(np.sort(order[last])))


def window_outputs(
    monoid: Monoid[Any],
    key_names: Sequence[str],
    key_types: Sequence[pa.DataType],
    window: AnyWindow,
    rows: GroupSums,
    marks: Marks | None = None,
) -> pa.Table:
    """One row per (key, window); ``rows.panes`` are the starts of the windows."""
    columns = _key_columns(key_names, key_types, rows)
    columns[START] = pa.array(rows.panes).cast(TIMESTAMP)
    columns[END] = pa.array(ends_of(window, rows)).cast(TIMESTAMP)
    return _marked(pa.table({**columns, **presented_fields(monoid, rows.columns)}), marks or {})


def key_outputs(
    state: PersistentState,
    key_names: Sequence[str],
    key_types: Sequence[pa.DataType],
    rows: GroupSums,
    marks: Marks | None = None,
) -> pa.Table:
    """One row per key."""
    columns = _key_columns(key_names, key_types, rows)
    columns |= presented_fields(state.monoid, rows.columns)
    return _marked(pa.table(columns), marks or {})


def empty_outputs(
    state: PersistentState, key_names: Sequence[str], key_types: Sequence[pa.DataType], marks: Marks | None = None
) -> pa.Table:
    """No rows, in the columns of the outputs."""
    fields = [(name, key_types[i] if i < len(key_types) else pa.null()) for i, name in enumerate(key_names)]
    if state.window:
        fields += [(START, TIMESTAMP), (END, TIMESTAMP)]
    return pa.schema([*fields, *values_of(state.monoid).output_fields().items(), *(marks or {})]).empty_table()


def equal_rows(before: pa.Table, after: pa.Table) -> Mask:
    """Whether rows are equal but for the mark that they are taken back."""
    same = np.ones(len(after), bool)
    for name in after.column_names:
        if name != RETRACTED:
            same &= equal_values(before[name].combine_chunks(), after[name].combine_chunks())
    return same


def equal_values(before: pa.Array, after: pa.Array) -> Mask:
    """Whether values are equal, row by row. Null equals null, and NaN equals NaN."""
    if pa.types.is_null(before.type) and pa.types.is_null(after.type):
        return np.ones(len(before), bool)
    if pa.types.is_nested(before.type) or before.type != after.type:
        pairs = zip(before.to_pylist(), after.to_pylist(), strict=True)
        return np.array([old == new or repr(old) == repr(new) for old, new in pairs], bool)
    equal = pc.fill_null(pc.equal(before, after), False)
    equal = pc.or_(equal, pc.and_(before.is_null(), after.is_null()))
    if pa.types.is_floating(before.type):
        equal = pc.or_(equal, pc.fill_null(pc.and_(pc.is_nan(before), pc.is_nan(after)), False))
    return np.asarray(equal)


def _marked(outputs: pa.Table, marks: Marks) -> pa.Table:
    for field, value in marks.items():
        outputs = outputs.append_column(field, pa.repeat(pa.scalar(value, field.type), outputs.num_rows))
    return outputs


def _key_columns(key_names: Sequence[str], key_types: Sequence[pa.DataType], rows: GroupSums) -> dict[str, Any]:
    return {name: column.cast(type_) for name, column, type_ in zip(key_names, rows.keys, key_types)}
