"""What sinks have when a job starts from a savepoint, after a rollback, and where one of them was left out."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from monoids import Monoid, Sum
from persistent import (
    EngineError,
    InvalidPipeline,
    MemorySource,
    PersistentTask,
    Pipeline,
    SinkMismatch,
    SqliteSink,
    WindowState,
    session,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.operations import rollback, savepoint
from persistent.storage import MemoryStorage


class Counts(PersistentTask):
    name = "counts"
    key = "key"

    def __init__(self, state: Callable[[], Any]) -> None:
        self.state = state

    def persistent_state(self) -> Any:
        return self.state()

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


class Capped(Monoid[int]):
    """The sum of numbers that are not negative; raises beyond ten."""

    identity = 0
    commutative = True
    output_type = pa.int64()

    def combine(self, a: int, b: int) -> int:
        if a + b > 10:
            raise ValueError("too much")
        return a + b


def late() -> WindowState:
    return WindowState(Sum(), tumbling(10), allowed_lateness=100, late="retract")


def stays() -> WindowState:
    return WindowState(Sum(), session(6, cut=1000), emit="change", changes="retract", allowed_lateness=100)


def rows_at(*times: int) -> list[dict[str, Any]]:
    return [{"ts": time, "key": "a", "n": 1} for time in times]


ROWS = rows_at(5, 15, 25)


def store() -> MemoryStorage:
    return MemoryStorage(f"places-{uuid.uuid4().hex}")


@pytest.fixture
def table(tmp_path: Path) -> Callable[[], SqliteSink]:
    return lambda: SqliteSink(str(tmp_path / f"{uuid.uuid4().hex}.db"), "t")


def run(
    storage: MemoryStorage, rows: list[dict[str, Any]], sink: Any, state: Callable[[], Any] = late, **options: Any
) -> Any:
    source = MemorySource(rows, timestamp="ts", ordered=True)
    given = {"max_future": "40000 days", "step_rows": 1, "on_error": "dead-letter", **options}
    return Pipeline(source=source, task=Counts(state), sink=sink, checkpoint=storage, **given).run(engine="embedded")


def shown(sink: SqliteSink) -> list[tuple[int, int, bool]]:
    """The start of the window (ms), the value, and whether the row takes back."""
    query = "SELECT substr(window_start, 21, 3), value, retracted FROM t ORDER BY rowid"
    return [(int(start), value, bool(back)) for start, value, back in sqlite3.connect(sink.path).execute(query)]


def test_a_range_of_windows_without_rows_is_no_failure_beside_one_whose_fold_raises(table: Any) -> None:
    """Every run ended with an EngineError that named no key, once the clock had passed the lateness at once."""
    sink, rows = table(), [*rows_at(41, 42), {"ts": 75, "key": "z", "n": 1}, {"ts": 95, "key": "z", "n": 1}]
    rows = [{**row, "n": 6 if row["key"] == "a" else 1} for row in rows]
    run(store(), rows, sink, lambda: WindowState(Capped(), tumbling(10), allowed_lateness=12))
    assert shown(sink) == [(70, 1, False)]


def test_an_heir_that_goes_back_to_its_beginning_publishes_nothing_a_second_time(table: Any) -> None:
    """What the origin had published was told once more, without a retraction."""
    origin, heir, sink, more = store(), store(), table(), [*ROWS, *rows_at(45)]
    run(origin, ROWS, sink, stays)
    run(heir, more, sink, stays, start_from=savepoint(origin, "s"))
    rollback(heir, min(Log(heir).newest().manifest.bases), outputs="retract")  # type: ignore[union-attr]
    run(heir, more, sink, stays)
    assert shown(sink) == [(5, 1, False), (15, 1, False), (25, 1, False), (45, 1, False)]


@pytest.mark.parametrize("heirs", [0, 1])
def test_a_sink_that_a_rollback_has_emptied_gets_what_it_lacks(heirs: int, table: Any) -> None:
    """Without a record it stayed empty, and an heir took it for a sink that had all."""
    job, sinks = store(), {"one": table(), "two": table()}
    run(job, ROWS, {"one": sinks["one"]})
    before = Log(job).newest().manifest.base  # type: ignore[union-attr]
    run(job, ROWS, sinks)
    rollback(job, before, outputs="retract")
    if heirs:
        with pytest.raises(EngineError, match="killed"):
            run(job, ROWS, {"one": sinks["one"], "two": Killing(sinks["two"].path, "t")})
        # The fence has emptied it, and no checkpoint has filled it.
        origin, job = job, store()
        run(job, ROWS, sinks, start_from=savepoint(origin, "s"))
    else:
        run(job, ROWS, sinks)
    assert shown(sinks["two"]) == shown(sinks["one"]) == [(0, 1, False), (10, 1, False)]


class Killing(SqliteSink):
    """Stages nothing: the driver dies after it has taken over."""

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        if outputs.num_rows:
            raise RuntimeError("killed")
        super().check(outputs, key)


def test_an_heir_refuses_a_table_that_it_has_left_out(table: Any) -> None:
    """It lacked what was published since, and was taken back what it never had."""
    origin, heir, first, second = store(), store(), table(), table()
    run(origin, ROWS, {"one": first, "two": second})
    run(heir, [*ROWS, *rows_at(35, 45)], {"one": first}, start_from=savepoint(origin, "s"))
    with pytest.raises(SinkMismatch, match="holds the results of job"):
        run(heir, [*ROWS, *rows_at(35, 45, 36)], {"one": first, "two": second})


def test_an_heir_of_an_heir_that_had_nothing_to_do_goes_on_in_its_table(table: Any) -> None:
    """Its claim was in no checkpoint, so that the next job was refused for ever."""
    origin, heir, last, sink = store(), store(), store(), table()
    run(origin, ROWS[:1], table())
    run(heir, ROWS[:1], sink, start_from=savepoint(origin, "s"))
    run(last, ROWS, sink, start_from=savepoint(heir, "s"))
    assert shown(sink) == [(0, 1, False), (10, 1, False)]


def test_an_heir_that_was_first_given_a_wrong_table_takes_the_right_one(table: Any) -> None:
    """The first had dropped the place, although nothing was committed."""
    origin, heir, sink = store(), store(), table()
    run(origin, ROWS[:1], sink)
    run(heir, ROWS[:1], table(), start_from=savepoint(origin, "s"))
    run(heir, ROWS, sink)
    assert shown(sink) == [(0, 1, False), (10, 1, False)]


def test_an_heir_with_another_emission_takes_no_table_that_has_rows(table: Any) -> None:
    """Each window counted twice there. With another table it goes on."""
    origin, heir, sink, other = store(), store(), table(), table()
    run(origin, ROWS, sink)

    def changing() -> WindowState:
        return WindowState(Sum(), tumbling(10), allowed_lateness=100, emit="change", changes="retract")

    with pytest.raises(InvalidPipeline, match="its sinks would hold rows of both"):
        run(heir, ROWS, sink, changing, start_from=savepoint(origin, "s"))
    run(heir, ROWS, other, changing)
    assert shown(other) == [(0, 1, False), (10, 1, False), (20, 1, False)]
