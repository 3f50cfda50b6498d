"""A table of a real PostgreSQL that others have made, changed or dropped: taken as it should be, or refused before rows
are lost."""

from __future__ import annotations

import datetime
import decimal
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from persistent import InvalidPipeline, PostgresSink, StorageError
from persistent.connect.sink import Claim, OutputBatch, Retreat
from tests.connect.places import outputs_of
from tests.servers.postgres import PASSWORD, PostgresServer
from tests.servers.suites import PostgresSuite

pytestmark = [pytest.mark.check, pytest.mark.timeout(120)]

KEY = ("page",)
CLAIM = Claim("job", schema=outputs_of({}).schema, key=KEY)
COLUMNS = "page text PRIMARY KEY, value bigint, revision bigint"


def batch(number: int, before: int, outputs: pa.Table, key: tuple[str, ...] = KEY, oldest: int = 0) -> OutputBatch:
    class Batch(OutputBatch):
        def tables(self) -> Any:
            return iter([outputs] if outputs.num_rows else [])

    return Batch("job", number, before, oldest, number, "file:///c", key, (), lambda staged: outputs)


def back(first: int | None, number: int, key: tuple[str, ...] = KEY) -> Retreat:
    return Retreat("job", number, first, (), key, number, "file:///c")


@pytest.fixture
def table(postgres: PostgresServer) -> str:
    """A table that is not there yet, in a schema of its own."""
    return f"{PostgresSuite().place(Path())}.visits"


def rows(postgres: PostgresServer, table: str) -> set[tuple[Any, ...]]:
    return set(postgres.ask(f"SELECT page, value, revision FROM {table}"))


def trigger(table: str, when: str, body: str, name: str = "meddler") -> str:
    return (
        f"CREATE FUNCTION {table}_{name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$; "
        f"CREATE TRIGGER {name} {when} ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_{name}()"
    )


DROP_B = "IF new.page = 'b' THEN RETURN NULL; END IF; RETURN new;"
DOUBLE = "new.value := 2 * new.value; RETURN new;"
KEEP = "RETURN NULL;"
MEDDLING: dict[str, tuple[str, str, str]] = {
    "drops": ("append", "BEFORE INSERT", DROP_B),
    "drops of an upsert": ("upsert", "BEFORE INSERT", DROP_B),
    "changes": ("append", "BEFORE INSERT OR UPDATE", DOUBLE),
    "changes of an upsert": ("upsert", "BEFORE UPDATE", DOUBLE),
    "keeps from deletion": ("append", "BEFORE DELETE", KEEP),
}


@pytest.mark.parametrize(("mode", "when", "body"), MEDDLING.values(), ids=MEDDLING)
def test_a_trigger_that_meddles_is_refused_whenever_it_is_made(
    mode: str, when: str, body: str, postgres: PostgresServer, table: str
) -> None:
    """The mark would say that the batch is there, and rows of it would be others or not there."""
    made = trigger(table, when, body)
    postgres.ask(f"CREATE TABLE {table} ({COLUMNS})")
    sink = PostgresSink(postgres.url(), table, mode=mode)
    sink.claim(CLAIM)
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    postgres.ask(made)
    outputs = outputs_of({"b": 2, "c": 2} if mode == "append" else {"a": 2, "b": 2, "c": 2})
    with pytest.raises(StorageError, match=r"has the trigger meddler, which may|has accepted \d of \d rows: a trigger"):
        sink.deliver(batch(2, 1, outputs))
    with pytest.raises(StorageError, match=r"has the trigger meddler.*Make it an AFTER trigger; or give"):
        sink.claim(CLAIM)
    if when == "BEFORE DELETE":
        with pytest.raises(StorageError, match="has the trigger meddler"):
            sink.retract(back(1, 2))
    assert rows(postgres, table) == {("a", 1, 1)} and sink.newest("job") == 1
    postgres.ask(f"ALTER TABLE {table} DISABLE TRIGGER meddler")
    sink.claim(CLAIM)
    sink.deliver(batch(2, 1, outputs))
    assert {("b", 2, 2), ("c", 2, 2)} < rows(postgres, table)
    sink.close()


def test_triggers_that_change_nothing_are_taken(postgres: PostgresServer, table: str) -> None:
    """Many tables have some: a copy for an audit, a time of the last update in another mode."""
    postgres.ask(f"CREATE TABLE {table} ({COLUMNS}); CREATE TABLE {table}_audit (page text)")
    postgres.ask(trigger(table, "BEFORE UPDATE", DOUBLE))
    insert = f"INSERT INTO {table}_audit VALUES (new.page); RETURN NULL;"
    postgres.ask(trigger(table, "AFTER INSERT", insert, "audit"))
    sink = PostgresSink(postgres.url(), table)
    sink.claim(CLAIM)
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    assert rows(postgres, table) == {("a", 1, 1)} and postgres.ask(f"SELECT * FROM {table}_audit") == [("a",)]
    sink.close()


def test_rules_and_hidden_rows_are_refused(postgres: PostgresServer, table: str) -> None:
    """COPY passes over a rule, and a deletion leaves what row-level security hides."""
    schema, user = table.partition(".")[0], f"u{table.partition('.')[0]}"
    postgres.ask(f"CREATE TABLE {table} ({COLUMNS})")
    sink = PostgresSink(postgres.url(), table)
    postgres.ask(f"CREATE RULE quiet AS ON INSERT TO {table} DO INSTEAD NOTHING")
    with pytest.raises(StorageError, match="has the rule quiet, which COPY ignores"):
        sink.claim(CLAIM)
    postgres.ask(f"DROP RULE quiet ON {table}; CREATE USER {user} PASSWORD '{PASSWORD}'")
    postgres.ask(f"GRANT ALL ON SCHEMA {schema} TO {user}; GRANT ALL ON {table} TO {user}")
    postgres.ask(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
    limited = PostgresSink(postgres.url(user=user), table)
    with pytest.raises(StorageError, match="has row-level security, which hides rows") as error:
        limited.claim(CLAIM)
    sink.claim(CLAIM)
    postgres.ask(f"DROP TABLE {schema}.persistent_marks")
    text = str(error.value)
    postgres.ask(text[text.index("ALTER ROLE") : text.index(";")])
    limited.claim(CLAIM)
    limited.deliver(batch(1, 0, outputs_of({"a": 1})))
    for one in (sink, limited):
        one.close()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_that_is_gone_is_missed(mode: str, postgres: PostgresServer, table: str) -> None:
    """It would be made anew, empty, and what it held would be missing without a word."""
    sink = PostgresSink(postgres.url(), table, mode=mode)
    sink.claim(CLAIM)
    sink.claim(CLAIM)
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    postgres.ask(f"DROP TABLE {table}")
    text = f'is gone, .* up to batch 1.* in a new checkpoint.* mode="{mode}".*: CREATE TABLE'
    acts: list[Callable[[], None]] = [
        lambda: sink.deliver(batch(2, 1, outputs_of({"b": 2}))),
        lambda: sink.claim(CLAIM),
        lambda: sink.retract(back(1, 2)),
    ]
    for act in acts:
        with pytest.raises(StorageError, match=text) as error:
            act()
    postgres.ask(str(error.value)[str(error.value).index("CREATE TABLE") :])
    for act in acts[:2]:
        act()
    assert rows(postgres, table) == {("b", 2, 2)}
    sink.close()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_results_of_another_checkpoint_are_no_place_to_begin(mode: str, postgres: PostgresServer, table: str) -> None:
    """An upsert would keep the old values, as of higher revisions; a rollback would delete what is not ours."""
    postgres.ask(f"CREATE TABLE {table} ({COLUMNS})")
    sink = PostgresSink(postgres.url(), table, mode=mode)
    sink.claim(CLAIM)
    postgres.ask(f"DROP TABLE {table.partition('.')[0]}.persistent_marks")
    postgres.ask(f"INSERT INTO {table} VALUES ('a', 1, 7), ('b', 1, 5), ('c', 1, NULL)")
    with pytest.raises(StorageError, match=r"a revision above 0, up to 7.* Give the sink another") as error:
        sink.claim(CLAIM)
    assert sink.newest("job") == -1 and len(rows(postgres, table)) == 3
    postgres.ask(str(error.value)[str(error.value).index("UPDATE") :])
    sink.claim(CLAIM)
    sink.deliver(batch(1, 0, outputs_of({"d" if mode == "append" else "a": 9, "e": 1})))
    sink.claim(CLAIM)
    sink.retract(back(1, 3))
    assert {(page, value) for page, value, _ in rows(postgres, table)} == {("a", 1), ("b", 1), ("c", 1)}
    sink.close()


def test_the_heir_of_a_job_may_begin_with_a_copy_of_its_table(postgres: PostgresServer, table: str) -> None:
    """What the savepoint has is no result of another; what came after it is."""
    postgres.ask(f"CREATE TABLE {table} ({COLUMNS}); INSERT INTO {table} VALUES ('a', 1, 7)")
    sink = PostgresSink(postgres.url(), table)
    with pytest.raises(StorageError, match="a revision above 6, up to 7"):
        sink.claim(Claim("heir", heir_of=("job",), inherited=6, schema=CLAIM.schema, key=KEY))
    sink.claim(Claim("heir", heir_of=("job",), inherited=7, schema=CLAIM.schema, key=KEY))
    assert sink.newest("heir") == 7
    sink.close()


def test_a_table_that_others_made_meanwhile_is_looked_at(postgres: PostgresServer, table: str) -> None:
    """Between the claim and the first batch somebody copies the results of another checkpoint there."""
    sink = PostgresSink(postgres.url(), table)
    sink.claim(CLAIM)
    postgres.ask(f"CREATE TABLE {table} ({COLUMNS}); INSERT INTO {table} VALUES ('a', 1, 7)")
    with pytest.raises(StorageError, match="a revision above 0, up to 7"):
        sink.deliver(batch(1, 0, outputs_of({"b": 1})))
    sink.close()


def test_a_row_of_a_higher_revision_does_not_keep_ours_out(postgres: PostgresServer, table: str) -> None:
    """Our value would not be there, and nobody would be told."""
    sink = PostgresSink(postgres.url(), table, mode="upsert")
    sink.claim(CLAIM)
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    postgres.ask(f"UPDATE {table} SET revision = 9")
    with pytest.raises(StorageError, match=r"has accepted 1 of 2 rows: .* or has a higher revision under the same key"):
        sink.deliver(batch(2, 1, outputs_of({"a": 2, "b": 2})))
    assert rows(postgres, table) == {("a", 1, 9)}
    sink.close()


def test_a_lost_table_of_what_was_replaced_is_missed(postgres: PostgresServer, table: str) -> None:
    """The rollback would put nothing back, and say that it is done."""
    sink = PostgresSink(postgres.url(), table, mode="upsert")
    sink.claim(CLAIM)
    for number in (1, 2):
        sink.deliver(batch(number, number - 1, outputs_of({"a": number})))
    lost = f"DROP TABLE {table.replace('visits', 'persistent_before_visits')}"
    postgres.ask(lost)
    with pytest.raises(InvalidPipeline, match="batches up to 3 can no longer be taken back"):
        sink.retract(back(2, 3))
    sink.deliver(batch(3, 2, outputs_of({"a": 3})))
    with pytest.raises(InvalidPipeline, match="batches up to 2 can no longer be taken back"):
        sink.retract(back(2, 4))
    sink.retract(back(3, 4))
    assert rows(postgres, table) == {("a", 2, 2)}
    postgres.ask(lost)
    sink.retract(back(5, 6))
    sink.close()


def test_a_rollback_leaves_rows_and_columns_of_others_alone(postgres: PostgresServer, table: str) -> None:
    """They have no revision of ours; and a row that we replaced has columns of which we know nothing."""
    postgres.ask(f"CREATE TABLE {table} ({COLUMNS}, note text)")
    postgres.ask(f"INSERT INTO {table} VALUES ('theirs', 1, NULL, 'x'), ('both', 1, NULL, 'y')")
    sink = PostgresSink(postgres.url(), table, mode="upsert")
    sink.claim(CLAIM)
    sink.deliver(batch(1, 0, outputs_of({"both": 2, "ours": 2})))
    postgres.ask(f"DELETE FROM {table} WHERE page = 'both'; INSERT INTO {table} VALUES ('both', 3, NULL, 'z')")
    sink.deliver(batch(2, 1, outputs_of({"both": 4, "ours": 4})))
    sink.retract(back(1, 3))
    found = set(postgres.ask(f"SELECT * FROM {table}"))
    assert found == {("theirs", 1, None, "x"), ("both", 1, 0, "z")}
    sink.close()


NO_TABLES: dict[str, tuple[str, str]] = {
    "a view": ("CREATE TABLE {0}_t ({1}); CREATE VIEW {0} AS SELECT * FROM {0}_t", "is a view, and"),
    "a materialized view": (
        "CREATE TABLE {0}_t ({1}); CREATE MATERIALIZED VIEW {0} AS SELECT * FROM {0}_t",
        "is a materialized view, and",
    ),
    "a foreign table": (
        "CREATE FOREIGN DATA WRAPPER w{2}; CREATE SERVER s{2} FOREIGN DATA WRAPPER w{2}; "
        "CREATE FOREIGN TABLE {0} (page text, value bigint, revision bigint) SERVER s{2}",
        "is a foreign table, and",
    ),
    "a sequence": ("CREATE SEQUENCE {0}", "is a sequence, and"),
    "an ancestor": (
        "CREATE TABLE {0} ({1}); CREATE TABLE {0}_heir () INHERITS ({0})",
        r"has child tables \(.*visits_heir\)",
    ),
    "a partition that a crash empties": (
        "CREATE TABLE {0} ({1}) PARTITION BY LIST (page); CREATE UNLOGGED TABLE {0}_rest PARTITION OF {0} DEFAULT",
        r"its partition .*visits_rest is UNLOGGED: .*ALTER TABLE .*visits_rest SET LOGGED",
    ),
    "an identity": (
        "CREATE TABLE {0} (page text PRIMARY KEY, value bigint GENERATED ALWAYS AS IDENTITY, revision bigint)",
        "'value' is computed by the server",
    ),
}


@pytest.mark.parametrize(("statement", "text"), NO_TABLES.values(), ids=NO_TABLES)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_what_is_no_plain_table_is_refused(
    mode: str, statement: str, text: str, postgres: PostgresServer, table: str
) -> None:
    """The first batch would end the run, hours later; or a rollback would delete rows of another table."""
    postgres.ask(statement.format(table, COLUMNS, table.partition(".")[0]))
    sink = PostgresSink(postgres.url(), table, mode=mode)
    with pytest.raises(StorageError, match=text):
        sink.claim(CLAIM)
    assert sink.newest("job") == -1
    sink.close()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_partitioned_table_is_one(mode: str, postgres: PostgresServer, table: str) -> None:
    """Results of years are kept so; and a trigger of a partition meddles as much as one of the whole."""
    postgres.ask(f"CREATE TABLE {table} ({COLUMNS}) PARTITION BY LIST (page)")
    postgres.ask(f"CREATE TABLE {table}_a PARTITION OF {table} FOR VALUES IN ('a')")
    sink = PostgresSink(postgres.url(), table, mode=mode)
    sink.claim(CLAIM)
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    second = batch(2, 1, outputs_of({"b": 2} if mode == "append" else {"a": 2, "b": 2}))
    with pytest.raises(StorageError, match=r"no partition of relation .* create the partition of the row"):
        sink.deliver(second)
    postgres.ask(f"CREATE TABLE {table}_rest PARTITION OF {table} DEFAULT")
    sink.deliver(second)
    assert ("b", 2, 2) in rows(postgres, table) and len(rows(postgres, table)) == 2
    postgres.ask(trigger(f"{table}_rest", "BEFORE INSERT OR DELETE", KEEP))
    for act in (lambda: sink.deliver(batch(3, 2, outputs_of({"c": 3}))), lambda: sink.retract(back(2, 3))):
        with pytest.raises(StorageError, match=r"has the trigger meddler|has accepted 0 of 1 rows"):
            act()
    postgres.ask(f"DROP TRIGGER meddler ON {table}_rest")
    sink.retract(back(2, 3))
    assert rows(postgres, table) == {("a", 1, 1)}
    sink.close()


def test_a_column_of_others_that_must_not_be_null_has_a_remedy(postgres: PostgresServer, table: str) -> None:
    """The error said to give it a default, and the command beside it did something else."""
    postgres.ask(f"CREATE TABLE {table} ({COLUMNS}, note text NOT NULL)")
    sink = PostgresSink(postgres.url(), table)
    with pytest.raises(StorageError, match=r"Allow nulls: ALTER TABLE .* DROP NOT NULL; or give it a default") as error:
        sink.claim(CLAIM)
    postgres.ask(str(error.value)[str(error.value).index("ALTER TABLE") :].partition(";")[0])
    sink.claim(CLAIM)
    postgres.ask(f"ALTER TABLE {table} ALTER COLUMN value SET NOT NULL")
    with pytest.raises(StorageError, match=r'column "value".*not-null constraint.* Let the column be null'):
        sink.deliver(batch(1, 0, pa.table({"page": ["a"], "value": pa.array([None], pa.int64())})))
    sink.close()


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_the_server_takes_whatever_is_taken_where_it_is_staged(mode: str, postgres: PostgresServer, table: str) -> None:
    """What is committed can only be published: each run would stop at it, and none could change it."""
    day, stranger = 86_400, random.Random(1)
    first, last = -719_162, 2_932_896
    texts = ["k" * 2_600, "".join(stranger.choices("abcdefghijklmnopqrstuvwxyz", k=2_600))]
    nested = pa.struct([("t", pa.timestamp("us", "UTC")), ("x", pa.list_(pa.float64())), ("b", pa.binary())])
    columns = {
        "page": pa.array(texts),
        "day": pa.array([first, last], pa.int32()).cast(pa.date32()),
        "at": pa.array([first * day * 1_000, (last + 1) * day * 1_000 - 1]).cast(pa.timestamp("ms", "UTC")),
        "plain": pa.array([first * day * 10**6, (last + 1) * day * 10**6 - 1]).cast(pa.timestamp("us")),
        "time": pa.array([0, day * 10**6 - 1]).view(pa.time64("us")),
        "wide": pa.array([decimal.Decimal(10**75), decimal.Decimal(-(10**75))], pa.decimal256(76, 0)),
        "thousands": pa.array([decimal.Decimal("1E3"), None], pa.decimal128(5, -3)),
        "word": pa.array(["é", "\\."]).dictionary_encode(),
        "nested": pa.array([{"t": 0, "x": [float("nan"), float("-inf")], "b": b"\0"}, {"x": [1e300]}], nested),
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        "n" * 63: pa.array([2**63 - 1, -(2**63)]),
    }
    sink = PostgresSink(postgres.url(), table, mode=mode)
    outputs = pa.table(columns)
    sink.check(outputs, KEY)
    sink.claim(Claim("job", schema=outputs.schema, key=KEY))
    for number in (1, 2):
        sink.deliver(batch(number, number - 1, outputs))
    found = postgres.ask(
        f"SELECT day, at, plain, \"time\", wide, thousands, nested FROM {table} WHERE page = '{texts[0]}'"
    )
    year_one = datetime.datetime(1, 1, 1)
    nested_found = {"t": "1970-01-01T00:00:00Z", "x": ["nan", "-inf"], "b": "AA=="}
    assert len(found) == (2 if mode == "append" else 1)
    assert found[0][:3] == (year_one.date(), year_one.replace(tzinfo=datetime.UTC), year_one)
    assert found[0][3:6] == (datetime.time(0), decimal.Decimal(10**75), 1_000)
    assert found[0][6]["x"] == nested_found["x"] and found[0][6]["b"] == nested_found["b"]
    (latest,) = postgres.ask(f'SELECT max(day), max(at), max(plain), max("time") FROM {table}')
    assert [str(one)[-15:] for one in latest[2:]] == ["23:59:59.999999"] * 2 and latest[0] == datetime.date(
        9999, 12, 31
    )
    sink.close()


def test_a_decimal_key_whose_scale_grows_stays_one_row(postgres: PostgresServer, table: str) -> None:
    """A column of the first scale would refuse the second, once the batch can no longer be changed."""
    sink = PostgresSink(postgres.url(), table, mode="upsert")
    for number, scale in ((1, 1), (2, 2), (3, 12)):
        price = pa.array([decimal.Decimal("1.5"), decimal.Decimal("100")], pa.decimal128(16, scale))
        outputs = pa.table({"price": price, "value": [number, number]})
        sink.claim(Claim("job", schema=outputs.schema, key=("price",)))
        sink.deliver(batch(number, number - 1, outputs, ("price",)))
    assert {(float(price), value) for price, value, _ in postgres.ask(f"SELECT * FROM {table}")} == {(1.5, 3), (100, 3)}
    sink.retract(back(2, 4, ("price",)))
    assert {(float(price), value) for price, value, _ in postgres.ask(f"SELECT * FROM {table}")} == {(1.5, 1), (100, 1)}
    sink.close()
