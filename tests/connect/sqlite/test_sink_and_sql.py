"""A table of SQLite: values as they were, replaced and put back by key, and refused where it has another shape."""

from __future__ import annotations

import datetime
import decimal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monoids import Sum
from persistent import (
    Fenced,
    InvalidPipeline,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SinkMismatch,
    SqliteSink,
    StorageError,
)
from persistent.connect.formats.json_rows import with_revision
from persistent.connect.sink import Claim, OutputBatch, Retreat
from persistent.connect.sql import Statements, columns_of, quoted
from persistent.engines.embedded import Embedded
from persistent.operations import rollback
from tests.connect.places import outputs_of, sqlite_rows
from tests.connect.rollbacks import roll_back_twice

KEY = ("page",)


def batch(number: int, before: int, outputs: pa.Table, key: tuple[str, ...] = KEY, oldest: int = 0) -> OutputBatch:
    tables = [outputs] if outputs.num_rows else []

    class Batch(OutputBatch):
        def tables(self) -> Any:
            return iter(tables)

    return Batch("job", number, before, oldest, number, "file:///c", key, (), lambda staged: outputs)


def back(first: int | None, number: int, key: tuple[str, ...] = KEY) -> Retreat:
    return Retreat("job", number, first, (), key, number, "file:///c")


def rows(path: Path) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in sqlite_rows(path, "visits")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


def test_rows_outlast_a_loss_of_power(path: Path) -> None:
    """The next run would find a mark that is older than what its checkpoint says was published."""
    with closing(SqliteSink(path, "visits")._connect()) as database:
        assert database.execute("PRAGMA synchronous").fetchone() == (3,)


def test_every_value_comes_back(path: Path) -> None:
    """A number that is rounded, or a time that moves by a zone, is another result."""
    time = datetime.datetime(2024, 5, 6, 7, 8, 9, 10_000, tzinfo=datetime.UTC)
    columns = {
        "page": pa.array(["a", "", "q\"u'o\nte", None]),
        "int": pa.array([2**63 - 1, -(2**63), 0, None]),
        "small": pa.array([1, 2, 3, None], pa.uint8()),
        "float": pa.array([0.1, float("inf"), -0.0, None]),
        "flag": pa.array([True, False, True, None]),
        "time": pa.array([time, time, time, None], pa.timestamp("ms", "UTC")),
        "day": pa.array([time.date()] * 3 + [None], pa.date32()),
        "exact": pa.array([decimal.Decimal("0.10"), decimal.Decimal("-1.00")] * 2, pa.decimal128(10, 2)),
        "bytes": pa.array([b"\0\xff", b"", b"a", None]),
        "list": pa.array([[1, 2], [], None, [3]]),
        "word": pa.array(["x", "y", "x", None]).dictionary_encode().cast(pa.string()),
        "span": pa.array([1, 2, 3, None], pa.duration("ms")),
    }
    sink = SqliteSink(path, "visits")
    sink.claim(Claim("job"))
    sink.deliver(batch(7, 0, pa.table(columns)))
    first, _, third, last = sqlite_rows(path, "visits")
    assert first == {
        "page": "a",
        "int": 2**63 - 1,
        "small": 1,
        "float": 0.1,
        "flag": 1,
        "time": "2024-05-06T07:08:09.010Z",
        "day": "2024-05-06",
        "exact": "0.10",
        "bytes": b"\0\xff",
        "list": "[1,2]",
        "word": "x",
        "span": 1,
        "revision": 7,
    }
    assert third["page"] == "q\"u'o\nte" and third["list"] is None
    assert {name for name, value in last.items() if value is not None} == {"exact", "list", "revision"}
    with closing(sqlite3.connect(path)) as database:
        kinds = dict(database.execute("SELECT name, type FROM pragma_table_info('visits')").fetchall())
    assert kinds == {
        **dict.fromkeys(("int", "small", "flag", "span", "revision"), "INTEGER"),
        **dict.fromkeys(("page", "time", "day", "exact", "list", "word"), "TEXT"),
        "float": "REAL",
        "bytes": "BLOB",
    }


def test_an_upsert_replaces_and_a_rollback_puts_back(path: Path) -> None:
    """A key that was there before would keep what was taken back, or be gone."""
    sink = SqliteSink(path, "visits", mode="upsert")
    sink.claim(Claim("job", key=KEY, schema=outputs_of({}).schema))
    states = []
    for number, values in ((1, {"a": 1, "b": 1}), (2, {"a": 2, "c": 2}), (5, {"a": 5, "d": 5}), (6, {"c": 6, "e": 6})):
        sink.deliver(batch(number, states[-1][0] if states else 0, outputs_of(values)))
        states.append((number, rows(path)))
    assert states[-1][1] == {("a", 5, 5), ("b", 1, 1), ("c", 6, 6), ("d", 5, 5), ("e", 6, 6)}
    for _ in range(2):
        sink.retract(back(3, 9))
        assert rows(path) == states[1][1] == {("a", 2, 2), ("b", 1, 1), ("c", 2, 2)}
    sink.deliver(batch(10, 9, outputs_of({"a": 10})))
    sink.retract(back(None, 11))
    assert ("a", 10, 10) in rows(path) and sink.newest("job") == 11 and sink.newest("other") == -1
    sink.retract(back(2, 12))
    assert rows(path) == states[0][1]


def test_a_decimal_key_whose_scale_grows_stays_one_row(path: Path) -> None:
    """The row of 1.5 would stay as it is beside a new one of 1.50."""
    sink = SqliteSink(path, "visits", mode="upsert")
    for number, scale in ((1, 1), (2, 2), (3, 3)):
        price = pa.array([decimal.Decimal("1.5"), decimal.Decimal("100")], pa.decimal128(9, scale))
        sums = pa.array([decimal.Decimal("2.50")] * 2, pa.decimal128(9, 2))
        sink.deliver(batch(number, number - 1, pa.table({"price": price, "value": sums}), ("price",)))
    assert rows(path) == {("1.5", "2.50", 3), ("100", "2.50", 3)}
    sink.retract(back(2, 4, ("price",)))
    assert rows(path) == {("1.5", "2.50", 1), ("100", "2.50", 1)}


def test_a_column_that_left_the_outputs_is_put_back_as_it_was(path: Path) -> None:
    """The rollback of a job that has dropped a field would leave NULL where its value still stood."""
    sink = SqliteSink(path, "visits", mode="upsert")

    def outputs(**columns: int) -> pa.Table:
        return pa.table({"page": ["a"], **{name: [value] for name, value in columns.items()}})

    sink.deliver(batch(1, 0, outputs(visits=1, debug=50)))
    sink.deliver(batch(2, 1, outputs(visits=2)))
    assert rows(path) == {("a", 2, 50, 2)}
    sink.retract(back(2, 3))
    assert rows(path) == {("a", 1, 50, 1)}
    sink.deliver(batch(4, 3, outputs(visits=4)))
    sink.deliver(batch(5, 4, outputs(visits=5, debug=7)))
    sink.retract(back(4, 6))
    assert rows(path) == {("a", 1, 50, 1)}
    with closing(sqlite3.connect(path)) as database:
        database.execute("ALTER TABLE visits DROP COLUMN debug")
    sink.deliver(batch(7, 6, outputs(visits=7)))
    sink.retract(back(7, 8))
    assert rows(path) == {("a", 1, 1)}


def test_a_table_has_one_mark_however_its_name_is_written(path: Path) -> None:
    """Another spelling is the same table in SQLite: a batch would be there twice, or another job's beside it."""
    SqliteSink(path, "visits").claim(Claim("job"))
    SqliteSink(path, "visits").deliver(batch(1, 0, outputs_of({"a": 1})))
    other = SqliteSink(path, "Visits")
    other.claim(Claim("job", shown=1))
    other.deliver(batch(1, 0, outputs_of({"a": 1})))
    other.deliver(batch(2, 1, outputs_of({"b": 2})))
    assert rows(path) == {("a", 1, 1), ("b", 2, 2)} and len(sqlite_rows(path, "visits")) == 2
    assert SqliteSink(path, "VISITS").newest("job") == 2 and len(sqlite_rows(path, "persistent_marks")) == 1
    with pytest.raises(SinkMismatch, match="Two jobs write here"):
        SqliteSink(path, "VISITS").claim(Claim("another"))


def test_nan_is_no_key_of_an_upsert(path: Path) -> None:
    """SQLite stores NULL for it, and refuses that in a key, once the batch can no longer be changed."""
    outputs = pa.table({"page": [1.0, float("nan")], "value": [1.0, float("nan")]})
    with pytest.raises(InvalidPipeline, match="NaN in the key column 'page'"):
        SqliteSink(path, "visits", mode="upsert").check(outputs, KEY)
    SqliteSink(path, "visits").check(outputs, KEY)
    SqliteSink(path, "visits", mode="upsert").check(outputs.slice(0, 1), KEY)
    SqliteSink(path, "visits", mode="upsert").check(outputs.set_column(0, "page", pa.array([1, 2])), KEY)


def test_what_was_replaced_is_forgotten_with_the_checkpoints(path: Path) -> None:
    """The table would grow with every row that ever was; and a rollback further back would half succeed."""
    sink = SqliteSink(path, "visits", mode="upsert")
    sink.claim(Claim("job", key=KEY))
    for number in range(1, 6):
        sink.deliver(batch(number, number - 1, outputs_of({"a": number}), oldest=max(0, number - 2)))
    assert [row["persistent_batch"] for row in sqlite_rows(path, "persistent_before_visits")] == [4, 5]
    found = rows(path)
    with pytest.raises(InvalidPipeline, match=r"batches up to 3 can no longer .*rollback file:///c 6 --outputs=again"):
        sink.retract(back(3, 6))
    assert rows(path) == found and sink.newest("job") == 5
    sink.retract(back(4, 6))
    assert rows(path) == {("a", 3, 3)}


@pytest.mark.parametrize("before", ["upsert", "append"])
def test_a_second_rollback_goes_back_behind_the_first(path: Path, before: str) -> None:
    """The first one moves the mark, and nothing was there to be replaced. Accepted, and then refused, it would end
    every run."""
    roll_back_twice(lambda mode: SqliteSink(path, "visits", mode=mode), (before, "upsert"))
    assert [(row["window_start"][14:19], row["value"]) for row in sqlite_rows(path, "visits")] == [
        ("00:00", 3),
        ("01:00", 3),
    ]


def test_another_mode_takes_back_nothing_of_the_one_before(path: Path) -> None:
    """What was added cannot be told from what was replaced."""
    for mode, number in (("append", 1), ("upsert", 2), ("append", 3)):
        sink = SqliteSink(path, "visits", mode=mode)
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE IF NOT EXISTS visits (page TEXT PRIMARY KEY, value INT, revision INT)")
        sink.claim(Claim("job", key=KEY))
        sink.deliver(batch(number, number - 1, outputs_of({f"p{number}": number})))
        if number > 1:
            with pytest.raises(InvalidPipeline, match=f"batches up to {number - 1} can no longer"):
                sink.retract(back(number - 1, 9))
    sink.retract(back(3, 9))
    assert rows(path) == {("p1", 1, 1), ("p2", 2, 2)}


def test_the_largest_revision_of_a_key_stays(path: Path) -> None:
    """An older result would replace a newer one; or be left out, and nobody would be told."""
    sink = SqliteSink(path, "visits", mode="upsert")
    sink.claim(Claim("job", key=KEY))
    with_7 = outputs_of({"a": 1}).append_column("revision", pa.array([7]))
    sink.deliver(batch(7, 0, with_7))
    with pytest.raises(SinkMismatch, match=r"has accepted 1 of 2 rows: .* or has a higher revision under the same key"):
        sink.deliver(batch(8, 7, outputs_of({"a": 2, "b": 2}).append_column("revision", pa.array([3, 3]))))
    assert rows(path) == {("a", 1, 7)} and sink.newest("job") == 7


@pytest.mark.parametrize("files", [1, 2])
def test_a_batch_that_has_a_key_twice_is_refused(path: Path, files: int) -> None:
    """The last of its rows would stay, whichever that is."""

    class Twice(OutputBatch):
        def tables(self) -> Any:
            return iter(both if files == 2 else [pa.concat_tables(both)])

    both = [outputs_of({"a": 1}), outputs_of({"a": 2})]
    sink = SqliteSink(path, "visits", mode="upsert")
    sink.claim(Claim("job", key=KEY))
    with pytest.raises(SinkMismatch, match=r"has accepted . of . rows: .* or a key is there twice"):
        sink.deliver(Twice("job", 1, 0, 0, 1, "file:///c", KEY, (), lambda staged: both[0]))
    assert sink.newest("job") == 0


def test_rows_of_others_are_replaced_and_put_back(path: Path) -> None:
    """They have no revision: they would stay as they are, or be gone after a rollback."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE visits (page TEXT PRIMARY KEY, value INT, revision INT)")
        database.execute("INSERT INTO visits VALUES ('a', -1, NULL)")
        database.commit()
    sink = SqliteSink(path, "visits", mode="upsert")
    sink.claim(Claim("job", key=KEY))
    sink.deliver(batch(1, 0, outputs_of({"a": 1, "b": 1})))
    assert rows(path) == {("a", 1, 1), ("b", 1, 1)}
    sink.retract(back(1, 3))
    assert rows(path) == {("a", -1, 0)}


def test_a_null_key_is_refused_where_it_is_staged(path: Path) -> None:
    """No two nulls are the same: the row would never be replaced. And what is committed can only be published."""
    outputs = pa.table({"page": ["a", None], "value": [1, 2]})
    with pytest.raises(InvalidPipeline, match="a null in the key column 'page', which mode"):
        SqliteSink(path, "visits", mode="upsert").check(outputs, KEY)
    SqliteSink(path, "visits").check(outputs, KEY)
    with pytest.raises(InvalidPipeline, match="'n' has the integer 9223372036854775808, but"):
        SqliteSink(path, "visits").check(pa.table({"n": pa.array([2**63], pa.uint64())}), ())


def test_options_that_cannot_be_are_refused(path: Path) -> None:
    """A misspelled mode would add what was to be replaced."""
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: SqliteSink(path, "visits", mode="replace"), "mode='replace': choose one of append, upsert"),
        (lambda: SqliteSink(":memory:", "visits"), "a database in memory is not durable"),
        (lambda: SqliteSink(path, ""), "give the name of a table"),
        (lambda: SqliteSink(path, "Persistent_Marks"), "is a table of the sink's own: choose another name"),
        (lambda: SqliteSink(path, "persistent_before_visits"), "is a table of the sink's own"),
        (lambda: SqliteSink(path, "persistent_incoming"), "is a table of the sink's own"),
        (lambda: SqliteSink("visits", path), r"are path='visits' and table= the other way round\?"),  # type: ignore[arg-type]
        (lambda: SqliteSink("visits", "results.db"), "the other way round"),
        (
            lambda: columns_of(pa.schema([("a", "int64")]), (), "upsert", "t"),
            'this task has neither: use mode="append"',
        ),
        (lambda: columns_of(pa.schema([("revision", "int64")]), ("window_start",), "append", "t"), "rename the field"),
    ]
    for act, text in wrong:
        with pytest.raises(InvalidPipeline, match=text):
            act()


def test_a_file_that_cannot_be_had_says_what_to_do(tmp_path: Path) -> None:
    """An error of SQLite says neither which file nor what now."""
    (tmp_path / "text.db").write_text("no database" * 100)
    with closing(sqlite3.connect(tmp_path / "locked.db")) as database:
        database.execute("CREATE TABLE t (a)")
        database.execute("BEGIN IMMEDIATE")
        for name, text in {
            "none/results.db": "unable to open database file.*Create the folder",
            "text.db": "not a database.*Give the path of a SQLite file",
            "locked.db": "locked.*lock_timeout=",
        }.items():
            with pytest.raises(StorageError, match=f"cannot claim SqliteSink.*{text}.*the last checkpoint is good"):
                SqliteSink(tmp_path / name, "visits", lock_timeout="1 ms").claim(Claim("job"))


class Totals(PersistentTask):
    """Sums per key, without windows."""

    key = "page"

    def persistent_state(self) -> Any:
        return NonWindowState(Sum())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


def test_a_job_keeps_the_table_at_the_newest_values(path: Path, tmp_path: Path) -> None:
    """What users want of an upsert: the state, in a table, through runs, rollbacks and a second look."""
    rows_in = [{"ts": n, "page": f"p{n % 3}", "n": n} for n in range(1, 31)]

    def run(count: int) -> None:
        source = MemorySource(rows_in[:count], timestamp="ts", ordered=True)
        sink = SqliteSink(path, "visits", mode="upsert")
        job = Pipeline(source=source, task=Totals(), sink=sink, checkpoint=str(tmp_path / "c"), step_rows=10)
        job.run(engine=Embedded(threads=1), end_of_input=True)

    def expected(count: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for row in rows_in[:count]:
            found[str(row["page"])] = found.get(str(row["page"]), 0) + int(str(row["n"]))
        return found

    def values() -> dict[str, int]:
        return {row["page"]: row["value"] for row in sqlite_rows(path, "visits")}

    for count in (10, 20, 20):
        run(count)
        assert values() == expected(count)
    ids = [row["number"] for row in sqlite_rows(path, "persistent_marks")]
    rollback(str(tmp_path / "c"), 3, outputs="retract", take_over=True)
    run(30)
    assert values() == expected(30)
    assert [row["number"] for row in sqlite_rows(path, "persistent_marks")] > ids
    with pytest.raises(Fenced):
        SqliteSink(path, "visits", mode="upsert").deliver(
            OutputBatch(
                sqlite_rows(path, "persistent_marks")[0]["job"], 5, 4, 0, 5, "c", KEY, (), lambda one: pa.table({})
            )
        )


def test_statements_are_read_by_sqlite_as_they_are() -> None:
    """A name with a quote in it would end the statement, or begin another."""
    odd = 'odd "name"; --'
    made = Statements(quoted(odd), quoted(f"before {odd}"), ("k", odd, "revision"), ("k",))
    with closing(sqlite3.connect(":memory:")) as database:
        columns = f"k PRIMARY KEY, {quoted(odd)}, revision"
        database.execute(f"CREATE TABLE {made.target} ({columns})")
        database.execute(f"CREATE TABLE {made.images} (persistent_batch, k, {quoted(odd)}, revision)")
        database.execute(f"CREATE TABLE incoming AS SELECT 'a' AS k, 1 AS {quoted(odd)}, 7 AS revision")
        for statement in (made.save("incoming", 7), made.upsert("incoming")):
            database.execute(statement)
        assert database.execute(f"SELECT * FROM {made.target}").fetchall() == [("a", 1, 7)]
        for statement in made.restore(7):
            database.execute(statement)
        assert database.execute(f"SELECT * FROM {made.target}").fetchall() == []
        database.execute(made.take_back(1))
        assert database.execute(f"SELECT * FROM {made.target}").fetchall() == []
        database.execute(made.forget(9))
    assert with_revision(outputs_of({"a": 1}), 7)["revision"].to_pylist() == [7]
