"""Each way of running alone shows what it is there for."""

from __future__ import annotations

import pytest

from persistent.testing.outcome import first_difference
from persistent.testing.running import at_once, settings_of
from persistent.testing.variations import (
    ANOTHER_DAY,
    ONCE_MORE,
    RESCALED,
    TWICE,
    Variation,
    one_by_one,
    reborn,
    shuffled,
    variations_of,
)
from tests.testing.planted import (
    ROWS,
    OrderOfReading,
    OrderWithinAKey,
    Random,
    StateOnSelf,
    StepBorders,
    Today,
    Totals,
    VisitsByMinute,
    WallClock,
)

SETTINGS = settings_of(ROWS, "ts", "ms", "stop")
SHOWS = [
    (ONCE_MORE, Random),
    (ANOTHER_DAY, WallClock),
    (ANOTHER_DAY, Today),
    (one_by_one(9), StepBorders),
    (reborn(9), StateOnSelf),
    (RESCALED, StateOnSelf),
    (TWICE, StateOnSelf),
    (shuffled(0, None, True), OrderOfReading),
]


pytestmark = pytest.mark.usefixtures("quiet")


@pytest.mark.parametrize(("way", "wrong"), SHOWS, ids=lambda item: getattr(item, "name", None) or item.__name__)
def test_a_way_shows_its_mistake(way: Variation, wrong: type[VisitsByMinute]) -> None:
    """A way that shows nothing is hidden by the others, which find most mistakes too."""
    found = way.run(wrong, ROWS, SETTINGS)
    assert first_difference(at_once(wrong, ROWS, SETTINGS), found, None) is not None
    sound = way.run(VisitsByMinute, ROWS, SETTINGS)
    assert first_difference(at_once(VisitsByMinute, ROWS, SETTINGS), sound, None) is None


def test_keys_change_places_and_nothing_else() -> None:
    """The order within a key is what such a state is about."""
    way = shuffled(1, None, False)
    assert (
        first_difference(at_once(OrderWithinAKey, ROWS, SETTINGS), way.run(OrderWithinAKey, ROWS, SETTINGS), None)
        is None
    )
    assert (
        first_difference(at_once(OrderOfReading, ROWS, SETTINGS), way.run(OrderOfReading, ROWS, SETTINGS), None) is None
    )


def test_both_methods_are_tried_where_there_are_both() -> None:
    """Which of them runs is decided by errors, so nobody would see the other one."""
    names = [way.name for way in variations_of(Totals(), 9, 2, None, True)]
    assert names == [
        "once more, just the same",
        "at another time of day",
        "by process_message instead of process_batch",
        "one by one",
        "reborn between messages",
        "rescaled: 1, 3, 2, then 5 workers",
        "each piece of work twice, as when a worker dies",
        "shuffled (seed 0)",
        "shuffled (seed 1)",
    ]
    assert not any("process_batch" in way.name for way in variations_of(VisitsByMinute(), 9, 0, None, True))
