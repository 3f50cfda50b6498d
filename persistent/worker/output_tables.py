"""An output table has one row per key, or per key and window, in the columns that readers see.

<key>...  window_start  window_end  <field>... or value               of a state with windows
<key>...  <field>... or value  revision                               of a state without: the largest revision wins
<key>...  window_start  window_end  <field>... or value  revision     of everything(): the borders are null
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from monoids import Monoid
from monoids.groupby.summing import GroupSums
from persistent.errors import InvalidPipeline
from persistent.state import PersistentState
from persistent.window import AnyWindow

START, END, REVISION = "window_start", "window_end", "revision"
TIMESTAMP = pa.timestamp("ms", "UTC")


def check_names(state: PersistentState, key_names: Sequence[str]) -> None:
    """InvalidPipeline if two output columns would share a name."""
    borders, revision = (START, END) if state.has_borders else (), () if state.window else (REVISION,)
    names = [*key_names, *borders, *revision, *state.monoid.output_fields()]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidPipeline(
            f"the output would have two columns named {twice[0]!r} (its columns: {', '.join(names)}): rename the field "
            'of the record, or give the key another name with key = {"other": lambda message: message.value[...]}'
        )


def output_key(key_names: Sequence[str], window: AnyWindow | None) -> tuple[str, ...]:
    """The columns that identify the rows of a checkpoint."""
    return (*key_names, START, END) if window else tuple(key_names)


def window_outputs(
    monoid: Monoid[Any],
    key_names: Sequence[str],
    key_types: Sequence[pa.DataType],
    window: AnyWindow,
    rows: GroupSums,
) -> pa.Table:
    """One row per (key, window); ``rows.panes`` are the starts of the windows."""
    columns = _key_columns(key_names, key_types, rows)
    columns[START] = pa.array(rows.panes).cast(TIMESTAMP)
    columns[END] = pa.array(window.ends(rows.panes)).cast(TIMESTAMP)
    return pa.table({**columns, **monoid.present_fields(rows.columns)})


def key_outputs(
    state: PersistentState,
    key_names: Sequence[str],
    key_types: Sequence[pa.DataType],
    rows: GroupSums,
    revision: int | None,
) -> pa.Table:
    """One row per key; ``revision``: of the publishing checkpoint."""
    columns = _key_columns(key_names, key_types, rows)
    if state.has_borders:
        columns[START] = columns[END] = pa.nulls(len(rows), TIMESTAMP)
    columns |= state.monoid.present_fields(rows.columns)
    if revision is not None:
        columns[REVISION] = pa.repeat(pa.scalar(revision, pa.int64()), len(rows))
    return pa.table(columns)


def empty_outputs(state: PersistentState, key_names: Sequence[str], key_types: Sequence[pa.DataType]) -> pa.Table:
    """No rows, in the columns of the outputs."""
    fields = [(name, key_types[i] if i < len(key_types) else pa.null()) for i, name in enumerate(key_names)]
    if state.has_borders:
        fields += [(START, TIMESTAMP), (END, TIMESTAMP)]
    return pa.schema([*fields, *state.monoid.output_fields().items()]).empty_table()


def _key_columns(key_names: Sequence[str], key_types: Sequence[pa.DataType], rows: GroupSums) -> dict[str, Any]:
    return {name: column.cast(type_) for name, column, type_ in zip(key_names, rows.keys, key_types)}
