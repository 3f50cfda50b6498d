"""Times that cannot be those of a record are refused where they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from persistent.state.updates import TIMESTAMP_MAX, checked_timestamp, checked_timestamps


@pytest.mark.parametrize("time", [0, 7, np.int64(9), TIMESTAMP_MAX])
def test_an_integer_is_a_time(time: Any) -> None:
    """Both borders count: the first of 1970, and the largest that leaves room to add a window."""
    assert checked_timestamp(time) == int(time) and type(checked_timestamp(time)) is int
    assert checked_timestamps(np.array([time])).tolist() == [int(time)]


@pytest.mark.parametrize(
    "time, error", [(-1, ValueError), (TIMESTAMP_MAX + 1, ValueError), (1.0, TypeError), (True, TypeError)]
)
def test_what_is_no_time_is_refused(time: Any, error: type[Exception]) -> None:
    """It would be counted in a window that no record belongs to."""
    with pytest.raises(error, match="timestamp"):
        checked_timestamp(time)
    with pytest.raises(error, match="timestamp"):
        checked_timestamps(np.array([5, time]) if type(time) is int else np.array([time]))


def test_arrow_columns_of_times_and_integers_are_times() -> None:
    """A column keeps its unit; a null has no time."""
    times = pa.array([1_500_000, 2_000_999]).cast(pa.timestamp("us"))
    for column in (times, pa.chunked_array([times])):
        assert checked_timestamps(column).tolist() == [1_500, 2_000]
    assert checked_timestamps(pa.array([3, 4])).tolist() == [3, 4]
    with pytest.raises(ValueError, match="1 timestamps are null"):
        checked_timestamps(pa.array([1, None]))
    with pytest.raises(TypeError, match="one-dimensional"):
        checked_timestamps(np.zeros((2, 2), np.int64))
    with pytest.raises(TypeError, match="not list"):
        checked_timestamps([1, 2])


@pytest.mark.parametrize(
    "column", [np.array([2**63 + 5], np.uint64), pa.array([2**63], pa.uint64()), pa.array([2**61], pa.timestamp("s"))]
)
def test_a_time_beyond_int64_is_too_large(column: Any) -> None:
    """It wrapped: it was "before 1970", or in seconds another time."""
    with pytest.raises(ValueError, match=r"too large|out of bounds"):
        checked_timestamps(column)
