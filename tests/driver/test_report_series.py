"""A series of a run is bounded, and loses nothing that adds up."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.driver.report import POINTS_MAX, Series, SeriesPoint
from tests.driver.shop import Shop


def point(number: int) -> SeriesPoint:
    return SeriesPoint(number + 1.0, 1, 0.5, number, number % 3, 1, 2, number % 7, number, 10 * number, 100 * number)


@given(steps=st.integers(0, 300), most=st.integers(2, 40))
def test_points_are_few_and_sums_are_whole(steps: int, most: int) -> None:
    """A run of a month would hold a point of each step in memory; or the plot would miss late records."""
    series = Series(most)
    for number in range(steps):
        series.add(point(number))
    points = series.points()
    assert len(points) <= most
    for name in ("rows", "late", "dead", "outputs", "steps", "step_seconds"):
        assert sum(getattr(one, name) for one in points) == sum(getattr(point(number), name) for number in range(steps))
    assert max((one.lag_ms for one in points), default=0) == max((number % 7 for number in range(steps)), default=0)
    assert [one.at_seconds for one in points] == sorted({one.at_seconds for one in points})
    if steps:
        last = point(steps - 1)
        shown = points[-1]
        assert (shown.at_seconds, shown.clock_ms) == (last.at_seconds, last.clock_ms)
        assert (shown.state_rows, shown.state_bytes) == (last.state_rows, last.state_bytes)
        assert len({one.steps for one in points[:-1]}) <= 1, "each but the last stands for as many steps"


@given(st.tuples(*[st.integers(0, 50)] * 3))
def test_joining_is_associative(numbers: tuple[int, int, int]) -> None:
    """What a point says would depend on when it was joined."""
    a, b, c = map(point, numbers)
    assert (a + b) + c == a + (b + c)


def test_a_report_has_the_series_of_its_run() -> None:
    """The figures that a user plots would be others than those of the report."""
    shop = Shop()
    report = shop.run(end_of_input=True)
    steps = [one for one in shop.manifests() if one.kind == "checkpoint" and one.id]
    assert sum(one.rows for one in report.series) == report.rows == 12
    assert sum(one.late for one in report.series) == report.late
    assert sum(one.outputs for one in report.series) == report.outputs
    assert [one.clock_ms for one in report.series] == [one.clock.watermark for one in steps]
    rows = [sum(run.rows_left for run in one.state_runs()) for one in steps]
    assert [one.state_rows for one in report.series] == rows
    assert all(0 < one.at_seconds <= report.seconds for one in report.series)
    assert shop.run().series == ()


def test_a_series_is_no_part_of_what_is_printed_or_compared() -> None:
    """A report in a log, or as JSON of the command line, would be a thousand times as long."""
    from persistent.tools.cli.run import _report_json

    shop = Shop()
    report = shop.run()
    assert report.series and "SeriesPoint" not in repr(report) and report == replace(report, series=())
    assert "series" not in json.loads(json.dumps(_report_json(report)))
    assert POINTS_MAX <= 1_000


@pytest.mark.parametrize("seconds", [0.0, 2.0])
def test_a_rate_is_of_the_time_of_the_steps(seconds: float) -> None:
    """A step that takes no time on a coarse clock would end the run with a division by zero."""
    assert replace(point(10), step_seconds=seconds).rows_per_second == (5.0 if seconds else 0.0)
