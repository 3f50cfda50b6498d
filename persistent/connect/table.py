"""A table sink writes rows and their mark into tables of a database: what SQLite and PostgreSQL share.

The table is created for the outputs, checked against them, or refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import pyarrow as pa

from persistent.connect.formats.json_rows import REVISION, with_revision
from persistent.connect.marked import MarkedSink, Moved, SinkMark, T, claimed
from persistent.connect.sink import Claim, Known, Looked, OutputBatch, RefusedKeys, Retreat
from persistent.connect.sql import (
    INCOMING,
    MARKS,
    Statements,
    check_kept,
    check_keys,
    check_taken,
    check_unclaimed,
    columns_of,
    default_of,
    gone,
    images_name,
    no_unique_index,
    nulls_refused,
    quoted,
    times_refused,
    wrong_column,
)

ANOTHER_TABLE = "Give the sink another table"


class Database(Protocol):
    """A connection, in a transaction."""

    def execute(self, statement: str, words: Any = ..., /) -> Any:
        """The cursor of a statement with these parameters."""


D = TypeVar("D", bound=Database)


@dataclass(frozen=True)
class TableMark(SinkMark):
    """``made``: whether the table exists, or once existed, as this job's; ``kept_from``: the newest batch that can no
    longer be taken back."""

    made: bool
    kept_from: int


@dataclass(frozen=True)
class SinkTable(ABC, Generic[D]):
    """``name`` in ``schema`` (empty, or one name). ``mode``: of the sink; ``place``: the database, for errors.

    ``parameter``: in a statement; ``lock``: what makes a SELECT lock its rows until the transaction ends.
    """

    place: str
    name: str
    mode: str
    schema: tuple[str, ...] = ()

    parameter: ClassVar[str] = "?"
    insert: ClassVar[str] = "INSERT"
    lock: ClassVar[str] = ""

    def beside(self, name: str) -> str:
        """The name, in statements, of a table in its schema."""
        return quoted(*self.schema, name)

    @property
    def target(self) -> str:
        """Its name in statements."""
        return self.beside(self.name)

    @property
    def images_name(self) -> str:
        """The name of the table of replaced rows."""
        return images_name(self.name)

    def statements(self, columns: Iterable[str] = (), key: Iterable[str] = ()) -> Statements:
        """The statements for these columns of the table."""
        return Statements(self.target, self.beside(self.images_name), tuple(columns), tuple(key), self.insert)

    @abstractmethod
    def number(self, database: D, name: str) -> int | None:
        """The number that the database has given to a table in this schema; None if it does not exist."""

    def make(self, database: D, columns: pa.Schema, key: Sequence[str]) -> None:
        """Create the table. Moved if another writer has done so."""
        database.execute(self.creation(columns, key))

    def creation(self, columns: pa.Schema, key: Sequence[str]) -> str:
        """The statement that creates the table."""
        lines = [f"{quoted(field.name)} {self._new(field, key)}{default_of(columns, field.name)}" for field in columns]
        if self.mode == "upsert":
            lines.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
        return f"CREATE TABLE {self.target} ({', '.join(lines)})"

    def check(self, database: D, columns: pa.Schema, key: Sequence[str]) -> bool:
        """Whether the table exists. SinkMismatch if it has another shape, or cannot hold the outputs."""
        if not self._is_one(database):
            return False
        kinds = self._columns(database, self.name)
        for field in columns:
            self._check_column(
                field, {name: kind for name, (kind, _) in kinds.items()}, default_of(columns, field.name)
            )
        for name, (kind, is_wanted) in kinds.items():
            if is_wanted and name not in columns.names and len(columns) > 1:
                text = f"{kind} NOT NULL without a default"
                raise wrong_column(str(self), name, text, "to omit it", self._omission(name))
        self._check_columns(database, columns, key)
        if self.mode == "upsert" and set(key) not in self._unique(database):
            raise no_unique_index(str(self), self.name, self.target, key)
        self.check_obeys(database)
        return True

    def check_obeys(self, database: D) -> None:
        """SinkMismatch if something in the database can drop or change the rows. Checked again after rows were written:
        from then on the transaction keeps others from changing the table."""

    def highest_revision(self, database: D) -> int:
        """The highest revision of its rows; 0 without one."""
        (revision,) = database.execute(f"SELECT max({quoted(REVISION)}) FROM {self.target}").fetchone()
        return int(revision or 0)

    def fit_images(self, database: D, columns: Sequence[str] = ()) -> tuple[tuple[str, ...], bool]:
        """Create the table of replaced rows, or add ``columns`` to those of earlier outputs. Returns the columns that
        the target has too, and whether the table existed. They get types that leave values unchanged."""
        kinds = {name: self._image(kind) for name, (kind, _) in self._columns(database, self.name).items()}
        image_kinds = {name: kind for name, (kind, _) in self._columns(database, self.images_name).items()}
        images = self.beside(self.images_name)
        if not image_kinds:
            for statement in self._images_creation(images):
                database.execute(statement)
        shared = [column for column in kinds if column in image_kinds or column in columns]
        for column in shared:
            place, kind = quoted(column), kinds[column]
            if column not in image_kinds:
                database.execute(f"ALTER TABLE {images} ADD COLUMN {place} {kind}".rstrip())
            elif image_kinds[column] != kind:
                database.execute(f"ALTER TABLE {images} ALTER COLUMN {place} TYPE {kind} USING {place}::{kind}")
        return tuple(shared), bool(image_kinds)

    @abstractmethod
    def _new(self, field: pa.Field, key: Sequence[str]) -> str:
        """The type of a new column."""

    @abstractmethod
    def _image(self, kind: str) -> str:
        """The type, in the table of replaced rows, of a column of this type."""

    @abstractmethod
    def _images_creation(self, images: str) -> Sequence[str]:
        """The statements that create the table of replaced rows."""

    @abstractmethod
    def _is_one(self, database: D) -> bool:
        """Whether it exists. SinkMismatch if it is not a table."""

    @abstractmethod
    def _columns(self, database: D, name: str) -> dict[str, tuple[str, bool]]:
        """The type of each column of a table in this schema, and whether an INSERT must give a value."""

    @abstractmethod
    def _check_column(self, field: pa.Field, kinds: dict[str, str], default: str) -> None:
        """SinkMismatch for a column that is missing, or cannot hold the values of ``field``."""

    @abstractmethod
    def _check_columns(self, database: D, columns: pa.Schema, key: Sequence[str]) -> None:
        """SinkMismatch for columns in which the database puts other values, or confuses keys."""

    @abstractmethod
    def _omission(self, name: str) -> str:
        """What to do about a column that the outputs lack."""

    @abstractmethod
    def _unique(self, database: D) -> list[set[str]]:
        """The column sets of the unique indexes."""


class TableSink(MarkedSink[D, TableMark]):
    """A sink that adds rows to a table, or replaces the rows of a key, and takes them back in place."""

    limits_keys = True
    abilities = frozenset({"look", "newest", "retract"})
    _incoming: ClassVar[str]
    _temporary: ClassVar[str] = ""
    """The name, in statements, of the temporary table of incoming rows, and when it ends."""

    def __init__(self, table: str, made: SinkTable[D]) -> None:
        self.table = table
        self.mode = made.mode
        self.replaces = made.mode == "upsert"
        self._table = made
        self._claimed = pa.schema([])
        # The number of the table that is checked, with the columns and the key: so far, and in a transaction.
        self._checked: tuple[Any, ...] | None = None
        self._made: tuple[Any, ...] | None = None

    @abstractmethod
    def _transact(self, what: str, act: Callable[[D], T], *, changes: bool = True) -> T: ...

    @abstractmethod
    def _insert(self, database: D, target: str, outputs: pa.Table, key: tuple[str, ...]) -> int:
        """Insert outputs; returns how many rows the table has accepted."""

    @abstractmethod
    def _check_columns(self, columns: pa.Schema, key: tuple[str, ...]) -> None:
        """InvalidPipeline for columns that no table can have."""

    @abstractmethod
    def _check_values(self, outputs: pa.Table) -> None:
        """InvalidPipeline for values that no table can hold."""

    def _prepare(self, database: D) -> None:
        """Called first when the table is claimed."""

    def claim(self, claim: Claim) -> None:
        """Claim the table for a job, and check its columns. SinkMismatch, StorageError, InvalidPipeline."""
        columns = columns_of(claim.schema, claim.key, self.mode, repr(self))
        self._check_columns(columns, claim.key)

        def act(database: D) -> None:
            self._prepare(database)
            prior = self._mark(database)
            mark = claimed(prior, claim, repr(self))
            copied = mark if prior is not None else SinkMark(claim.job, claim.inherited)
            is_there = self._is_there(database, prior, copied.number, columns, claim.key)
            if prior is None and is_there and self._table.highest_revision(database):
                # Rows without a mark are a copy of the table of the job that this one started from.
                mark = copied
            self._move(database, prior, mark, made=is_there)

        self._checked, self._claimed, self._made = None, columns, None
        self._transact("claim", act)

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """InvalidPipeline for a value that the database cannot hold, in the key of an upsert also a null."""
        self._check_columns(outputs.schema, key)
        check_keys(self.refused_keys(outputs.select(key)))
        self._check_values(outputs)

    def refused_keys(self, keys: pa.Table) -> RefusedKeys:
        """A time outside the years 1 to 9999; of an upsert also a null."""
        yield from times_refused(keys, repr(self))
        if self.mode == "upsert":
            yield from nulls_refused(keys, repr(self))

    def retract(self, retreat: Retreat) -> None:
        """Take back what came after a rollback. Fenced, StorageError; InvalidPipeline if it goes too far back."""
        self._retreat(retreat)

    def look(self, known: Known, on_progress: Callable[[int, int], None]) -> Iterator[Looked]:
        """Look whether the table still exists. StorageError."""

        def act(database: D) -> bool:
            mark = self._read(database, "")
            return mark is not None and mark.made and self._table.number(database, self._table.name) is None

        if self._transact("look at", act, changes=False):
            yield Looked(
                str(self._table), fault="is gone, although this job has published there. Restore it from a copy"
            )

    @property
    def _marks(self) -> str:
        return self._table.beside(MARKS)

    def _seen(self) -> SinkMark | None:
        return self._transact("read", partial(self._read, lock=""), changes=False)

    def _mark(self, place: D, batch: OutputBatch | None = None) -> TableMark | None:
        # Before anything is deleted the mark is locked: earlier commits are seen, and later ones find it moved. But
        # slow writes must not hold the mark, which a stopped driver would withhold from its successor.
        return self._read(place, self._table.lock if batch is None else "")

    def _read(self, database: D, lock: str) -> TableMark | None:
        """The mark. If the mode has changed, rows of the earlier mode cannot be taken back."""
        if self._table.number(database, MARKS) is None:
            return None
        p = self._table.parameter
        columns = f"job, number, made, CASE WHEN mode = {p} THEN kept_from ELSE number END"
        statement = f"SELECT {columns} FROM {self._marks} WHERE target = {p}{lock}"
        row = database.execute(statement, [self.mode, self._table.name]).fetchone()
        return None if row is None else TableMark(*row)

    def _move(self, place: D, prior: TableMark | None, mark: SinkMark, *, made: bool = False) -> None:
        """Move the mark from ``prior``. Moved unless one row changes: another writer was first. ``made``: the table
        exists, and belongs to this job. If the mode has changed, rows of the earlier mode cannot be taken back."""
        name, p = self._table.name, self._table.parameter
        if prior is None:
            statement = f"INSERT INTO {self._marks} VALUES ({p}, {p}, {p}, {p}, 0, {p}) ON CONFLICT DO NOTHING"
            words = [name, mark.job, mark.number, self.mode, made]
        else:
            statement = (
                f"UPDATE {self._marks} SET job = {p}, number = {p}, mode = {p}, made = made OR {p}, "
                f"kept_from = CASE WHEN mode = {p} THEN kept_from WHEN {p} THEN number ELSE 0 END "
                f"WHERE target = {p} AND job = {p} AND number = {p}"
            )
            words = [mark.job, mark.number, self.mode, made, self.mode, made, name, prior.job, prior.number]
        if place.execute(statement, words).rowcount != 1:
            raise Moved

    def _keep_from(self, database: D, number: int) -> None:
        name, p = self._table.name, self._table.parameter
        statement = f"UPDATE {self._marks} SET kept_from = {p} WHERE target = {p} AND kept_from < {p}"
        database.execute(statement, [number, name, number])

    def _write(self, place: D, prior: TableMark | None, batch: OutputBatch) -> None:
        """Write the rows of a batch, then move the mark."""
        # What an earlier attempt has made is rolled back.
        self._made, table, rows = self._checked, self._table, 0
        names: tuple[str, ...] = ()
        for outputs in batch.tables():
            columns = columns_of(outputs.schema, batch.key, self.mode, repr(self))
            self._ready(place, prior, columns, batch)
            if self.mode == "upsert" and not names:
                like = f"SELECT {', '.join(map(quoted, columns.names))} FROM {table.target} LIMIT 0"
                place.execute(f"CREATE TEMP TABLE {quoted(INCOMING)}{self._temporary} AS {like}")
            names = tuple(columns.names)
            target = self._incoming if self.mode == "upsert" else table.target
            taken = self._insert(place, target, with_revision(outputs, batch.number), batch.key)
            check_taken(str(table), taken, outputs.num_rows, self.mode)
            rows += taken
        self._move(place, prior, SinkMark(batch.job, batch.number), made=bool(names))
        if names and self.mode == "upsert":
            taken = self._merge(place, prior, table.statements(names, batch.key), batch)
            check_taken(str(table), taken, rows, self.mode)
        if names:
            table.check_obeys(place)

    def _merge(self, database: D, prior: TableMark | None, statements: Statements, batch: OutputBatch) -> int:
        """Upsert the incoming rows, and keep those that they replace. Returns how many rows were written."""
        shared, was_there = self._table.fit_images(database, statements.columns)
        database.execute(self._table.statements(shared, batch.key).save(self._incoming, batch.number))
        if not was_there:
            # Whether and what the batches of the rows in the table have replaced is unknown.
            self._keep_from(database, self._table.highest_revision(database))
        taken = database.execute(statements.upsert(self._incoming, shared)).rowcount
        if batch.oldest > (0 if prior is None else prior.kept_from):
            database.execute(statements.forget(batch.oldest))
            self._keep_from(database, batch.oldest)
        return int(taken)

    def _take_back(self, place: D, prior: TableMark | None, retreat: Retreat) -> None:
        first, table = retreat.first, self._table
        if first is not None and table.number(place, table.name) is None:
            self._check_not_gone(prior, self._claimed, retreat.key)
        elif first is not None:
            check_kept(0 if prior is None else prior.kept_from, retreat, repr(self))
            if self.mode == "append":
                place.execute(table.statements().take_back(first))
            elif table.number(place, table.images_name) is not None:
                for statement in table.statements(table.fit_images(place)[0], retreat.key).restore(first):
                    place.execute(statement)
            elif table.highest_revision(place) >= first:
                check_kept(retreat.number, retreat, repr(self))
            table.check_obeys(place)
        self._move(place, prior, SinkMark(retreat.job, retreat.number))

    def _ready(self, database: D, prior: TableMark | None, columns: pa.Schema, batch: OutputBatch) -> None:
        """Make the table or check it, unless it was checked for such rows before."""
        table, key = self._table, batch.key
        number = table.number(database, table.name)
        if number is not None and self._made == (number, columns, key):
            return
        if not self._is_there(database, prior, batch.before, columns, key):
            table.make(database, columns, key)
            number = table.number(database, table.name)
        self._made = (number, columns, key)

    def _is_there(
        self, database: D, mark: TableMark | None, number: int, columns: pa.Schema, key: tuple[str, ...]
    ) -> bool:
        """Whether the table exists, for rows after batch ``number``. SinkMismatch if it is not as it should be."""
        table = self._table
        if not table.check(database, columns, key):
            self._check_not_gone(mark, columns, key)
            return False
        if self._made is None and (mark is None or not mark.made):
            check_unclaimed(str(table), table.target, table.highest_revision(database), number)
        return True

    def _check_not_gone(self, mark: TableMark | None, columns: pa.Schema, key: tuple[str, ...]) -> None:
        if mark is not None and mark.made:
            raise gone(str(self._table), mark.number, self._table.creation(columns, key), self.mode)
