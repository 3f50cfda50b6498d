"""A PostgreSQL table of a sink: created for the outputs, checked against them, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from persistent.connect.marked import Moved
from persistent.connect.postgres.columns import fits, short_name, type_of
from persistent.connect.postgres.session import Session
from persistent.connect.sql import BATCH, images_name, quoted, wrong_column
from persistent.connect.table import ANOTHER_TABLE, SinkTable
from persistent.errors import SinkMismatch

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type"}
LOCK = 0x7065727369737401
"""The advisory lock for creating tables."""
_TREE = "(SELECT to_regclass(%(table)s) AS oid UNION SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)))"
"""The table and its partitions."""


@dataclass(frozen=True)
class PostgresTable(SinkTable[Session]):
    """A table on the server ``place``."""

    parameter: ClassVar[str] = "%s"
    lock: ClassVar[str] = " FOR UPDATE"

    def __str__(self) -> str:
        return f"{self.place}: table {'.'.join((*self.schema, self.name))}"

    @property
    def images_name(self) -> str:
        """The name of the table of replaced rows."""
        return short_name(images_name(self.name))

    def number(self, database: Session, name: str) -> int | None:
        """The server's number of a table in this schema; None if it does not exist."""
        (number,) = database.execute("SELECT to_regclass(%s)::oid::bigint", [self.beside(name)]).fetchone()
        return None if number is None else int(number)

    def make(self, database: Session, columns: pa.Schema, key: Sequence[str]) -> None:
        """Create the table. Moved if another writer has done so."""
        database.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        if self.number(database, self.name) is not None:
            raise Moved
        super().make(database, columns, key)

    def check_obeys(self, database: Session) -> None:
        """SinkMismatch if something on the server can drop or change the rows. Checked again after rows were written:
        from then on the transaction keeps others from changing the table."""
        # BEFORE and FOR EACH ROW; of INSERT or DELETE, or UPDATE too.
        events = 28 if self.mode == "upsert" else 12
        hazards = (
            "SELECT 'the trigger ' || tgname || ', which may drop or change rows', 'Make it an AFTER trigger' "
            f"FROM pg_trigger WHERE tgrelid IN {_TREE} AND NOT tgisinternal AND tgenabled <> 'D' "
            f"AND tgtype & 3 = 3 AND tgtype & {events} <> 0",
            "SELECT 'the rule ' || rulename || ', which COPY ignores', 'Make it an AFTER trigger' "
            "FROM pg_rewrite WHERE ev_class = to_regclass(%(table)s) AND ev_enabled <> 'D'",
            "SELECT 'row-level security, which hides rows from this user', "
            f"'Let it pass: ALTER ROLE ' || quote_ident(current_user) || ' BYPASSRLS' FROM {_TREE} AS tree "
            "WHERE row_security_active(oid)",
        )
        hazard = database.execute(f"{' UNION ALL '.join(hazards)} LIMIT 1", {"table": self.target}).fetchone()
        if hazard is not None:
            raise SinkMismatch(f"{self} has {hazard[0]}. {hazard[1]}; or give the sink another table")

    def _new(self, field: pa.Field, key: Sequence[str]) -> str:
        # The scale of a decimal key can grow, and the key stays the same.
        return "numeric" if pa.types.is_decimal(field.type) and field.name in key else type_of(field.type)

    def _image(self, kind: str) -> str:
        return kind

    def _images_creation(self, images: str) -> Sequence[str]:
        batch = quoted(BATCH)
        return f"CREATE TABLE {images} ({batch} bigint NOT NULL)", f"CREATE INDEX ON {images} USING brin ({batch})"

    def _omission(self, name: str) -> str:
        remedy = f"Allow nulls: ALTER TABLE {self.target} ALTER COLUMN {quoted(name)} DROP NOT NULL"
        return f"{remedy}; or give it a default"

    def _is_one(self, database: Session) -> bool:
        """Whether it exists. SinkMismatch if it is not a table, if its rows are elsewhere, or if a crash empties it."""
        relations = database.execute(
            "SELECT relkind, relpersistence, oid::regclass::text, oid = to_regclass(%(table)s), "
            "(SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = oid AND relkind = 'r') "
            f"FROM pg_class WHERE oid IN {_TREE}",
            {"table": self.target},
        ).fetchall()
        for kind, persistence, name, is_itself, heir in relations:
            what = str(self) if is_itself else f"{self}, its partition {name}"
            if kind not in "rp":
                raise SinkMismatch(
                    f"{what} is {_KINDS.get(kind, 'not a table')}, and the sink needs one. {ANOTHER_TABLE}"
                )
            if kind == "r" and persistence != "p":
                raise SinkMismatch(
                    f"{what} is UNLOGGED: a crash of the server empties it, but its mark stays. Change it: "
                    f"ALTER TABLE {self.target if is_itself else name} SET LOGGED"
                )
            if heir is not None:
                raise SinkMismatch(
                    f"{what} has child tables ({heir}), whose rows a rollback would delete too. {ANOTHER_TABLE}"
                )
        return bool(relations)

    def _check_column(self, field: pa.Field, kinds: dict[str, str], default: str) -> None:
        expected, kind = type_of(field.type), kinds.get(field.name)
        if not kind:
            remedy = f"Add it: ALTER TABLE {self.target} ADD COLUMN {quoted(field.name)} {expected}{default}"
            raise wrong_column(str(self), field.name, "missing", f"one of type {expected}", remedy)
        if not pa.types.is_null(field.type) and not fits(kind, expected):
            remedy = (
                f"Change it: ALTER TABLE {self.target} ALTER COLUMN {quoted(field.name)} TYPE {expected}; or give "
                "the sink another table"
            )
            raise wrong_column(str(self), field.name, f"of type {kind}", f"{expected} ({field.type})", remedy)

    def _check_columns(self, database: Session, columns: pa.Schema, key: Sequence[str]) -> None:
        """SinkMismatch for a column computed by the server, or a key whose collation equates different texts."""
        cursor = database.execute(
            "SELECT attname, attgenerated <> '' OR attidentity = 'a', collname FROM pg_attribute "
            "LEFT JOIN pg_collation c ON c.oid = attcollation AND NOT collisdeterministic "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [self.target],
        )
        remedy = f"{ANOTHER_TABLE}, or change this one"
        for name, is_computed, collation in cursor.fetchall():
            if is_computed and name in columns.names:
                raise wrong_column(str(self), name, "computed by the server", "one to write into", remedy)
            if collation and name in key and self.mode == "upsert":
                text = f"compared by {collation}, which treats different texts as equal"
                raise wrong_column(str(self), name, text, "to tell keys apart", remedy)

    def _columns(self, database: Session, name: str) -> dict[str, tuple[str, bool]]:
        cursor = database.execute(
            "SELECT attname, format_type(atttypid, atttypmod), "
            "attnotnull AND NOT atthasdef AND attidentity = '' AND attgenerated = '' FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [self.beside(name)],
        )
        return {name: (kind, is_wanted) for name, kind, is_wanted in cursor.fetchall()}

    def _unique(self, database: Session) -> list[set[str]]:
        """The column sets of the unique indexes."""
        cursor = database.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            "AND a.attnum = ANY (i.indkey) WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid "
            "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = i.indnatts "
            "GROUP BY i.indexrelid",
            [self.target],
        )
        return [set(names) for (names,) in cursor.fetchall()]
