"""A PostgreSQL table of a sink: created for the outputs, checked against them, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from persistent.connect.formats.json_rows import REVISION
from persistent.connect.postgres.columns import fits, short_name, type_of
from persistent.connect.postgres.session import Moved, Session
from persistent.connect.sql import BATCH, default_of, images_name, no_unique_index, quoted, wrong_column
from persistent.errors import SinkMismatch

_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table", "S": "a sequence", "c": "a type"}
_OTHER_TABLE = "Give the sink another table"
LOCK = 0x7065727369737401
"""The advisory lock for creating tables."""
_TREE = "(SELECT to_regclass(%(table)s) AS oid UNION SELECT relid FROM pg_partition_tree(to_regclass(%(table)s)))"
"""The table and its partitions."""


@dataclass(frozen=True)
class PostgresTable:
    """``name`` in ``schema`` (empty, or one name). ``mode``: of the sink; ``place``: the server, for errors."""

    schema: tuple[str, ...]
    name: str
    mode: str
    place: str

    def __str__(self) -> str:
        return f"{self.place}: table {'.'.join((*self.schema, self.name))}"

    @property
    def target(self) -> str:
        """Its name in statements."""
        return self.beside(self.name)

    @property
    def images(self) -> str:
        """The name, in statements, of the table of replaced rows."""
        return self.beside(short_name(images_name(self.name)))

    def beside(self, name: str) -> str:
        """The name, in statements, of another table in its schema."""
        return quoted(*self.schema, name)

    def number(self, session: Session, table: str | None = None) -> int | None:
        """The server's number of this table, or of ``table`` (a quoted name); None if it does not exist."""
        (number,) = session.execute("SELECT to_regclass(%s)::oid::bigint", [table or self.target]).fetchone()
        return None if number is None else int(number)

    def make(self, session: Session, columns: pa.Schema, key: Sequence[str]) -> None:
        """Create the table. Moved if another writer has done so."""
        session.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        if self.number(session) is not None:
            raise Moved
        session.execute(self.creation(columns, key))

    def creation(self, columns: pa.Schema, key: Sequence[str]) -> str:
        """The statement that creates it. The scale of a decimal key can grow, and the key stays the same."""
        lines = []
        for field in columns:
            grows = pa.types.is_decimal(field.type) and field.name in key
            kind = "numeric" if grows else type_of(field.type)
            lines.append(f"{quoted(field.name)} {kind}{default_of(columns, field.name)}")
        if self.mode == "upsert":
            lines.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
        return f"CREATE TABLE {self.target} ({', '.join(lines)})"

    def check(self, session: Session, columns: pa.Schema, key: Sequence[str]) -> bool:
        """Whether the table exists. SinkMismatch if it has another shape, or cannot hold the outputs."""
        if not self._is_one(session):
            return False
        kinds = {name: (kind, is_wanted) for name, kind, is_wanted in self._columns(session, self.target)}
        for field in columns:
            self._check_column(field, kinds.get(field.name, ("", False))[0], default_of(columns, field.name))
        for name, (kind, is_wanted) in kinds.items():
            if is_wanted and name not in columns.names and len(columns) > 1:
                remedy = f"Allow nulls: ALTER TABLE {self.target} ALTER COLUMN {quoted(name)} DROP NOT NULL"
                text = f"{kind} NOT NULL without a default"
                raise wrong_column(str(self), name, text, "to omit it", f"{remedy}; or give it a default")
        self._check_columns(session, columns, key)
        if self.mode == "upsert" and set(key) not in self._unique(session):
            raise no_unique_index(str(self), self.name, self.target, key)
        self.check_obeys(session)
        return True

    def check_obeys(self, session: Session) -> None:
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
        hazard = session.execute(f"{' UNION ALL '.join(hazards)} LIMIT 1", {"table": self.target}).fetchone()
        if hazard is not None:
            raise SinkMismatch(f"{self} has {hazard[0]}. {hazard[1]}; or give the sink another table")

    def highest_revision(self, session: Session) -> int:
        """The highest revision of its rows; 0 without one."""
        (revision,) = session.execute(f"SELECT max({quoted(REVISION)}) FROM {self.target}").fetchone()
        return int(revision or 0)

    def fit_images(self, session: Session, columns: Sequence[str] = ()) -> tuple[tuple[str, ...], bool]:
        """Create the table of replaced rows, or add ``columns`` to those of earlier outputs. Returns the columns that
        the target has too, and whether the table existed. They get the target's present types, so values stay
        unchanged."""
        kinds = {column: kind for column, kind, _ in self._columns(session, self.target)}
        image_kinds = {column: kind for column, kind, _ in self._columns(session, self.images)}
        if not image_kinds:
            session.execute(f"CREATE TABLE {self.images} ({quoted(BATCH)} bigint NOT NULL)")
            session.execute(f"CREATE INDEX ON {self.images} USING brin ({quoted(BATCH)})")
        shared = [column for column in kinds if column in image_kinds or column in columns]
        for column in shared:
            place, kind = quoted(column), kinds[column]
            if column not in image_kinds:
                session.execute(f"ALTER TABLE {self.images} ADD COLUMN {place} {kind}")
            elif image_kinds[column] != kind:
                statement = f"ALTER TABLE {self.images} ALTER COLUMN {place} TYPE {kind} USING {place}::{kind}"
                session.execute(statement)
        return tuple(shared), bool(image_kinds)

    def _is_one(self, session: Session) -> bool:
        """Whether it exists. SinkMismatch if it is not a table, if its rows are elsewhere, or if a crash empties it."""
        relations = session.execute(
            "SELECT relkind, relpersistence, oid::regclass::text, oid = to_regclass(%(table)s), "
            "(SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = oid AND relkind = 'r') "
            f"FROM pg_class WHERE oid IN {_TREE}",
            {"table": self.target},
        ).fetchall()
        for kind, persistence, name, is_itself, heir in relations:
            what = str(self) if is_itself else f"{self}, its partition {name}"
            if kind not in "rp":
                raise SinkMismatch(
                    f"{what} is {_KINDS.get(kind, 'not a table')}, and the sink needs one. {_OTHER_TABLE}"
                )
            if kind == "r" and persistence != "p":
                raise SinkMismatch(
                    f"{what} is UNLOGGED: a crash of the server empties it, but its mark stays. Change it: "
                    f"ALTER TABLE {self.target if is_itself else name} SET LOGGED"
                )
            if heir is not None:
                raise SinkMismatch(
                    f"{what} has child tables ({heir}), whose rows a rollback would delete too. {_OTHER_TABLE}"
                )
        return bool(relations)

    def _check_column(self, field: pa.Field, kind: str, default: str) -> None:
        expected = type_of(field.type)
        if not kind:
            remedy = f"Add it: ALTER TABLE {self.target} ADD COLUMN {quoted(field.name)} {expected}{default}"
            raise wrong_column(str(self), field.name, "missing", f"one of type {expected}", remedy)
        if not pa.types.is_null(field.type) and not fits(kind, expected):
            remedy = (
                f"Change it: ALTER TABLE {self.target} ALTER COLUMN {quoted(field.name)} TYPE {expected}; or give "
                "the sink another table"
            )
            raise wrong_column(str(self), field.name, f"of type {kind}", f"{expected} ({field.type})", remedy)

    def _check_columns(self, session: Session, columns: pa.Schema, key: Sequence[str]) -> None:
        """SinkMismatch for a column computed by the server, or a key whose collation equates different texts."""
        cursor = session.execute(
            "SELECT attname, attgenerated <> '' OR attidentity = 'a', collname FROM pg_attribute "
            "LEFT JOIN pg_collation c ON c.oid = attcollation AND NOT collisdeterministic "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [self.target],
        )
        remedy = f"{_OTHER_TABLE}, or change this one"
        for name, is_computed, collation in cursor.fetchall():
            if is_computed and name in columns.names:
                raise wrong_column(str(self), name, "computed by the server", "one to write into", remedy)
            if collation and name in key and self.mode == "upsert":
                text = f"compared by {collation}, which treats different texts as equal"
                raise wrong_column(str(self), name, text, "to tell keys apart", remedy)

    def _columns(self, session: Session, table: str) -> list[tuple[str, str, bool]]:
        """The columns of a table, their types, and whether an INSERT must give a value; empty without such a table."""
        cursor = session.execute(
            "SELECT attname, format_type(atttypid, atttypmod), "
            "attnotnull AND NOT atthasdef AND attidentity = '' AND attgenerated = '' FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [table],
        )
        return list(cursor.fetchall())

    def _unique(self, session: Session) -> list[set[str]]:
        """The column sets of the unique indexes."""
        cursor = session.execute(
            "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
            "AND a.attnum = ANY (i.indkey) WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indisvalid "
            "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = i.indnatts "
            "GROUP BY i.indexrelid",
            [self.target],
        )
        return [set(names) for (names,) in cursor.fetchall()]
