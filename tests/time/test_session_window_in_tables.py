"""Sessions in a table with mode="upsert": WHERE NOT retracted it holds, after every step, what a reader of all rows
does, and in the end the plain sessions, whatever has happened meanwhile."""

from __future__ import annotations

import random
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from persistent import Embedded, MemorySink, Retention, SinkMismatch, SqliteSink
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.connect.sink import OutputBatch, Retreat
from persistent.operations import compact, rollback, savepoint
from persistent.testing.faults import FaultyStorage, Killed, Operations
from persistent.verify import verify
from tests.crash.worlds import InTurn
from tests.few import one_in
from tests.sessions import Row, Run, Session, Visits, expected, kept_of, run_of, sessions_in, settled, straggling
from tests.single import only
from tests.time.test_session_window_changes import current
from tests.time.test_session_window_lateness import Two, at, small_folds

OPTIONS: tuple[dict[str, Any], ...] = ({}, {"emit": "change"}, {"early": 25}, {"early": 30})
"""Published as they close, as they change, and now and then; all of them are taken back by late records."""
KEPT = {"retention": Retention(last=10_000)}


@dataclass
class Shown(Run):
    """Publishes to a table, and beside it every row. After each step the reader of both holds the same."""

    path: Path = field(default_factory=Path)
    every: MemorySink = field(default_factory=MemorySink)
    before: Sequence[Row] = ()
    """The rows that the job has published from whose savepoint this one starts."""
    final: int = 0
    """Up to where sessions were final at that savepoint: a new sink is given all later ones."""
    stops: list[int] = field(default_factory=list)
    is_plain: bool = True
    """Whether the table is the plain one after every step; after a rollback that leaves outputs it is so in the end."""

    def __post_init__(self) -> None:
        self.sink = {"every": self.every, "table": self.table()}

    def table(self) -> Any:
        return SqliteSink(str(self.path / "t.db"), "t", mode="upsert")

    def select(self) -> list[Row]:
        """The current rows of the table."""
        with closing(sqlite3.connect(self.path / "t.db")) as database:
            database.row_factory = sqlite3.Row
            is_there = database.execute("SELECT * FROM sqlite_master WHERE name = 't'").fetchall()
            found = database.execute("SELECT * FROM t WHERE NOT retracted").fetchall() if is_there else []
        borders = ("window_start", "window_end")
        return [{**row, **{one: datetime.fromisoformat(row[one]) for one in borders}} for row in map(dict, found)]

    def clean(self) -> None:
        """Delete the rows that do not count."""
        with closing(sqlite3.connect(self.path / "t.db")) as database, suppress(sqlite3.OperationalError):
            database.execute("DELETE FROM t WHERE retracted")
            database.commit()

    def shown(self) -> list[Session]:
        return sessions_in(self.select())

    def go(self, stop: int | None = None, **options: Any) -> Any:
        """A run over so many records; over all of them it ends the input."""
        self.stops += [] if stop is None else [stop]
        engine = options.pop("engine", "embedded")
        pipeline = self.pipeline(self.rows if stop is None else self.rows[:stop], **KEPT, **options)
        report = pipeline.run(engine=engine, end_of_input=stop is None, on_step=lambda step: self.compare())
        self.compare()
        return report

    def compare(self) -> None:
        """The table holds what a reader of all rows does; published as they close or change, the plain sessions too."""
        found = self.shown()
        assert found == self.current()
        newest = newest_of(Log(self.storage)).manifest
        if newest.kind == "checkpoint" and self.is_plain and "early" not in self.task.options:
            plain = expected(kept_of(self, self.stops, self.read()), self.task.gap, self.task.cut)
            closed = newest.clock.closed if "emit" not in self.task.options else 1 << 60
            assert found == [one for one in plain if one[2] <= closed]

    def current(self) -> list[Session]:
        """What a reader of all rows holds."""
        rows = self.every.rows()
        return current([*settled(self.before, self.final), *rows] if rows else self.before)

    def read(self) -> int:
        """How many records the newest checkpoint has read."""
        return sum(account.read for account in newest_of(Log(self.storage)).manifest.accounts.values())

    def whole(self) -> list[Session]:
        return expected(kept_of(self, self.stops), self.task.gap, self.task.cut)

    def ids(self) -> list[int]:
        return sorted(newest_of(Log(self.storage)).manifest.bases)


@contextmanager
def shown_of(
    seed: int, path: Path, options: dict[str, Any], *, allowed: int = 60, behind: int = 4, count: int = 30
) -> Iterator[Shown]:
    rows = straggling(seed, count, behind, 10, allowed)
    made = Shown(rows, Visits(allowed_lateness=allowed, **options), behind, 1 + seed % 3, path=path)
    with small_folds(seed):
        yield made
    made.storage.clear()


SEEDS = [(seed, one) for seed in range(9) for one in OPTIONS]


@pytest.mark.parametrize(("seed", "options"), one_in(17, SEEDS))
def test_the_table_is_what_a_reader_of_all_rows_holds(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    """Whatever the lateness, the steps, the folds, the shards, and where the job restarts."""
    behind, allowed, rng = (0, 4, 30)[seed % 3], (30, 5, 80, 200)[seed % 4], random.Random(seed)
    with shown_of(seed, tmp_path, options, allowed=allowed, behind=behind) as made:
        for number, stop in enumerate(sorted(rng.sample(range(1, 30), seed % 3))):
            made.go(stop, engine=Embedded(threads=1 + number % 3))
            if number % 2:
                compact(made.pipeline())
                made.clean()
        made.go()
        assert made.shown() == made.whole()
        assert made.go().outputs == 0 and verify(made.storage).ok


def test_the_table_keeps_one_row_of_a_session_that_is_taken_back_and_published_again(tmp_path: Path) -> None:
    """A session whose values change and borders do not is taken back and published in one batch: the new row wins. One
    that is joined stays, retracted; one that comes back to the borders that it had is current again."""
    made = Shown([*at(0, 5), *at(3), *at(14), *at(18)], Visits(emit="change", allowed_lateness=50), 0, 1, path=tmp_path)
    made.go(2)
    report = made.go(3)
    assert report.outputs == 2 and made.shown() == [("a", 0, 15, 3, 8, 5)]
    made.go(5)
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        found = database.execute("SELECT window_end, rows, retracted FROM t ORDER BY window_end").fetchall()
    assert [(end[-4:-1], *others) for end, *others in found] == [
        ("010", 1, 1),
        ("015", 3, 1),
        ("024", 4, 1),
        ("028", 5, 0),
    ]
    made.storage.clear()


# -- deaths --------------------------------------------------------------------------------------------------------


class Dying(SqliteSink):
    """Dies at a call that writes, before it or after it."""

    deaths: Iterator[str] = iter(())

    def deliver(self, batch: OutputBatch) -> None:
        self._write_or_die(super().deliver, batch)

    def retract(self, retreat: Retreat) -> None:
        self._write_or_die(super().retract, retreat)

    def _write_or_die(self, write: Any, what: Any) -> None:
        death = next(self.deaths, "")
        if death == "before":
            raise Killed(death)
        write(what)
        if death == "after":
            raise Killed(death)


@pytest.mark.parametrize(("seed", "options"), one_in(9, SEEDS[:16]))
def test_a_process_that_dies_publishes_each_batch_once(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    """Between staging and publishing, in the middle of either, again and again."""
    rng = random.Random(seed)
    with shown_of(seed, tmp_path, options) as made:
        made.sink = {**made.sink, "table": Dying(str(tmp_path / "t.db"), "t", mode="upsert")}
        inner = made.storage
        for _ in range(12):
            Dying.deaths = iter(rng.choices(("before", "after", ""), (1, 1, 6), k=100))
            made.storage = FaultyStorage(inner, Operations(rng.randrange(10, 120), rng.choice(("before", "after"))))
            with suppress(Killed):
                made.pipeline(**KEPT).run(engine=InTurn(1))
        made.storage, Dying.deaths = inner, iter(())
        made.go()
        assert made.shown() == made.whole()


# -- operations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "options"), one_in(9, SEEDS[15::-1]))
def test_a_rollback_puts_back_what_the_table_had(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    """Before the job reads on, and in the end; and so does one beyond another, though retracted rows were deleted."""
    with shown_of(seed, tmp_path, options) as made:
        made.go(30)
        ids = made.ids()
        for number, back in enumerate((-2, -3, len(ids) // 2, 3)):
            made.clean() if number == 1 else None
            rollback(made.storage, ids[back], outputs="retract")
            made.pipeline(made.rows[: made.read()], **KEPT).run(engine="embedded")
            assert made.shown() == made.current(), back
            made.go(30)
        made.go()
        assert made.shown() == made.whole()


@pytest.mark.parametrize(("seed", "options"), one_in(9, SEEDS[13::-1]))
def test_a_rollback_that_leaves_outputs_comes_to_the_same(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    with shown_of(seed, tmp_path, options) as made:
        made.go(30)
        made.is_plain = False
        for back in (5, 3):
            rollback(made.storage, made.ids()[back], outputs="again")
            made.go(30)
        made.go()
        assert made.shown() == made.whole()


@pytest.mark.parametrize("seed", one_in(4, range(4)))
def test_what_a_rollback_has_left_is_taken_back(seed: int, tmp_path: Path) -> None:
    """By another rollback to the same checkpoint: the job goes on to other sessions than before."""
    with shown_of(seed, tmp_path, {}) as made:
        made.go(30)
        target = made.ids()[len(made.ids()) // 2]
        for outputs in ("again", "retract"):
            rollback(made.storage, target, outputs=outputs)
        read = made.read()
        made.rows = [*made.rows[:read], *straggling(seed + 100, 20, 4, 10, 60)]
        made.stops = [read]
        made.go()
        assert made.shown() == made.whole()


@pytest.mark.parametrize(("seed", "options"), one_in(5, SEEDS[:8]))
def test_a_table_that_joins_holds_what_is_not_final(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    """It is told of retractions of rows that it never had."""
    with shown_of(seed, tmp_path, options) as made:
        both, made.sink = made.sink, {"every": made.every}
        made.pipeline(made.rows[:18], **KEPT).run(engine="embedded")
        node = only(newest_of(Log(made.storage)).manifest.nodes)
        made.sink, made.stops = both, [18]
        made.pipeline(**KEPT).run(engine="embedded", end_of_input=True)
        whole, found = made.whole(), made.shown()
        assert made.current() == whole and set(found) <= set(whole)
        assert {one for one in whole if one[2] > (node.final if options else node.clock.closed)} <= set(found)


@pytest.mark.parametrize(("seed", "options"), one_in(5, SEEDS[:8]))
def test_an_heir_goes_on_in_the_table(seed: int, options: dict[str, Any], tmp_path: Path) -> None:
    with shown_of(seed, tmp_path, options) as made:
        made.go(18)
        origin = made.storage
        heir = Shown(made.rows, made.task, made.behind, made.step_rows, path=tmp_path, before=made.every.rows())
        heir.final = only(newest_of(Log(origin)).manifest.nodes).final
        heir.is_plain, heir.stops = not options, [18]
        heir.go(24, start_from=savepoint(origin, "half"))
        heir.go()
        assert heir.shown() == heir.whole()
        heir.storage.clear()


@pytest.mark.parametrize("options", OPTIONS[:3])
def test_a_correction_by_hand_joins_sessions_of_the_table(options: dict[str, Any], tmp_path: Path) -> None:
    rows = [*at(0, 18), *at(30, key="z"), *at(31, key="z")]
    made = Shown(rows, Visits(allowed_lateness=25, **options), 0, 1, path=tmp_path)
    made.go(4)
    for _ in range(2):
        made.pipeline(**KEPT).correct(name="forgotten", add=at(9), engine="embedded")
        assert [one[1:] for one in made.shown() if one[0] == "a"] == [(0, 28, 3, 27, 18)]
    made.is_plain = False
    made.go()
    assert made.shown() == expected([*rows, *at(9)], 10, 50)
    made.storage.clear()


# -- options -------------------------------------------------------------------------------------------------------


def test_rows_that_were_staged_for_a_table_that_added_them_replace_each_other(tmp_path: Path) -> None:
    """The mode was changed between a crash and the next run, which finds both rows of a session in one batch."""
    rows, add, path = [*at(0, 5), *at(3)], Dying(str(tmp_path / "t.db"), "t"), tmp_path / "t.db"
    with run_of(rows, task=Visits(emit="change", allowed_lateness=20), step_rows=1) as made:
        made.run(rows[:1], sink={"table": add})
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE UNIQUE INDEX one ON t (key, window_start, window_end)")
        made.run(rows[:1], sink={"table": SqliteSink(str(path), "t", mode="upsert")})
        made.run(rows[:2], sink={"table": SqliteSink(str(path), "t", mode="upsert")})
        Dying.deaths = iter(["before"])
        with pytest.raises(Killed):
            made.run(rows, sink={"table": add}, engine=InTurn(1))
        Dying.deaths = iter(())
        made.run(sink={"table": SqliteSink(str(path), "t", mode="upsert")})
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("SELECT rows FROM t WHERE NOT retracted").fetchall() == [(3,)]


def test_lateness_comes_to_a_table_and_goes(tmp_path: Path) -> None:
    """Rows from before the column count, as the statement says that adds it; and so do those since it is given no
    more."""
    rows = [*at(0), *at(40, 41, key="z"), *at(60), *at(90, 91, key="z"), *at(65), *at(150, 151)]
    made = Shown(rows, Visits(), 0, 1, path=tmp_path)
    table = made.table()
    made.run(rows[:3], sink=table)
    made.task = Visits(allowed_lateness=30)
    with pytest.raises(SinkMismatch, match='ADD COLUMN "retracted" INTEGER DEFAULT false') as raised:
        made.run(rows[:7], sink=table)
    (statement,) = re.findall("ALTER TABLE .* DEFAULT false", str(raised.value))
    with closing(sqlite3.connect(tmp_path / "t.db")) as database:
        database.execute(statement)
    made.run(rows[:7], sink=table)
    assert made.shown()[:2] == [("a", 0, 10, 1, 0, 0), ("a", 60, 75, 2, 125, 65)]
    made.task = Visits(allowed_lateness=0, late="retract")
    made.run(rows[:8], sink=table)
    made.task = Visits()
    made.run(sink=table)
    assert made.shown() == expected(rows, 10, 50)
    made.storage.clear()


def test_a_table_that_the_sink_has_made_shows_rows_without_the_mark(tmp_path: Path) -> None:
    rows = [*at(0), *at(40, key="z"), *at(41, key="z"), *at(90, key="z"), *at(150, 151)]
    made = Shown(rows, Visits(allowed_lateness=30), 0, 1, path=tmp_path)
    for stop, task in ((3, made.task), (4, Visits(allowed_lateness=0, late="retract")), (None, Visits())):
        made.task = task
        made.run(None if stop is None else rows[:stop], sink=made.table())
    assert made.shown() == expected(rows, 10, 50)
    made.storage.clear()


GROWN = [*at(0), *at(40, 41, key="z"), *at(5)]
"""A session that is published, and grows when it is closed."""


def check_a_row_counts_again(made: Shown) -> None:
    """After a rollback that leaves outputs and the end of lateness, the session of ``GROWN`` is published with the
    borders of one that is marked as taken back. A rollback that takes outputs back restores the mark."""
    made.run(sink=made.table())
    before = [("a", 0, 15, 2, 5, 5), ("z", 40, 50, 2, 81, 41)]
    assert made.shown() == before
    back = rollback(made.storage, made.ids()[0], outputs="again")
    made.task = Visits()
    made.run(sink=made.table())
    assert made.shown() == [("a", 0, 10, 1, 0, 0), *before]
    rollback(made.storage, back.manifest.id, outputs="retract")
    made.run(made.rows[:1], sink=made.table())
    assert made.shown() == before
    made.storage.clear()


def test_a_row_that_was_taken_back_counts_again_without_the_mark(tmp_path: Path) -> None:
    check_a_row_counts_again(Shown(GROWN, Visits(allowed_lateness=60), 0, 1, path=tmp_path))


def test_of_several_states_each_has_a_table(tmp_path: Path) -> None:
    """One of sessions that are taken back, and one of those that are published once."""
    rows = [*at(0, 18), *at(40, 41, key="z"), *at(9)]
    path = str(tmp_path / "t.db")
    sinks = {name: SqliteSink(path, name, mode="upsert") for name in ("patient", "strict")}
    with run_of(rows, task=Two(), step_rows=1) as made:
        made.run(sink=sinks)
    with closing(sqlite3.connect(path)) as database:
        patient = database.execute("SELECT value FROM patient WHERE key = 'a' AND NOT retracted").fetchall()
        strict = database.execute("SELECT value FROM strict WHERE key = 'a'").fetchall()
    assert (patient, strict) == ([(3,)], [(1,), (1,)])


@pytest.mark.check
@pytest.mark.spark
def test_on_spark_the_table_is_what_a_reader_of_all_rows_holds(spark: Any, tmp_path: Path) -> None:
    """Rows are staged by workers, and published by the driver."""
    made = Run(straggling(8, 40, 4, 10, 60), Visits(emit="change", allowed_lateness=60), 4, 8, str(tmp_path / "c"))
    table = Shown([], path=tmp_path)
    made.pipeline(sink=table.sink["table"]).run(spark, end_of_input=True)
    assert table.shown() == expected(kept_of(made), 10, 50)
