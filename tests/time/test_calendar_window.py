"""Calendar windows, against a plain look at the clocks of each zone."""

from __future__ import annotations

import pickle
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from persistent import calendar, tumbling
from persistent.time.calendar_window import SHORTEST_MS, CalendarWindow
from persistent.time.clock import instant_ms
from persistent.time.window import Panes
from persistent.time.zone import Zone
from tests.few import examples

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/St_Johns",
    "America/Sao_Paulo",
    "Africa/Casablanca",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Kwajalein",
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def at(moment: datetime, zone: ZoneInfo) -> datetime:
    """What the clocks show."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def period(local: datetime, unit: str) -> datetime:
    """The beginning of the period on the calendar."""
    if unit in _MONTHS:
        return datetime(local.year, (local.month - 1) // _MONTHS[unit] * _MONTHS[unit] + 1, 1)
    day = datetime(local.year, local.month, local.day)
    return day - timedelta(days=day.weekday()) if unit == "week" else day


def after(begin: datetime, unit: str) -> datetime:
    """The beginning of the next period."""
    return period(begin + timedelta(days={"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}[unit]), unit)


def reached(local: datetime, zone: ZoneInfo) -> datetime:
    """The first instant at which the clocks show this time or a later one, searched second by second in halves."""
    low, high = (local.replace(tzinfo=UTC) + timedelta(hours=hours) for hours in (-36, 36))
    moments = sorted(low + timedelta(minutes=30 * n) for n in range(145))
    first = next(moment for moment in moments if at(moment, zone) >= local)
    low, high = first - timedelta(minutes=30), first
    while high - low > _SECOND:
        middle = low + (high - low) // 2 // _SECOND * _SECOND
        low, high = (low, middle) if at(middle, zone) >= local else (middle, high)
    return high


def plain(time: int, unit: str, name: str, offset: timedelta) -> tuple[int, int]:
    """The window of a time, as the calendar has it."""
    zone, moment = ZoneInfo(name), _EPOCH + timedelta(milliseconds=time)
    if unit == "hour":
        return plain_hour(moment, zone, offset)
    begin = period(at(moment, zone) - offset, unit)
    start = reached(begin + offset, zone)
    while (end := reached(after(begin, unit) + offset, zone)) <= moment:
        begin, start = after(begin, unit), end
    return ms(start), ms(end)


def plain_hour(moment: datetime, zone: ZoneInfo, offset: timedelta) -> tuple[int, int]:
    """The window of a time, from minute to minute."""

    def is_border(minute: datetime) -> bool:
        now, before = at(minute, zone) - offset, at(minute - _SECOND, zone) - offset
        return now.minute == 0 or now < before or now.replace(minute=0, second=0) != before.replace(minute=0, second=0)

    start = moment.replace(second=0, microsecond=0)
    while not is_border(start):
        start -= timedelta(minutes=1)
    end = start + timedelta(minutes=1)
    while not is_border(end):
        end += timedelta(minutes=1)
    return ms(start), ms(end)


def ms(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def changes(name: str) -> list[int]:
    """The changes of a zone between 1973 and 2100, whose minutes are whole."""
    return [second for second, _ in Zone.read(name).offsets if 94_694_400 < second < 4_000_000_000] or [1_700_000_000]


near_changes = st.sampled_from(ZONES).flatmap(
    lambda name: st.tuples(
        st.just(name),
        st.one_of(
            st.builds(
                lambda change, near: 1_000 * change + near,
                st.sampled_from(changes(name)),
                st.integers(-180_000_000, 180_000_000) | st.integers(-3_700_000, 3_700_000) | st.integers(-1, 1),
            ),
            st.integers(100_000_000_000, 4_100_000_000_000),
        ),
    )
)


@given(near_changes, st.sampled_from(sorted(SHORTEST_MS)), st.integers(0, 59) | st.just(0))
@settings(max_examples=examples(150), deadline=None)
@example(("Pacific/Apia", instant_ms("2011-12-30T10:00Z")), "day", 0)
@example(("Pacific/Apia", instant_ms("2011-12-30T09:59:59Z")), "day", 30)
@example(("America/St_Johns", instant_ms("2010-11-07T02:45Z")), "day", 0)
@example(("America/Sao_Paulo", instant_ms("2018-02-18T02:30Z")), "day", 0)
@example(("Australia/Lord_Howe", instant_ms("2024-04-06T15:10Z")), "hour", 0)
@example(("America/St_Johns", instant_ms("2010-11-07T02:45Z")), "hour", 7)
def test_a_window_is_that_of_the_calendar(place: tuple[str, int], unit: str, minutes: int) -> None:
    """A bill would have an hour of the month before, or miss one."""
    name, time = place
    offset = timedelta(minutes=minutes)
    window = calendar(unit, tz=name, offset=offset)
    start, end = plain(time, unit, name, offset)
    assert (window.last_start(time), window.last_end(time)) == (start, end)
    assert (window.start_of(window.first_number(time)), window.end_of(window.last_number(time))) == (start, end)
    assert window.ends(start) == end and window.first_number(end) == window.last_number(time) + 1
    times = np.array([start, end - 1, time, end])
    assert window.last_start(times).tolist() == [start, start, start, end]
    assert window.ends(np.array([start])).tolist() == [end]
    assert window.holds(times).all()
    for watermark in (start, end - 1, end, end + 1):
        late, partly = window.late(np.array([time]), watermark)
        assert late.tolist() == [end <= watermark] and not partly.any()
    pane = Panes(window, None)
    assert pane.starts(time) == start and pane.is_cut(start) and not pane.is_cut(end - 1) and pane.is_window
    assert pane.cut_before(end - 1) == start and start % pane.step == end % pane.step == 0


@pytest.mark.parametrize("unit", SHORTEST_MS)
@pytest.mark.parametrize("name", ["Australia/Lord_Howe", "America/St_Johns", "Pacific/Apia"])
def test_many_times_at_once_are_mapped_like_each_alone(unit: str, name: str) -> None:
    """A batch would count in other windows than its messages one by one."""
    window = calendar(unit, tz=name)
    borders = window._starts[(window._starts >= 0) & (window._starts <= window.time_max)]
    random = np.random.default_rng(7).integers(0, window.time_max + 1, 40_000)
    near = np.concatenate([borders[-5_000:], borders[-5_000:] - 1, borders[:5_000], borders[1:5_000] - 1, random])
    every = np.concatenate([1_000 * np.array(changes(name)) + move for move in (-3_600_000, -60_000, -1, 0, 60_000)])
    times = np.concatenate([near, every])
    expected = np.searchsorted(window._starts, times, side="right") - 1
    assert (window.last_number(times) == expected).all()
    assert (window.last_start(times) <= times).all() and (times < window.last_end(times)).all()
    assert window.last_number(times[:0]).tolist() == []


def hours(window: CalendarWindow, text: str) -> float:
    """The length of the window that holds a time."""
    time = instant_ms(text)
    return float(window.last_end(time) - window.last_start(time)) / 3_600_000


def test_days_have_as_many_hours_as_the_clocks_give_them() -> None:
    """The hour that is twice would be in two days, or in none."""
    berlin = calendar("day", tz="Europe/Berlin")
    assert [hours(berlin, f"2024-{day}T12:00Z") for day in ("03-30", "03-31", "04-01", "10-27")] == [24, 23, 24, 25]
    apia = calendar("day", tz="Pacific/Apia")
    last, first = instant_ms("2011-12-29T23:59:59.999-10:00"), instant_ms("2011-12-31T00:00+14:00")
    assert first == last + 1 and apia.last_number(first) == apia.last_number(last) + 1
    assert hours(apia, "2011-12-29T12:00-10:00") == hours(apia, "2011-12-31T12:00+14:00") == 24
    assert hours(calendar("week", tz="Pacific/Apia"), "2011-12-29T12:00-10:00") == 6 * 24
    assert hours(calendar("day", tz="America/St_Johns"), "1988-04-03T12:00Z") == 22


def test_hours_across_changes() -> None:
    """The hour from two to three that the clocks show twice would be one of two hours."""
    berlin = calendar("hour", tz="Europe/Berlin")
    autumn = [instant_ms(f"2024-10-27T{time}") for time in ("02:30+02:00", "02:30+01:00", "03:30+01:00")]
    assert [berlin.last_number(time) - berlin.last_number(autumn[0]) for time in autumn] == [0, 1, 2]
    assert berlin.last_start(instant_ms("2024-03-31T03:30+02:00")) == instant_ms("2024-03-31T01:00Z")
    howe = calendar("hour", tz="Australia/Lord_Howe")
    assert [hours(howe, f"2024-04-06T{time}Z") for time in ("14:30", "15:10", "15:40")] == [1, 0.5, 1]
    assert [hours(howe, f"2024-10-05T{time}Z") for time in ("15:20", "15:45", "16:10")] == [1, 0.5, 1]
    assert calendar("hour", tz="Asia/Kolkata").last_start(instant_ms("2024-01-01T10:45+05:30")) == instant_ms(
        "2024-01-01T10:00+05:30"
    )


def test_a_period_begins_once_however_fast_the_clocks_change() -> None:
    """Midnight would be looked for in the rules that follow, where clocks were set back and forth in a few minutes."""
    midnight = 1_700_006_400
    zone = Zone("Z", ((-97_459_200, 0), (midnight + 300, -7_200), (midnight + 900, 0)))
    assert CalendarWindow("day", zone).last_start(1_000 * midnight + 600_000) == 1_000 * midnight


def test_longer_units_begin_where_the_calendar_says() -> None:
    """A week would begin on Thursday, as the epoch did."""
    time = instant_ms("2024-08-15T12:00Z")
    starts = {"week": (2024, 8, 12), "month": (2024, 8, 1), "quarter": (2024, 7, 1), "year": (2024, 1, 1)}
    for unit, start in starts.items():
        found = _EPOCH + timedelta(milliseconds=calendar(unit).last_start(time))
        assert found == datetime(*start, tzinfo=UTC)
        assert date(*start).weekday() == 0 or unit != "week"
    assert calendar("day").last_start(time) == tumbling("1 day").last_start(time)


def test_an_offset_is_time_on_the_clock() -> None:
    """A day from six to six would begin at five or seven when the clocks were changed in its night."""
    day = calendar("day", tz="Europe/Berlin", offset="6 h")
    for text in ("2024-03-30T06:00+01:00", "2024-03-31T06:00+02:00", "2024-10-27T06:00+01:00"):
        assert day.last_start(instant_ms(text) + 1) == day.last_start(instant_ms(text)) == instant_ms(text)
        assert day.last_end(instant_ms(text) - 1) == instant_ms(text)
    skipped = calendar("day", tz="Europe/Berlin", offset="150 min")
    assert skipped.last_start(instant_ms("2024-03-31T12:00Z")) == instant_ms("2024-03-31T01:00Z")
    twice = skipped.last_start(instant_ms("2024-10-27T12:00Z"))
    assert twice == instant_ms("2024-10-27T02:30+02:00")


def test_windows_may_start_before_the_epoch() -> None:
    """The first window of a zone ahead of UTC would be cut, or lost, or look for one before the first."""
    for unit in SHORTEST_MS:
        for name in ("Europe/Berlin", "America/New_York"):
            for offset in (0, SHORTEST_MS[unit] - 1):
                window = calendar(unit, tz=name, offset=offset)
                assert window.last_start(0) <= 0 < window.last_end(0) and window.last_number(0) > 0
                assert window.starts_early == (window.last_start(0) < 0)
                assert Panes(window, None).starts(0) == 0
    assert not calendar("year").starts_early and calendar("week").starts_early


@pytest.mark.parametrize("unit", ["fortnight", "", "days", "Day", 86_400_000, None, timedelta(days=1), ["day"]])
def test_an_unknown_unit_is_refused(unit: object) -> None:
    """A day of 86,400,000 ms is no calendar day, and would seem to be one."""
    with pytest.raises(ValueError, match=r"the units are 'hour', 'day', .* tumbling\(size\)"):
        calendar(unit)  # type: ignore[arg-type]


@pytest.mark.parametrize(("unit", "shortest"), SHORTEST_MS.items())
def test_an_offset_of_a_whole_period_is_refused(unit: str, shortest: int) -> None:
    """Windows of February would start in March, and two spellings mean the same."""
    assert calendar(unit, offset=shortest - 1).offset_ms == shortest - 1
    for offset in (shortest, shortest + 1):
        with pytest.raises(ValueError, match=f"less than the shortest {unit}"):
            calendar(unit, offset=offset)
    for wrong in (-1, "1 fortnight", None, 1.5):
        with pytest.raises((ValueError, TypeError)):
            calendar(unit, offset=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="less than the shortest"):
        CalendarWindow(unit, Zone.read("UTC"), -1)


def test_windows_of_a_calendar_are_recognised_by_unit_zone_and_offset() -> None:
    """A checkpoint would be taken for that of other windows, or other windows for its own."""
    berlin = calendar("month", tz="Europe/Berlin", offset="1 day")
    assert berlin.fingerprint() == {"calendar": "month", "zone": "Europe/Berlin", "offset_ms": 86_400_000}
    assert calendar("month").fingerprint() == {"calendar": "month", "zone": "UTC"}
    assert str(berlin) == 'calendar("month", tz="Europe/Berlin", offset="1 d")'
    assert berlin == calendar("month", tz="Europe/Berlin", offset="24 h") != calendar("month", tz="Europe/Paris")


def test_workers_get_the_rules_and_not_the_borders() -> None:
    """Each worker would get megabytes, or ask its own zone data."""
    window = calendar("hour", tz="Europe/Berlin")
    assert window.last_number(0) and len(pickle.dumps(window)) < 10_000
    assert pickle.loads(pickle.dumps(window)) == window


def test_times_beyond_the_table_are_refused() -> None:
    """They would be counted in the last window that is known."""
    for unit in SHORTEST_MS:
        window = calendar(unit, tz="America/New_York")
        assert window.time_max >= instant_ms("2100-01-01") and window.last_end(window.time_max) == window.time_max + 1
        assert window.last_start(window.time_max) <= instant_ms("2100-01-01T00:00Z")
        # A clock may stand at the end of the last window: it closes it.
        assert window.start_of(window.first_number(window.time_max + 1)) == window.time_max + 1
        last, first = int(window._starts[-2]), int(window._starts[0])
        assert window.end_of(window.last_number(last - 1)) == last and window.last_number(first) == 0
        for beyond in (1 << 61, last, first - 1, -(1 << 61)):
            with pytest.raises(ValueError, match="beyond 1967 to 2105"):
                window.last_number(beyond)
            with pytest.raises(ValueError, match="beyond 1967 to 2105"):
                window.last_number(np.array([0, beyond]))
        panes = Panes(window, None)
        assert not panes.is_cut(1 << 61) and panes.cut_before(1 << 61) == window.last_start(window.time_max)


rules = st.lists(
    st.tuples(st.integers(1_000_000, 1_100_000), st.sampled_from([-3_600, -1_800, 0, 3_600, 7_200])),
    max_size=4,
    unique_by=lambda pair: pair[0],
).map(lambda pairs: Zone("Z", ((-97_459_200, 0), *_distinct(sorted(pairs)))))


def _distinct(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    before, found = 0, []
    for second, offset in pairs:
        if offset != before:
            found.append((second * 600, offset))
        before = offset
    return found


def test_what_may_be_late_and_what_is_untouched_ends_with_the_window() -> None:
    """A late message would not be looked at; a restart would publish a window twice."""
    day = CalendarWindow("day", Zone("UTC", ((-97_459_200, 0),)))
    start, end = day.last_start(86_400_000 * 10 + 5), day.last_end(86_400_000 * 10 + 5)
    assert [day.may_be_late(start, clock) for clock in (end - 1, end)] == [False, True]
    assert [day.is_untouched(start, closed) for closed in (end - 1, end)] == [True, False]


@given(rules, rules, st.integers(600_000_000, 661_000_000), st.sampled_from(["day", "week", "month"]))
@settings(max_examples=examples(60), deadline=None)
@example(Zone("Z", ((-97_459_200, 0), (630_000_000, 3_600))), Zone("Z", ((-97_459_200, -1_800),)), 629_999_000, "hour")
def test_rules_that_change_move_only_windows_that_have_not_begun(old: Zone, new: Zone, begun: int, unit: str) -> None:
    """Rows would lie in other windows than those they were counted in, or a closed window open again."""
    begun *= 1_000
    before, after = CalendarWindow(unit, old), CalendarWindow(unit, new)
    kept = after.kept_by(old, begun)
    start = before.last_start(begun)
    same = before._starts[before._starts <= start]
    assert (kept._starts[: len(same)] == same).all() and kept.last_start(begun) == start
    assert kept.last_end(begun) >= before.last_end(begun)
    later = kept._starts[kept._starts > before.last_end(begun)]
    assert np.isin(later, after._starts).all() and np.isin(after._starts[-100:], kept._starts).all()
    assert after.kept_by(kept.zone, kept.last_end(begun)).zone == kept.zone
    assert after.kept_by(new, begun) is after


@given(rules, rules, st.integers(600_000_000, 661_000_000), st.sampled_from(["day", "week"]), st.booleans())
@settings(max_examples=examples(20), deadline=None)
@example(Zone("Z", ((-97_459_200, 0),)), Zone("Z", ((-97_459_200, 7_200),)), 630_000_000, "day", True)
@example(Zone("Z", ((-97_459_200, 0),)), Zone("Z", ((-97_459_200, -7_200),)), 630_000_000, "day", False)
def test_a_window_whose_rows_are_published_keeps_its_end(
    old: Zone, new: Zone, begun: int, unit: str, is_moved: bool
) -> None:
    """Its rows would stand beside those of the longer window, with all that both hold. Borders between two seconds
    would be passed a moment too early."""
    begun, offset = begun * 1_000, 500 if is_moved else 0
    before, after = CalendarWindow(unit, old, offset), CalendarWindow(unit, new, offset)
    kept = after.kept_by(old, begun, ends=True)
    assert (kept.last_start(begun), kept.last_end(begun)) == (before.last_start(begun), before.last_end(begun))
    assert after.kept_by(old, begun).last_end(begun) >= before.last_end(begun)
    assert np.isin(after._starts[-100:], kept._starts).all()
    assert after.kept_by(kept.zone, begun, ends=True).zone == kept.zone
    assert after.kept_by(kept.zone, kept.last_end(begun), ends=True).zone == kept.zone
