"""What late records do to a published table: after all steps it is the plain one, in each of the answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count
from persistent import FileSink, WindowState, calendar
from persistent.time.lateness import Lateness, checked_lateness
from persistent.time.window import sliding, tumbling
from tests.few import examples
from tests.late import Run, disordered, expected, run_of

WINDOWS = (
    tumbling(10),
    tumbling(10, offset=3),
    sliding(20, every=5),
    sliding(10, every=4),
    sliding(5, every=10),
    sliding(7, every=3, offset=2),
)


def rows_at(*times: int) -> list[dict[str, Any]]:
    return [{"ts": time, "key": "a", "value": time} for time in times]


DRAWN = (
    st.integers(0, 10**6),
    st.sampled_from(WINDOWS),
    st.sampled_from((0, 5, 10, 35, 1000)),
    st.sampled_from(("accumulate", "retract", "final")),
    st.sampled_from((1, 2, 3, 7, 60)),
)


@settings(max_examples=examples(15), deadline=None)
@given(*DRAWN)
def test_the_table_comes_to_the_plain_one(seed: int, window: Any, allowed: int, late: str, step_rows: int) -> None:
    """Whatever the disorder, the windows and the steps; and what is late is counted, record by record."""
    comes_to_the_plain_one(seed, window, allowed, late, step_rows)


@pytest.mark.check
@settings(max_examples=examples(100), deadline=None)
@given(*DRAWN)
def test_many_tables_come_to_the_plain_ones(seed: int, window: Any, allowed: int, late: str, step_rows: int) -> None:
    comes_to_the_plain_one(seed, window, allowed, late, step_rows)


def comes_to_the_plain_one(seed: int, window: Any, allowed: int, late: str, step_rows: int) -> None:
    options: dict[str, Any] = {"emit": "final"} if late == "final" else {"late": late}
    rows = disordered(seed, 30, (0, 10, 60)[seed % 3])
    with run_of(rows, window=window, options={"allowed_lateness": allowed, **options}, step_rows=step_rows) as run:
        report = run.run()
        assert (run.final(), report.late) == expected(run)
        if late == "final":
            assert len(run.published()) == len(run.final()), "each once"


@settings(max_examples=10, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from(("hour", "day")),
    st.sampled_from(("accumulate", "retract")),
    st.integers(1, 9),
)
def test_calendar_windows_take_late_records(seed: int, unit: str, late: str, step_rows: int) -> None:
    """A night whose hour is shown twice closes, and is corrected, as any other."""
    begins = 1_698_530_400_000
    rows = [{**row, "ts": begins + row["ts"] * 600_000} for row in disordered(seed, 30, 60)]
    options = {"allowed_lateness": 5 * 3_600_000, "late": late}
    with run_of(rows, window=calendar(unit, tz="Europe/Berlin"), options=options, step_rows=step_rows) as run:
        report = run.run()
        assert (run.final(), report.late) == expected(run)


def test_publishing_fused_with_mapping_loses_the_last_late_record() -> None:
    """A late record of the last step is in no later one: it must be published by the step that reads it."""
    with run_of(rows_at(5, 25, 31, 7), options={"allowed_lateness": 100}, step_rows=1) as run:
        run.run(end_of_input=False)
        assert run.final()["a", 0] == {"rows": 2, "total": 12, "most": 7}


def test_late_data_dropped_silently() -> None:
    """Within the allowed lateness a late record is in the result; later ones are set aside, and counted."""
    with run_of(rows_at(5, 25, 31, 7, 60, 8), options={"allowed_lateness": 22}, step_rows=1) as run:
        report = run.run()
        assert run.final()["a", 0] == {"rows": 2, "total": 12, "most": 7}
        assert report.late == 1
        assert run.pipeline().late()["timestamp"].to_pylist() == [8]


def test_what_is_final_is_said_by_the_clock_before_the_step() -> None:
    """Judged by the clock that is committed with it, a record would be late or not by what it was read with."""
    for step_rows, late in ((1, 1), (2, 1), (3, 0)):
        with run_of(rows_at(5, 40, 6), options={"allowed_lateness": 30}, step_rows=step_rows) as run:
            assert run.run().late == late * (step_rows < 3)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"allowed_lateness": -1}, ValueError, "negative"),
        ({"allowed_lateness": 1.5}, TypeError, "allowed_lateness"),
        ({"late": "never"}, ValueError, "choose one of accumulate, retract$"),
        ({"emit": "early"}, ValueError, "choose one of close, final"),
        ({"emit": "final", "late": "retract"}, ValueError, "omit one of them"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        WindowState(Count(), tumbling(10), **options)


def test_what_is_closed_and_what_is_final() -> None:
    kept = checked_lateness(10, None, "close")
    assert kept.closes(30, 42) == 42
    assert [kept.final(was, 42) for was in (0, 32, 33)] == [32, 32, 33]
    once = checked_lateness(10, None, "final")
    assert [once.closes(closed, 42) for closed in (0, 32, 33)] == [32, 32, 33]
    assert once.final(0, 32) is None
    assert Lateness().final(7, 42) is None and Lateness().closes(7, 42) == 42


@pytest.mark.check
@pytest.mark.spark
@pytest.mark.parametrize("late", ["accumulate", "retract", "final"])
def test_the_table_on_spark_comes_to_the_plain_one(late: str, spark: Any, tmp_path: Any) -> None:
    """A correction is made in other processes, from files that the first job of the step has written."""
    options: dict[str, Any] = {"emit": "final"} if late == "final" else {"late": late}
    rows = disordered(7, 60, 60)
    run = Run(
        rows,
        window=sliding(20, every=5),
        options={"allowed_lateness": 35, **options},
        step_rows=9,
        storage=str(tmp_path / "checkpoint"),
        sink=Published(str(tmp_path / "published")),
    )
    report = run.run(engine=None, spark=spark)
    assert report.engine == "spark"
    assert (run.final(), report.late) == expected(run)
    assert late == "final" or report.corrected


class Published(FileSink):
    """A folder whose rows can be read at once."""

    def rows(self) -> list[dict[str, Any]]:
        folder = Path(self.url.removeprefix("file://"))
        return [row for file in sorted(folder.glob("*.parquet")) for row in pq.read_table(file).to_pylist()]
