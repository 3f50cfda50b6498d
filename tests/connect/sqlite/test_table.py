"""A table of SQLite that others have made, changed or dropped: taken as it is, or refused before rows are lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from persistent import InvalidPipeline, SinkMismatch, SqliteSink, StorageError
from persistent.connect.sink import Claim
from tests.connect.places import outputs_of
from tests.connect.sqlite.test_sink_and_sql import KEY, back, batch, rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def executed(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


DROPPING = {
    "a trigger": "CREATE TRIGGER no_b BEFORE INSERT ON visits WHEN new.page = 'b' BEGIN SELECT RAISE(IGNORE); END",
    "a trigger on updates": "CREATE TRIGGER no_b BEFORE UPDATE ON visits BEGIN SELECT RAISE(IGNORE); END",
}


@pytest.mark.parametrize("mode", ["append", "upsert"])
@pytest.mark.parametrize("trigger", DROPPING.values(), ids=DROPPING)
def test_rows_that_a_trigger_drops_are_missed(trigger: str, mode: str, path: Path) -> None:
    """The mark would say that the batch is there, and a row of it would not be."""
    executed(path, "CREATE TABLE visits (page TEXT PRIMARY KEY, value INT, revision INT)", trigger)
    if "UPDATE" in trigger and mode == "append":
        return
    sink = SqliteSink(path, "visits", mode=mode)
    sink.claim(Claim("job", schema=outputs_of({}).schema, key=KEY))
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    next_one = outputs_of({"b": 2, "c": 2} if "INSERT" in trigger else {"a": 2, "c": 2})
    with pytest.raises(SinkMismatch, match=r"has accepted 1 of 2 rows: a trigger .* Nothing of this batch was written"):
        sink.deliver(batch(2, 1, next_one))
    assert rows(path) == {("a", 1, 1)} and sink.newest("job") == 1
    executed(path, "DROP TRIGGER no_b")
    sink.deliver(batch(2, 1, next_one))
    assert len(rows(path)) == (3 if "INSERT" in trigger else 2)


@pytest.mark.parametrize("conflict", ["REPLACE", "IGNORE", "ROLLBACK"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_no_row_gives_way_to_another(mode: str, conflict: str, path: Path) -> None:
    """A constraint that replaces deletes a row that a rollback cannot put back; one that ignores drops ours."""
    columns = f"page TEXT PRIMARY KEY, value INT UNIQUE ON CONFLICT {conflict}, revision INT"
    executed(path, f"CREATE TABLE visits ({columns})", "INSERT INTO visits VALUES ('theirs', 7, NULL)")
    sink = SqliteSink(path, "visits", mode=mode)
    sink.claim(Claim("job", schema=outputs_of({}).schema, key=KEY))
    with pytest.raises(StorageError, match=r"UNIQUE constraint failed: visits\.value\. The table takes no second row"):
        sink.deliver(batch(1, 0, outputs_of({"a": 1, "b": 7})))
    assert rows(path) == {("theirs", 7, None)} and sink.newest("job") == 0


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_table_that_is_gone_is_missed(mode: str, path: Path) -> None:
    """It would be made anew, empty, and what it held would be missing without a word."""

    def sink() -> SqliteSink:
        return SqliteSink(path, "visits", mode=mode)

    claim = Claim("job", shown=0, schema=outputs_of({}).schema, key=KEY)
    sink().claim(claim)
    sink().claim(claim)
    sink().deliver(batch(1, 0, outputs_of({"a": 1})))
    sink().retract(back(None, 2))
    executed(path, "DROP TABLE visits")
    text = rf'visits\' is gone, .* up to batch 2.* in a new checkpoint.* mode="{mode}".*: CREATE TABLE'
    acts: list[Callable[[], None]] = [
        lambda: sink().claim(claim),
        lambda: sink().deliver(batch(3, 2, outputs_of({"b": 3}))),
        lambda: sink().retract(back(1, 3)),
    ]
    for act in acts:
        with pytest.raises(StorageError, match=text) as error:
            act()
    with pytest.raises(StorageError) as error:
        acts[0]()
    executed(path, str(error.value)[str(error.value).index("CREATE TABLE") :])
    for act in acts[:2]:
        act()
    assert rows(path) == {("b", 3, 3)}


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_results_of_another_checkpoint_are_no_place_to_begin(mode: str, path: Path) -> None:
    """An upsert would keep the old values, as of higher revisions; a rollback would delete what is not ours."""
    table = "CREATE TABLE visits (page TEXT PRIMARY KEY, value INT, revision INT)"
    executed(path, table, "INSERT INTO visits VALUES ('a', 1, 7), ('b', 1, 5), ('c', 1, NULL)")
    claim = Claim("job", schema=outputs_of({}).schema, key=KEY)
    sink, found = SqliteSink(path, "visits", mode=mode), rows(path)
    with pytest.raises(SinkMismatch, match=r"a revision above 0, up to 7.* Give the sink another") as error:
        sink.claim(claim)
    assert sink.newest("job") == -1
    with pytest.raises(SinkMismatch, match="a revision above 0, up to 7"):
        sink.deliver(batch(1, 0, outputs_of({"d": 1})))
    assert rows(path) == found
    heir = Claim("heir", schema=outputs_of({}).schema, heir_of=("first",), inherited=6, key=KEY)
    with pytest.raises(SinkMismatch, match="a revision above 6, up to 7"):
        sink.claim(heir)
    sink.claim(replace(heir, inherited=7))
    assert sink.newest("heir") == 7, "a copy of the table of the job that it started from"
    executed(path, "DELETE FROM persistent_marks", str(error.value)[str(error.value).index("UPDATE") :])
    sink.claim(claim)
    sink.deliver(batch(1, 0, outputs_of({"d" if mode == "append" else "a": 9})))
    sink.claim(claim)
    sink.retract(back(1, 3))
    assert {(page, value) for page, value, _ in rows(path)} == {("a", 1), ("b", 1), ("c", 1)}


def test_a_table_that_others_made_meanwhile_is_looked_at(path: Path) -> None:
    """Between the claim and the first batch somebody copies the results of another checkpoint there."""
    sink = SqliteSink(path, "visits")
    sink.claim(Claim("job", schema=outputs_of({}).schema, key=KEY))
    executed(path, "CREATE TABLE visits (page TEXT, value INT, revision INT)", "INSERT INTO visits VALUES ('a', 1, 7)")
    with pytest.raises(SinkMismatch, match="a revision above 0, up to 7"):
        sink.deliver(batch(1, 0, outputs_of({"b": 1})))


def test_a_lost_table_of_what_was_replaced_is_missed(path: Path) -> None:
    """The rollback would put nothing back, and say that it is done."""
    sink = SqliteSink(path, "visits", mode="upsert")
    sink.claim(Claim("job", key=KEY))
    for number in (1, 2):
        sink.deliver(batch(number, number - 1, outputs_of({"a": number})))
    executed(path, "DROP TABLE persistent_before_visits")
    with pytest.raises(InvalidPipeline, match="batches up to 3 can no longer be taken back"):
        sink.retract(back(2, 3))
    sink.deliver(batch(3, 2, outputs_of({"a": 3})))
    with pytest.raises(InvalidPipeline, match="batches up to 2 can no longer be taken back"):
        sink.retract(back(2, 4))
    sink.retract(back(3, 4))
    assert rows(path) == {("a", 2, 2)}
    executed(path, "DROP TABLE persistent_before_visits")
    sink.retract(back(5, 6))


def test_what_is_no_table_is_refused(path: Path) -> None:
    """A view takes no rows; and of a table of another program's nobody knows what it makes of them."""
    executed(
        path,
        "CREATE TABLE really (page TEXT, value INT, revision INT)",
        "CREATE VIEW Visits AS SELECT * FROM really",
        "CREATE VIRTUAL TABLE words USING fts5(page, value, revision)",
    )
    for table, text in {"visits": "'visits' is a view", "words": "'words' is a virtual table"}.items():
        with pytest.raises(SinkMismatch, match=f"{text}, and the sink needs a table. Give the sink another table"):
            SqliteSink(path, table).claim(Claim("job", schema=outputs_of({}).schema, key=KEY))


def test_columns_that_are_one_to_sqlite_are_refused(path: Path) -> None:
    """The first batch would end the run, and every run after it."""
    schema = outputs_of({}).schema.append(pa.field("Page", pa.string()))
    with pytest.raises(InvalidPipeline, match="the columns 'page' and 'Page' are the same to SQLite"):
        SqliteSink(path, "visits").claim(Claim("job", schema=schema, key=KEY))
    with pytest.raises(InvalidPipeline, match="the columns 'page' and 'Page' are the same to SQLite"):
        SqliteSink(path, "visits").check(schema.empty_table(), KEY)


def test_a_time_that_no_text_tells_is_refused_where_it_is_staged(path: Path) -> None:
    """The year 60,000 would be written as another one."""
    outputs = pa.table({"page": ["a"], "at": pa.array([2**50], pa.timestamp("ms"))})
    with pytest.raises(InvalidPipeline, match="'at' has the timestamp of 1125899906842624 ms since 1970"):
        SqliteSink(path, "visits").check(outputs, KEY)


OTHER_SHAPES: dict[str, tuple[str, str]] = {
    "lacks a column": (
        "page TEXT, revision INTEGER",
        r"'value' is missing.* ALTER TABLE \"visits\" ADD COLUMN \"value\" INTEGER",
    ),
    "lacks the revision": ("page TEXT, value INTEGER", "'revision' is missing"),
    "spells it otherwise": (
        "Page TEXT, value INTEGER, revision INTEGER",
        r"'page' is named 'Page'.*RENAME COLUMN \"Page\" TO \"page\"",
    ),
    "computes": ("page TEXT, value INT AS (7), revision INTEGER", "'value' is computed by SQLite"),
    "wants more": ("page TEXT, value INT, revision INT, note TEXT NOT NULL", "'note' is TEXT NOT NULL without"),
    "has another type": (
        "page TEXT, value TEXT, revision INTEGER",
        "'value' is of type TEXT, but the outputs need INTEGER",
    ),
}


@pytest.mark.parametrize(("columns", "text"), OTHER_SHAPES.values(), ids=OTHER_SHAPES)
def test_a_table_of_another_shape_is_refused_at_the_start(columns: str, text: str, path: Path) -> None:
    """The first window that closes would end the run, hours later."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE visits ({columns})")
    sink = SqliteSink(path, "visits")
    with pytest.raises(StorageError, match=text):
        sink.claim(Claim("job", schema=outputs_of({}).schema, key=KEY))
    assert sink.newest("job") == -1, "claimed all the same"
    with pytest.raises(StorageError, match=text):
        sink.deliver(batch(1, 0, outputs_of({"a": 1})))


def test_an_upsert_needs_a_unique_index(path: Path) -> None:
    """Rows would be added, each time more."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE visits (page TEXT, value NUMERIC, revision BIGINT, note TEXT)")
    sink = SqliteSink(path, "visits", mode="upsert")
    claim = Claim("job", schema=outputs_of({}).schema, key=KEY)
    with pytest.raises(
        StorageError, match=r'Create one: CREATE UNIQUE INDEX "visits_key" ON "visits" \("page"\)'
    ) as error:
        sink.claim(claim)
    with closing(sqlite3.connect(path)) as database:
        database.execute(str(error.value).partition("Create one: ")[2])
    sink.claim(claim)
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    assert rows(path) == {("a", 1, 1, None)}


@pytest.mark.parametrize("collation", ["NOCASE", "RTRIM"])
def test_a_key_in_which_unlike_texts_are_equal_is_refused(collation: str, path: Path) -> None:
    """Two keys would be one row, with the value of whichever came last."""
    columns = f"page TEXT COLLATE {collation}, value INTEGER, revision INTEGER, note TEXT COLLATE NOCASE UNIQUE"
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE visits ({columns}, PRIMARY KEY (page))")
    claim = Claim("job", schema=outputs_of({}).schema, key=KEY)
    with pytest.raises(SinkMismatch, match=f"'page' is compared by {collation}, which treats .*Give the sink another"):
        SqliteSink(path, "visits", mode="upsert").claim(claim)
    sink = SqliteSink(path, "visits")
    sink.claim(claim)
    sink.deliver(batch(1, 0, outputs_of({"a": 1})))
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE exact (page TEXT PRIMARY KEY, value INTEGER, revision INTEGER, note TEXT)")
        database.execute("CREATE UNIQUE INDEX notes ON exact (note COLLATE NOCASE)")
    SqliteSink(path, "exact", mode="upsert").claim(claim)
