"""The SQL statements, common to SQLite and PostgreSQL, for a table of outputs, the rows that it replaced and its
mark.

Column limits are the ranges of values that a database can hold. Workers check them before anything is committed,
because a committed output must be published.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.sorting import Mask
from persistent.connect.formats.json_rows import REVISION
from persistent.connect.sink import NUMBERED, RefusedKeys, Retreat
from persistent.errors import InvalidPipeline, SinkMismatch
from persistent.text.figures import shell_word

RETRACTED = "retracted"
MARKS = "persistent_marks"
BATCH = "persistent_batch"
INCOMING = "persistent_incoming"
_BEFORE = "persistent_before_"
_ORDER = "persistent_order"
MODES = ("append", "upsert")


def quoted(*parts: str) -> str:
    """A quoted identifier.

    >>> quoted("public", 'odd "name"')
    '"public"."odd ""name\"""'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def images_name(table: str) -> str:
    """The table of the rows that ``table`` held before they were replaced."""
    return f"{_BEFORE}{table}"


def check_table_name(name: str, what: str) -> None:
    """InvalidPipeline for a name that the sink uses for its own tables."""
    if name.lower() in (MARKS, INCOMING) or name.lower().startswith(_BEFORE):
        raise InvalidPipeline(f"{what}: {name} is a table of the sink's own: choose another name")


def checked_mode(mode: str, kind: str) -> str:
    """``mode``, if it is valid; otherwise InvalidPipeline."""
    if mode not in MODES:
        raise InvalidPipeline(f"{kind} mode={mode!r}: choose one of {', '.join(MODES)}")
    return mode


@dataclass(frozen=True)
class Statements:
    """``target``, ``images``: the quoted names of the table and of the table of replaced rows; ``columns``: the columns
    of the target; ``key``: its key columns; ``insert``: the verb that prevents rows from being dropped."""

    target: str
    images: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    insert: str = "INSERT"

    @property
    def names(self) -> str:
        """The columns, quoted."""
        return _list(self.columns)

    def take_back(self, first: int) -> str:
        """Delete appended rows of the batches from ``first`` on."""
        return f"DELETE FROM {self.target} WHERE {quoted(REVISION)} >= {first}"

    def save(self, source: str, number: int) -> str:
        """Keep the rows that the rows of ``source`` will replace. Added rows are recognised by their revision."""
        # A row of another program has no revision.
        images = {REVISION: f"coalesce(t.{quoted(REVISION)}, 0)"}
        values = [images.get(name, f"t.{quoted(name)}") for name in self.columns]
        return (
            f"INSERT INTO {self.images} ({quoted(BATCH)}, {self.names}) SELECT {number}, {', '.join(values)} "
            f"FROM {source} s JOIN {self.target} t ON {self._same('t', 's')}"
        )

    def upsert(self, source: str, known: Sequence[str] = ()) -> str:
        """Upsert the rows of ``source``; the largest revision of a key wins. A batch has each key once: the table does
        not take a second row of a key, so that row is missing in the count. ``known``: the columns of these outputs and
        of earlier ones. If ``retracted`` is one of them, and these outputs lack it, a replaced row gets its default, as
        a new row does."""
        newer = f"coalesce({self.target}.{quoted(REVISION)}, 0) < excluded.{quoted(REVISION)}"
        forgotten = [name for name in known if name == RETRACTED and name not in self.columns]
        return f"{self._put(source, forgotten)} WHERE {newer}"

    def forget(self, oldest: int) -> str:
        """Drop the rows that batches up to ``oldest`` have replaced: those batches are never taken back."""
        return f"DELETE FROM {self.images} WHERE {quoted(BATCH)} <= {oldest}"

    def restore(self, first: int) -> tuple[str, ...]:
        """Take back the batches from ``first`` on: the rows from before them return, and their own rows are deleted. A
        row of these batches has a revision from ``first`` on; the first row that they replaced has a lower one."""
        since = f"{quoted(BATCH)} >= {first}"
        before = f"{since} AND {quoted(REVISION)} < {first}"
        numbered = (
            f"SELECT {self.names}, row_number() OVER (PARTITION BY {_list(self.key)} ORDER BY {quoted(BATCH)}) "
            f"AS {_ORDER} FROM {self.images} WHERE {before}"
        )
        first_rows = f"(SELECT {self.names} FROM ({numbered}) AS numbered WHERE {_ORDER} = 1) AS found"
        kept = f"SELECT 1 FROM {self.images} AS s WHERE {before} AND {self._same(self.target, 's')}"
        return (
            f"DELETE FROM {self.target} WHERE {quoted(REVISION)} >= {first} AND NOT EXISTS ({kept})",
            self._put(first_rows),
            f"DELETE FROM {self.images} WHERE {since}",
        )

    def _same(self, left: str, right: str) -> str:
        return " AND ".join(f"{left}.{quoted(name)} = {right}.{quoted(name)}" for name in self.key)

    def _put(self, source: str, defaults: Sequence[str] = ()) -> str:
        # What is not inserted is excluded with its default.
        changed = [quoted(name) for name in (*self.columns, *defaults) if name not in self.key]
        values = ", ".join(f"{name} = excluded.{name}" for name in changed)
        return (
            f"{self.insert} INTO {self.target} ({self.names}) SELECT {self.names} FROM {source} WHERE true "
            f"ON CONFLICT ({_list(self.key)}) DO UPDATE SET {values}"
        )


def columns_of(schema: pa.Schema, key: Sequence[str], mode: str, place: str) -> pa.Schema:
    """The columns of the table for outputs of this schema. InvalidPipeline if they or the mode are not possible."""
    if mode == "upsert" and not key:
        raise InvalidPipeline(
            f'{place}: mode="upsert" replaces the row of a key and window, and this task has neither: use mode="append"'
        )
    if REVISION not in schema.names:
        return schema.append(pa.field(REVISION, pa.int64()))
    if "window_start" in key and schema.field(REVISION).metadata != NUMBERED:
        raise InvalidPipeline(
            f"{place}: the outputs have a column {REVISION!r}, but the table needs it for the number of the batch that "
            "wrote a row: rename the field of the record, or the key"
        )
    return schema


def default_of(columns: pa.Schema, name: str) -> str:
    """The DEFAULT clause of a column of the table, or "". A row counts unless ``retracted``, the last column of outputs
    that have it, is true: so rows count that were written before the outputs had this column, or since they lack it.

    >>> default_of(pa.schema([("page", pa.string()), ("revision", pa.int64()), ("retracted", pa.bool_())]), "retracted")
    ' DEFAULT false'
    """
    return " DEFAULT false" if name == RETRACTED and columns.names[-2:] == [REVISION, RETRACTED] else ""


def check_kept(kept_from: int, retreat: Retreat, place: str) -> None:
    """InvalidPipeline if the rollback takes back a batch up to ``kept_from``: the rows that it replaced are gone."""
    if retreat.first is not None and retreat.first <= kept_from:
        raise InvalidPipeline(
            f"{place}: batches up to {kept_from} can no longer be taken back, and the rollback goes back behind "
            f"{retreat.first}. Roll back again with 'persistent rollback {shell_word(retreat.url)} {retreat.id} "
            "--outputs=again': then the following rows replace those, or are added to them"
        )


def check_unclaimed(place: str, target: str, highest: int, number: int) -> None:
    """SinkMismatch for a table without a mark that has revisions above ``number``, of batches that this job has not
    published: an upsert would leave them unchanged, and a rollback delete them."""
    if highest > number:
        revision = quoted(REVISION)
        raise SinkMismatch(
            f"{place} has rows with a {REVISION} above {number}, up to {highest}, but no mark of the job that "
            "wrote them: they are results of another checkpoint, or a copy of them. Give the sink another table; or "
            f"make them rows of your own: UPDATE {target} SET {revision} = NULL WHERE {revision} > {number}"
        )


def check_taken(place: str, taken: int, rows: int, mode: str) -> None:
    """SinkMismatch if the table has accepted another number of rows than it was given."""
    if taken != rows:
        others = f", or has a higher {REVISION} under the same key, or a key is there twice" if mode == "upsert" else ""
        raise SinkMismatch(
            f"{place} has accepted {taken} of {rows} rows: a trigger drops the others{others}. Nothing of this batch "
            "was written. Remove the cause, then run again: the last checkpoint is good"
        )


def gone(place: str, number: int, creation: str, mode: str) -> SinkMismatch:
    """The error for a table that is gone although its mark exists. ``creation``: the statement that makes it."""
    missing = "keys that no longer change are missing" if mode == "upsert" else "earlier rows are missing"
    return SinkMismatch(
        f"{place} is gone, although its mark shows that this job has published up to batch {number}. Restore it from a "
        "copy as old as the mark. To have all of it again, give the sink another table in a new checkpoint. Or "
        f'continue with an empty one, mode="{mode}", in which {missing}: {creation}'
    )


def wrong_column(place: str, name: str, actual: str, expected: str, remedy: str) -> SinkMismatch:
    """The error for a table of another shape."""
    return SinkMismatch(f"{place}: column {name!r} is {actual}, but the outputs need {expected}. {remedy}")


def no_unique_index(place: str, table: str, target: str, key: Sequence[str]) -> SinkMismatch:
    """The error for a table in which an upsert cannot find the row to replace. ``target``: the table, quoted."""
    return SinkMismatch(
        f'{place} has no unique index on the key ({", ".join(key)}), by which mode="upsert" finds the row to replace. '
        f"Create one: CREATE UNIQUE INDEX {quoted(f'{table}_key')} ON {target} ({_list(key)})"
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)


_DAYS = (-719_162, 2_932_896)
"""The first day of the year 1 and the last of 9999, in days since 1970."""
_SECONDS_A_DAY = 86_400
OTHER_KEY = "give the key another value in the task"
_A_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def leaves(name: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.Array]]:
    """The values of a column that are not nested, under their paths.

    >>> [(name, values.to_pylist()) for name, values in leaves("a", pa.chunked_array([[{"b": [1, 2]}, None]]))]
    [('a.b', [1, 2])]
    """
    for chunk in column.chunks:
        yield from _leaves(name, chunk)


def _leaves(name: str, values: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    kind = values.type
    if pa.types.is_struct(kind):
        for field, child in zip(kind, values.flatten()):
            yield from _leaves(f"{name}.{field.name}", child)
    elif pa.types.is_map(kind):
        # A cast drops the items outside of this slice.
        items = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        yield from _leaves(name, items)
    elif pa.types.is_nested(kind):
        yield from _leaves(name, pc.list_flatten(values))
    elif pa.types.is_dictionary(kind):
        yield name, values.dictionary_decode().drop_null()
    else:
        yield name, values.drop_null()


def check_times(outputs: pa.Table, place: str) -> None:
    """InvalidPipeline for a date or timestamp outside the years 1 to 9999, or a time outside a day: its text would be
    wrong or missing."""
    for name, column in zip(outputs.column_names, outputs.columns):
        for where, values in leaves(name, column):
            bounds = _bounds(values.type)
            if bounds is None or not len(values):
                continue
            low, high, unit = bounds
            numbers = values.view(pa.int64() if values.type.bit_width == 64 else pa.int32())
            extremes = pc.min_max(numbers).as_py()
            for number in extremes.values():
                if not low <= number <= high:
                    what = f"{number} {unit}" if pa.types.is_time(values.type) else f"{number} {unit} since 1970"
                    raise InvalidPipeline(
                        f"{place}: column {where!r} has the {_word(values.type)} of {what}, which is not in "
                        f"{'a day' if pa.types.is_time(values.type) else 'the years 1 to 9999'}: give it another "
                        "value in the task, or None"
                    )


def times_refused(keys: pa.Table, place: str) -> RefusedKeys:
    """The rows of key columns with a date or timestamp outside the years 1 to 9999."""
    for name, column in zip(keys.column_names, keys.columns):
        bounds = _bounds(column.type)
        if bounds is not None:
            low, high, _ = bounds
            numbers = column.cast(pa.int64() if column.type.bit_width == 64 else pa.int32())
            word = _word(column.type)
            yield (
                is_true(pc.or_(pc.less(numbers, low), pc.greater(numbers, high))),
                f"{place}: a {word} outside the years 1 to 9999 in the key column {name!r}: {OTHER_KEY}",
            )


def nulls_refused(keys: pa.Table, place: str) -> RefusedKeys:
    """The rows of key columns with a null: nulls are never equal, so the row would never be replaced."""
    for name, column in zip(keys.column_names, keys.columns):
        if column.null_count:
            yield (
                is_true(column.is_null()),
                f'{place}: a null in the key column {name!r}, which mode="upsert" cannot replace, as no two nulls are '
                f"equal: {OTHER_KEY}",
            )


def is_true(column: pa.Array | pa.ChunkedArray) -> Mask:
    """A column of booleans as a mask of its own; null is False."""
    return np.array(column.fill_null(False), np.bool_)


def check_keys(refused: RefusedKeys) -> None:
    """InvalidPipeline for the first of the refused rows of key columns."""
    for rows, reason in refused:
        if rows.any():
            raise InvalidPipeline(reason)


def _word(kind: pa.DataType) -> str:
    return "time" if pa.types.is_time(kind) else "date" if pa.types.is_date(kind) else "timestamp"


def _bounds(kind: pa.DataType) -> tuple[int, int, str] | None:
    """The smallest and the largest integer of a time type that can be written, and its unit."""
    low, high = _DAYS
    if kind == pa.date32():
        return low, high, "days"
    if kind == pa.date64() or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        unit = "ms" if kind == pa.date64() else kind.unit
        day = _SECONDS_A_DAY * _A_SECOND[unit]
        return (0, day - 1, unit) if pa.types.is_time(kind) else (low * day, (high + 1) * day - 1, unit)
    return None


def check_distinct(names: Sequence[str], place: str) -> None:
    """InvalidPipeline for two names that differ only in case.

    >>> check_distinct(["page", "value"], "t")
    """
    seen: dict[str, str] = {}
    for name in names:
        first_name = seen.setdefault(name.lower(), name)
        if first_name != name:
            raise InvalidPipeline(
                f"{place}: the columns {first_name!r} and {name!r} are the same to SQLite: rename a field of the "
                "record, or the key"
            )
