"""Lateness over several runs of a job: options that change, and what operations make of a published window."""

from __future__ import annotations

import sqlite3
import uuid
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Sum, record
from persistent import (
    Evolution,
    FingerprintChanged,
    MemorySink,
    Pipeline,
    Retention,
    SqliteSink,
    UnknownCheckpoint,
    WindowState,
)
from persistent.checkpoint.log import Log
from persistent.operations import compact, merge, restart, rollback, savepoint
from persistent.storage import MemoryStorage
from persistent.time.window import Window, sliding, tumbling
from tests.late import Late, Row, Run, disordered, ms, run_of
from tests.operations.test_merging import Named
from tests.single import only
from tests.time.test_lateness import WINDOWS

LATENESS = st.one_of(
    st.tuples(st.sampled_from((0, 5, 10, 35, 1000)), st.just("close"), st.sampled_from((1, 2, 5))),
    st.tuples(st.sampled_from((5, 35)), st.just("final"), st.sampled_from((1, 2, 5))),
)


def rows_at(*times: int, key: str = "a", value: int = 1) -> list[Row]:
    return [{"ts": time, "key": key, "value": value} for time in times]


def plainly(rows: list[Row], window: Window, parts: list[tuple[int, str, int, int]]) -> tuple[Any, int]:
    """The table and the number of late records, over runs of (allowed lateness, emit, rows of a step, rows read)."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    clock = closed = final = late = start = 0
    for allowed, emit, step_rows, stop in parts:
        steps = [rows[first : min(first + step_rows, stop)] for first in range(start, stop, step_rows)]
        for step in [*steps, []]:
            close_at = max(closed, clock - allowed) if emit == "final" else clock
            is_due = any(closed < start + window.size_ms <= close_at for _, start in found)
            if step or is_due:
                final = max(final, close_at if emit == "final" or not allowed else close_at - allowed)
                closed = max(closed, close_at)
            for row in step:
                numbers = range(window.first_number(row["ts"]), window.last_number(row["ts"]) + 1)
                taking = [number for number in numbers if window.end_of(number) > final]
                late += bool(numbers) and not taking
                for number in taking:
                    found[row["key"], window.start_of(number)].append(row["value"])
            clock = max([clock, *(row["ts"] for row in step)])
        start = stop
    table = {place: {"rows": len(some), "total": sum(some), "most": max(some)} for place, some in found.items()}
    return table, late


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(WINDOWS), st.lists(LATENESS, min_size=2, max_size=4))
def test_options_that_change_between_runs_open_no_final_window(
    seed: int, window: Window, parts: list[tuple[int, str, int]]
) -> None:
    """More lateness cannot bring back panes that are gone: published again, a window would have a part of its sum."""
    rows = disordered(seed, 16, 60)
    stops = [len(rows) * (number + 1) // len(parts) for number in range(len(parts))]
    late = 0
    with run_of(rows, window=window) as run:
        for number, (allowed, emit, step_rows) in enumerate(parts):
            answer = {} if emit == "final" else {"late": "accumulate"}
            run.options = {"allowed_lateness": allowed, "emit": emit, **answer}
            run.step_rows = step_rows
            ends = number == len(parts) - 1
            late += run.run(rows[: stops[number]], end_of_input=ends).late
            assert not ends or (run.final(), late) == plainly(
                rows, window, [(*part, stop) for part, stop in zip(parts, stops, strict=True)]
            )


@pytest.mark.parametrize(("late", "now"), [("retract", "accumulate"), ("retract", None), (None, "retract")])
def test_another_answer_is_refused_while_a_result_can_be_corrected(late: str | None, now: str | None) -> None:
    """Readers would sum rows that replace each other. The remedy in the message is one that works."""
    with run_of(rows_at(5, 15), step_rows=1) as run:
        run.options = {"allowed_lateness": 100, **({"late": late} if late else {})}
        run.run(end_of_input=False)
        more = rows_at(5, 15, 16)
        run.options = {"allowed_lateness": 100 if now else 0, **({"late": now} if now else {})}
        if now is None:
            run.options = {}
        with pytest.raises(FingerprintChanged, match=f"late='{late or 'accumulate'}' has become"):
            run.run(more)
        run.options = {"late": late or "accumulate"}
        run.run(more, end_of_input=False)
        run.options = {"allowed_lateness": 100, **({"late": now} if now else {})}
        assert run.run(rows_at(5, 15, 16, 17, 6)).late == 1


def test_what_was_published_when_it_closed_is_final_where_results_are_published_once() -> None:
    """It would be published a second time, or its late records never."""
    with run_of(rows_at(5, 15), step_rows=1, options={"allowed_lateness": 100}) as run:
        run.run(end_of_input=False)
        run.options = {"allowed_lateness": 100, "emit": "final"}
        assert run.run(rows_at(5, 15, 6, 16)).late == 1
        assert [(row["window"], row["total"]) for row in run.published()] == [((0, 10), 1), ((10, 20), 2)]


def test_a_second_end_of_input_publishes_nothing_again() -> None:
    with run_of(rows_at(5, 15), options={"allowed_lateness": 100}) as run:
        run.run()
        run.run()
        assert len(run.published()) == 2
        run.run(rows_at(5, 15, 6))
        assert [(row["window"], row["rows"]) for row in run.published()] == [((0, 10), 1), ((10, 20), 1), ((0, 10), 2)]


def test_a_revision_that_restarts_after_a_savepoint(tmp_path: Any) -> None:
    """The row of the new job would have a smaller revision than the one that it corrects, and lose."""
    sink = SqliteSink(tmp_path / "late.db", "late", mode="upsert")
    with run_of(rows_at(5, 15, 16, 17, 18), options={"allowed_lateness": 100}, step_rows=1, sink=sink) as run:
        run.run(end_of_input=False)
        before = run.rows
        with run_of([*before, *rows_at(6)], options=run.options, step_rows=1, sink=sink) as copy:
            savepoint(run.storage, "before")
            copy.pipeline(start_from=f"{run.storage.url}/s/before").run(engine="embedded")
            found = sqlite3.connect(tmp_path / "late.db").execute("SELECT rows, revision FROM late").fetchall()
            ((rows, revision),) = found
            assert rows == 2 and revision > 6


def test_a_rollback_takes_corrections_back_and_makes_them_again() -> None:
    rows = rows_at(5, 15, 16, 6, 17, 7)
    with run_of(rows, options={"allowed_lateness": 100, "late": "retract"}, step_rows=1) as run:
        run.run(end_of_input=False)
        whole = run.published()
        bases = [entry for entry in range(1, 8) if _corrected(run, entry)]
        rollback(run.storage, bases[0] - 1, outputs="retract")
        run.run(end_of_input=False)
        names = ("window", "total", "retracted")
        assert run.published()[-1]["revision"] > whole[-1]["revision"]
        assert [[row[name] for name in names] for row in run.published()] == [
            [row[name] for name in names] for row in whole
        ]


def _corrected(run: Run, id: int) -> bool:
    return any(row["revision"] == id and row["retracted"] for row in run.published())


def test_a_migration_makes_what_is_published_final() -> None:
    """A correction would add values of the new monoid to those of the old one."""

    class Cents(Late):
        def persistent_state(self) -> WindowState:
            return WindowState(record(total=Sum()), self.window, **self.options)

        def process_batch(self, state: Any, batch: Any) -> None:
            state.update_batch(batch.timestamps, {"total": batch["value"]})

    with run_of(rows_at(5, 15, 16), options={"allowed_lateness": 100}, step_rows=1) as run:
        run.run(end_of_input=False)
        more = run.pipeline(rows_at(5, 15, 16, 6, 17), evolve=Evolution(removed=["rows", "most"]))
        changed = Pipeline(
            source=more.source,
            task=Cents(run.window, **run.options),
            sink=run.sink,
            checkpoint=run.storage,
            step_rows=1,
            evolve=Evolution(removed=["rows", "most"]),
        )
        assert changed.run(engine="embedded", end_of_input=True).late == 1


def test_what_two_jobs_have_published_is_final_when_they_are_merged() -> None:
    """The correction of one would lack what the other has published of the same window."""
    places = [MemoryStorage(f"late-{uuid.uuid4().hex}") for _ in range(3)]
    options = {"allowed_lateness": 100, "late": "accumulate"}

    def run(place: MemoryStorage, **lists: list[Row]) -> Any:
        task, sink = Late(tumbling(10), **options), MemorySink()
        Pipeline(source=Named(lists), task=task, sink=sink, checkpoint=place, max_future="40000 days").run(
            engine="embedded", end_of_input=True
        )
        return sink.rows()

    run(places[0], one=rows_at(5, 15, 16))
    run(places[1], other=rows_at(6, 17, 26))
    merged = merge(places[0], places[1], places[2]).manifest
    assert only(merged.nodes).final == merged.clock.closed == 30
    rows = run(places[2], one=rows_at(5, 15, 16, 17, 35), other=rows_at(6, 17, 26))
    assert [row["rows"] for row in rows] == [1], "of the window that nobody had published"
    for storage in places:
        storage.clear()


def test_compaction_keeps_the_panes_of_windows_that_are_not_final() -> None:
    """Without them a correction would be the late records alone."""
    rows = rows_at(*range(0, 100, 5))
    with run_of(rows, options={"allowed_lateness": 50}, step_rows=1) as run:
        run.run(end_of_input=False)
        manifest = compact(run.pipeline()).manifest
        assert manifest.kind == "compaction" and (only(manifest.nodes).final, manifest.clock.closed) == (40, 90)
        run.run([*rows, *rows_at(41)])
        assert run.final()["a", 40]["rows"] == 3


def test_the_state_as_of_a_clock_goes_back_to_the_last_final_window() -> None:
    """The panes of a window that is published are still there. A restart would publish it a second time."""
    rows, options = rows_at(5, 15, 25, 35, 45), {"allowed_lateness": 25}
    with run_of(rows, window=sliding(20, every=10), options=options, step_rows=1) as run:
        pipeline = run.pipeline(retention=Retention(last=1))
        pipeline.run(engine="embedded")
        newest = Log(run.storage).newest()
        assert newest is not None and (only(newest.manifest.nodes).final, newest.manifest.clock.closed) == (20, 45)
        assert [row["rows"] for row in pipeline.state(as_of=20).to_pylist()] == [1]
        for clock in (10, 20):
            with pytest.raises(UnknownCheckpoint):
                restart(pipeline, clock, outputs="retract")
        with pytest.raises(UnknownCheckpoint):
            pipeline.state(as_of=10)


@pytest.mark.parametrize("late", ["accumulate", "retract"])
def test_a_table_holds_what_a_reader_needs(late: str, tmp_path: Any) -> None:
    """A row that is taken back, and the new one, are both kept where rows are added."""
    mode = "upsert" if late == "accumulate" else "append"
    sink = SqliteSink(tmp_path / "late.db", "late", mode=mode)
    rows, options = rows_at(5, 15, 16, 6), {"allowed_lateness": 100, "late": late}
    with run_of(rows, options=options, step_rows=1, sink=sink) as run:
        run.run()
        columns = "rows, retracted" if late == "retract" else "rows"
        first = "window_start = (SELECT min(window_start) FROM late)"
        query = f"SELECT {columns} FROM late WHERE {first} ORDER BY revision, rowid"
        found = sqlite3.connect(tmp_path / "late.db").execute(query).fetchall()
    assert (
        found
        == {
            "accumulate": [(2,)],
            "retract": [(1, 0), (1, 1), (2, 0)],
        }[late]
    )


def test_a_sink_that_joins_later_gets_rows_that_stand_for_themselves() -> None:
    first, second = MemorySink(), MemorySink()
    with run_of(rows_at(5, 15), options={"allowed_lateness": 100}, step_rows=1) as run:
        run.sink = {"one": first}
        run.run(end_of_input=False)
        run.sink = {"one": first, "two": second}
        run.run(rows_at(5, 15, 6), end_of_input=False)
        assert [row["rows"] for row in second.rows()] == [2]
        assert [row["rows"] for row in first.rows()] == [1, 2]


@pytest.mark.parametrize("rows", [rows_at(5, 15, 25), rows_at(5, 15, 25, 6)], ids=["nothing to read", "one is late"])
def test_a_sink_that_joins_gets_what_has_closed_and_is_not_final(rows: list[Row]) -> None:
    """Later it met the retraction of a row that it never had, or lacked the window."""
    first, second, options = MemorySink(), MemorySink(), {"allowed_lateness": 12, "late": "retract"}
    with run_of(rows, options=options, step_rows=1) as run:
        run.sink = {"one": first}
        run.run(rows[:3], end_of_input=False)
        before = Log(run.storage).ids()[-1]
        run.sink = {"one": first, "two": second}
        report = run.run(end_of_input=False)
        assert (report.late, report.corrected) == (len(rows) - 3, 0)
        assert [(ms(row["window_end"]), row["retracted"]) for row in second.rows()] == [(20, False)]
        rollback(run.storage, before, outputs="retract")
        run.run([*rows[:3], *rows_at(16)], end_of_input=False)
        found = [(ms(row["window_end"]), row["rows"], row["retracted"]) for row in second.rows()]
        assert found == [(20, 2, False)]
        run.run([*rows[:3], *rows_at(16, 17)], end_of_input=False)
        assert [(row["rows"], row["retracted"]) for row in second.rows()[1:]] == [(2, True), (3, False)]


@pytest.mark.parametrize("is_new", [False, True])
def test_a_job_from_a_savepoint_gives_a_new_sink_what_can_be_corrected(is_new: bool, tmp_path: Any) -> None:
    """Corrections would take back rows that it never had; a table that it goes on with has them already."""
    rows, options = rows_at(5, 15, 25), {"allowed_lateness": 12, "late": "retract"}
    with run_of(rows, options=options, step_rows=1) as run, run_of(rows, options=options, step_rows=1) as heir:
        run.sink = SqliteSink(str(tmp_path / "t.db"), "rows")
        run.run(end_of_input=False)
        heir.sink = SqliteSink(str(tmp_path / "new.db"), "rows") if is_new else run.sink
        more = {"start_from": savepoint(run.storage, "half")}
        heir.pipeline([*rows, *rows_at(26, 16)], **more).run(engine="embedded")
        names = "window_end, rows, retracted"
        found = sqlite3.connect(heir.sink.path).execute(f"SELECT {names} FROM rows ORDER BY revision").fetchall()
        taken = [(int(count), bool(retracted)) for _, count, retracted in found]
        assert taken == ([] if is_new else [(1, False)]) + [(1, False), (1, True), (2, False)]
