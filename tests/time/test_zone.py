"""The rules of a time zone, against zoneinfo at many instants."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persistent.time import zone as module
from persistent.time.zone import END_S, FIRST_S, Zone
from tests.checkpoint.samples import read_back
from tests.few import examples, share

ZONES = [
    "Europe/Berlin",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Africa/Monrovia",
]
tables = st.lists(st.tuples(st.integers(-50, 50), st.integers(-3, 3)), min_size=1, max_size=6, unique_by=lambda p: p[0])


def zone_of(pairs: list[tuple[int, int]]) -> Zone:
    """A zone with these changes, of which those that change nothing are left out."""
    ordered = [(-100, 0), *sorted(pairs)]
    changes = [pair for before, pair in zip([None, *ordered], ordered) if before is None or before[1] != pair[1]]
    return Zone("Z", tuple(changes))


@pytest.mark.parametrize("name", ZONES)
def test_a_table_has_the_offsets_of_zoneinfo(name: str) -> None:
    """A window would begin an hour early or late."""
    zone, theirs = Zone.read(name), ZoneInfo(name)
    moments = [second + near for second, _ in zone.offsets for near in (-1, 0, 1)]
    moments += range(0, 4_102_444_800, 4_000_037)
    for second in moments:
        ahead = datetime.fromtimestamp(second, theirs).utcoffset()
        assert ahead is not None and zone.offset_at(second) == ahead.total_seconds()
    assert zone.offsets[0][0] == FIRST_S and zone.offsets[-1][0] < END_S
    assert all(a[0] < b[0] and a[1] != b[1] for a, b in zip(zone.offsets, zone.offsets[1:]))


def test_a_table_reaches_beyond_all_times_that_count() -> None:
    """The summers of the last years would be winters."""
    years = {datetime.fromtimestamp(second, ZoneInfo("UTC")).year for second, _ in Zone.read("Europe/Berlin").offsets}
    assert years >= {*range(1980, 2105)}


@pytest.mark.check
@pytest.mark.parametrize("name", share(20, sorted(available_timezones())))
def test_no_zone_changes_twice_within_the_look_that_finds_changes(name: str) -> None:
    """A change that is taken back within a day would be missed."""
    offsets, theirs = Zone.read(name), ZoneInfo(name)
    for second in range(0, 4_102_444_800, 6 * 3_600 + 37):
        ahead = datetime.fromtimestamp(second, theirs).utcoffset()
        assert ahead is not None and offsets.offset_at(second) == ahead.total_seconds()


@given(tables, tables, st.integers(-60, 60))
@settings(max_examples=examples(200))
def test_a_table_that_follows_another_has_the_rules_of_both(
    first: list[tuple[int, int]], second: list[tuple[int, int]], since: int
) -> None:
    """Windows from before a change of the rules would move, or later ones not follow."""
    before, after = zone_of(first), zone_of(second)
    joined = before.followed_by(after, since)
    for moment in range(-110, 70):
        assert joined.offset_at(moment) == (before if moment < since else after).offset_at(moment)
    assert all(a[0] < b[0] and a[1] != b[1] for a, b in zip(joined.offsets, joined.offsets[1:]))
    assert read_back(joined) == joined


def test_what_follows_itself_is_unchanged() -> None:
    """Each run would put a table of its own into its first plan, and report a change."""
    berlin = Zone.read("Europe/Berlin")
    for since in (0, 1_711_846_800, 1_711_846_799, 1_711_846_801):
        assert berlin.followed_by(berlin, since) == berlin


def test_the_first_difference_of_two_tables() -> None:
    """The note of a run would name another time than that from which the rules differ."""
    zone = Zone("Z", ((0, 0), (100, 60), (200, 0)))
    assert zone.differs_from(zone) is None
    assert zone.differs_from(Zone("Z", ((0, 0), (100, 60), (190, 0)))) == 190
    assert zone.differs_from(Zone("Z", ((0, 0), (100, 60)))) == 200
    assert zone.differs_from(Zone("Z", ((0, 30), (100, 60), (200, 0)))) == 0


@pytest.mark.parametrize("name", ["Europe/Berlinn", "", "../etc/passwd", "/etc/localtime", "Europe", "+02:00"])
def test_an_unknown_zone_is_refused(name: str) -> None:
    """A typing error would be another zone, or be found on a worker in the night."""
    with pytest.raises(ValueError, match=r"tz: .* is not a time zone of this machine: give a name such as .* tzdata"):
        Zone.read(name)


@pytest.mark.parametrize("name", [2, None, 2.5, ZoneInfo("UTC")])
def test_a_zone_is_given_by_its_name(name: object) -> None:
    """A number of hours is no zone: it has no summer."""
    with pytest.raises(TypeError, match=r'tz: .* is not a time zone: give its name, such as tz="Europe/Berlin"'):
        Zone.read(name)


def test_utc_needs_no_zone_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without zone data could not even have days."""

    def missing(name: str) -> ZoneInfo:
        raise OSError(name)

    monkeypatch.setattr(module, "ZoneInfo", missing)
    module._offsets.cache_clear()
    assert Zone.read("UTC").offsets == ((FIRST_S, 0),)
    with pytest.raises(ValueError, match="tzdata"):
        Zone.read("Europe/Berlin")
