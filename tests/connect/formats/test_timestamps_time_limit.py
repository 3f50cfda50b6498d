"""One limit judges the timestamps of steps and of corrections: what a step would not count, no correction does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from persistent.connect.formats.timestamps import TimeLimit
from persistent.connect.source import NO_TIMESTAMP, Records
from persistent.time.window import tumbling

TIMES = np.array([NO_TIMESTAMP, -1, 0, 49, 50, 51, 70, 71])


def records() -> Records:
    batch = pa.record_batch([pa.array(TIMES)], ["ts"])
    return Records(0, batch, TIMES, np.arange(len(TIMES)), unreadable=lambda row: f"row {row} says nothing")


@pytest.mark.parametrize(
    ("limit", "alive"),
    [(TimeLimit(50), 50), (TimeLimit(50, 70), 50), (TimeLimit(70, 50), 50), (TimeLimit(70, None), 70)],
)
def test_the_stricter_limit_counts(limit: TimeLimit, alive: int) -> None:
    """A record beyond either limit would close every window."""
    assert limit.last == alive
    assert TIMES[~limit.dead(TIMES)].tolist() == [time for time in TIMES.tolist() if 0 <= time <= alive]
    for lowest, highest in ((0, alive), (0, alive + 1), (-1, alive), (int(NO_TIMESTAMP), 0)):
        covered = not limit.dead(np.array([lowest, highest])).any()
        assert limit.covers(lowest, highest) == covered, "a batch that is covered is not looked at"


def test_each_reason_names_its_remedy() -> None:
    """The limit of a clock that was set back is no matter of max_future."""
    limit, made = TimeLimit(70, not_after=50), records()
    reasons = [limit.reason(made, row) for row in range(len(TIMES))]
    assert reasons[0] == "row 0 says nothing" and reasons[1] == "timestamp before 1970"
    assert reasons[2:5] == [f"row {row} says nothing" for row in (2, 3, 4)], "no part of the source counts it"
    assert all("set back" in reason and "00.050Z" in reason for reason in reasons[5:7])
    assert "too far ahead" in reasons[7] and "max_future" in reasons[7] and "00.070Z" in reasons[7]


def test_no_time_is_later_than_the_windows_of_every_state() -> None:
    """A window beyond the rules of its time zone has no end."""
    short = tumbling(10)
    assert TimeLimit(90, 80).within([None, short]) == TimeLimit(90, 80)
    assert TimeLimit(short.time_max + 1, 80).within([None, short]) == TimeLimit(short.time_max, 80)
    assert TimeLimit(90).within([]) == TimeLimit(90)


def test_the_limit_of_windows_is_not_called_max_future() -> None:
    """Whoever raised max_future for a year beyond those of a calendar was told again that max_future is too small."""
    made, windows = records(), [tumbling(10)]
    far = TimeLimit(windows[0].time_max + 1).within(windows)
    last = replace(far, ahead=70)
    assert "after 1970-01-01 00:00:00.070Z, the last time that a window can hold" in last.reason(made, 7)
    assert "max_future" in TimeLimit(70).within(windows).reason(made, 7)
