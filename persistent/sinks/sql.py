"""The statements of a table of outputs, of the rows that it replaced and of its mark, in the SQL that SQLite and
PostgreSQL share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from persistent.errors import InvalidPipeline, StorageError
from persistent.sinks.protocol import Retreat

REVISION = "revision"
MARKS = "persistent_marks"
BATCH = "persistent_batch"
_ORDER = "persistent_order"
MODES = ("append", "upsert")


def quoted(*parts: str) -> str:
    """An identifier, whatever is in it.

    >>> quoted("public", 'odd "name"')
    '"public"."odd ""name\"""'
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def images_name(table: str) -> str:
    """The table of the rows that ``table`` held before they were replaced."""
    return f"persistent_before_{table}"


def checked_mode(mode: str, kind: str) -> str:
    """``mode``, if it is one; else InvalidPipeline."""
    if mode not in MODES:
        raise InvalidPipeline(f"{kind} mode={mode!r}: choose one of {', '.join(MODES)}")
    return mode


@dataclass(frozen=True)
class Statements:
    """``target`` and ``images``, quoted; ``columns`` of the target, and those of its ``key``."""

    target: str
    images: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> str:
        """The columns, quoted."""
        return _list(self.columns)

    def take_back(self, first: int) -> str:
        """Delete appended rows of the batches from ``first`` on."""
        return f"DELETE FROM {self.target} WHERE {quoted(REVISION)} >= {first}"

    def save(self, source: str, number: int) -> str:
        """Keep what the rows of ``source`` will replace; a revision of null says that there was no row."""
        values = [self._image(name) for name in self.columns]
        same = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in self.key)
        return (
            f"INSERT INTO {self.images} ({quoted(BATCH)}, {self.names}) SELECT {number}, {', '.join(values)} "
            f"FROM {source} s LEFT JOIN {self.target} t ON {same}"
        )

    def upsert(self, source: str) -> str:
        """Put the rows of ``source``; the largest revision of a key wins."""
        newer = f"coalesce({self.target}.{quoted(REVISION)}, 0) <= excluded.{quoted(REVISION)}"
        return f"{self._put(source)} WHERE {newer}"

    def forget(self, oldest: int) -> str:
        """Drop what batches up to ``oldest`` have replaced: they are never taken back."""
        return f"DELETE FROM {self.images} WHERE {quoted(BATCH)} <= {oldest}"

    def restore(self, first: int) -> tuple[str, ...]:
        """Put back what the batches from ``first`` on have replaced: of each key, what the first of them found."""
        keys, since = _list(self.key), f"{quoted(BATCH)} >= {first}"
        numbered = (
            f"SELECT {self.names}, row_number() OVER (PARTITION BY {keys} ORDER BY {quoted(BATCH)}) AS {_ORDER} "
            f"FROM {self.images} WHERE {since}"
        )
        found = f"(SELECT * FROM ({numbered}) AS numbered WHERE {_ORDER} = 1) AS found"
        absent = f"SELECT {keys} FROM {found} WHERE {quoted(REVISION)} IS NULL"
        present = f"(SELECT {self.names} FROM {found} WHERE {quoted(REVISION)} IS NOT NULL) AS present"
        return (
            f"DELETE FROM {self.target} WHERE ({keys}) IN ({absent})",
            self._put(present),
            f"DELETE FROM {self.images} WHERE {since}",
        )

    def _image(self, name: str) -> str:
        if name == REVISION:
            # A row that others put there has none, and yet it was there.
            return f"CASE WHEN t.{quoted(self.key[0])} IS NOT NULL THEN coalesce(t.{quoted(name)}, 0) END"
        return f"{'s' if name in self.key else 't'}.{quoted(name)}"

    def _put(self, source: str) -> str:
        changed = [quoted(name) for name in self.columns if name not in self.key]
        values = ", ".join(f"{name} = excluded.{name}" for name in changed)
        return (
            f"INSERT INTO {self.target} ({self.names}) SELECT {self.names} FROM {source} WHERE true "
            f"ON CONFLICT ({_list(self.key)}) DO UPDATE SET {values}"
        )


def with_revision(table: pa.Table, number: int) -> pa.Table:
    """The outputs as they stand in the table: with the number of their batch as ``revision``, where they lack it."""
    if REVISION in table.column_names:
        return table
    return table.append_column(REVISION, pa.repeat(pa.scalar(number, pa.int64()), table.num_rows))


def columns_of(schema: pa.Schema, key: Sequence[str], mode: str, place: str) -> pa.Schema:
    """The columns of the table for outputs of this schema. InvalidPipeline if they or the mode cannot be."""
    if mode == "upsert" and not key:
        raise InvalidPipeline(
            f'{place}: mode="upsert" replaces the row of a key and window, and this task has neither: use mode="append"'
        )
    if REVISION not in schema.names:
        return schema.append(pa.field(REVISION, pa.int64()))
    if "window_start" in key:
        raise InvalidPipeline(
            f"{place}: the outputs have a column {REVISION!r}, and the table needs it for the number of the batch that "
            "wrote a row: rename the field of the record, or the key"
        )
    return schema


def check_keys(outputs: pa.Table, key: Sequence[str], place: str) -> None:
    """InvalidPipeline for a key that is null: no two of them are the same, so none is ever replaced."""
    for name in key:
        if outputs.column(name).null_count:
            raise InvalidPipeline(
                f"{place}: {outputs.column(name).null_count} of {outputs.num_rows} rows have a null in the key column "
                f'{name!r}, which mode="upsert" cannot replace: give the key another value in the task, or use '
                'mode="append"'
            )


def check_kept(kept_from: int, retreat: Retreat, place: str) -> None:
    """InvalidPipeline if the rollback takes back a batch up to ``kept_from``: what that replaced is gone."""
    if retreat.first is not None and retreat.first <= kept_from:
        raise InvalidPipeline(
            f"{place}: what was published up to batch {kept_from} can no longer be taken back, and the rollback goes "
            f"back behind {retreat.first}. Go back once more with 'persistent rollback {retreat.url} {retreat.id} "
            "--outputs=again': then the rows that follow replace those, or are added to them"
        )


def wrong_column(place: str, name: str, found: str, expected: str, remedy: str) -> StorageError:
    """The error for a table of another shape."""
    return StorageError(f"{place}: column {name!r} is {found}, and the outputs need {expected}. {remedy}")


def no_unique_index(place: str, table: str, target: str, key: Sequence[str]) -> StorageError:
    """The error for a table in which an upsert cannot find the row to replace. ``target``: the table, quoted."""
    return StorageError(
        f'{place} has no unique index of the key ({", ".join(key)}), by which mode="upsert" finds the row to replace. '
        f"Make one: CREATE UNIQUE INDEX {quoted(f'{table}_key')} ON {target} ({_list(key)})"
    )


def _list(names: Sequence[str]) -> str:
    return ", ".join(quoted(name) for name in names)
