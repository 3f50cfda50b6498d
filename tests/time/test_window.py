"""Windows and panes, against a search through every one of them."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent import Window, calendar, sliding, tumbling
from persistent.time.window import Panes

windows = st.integers(1, 12).flatmap(
    lambda every: st.builds(Window, st.integers(1, 12), st.just(every), st.integers(0, every - 1))
)
times = st.integers(0, 60)


def spans(window: Window, time: int) -> list[tuple[int, int]]:
    """Every window around a time, found by looking."""
    numbers = range(-20, 80)
    starts = [k * window.every_ms + window.offset_ms for k in numbers]
    all_of_them = [(start, start + window.size_ms) for start in starts]
    return [(start, end) for start, end in all_of_them if start <= time < end]


def cuts(panes: Panes) -> list[int]:
    """Every cut from 0 to 200."""
    found = {0}
    for k in range(-120, 220):
        if panes.window is not None:
            start = k * panes.window.every_ms + panes.window.offset_ms
            found |= {start, start + panes.window.size_ms}
        if panes.interval_ms is not None:
            found.add(k * panes.interval_ms)
    return sorted(cut for cut in found if 0 <= cut <= 200)


@given(windows, times)
def test_which_windows_hold_a_time(window: Window, time: int) -> None:
    """A message would count in a window too many, or in one too few."""
    found = spans(window, time)
    numbers = range(window.first_number(time), window.last_number(time) + 1)
    assert [(window.start_of(k), window.end_of(k)) for k in numbers] == found
    array = np.array([time])
    assert window.holds(array).tolist() == [bool(found)]
    assert time - window.every_ms < int(window.last_start(time)) <= time
    assert (int(window.last_start(time)) - window.offset_ms) % window.every_ms == 0
    if found:
        assert window.last_end(time) == max(end for _, end in found)


@given(windows, times, st.integers(0, 90))
def test_a_time_is_late_when_all_its_windows_have_ended(window: Window, time: int, watermark: int) -> None:
    """A late message would be counted in a window that was published, or one in time be put aside."""
    ended = [end <= watermark for _, end in spans(window, time)]
    late, partly = window.late(np.array([time]), watermark)
    assert late.tolist() == [bool(ended) and all(ended)]
    assert partly.tolist() == [any(ended) and not all(ended)]


@given(windows, times, st.integers(0, 90))
def test_what_may_be_late_and_what_is_untouched_is_as_defined(window: Window, time: int, clock: int) -> None:
    """A late message would not be looked at; a restart would publish a window twice."""
    ended = [end <= clock for _, end in spans(window, time)]
    assert not ended or window.may_be_late(time, clock) == any(ended)
    numbers = range(window.first_number(time), window.last_number(clock) + 1)
    assert window.is_untouched(time, clock) == (not any(window.end_of(number) <= clock for number in numbers))


@given(windows | st.none(), st.integers(1, 9) | st.none(), st.lists(times, min_size=1))
def test_a_pane_lies_between_neighbouring_cuts(
    window: Window | None, interval_ms: int | None, moments: list[int]
) -> None:
    """A checkpoint would cut a pane in two, and hold half of it or all."""
    if window is None and interval_ms is None:
        return
    panes = Panes(window, interval_ms)
    known = cuts(panes)
    expected = [max(cut for cut in known if cut <= time) for time in moments]
    assert panes.starts(np.array(moments)).tolist() == expected
    assert [int(panes.starts(time)) for time in moments] == expected
    assert all(cut % panes.step == 0 for cut in known)
    if interval_ms is None:
        assert [panes.is_cut(time) for time in moments] == [time in known for time in moments]
    else:
        assert [panes.is_cut(time) for time in moments] == [time % interval_ms == 0 for time in moments]
    for time in moments:
        before = panes.cut_before(time)
        assert before <= time and panes.is_cut(before)
        assert not any(panes.is_cut(between) for between in range(before + 1, time + 1))


@given(windows, st.integers(1, 9) | st.none())
def test_every_window_is_a_union_of_panes(window: Window, interval_ms: int | None) -> None:
    """A window would need a part of a pane, which nobody can take out again without an inverse."""
    known = cuts(Panes(window, interval_ms))
    for start, end in pairwise(known):
        around = {tuple(spans(window, time)) for time in range(start, end)}
        assert len(around) <= 1, f"windows change inside the pane [{start}, {end})"


def test_windows_are_given_in_many_ways() -> None:
    """A minute would be sixty milliseconds."""
    assert tumbling("1 min") == tumbling(60_000) == tumbling(timedelta(minutes=1)) == Window(60_000, 60_000)
    assert sliding("1 h", every="1 min") == Window(3_600_000, 60_000)
    assert sliding("59 min", every=timedelta(hours=1)) == Window(59 * 60_000, 3_600_000)
    assert tumbling("1 day", offset="6 h") == Window(86_400_000, 86_400_000, 21_600_000)
    assert sliding("1 h", every="30 min", offset="10 min") == Window(3_600_000, 1_800_000, 600_000)


@pytest.mark.parametrize("size", [0, "0 s", -1, 1.5, "1 fortnight", "", True, timedelta(microseconds=1), None])
def test_a_wrong_duration_is_refused(size: object) -> None:
    """A window of no length would never close, or always."""
    with pytest.raises((ValueError, TypeError)):
        tumbling(size)  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError)):
        sliding("1 min", every=size)  # type: ignore[arg-type]


def test_windows_that_are_not_moved_have_the_fingerprint_that_they_had() -> None:
    """Every checkpoint of before would be refused as that of another state."""
    assert sliding("1 h", every="1 min").fingerprint() == {"size_ms": 3_600_000, "every_ms": 60_000}
    assert tumbling("1 h", offset="1 min").fingerprint() != tumbling("1 h").fingerprint()


@pytest.mark.parametrize("offset", ["1 h", "2 h", -1, "1 fortnight", None])
def test_an_offset_of_a_whole_step_or_more_is_refused(offset: object) -> None:
    """Two spellings of the same windows would have different fingerprints, and the checkpoint would be refused."""
    with pytest.raises((ValueError, TypeError)):
        tumbling("1 h", offset=offset)  # type: ignore[arg-type]
    with pytest.raises((ValueError, TypeError)):
        sliding("2 h", every="1 h", offset=offset)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("made", "given", "same"),
    [
        (lambda offset: tumbling("1 day", offset=offset), "-8 h", "16 h"),
        (lambda offset: tumbling("1 day", offset=offset), -8 * 3_600_000, "16 h"),
        (lambda offset: tumbling("1 h", offset=offset), timedelta(minutes=-90), "30 min"),
        (lambda offset: sliding("2 h", every="1 h", offset=offset), "-10 min", "50 min"),
        (lambda offset: calendar("day", tz="America/New_York", offset=offset), "-8 h", "16 h"),
        (lambda offset: calendar("week", offset=offset), "-1 day", "6 d"),
    ],
)
def test_a_negative_offset_is_refused_with_the_one_to_write(made: Any, given: Any, same: str) -> None:
    """It was called no duration, and none of the durations that it was told of moves a window back."""
    with pytest.raises(ValueError, match=f'is negative: offset="{same}" gives the same windows'):
        made(given)
    made(same)


def test_a_month_has_no_other_offset_for_a_negative_one() -> None:
    """Months are of several lengths."""
    with pytest.raises(ValueError, match="'-1 h' is negative: give one after the border"):
        calendar("month", offset="-1 h")
