"""Jobs with windows of a user's assigner, against plain sums; and assigners that change or contradict themselves."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count
from persistent import (
    AssignerFailed,
    FingerprintChanged,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    PersistentTask,
    Pipeline,
    UnknownCheckpoint,
    WindowState,
    assigned,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.driver import step
from persistent.operations import compact, rollback, savepoint
from persistent.testing import verify_task
from persistent.time.assigned_window import AssignedWindow
from persistent.time.clock import instant_ms
from persistent.tools.cli import main
from persistent.verify import verify
from tests.changes import World
from tests.changes import expected as expected_after_each_step
from tests.late import Run, disordered, expected, run_of
from tests.test_pipeline_of_calendar_windows import Usage
from tests.time.test_assigned_window import HOUR, Cycle
from tests.time.test_lateness import Published

WINDOWS = tuple(assigned(one) for one in (Cycle(10), Cycle(3, 17, 1), Cycle(7, 20, first=-3), Cycle(2, 500, first=30)))


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(WINDOWS),
    st.sampled_from((0, 5, 35)),
    st.sampled_from(("accumulate", "retract", "final")),
    st.sampled_from((1, 3, 60)),
    st.sampled_from((None, 5)),
)
def test_the_table_comes_to_the_plain_one(
    seed: int, window: Any, allowed: int, late: str, step_rows: int, interval: int | None
) -> None:
    """Whatever the borders, the disorder, the lateness and the steps; and what is late is counted."""
    options: dict[str, Any] = {"emit": "final"} if late == "final" else {"late": late}
    rows = disordered(seed, 30, (0, 10, 60)[seed % 3])
    options |= {"allowed_lateness": allowed, "interval_ms": interval}
    with run_of(rows, window=window, options=options, step_rows=step_rows) as run:
        run.run(rows[: step_rows * (1 + seed % 3)], end_of_input=False)
        report = run.run()
        table, late_rows = expected(run)
        assert run.final() == table and len(run.pipeline().late()) == late_rows
        assert report.outputs


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(WINDOWS), st.sampled_from((0, 5, 35)), st.sampled_from((1, 3, 8)))
def test_changes_are_those_of_the_plain_table_after_every_step(
    seed: int, window: Any, allowed: int, step_rows: int
) -> None:
    """The numbers of two windows are far apart, and a change is looked up by number."""
    rows = disordered(seed, 25, (0, 10, 60)[seed % 3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "SHARD_ROWS", 0)
        world = World(window, {"changes": "retract", "allowed_lateness": allowed}, step_rows)
        world.run(rows[:11])
        world.run(rows, end_of_input=True)
    counts = [count for count, _ in world.steps]
    assert [table for _, table in world.steps] == list(expected_after_each_step(rows, counts, window, allowed))
    world.storage.clear()


def test_windows_years_apart_cost_no_more_than_neighbours() -> None:
    """A walk over the numbers between two windows would not end."""
    cycle = Cycle(8 * HOUR, 10 * HOUR, 6 * HOUR, first=6 * HOUR)
    times = [0, instant_ms("2024-03-31T12:00Z"), instant_ms("2024-03-31T13:00Z"), 5, instant_ms("2031-01-01T00:00Z")]
    rows = [{"ts": time, "key": "a", "value": 1} for time in times]
    options = {"allowed_lateness": "40000 days", "late": "retract"}
    with run_of(rows, window=AssignedWindow(cycle), options=options, step_rows=1) as run:
        run.run()
        assert run.final() == expected_with(run)
    assert cycle.calls < 2_000


def expected_with(run: Any) -> Any:
    """Nothing is late."""
    run.options = {**run.options, "allowed_lateness": 1 << 50}
    return expected(run)[0]


@pytest.mark.check
@pytest.mark.spark
def test_outputs_on_spark_are_the_same(spark: Any, tmp_path: Path) -> None:
    """The assigner goes to the workers with the task."""
    place, sink = str(tmp_path / "checkpoint"), Published(str(tmp_path / "published"))
    options = {"allowed_lateness": 5}
    run = Run(disordered(5, 40, 10), assigned(Cycle(3, 17, 1)), options, step_rows=8, storage=place, sink=sink)
    assert run.run(engine=None, spark=spark).engine == "spark"
    assert run.final() == expected(run)[0]


def usage(window: Any, rows: Any, checkpoint: Any, sink: Any = None, **options: Any) -> Pipeline:
    source = MemorySource(rows, timestamp="ts", ordered=True)
    return Pipeline(source=source, task=Usage(window), sink=sink or MemorySink(), checkpoint=checkpoint, **options)


def rows_at(*times: int) -> list[dict[str, Any]]:
    return [{"ts": time, "meter": "a", "used": 1} for time in times]


def windows_of(sink: Any) -> list[tuple[int, int, int]]:
    """Start, end and rows of each window published."""
    borders = ("window_start", "window_end")
    return sorted((*(round(row[name].timestamp() * 1_000) for name in borders), row["n"]) for row in sink.rows())


def test_commands_on_a_checkpoint_know_such_windows() -> None:
    """A state of these windows could not be read at an earlier time, folded, copied or taken back."""
    window, sink, where = assigned(Cycle(5, 10)), MemorySink(), "memory://assigned-commands"
    rows = rows_at(1, 3, 6, 7, 14, 16, 18, 21)
    job = usage(window, rows[:6], where, sink, step_rows=1)
    job.run(engine="embedded")
    (row,) = job.state().to_pylist()
    assert (row["n"], windows_of(sink)) == (1, [(0, 5, 2), (5, 15, 3)])
    newest = Log(job.storage).newest()
    assert newest is not None
    compact(job)
    saved, other = savepoint(job.storage, "s"), MemorySink()
    usage(window, rows, "memory://assigned-copy", other, start_from=saved).run(engine="embedded", end_of_input=True)
    usage(window, rows, where, sink).run(engine="embedded", end_of_input=True)
    assert windows_of(sink) == [(0, 5, 2), (5, 15, 3), (15, 20, 2), (20, 30, 1)]
    assert windows_of(other) == [(15, 20, 2), (20, 30, 1)] and verify(job.storage).ok
    rollback(job.storage, newest.manifest.base, outputs="retract")
    usage(window, rows[:7], where, sink).run(engine="embedded", end_of_input=True)
    assert windows_of(sink) == [(0, 5, 2), (5, 15, 3), (15, 20, 2)] and verify(job.storage).ok


def test_the_state_is_read_as_of_a_clock_between_the_borders() -> None:
    """With a grid of clocks a window is several panes, and only the assigner knows which."""
    rows = rows_at(1, 3, 6, 7, 14, 16)
    job = Pipeline(
        source=MemorySource(rows, timestamp="ts", ordered=True),
        task=Usage(assigned(Cycle(5, 13)), interval_ms=5),
        sink=MemorySink(),
        checkpoint="memory://assigned-as-of",
        step_rows=1,
    )
    job.run(engine="embedded")
    for clock, count in ((10, 2), (15, 3)):
        (row,) = job.state(as_of=clock).to_pylist()
        assert (row["n"], round(row["window_end"].timestamp() * 1_000)) == (count, 18)
    with pytest.raises(UnknownCheckpoint, match="not on the grid"):
        job.state(as_of=12)


def test_no_state_is_known_as_of_a_clock_before_1970() -> None:
    """The assigner is not asked for it, and an empty table would look like an answer."""
    for window in (assigned(Cycle(5, 13)), tumbling(5)):
        job = Pipeline(
            source=MemorySource(rows_at(1, 3), timestamp="ts", ordered=True),
            task=Usage(window, interval_ms=5),
            sink=MemorySink(),
            checkpoint=f"memory://before-{type(window).__name__}",
        )
        job.run(engine="embedded")
        with pytest.raises(UnknownCheckpoint, match="no kept checkpoint holds the state as of"):
            job.state(as_of=-5)
        assert job.state(as_of=0).num_rows == 0


def test_a_task_with_assigned_windows_verifies() -> None:
    """The kit for tests of tasks would not know such windows."""
    window = assigned(Cycle(5, 10))
    wanted = {("a", start): {"n": count} for start, count in ((0, 2), (5, 3), (15, 1))}
    rows = rows_at(0, 4, 5, 6, 14, 15)
    verify_task(lambda: Usage(window), rows, expected=wanted, elsewhere=False, shuffles=1)


def test_another_assigner_is_refused() -> None:
    """The rows of the state are summed up by the borders of the old one."""
    where = "memory://assigned-other"
    usage(assigned(Cycle(5, 10)), rows_at(1, 7), where).run(engine="embedded")
    words = r"window: assigned\(Cycle\(first=0, lengths=\(5, 10\)\)\) -> assigned\(Cycle\(first=0, lengths=\(5, 9\)\)\)"
    with pytest.raises(FingerprintChanged, match=words):
        usage(assigned(Cycle(5, 9)), rows_at(1, 7), where).run(engine="embedded")
    with pytest.raises(FingerprintChanged, match=r"-> calendar|-> tumbling|-> assigned\(Other"):
        usage(assigned(type("Other", (Cycle,), {})(5, 10)), rows_at(1, 7), where).run(engine="embedded")


class Moved(Cycle):
    """Claims to be what it is not any longer."""

    def fingerprint(self) -> dict[str, Any]:
        return {}


def test_borders_that_move_under_the_same_fingerprint_end_the_run() -> None:
    """Half of a window would be published under the borders of another."""
    where, sink = "memory://assigned-moved", MemorySink()
    usage(assigned(Moved(10)), rows_at(1, 11, 15), where, sink).run(engine="embedded")
    with pytest.raises(AssignerFailed, match=r"Moved.windows: a window of the state starts at .*\.010Z.* at .*\.008Z"):
        usage(assigned(Moved(8)), rows_at(1, 11, 15, 40), where, sink).run(engine="embedded", end_of_input=True)


class Impure(Cycle):
    """Its borders move each time it is asked, once ``begun``."""

    begun = False

    def windows(self, timestamps: Any) -> Any:
        starts, ends = super().windows(timestamps)
        return (starts, ends) if not self.begun else (starts, ends + next(COUNTER))


COUNTER = itertools.count(1)


@pytest.mark.parametrize("on_error", ["stop", "dead-letter"])
def test_an_assigner_that_is_not_pure_ends_the_run_and_nothing_is_committed(on_error: str) -> None:
    """As dead letters, the messages would be missing from their window without an error."""
    impure, sink, where = Impure(10), MemorySink(), f"memory://assigned-impure-{on_error}"
    window = assigned(impure)
    job = usage(window, rows_at(1, 2, 3), where, sink, on_error=on_error)
    impure.begun = True
    with pytest.raises(AssignerFailed, match=r"Impure\.windows: .*asked again"):
        job.run(engine="embedded", end_of_input=True)
    assert not sink.rows()
    impure.begun = False
    report = job.run(engine="embedded", end_of_input=True)
    assert (report.rows, report.dead) == (3, 0) and [row["n"] for row in sink.rows()] == [3]


class Never(Cycle):
    def windows(self, timestamps: Any) -> Any:
        starts, _ = super().windows(timestamps)
        return starts, starts


class Bad(PersistentTask):
    key = "meter"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), assigned(Never(5)))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def test_an_assigner_whose_windows_end_at_their_start_is_refused_where_the_pipeline_is_made() -> None:
    """The fault would show with the first record, after a deployment."""
    with pytest.raises(InvalidPipeline, match=r"Never\.windows: the window of .*start <= timestamp < end"):
        Pipeline(source=MemorySource([], timestamp="ts"), task=Bad(), sink=MemorySink(), checkpoint="memory://bad")
    with pytest.raises(TypeError, match=r"assigned\(assigner\)"):
        WindowState(Count(), Cycle(5))  # type: ignore[arg-type]


PIPELINE = """
import numpy as np
from persistent import *
from monoids import Count
class Halves:
    def windows(self, timestamps):
        starts = timestamps // 43_200_000 * 43_200_000
        return starts, starts + 43_200_000
    def fingerprint(self): return {{"hours": 12}}
class Usage(PersistentTask):
    key = "meter"
    def persistent_state(self): return WindowState(Count(), assigned(Halves()))
    def process_message(self, state, message): state.update(message.timestamp, 1)
job = Pipeline(source=FileSource({folder!r} + "/in/*.jsonl", timestamp="ts"), task=Usage(),
               sink=FileSink({folder!r} + "/out", format="jsonl"), checkpoint={folder!r} + "/job")
"""


def test_the_commands_show_such_windows(tmp_path: Path) -> None:
    """Whoever looks at the state could not tell which windows it has."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.jsonl").write_text('{"ts": "2024-03-31T14:00:00Z", "meter": "a"}\n')
    (tmp_path / "job.py").write_text(PIPELINE.format(folder=str(tmp_path)))
    name = f"{tmp_path / 'job.py'}:job"

    def said(*arguments: str, fails: bool = False) -> str:
        found = CliRunner().invoke(main, arguments)
        assert (found.exit_code != 0) == fails, found.output
        return " ".join(found.output.split())

    said("run", name, "--engine", "embedded")
    assert "2024-03-31 12:00:00Z 2024-04-01 00:00:00Z" in said("state", name)
    assert "assigned(Halves(hours=12))" in said("show", str(tmp_path / "job"))
    told = said("state", name, "--window", "2024-03-31T14:00Z", fails=True)
    assert "starts at 2024-03-31 12:00:00Z, the next at 2024-04-01 00:00:00Z" in told
