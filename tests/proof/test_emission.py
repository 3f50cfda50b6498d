"""The plain reference of what is published, and when, says what one works out by hand."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

import pytest

from tests.proof.emission import DAYS, EVERYTHING, TAKEN_BACK, Emission, drawn_emission
from tests.proof.twin import Twin
from tests.proof.worlds import EMITTING

WINDOWS = (10, 10, 0)
ROWS = [{"ts": ts, "page": "a", "n": n} for ts, n in ((3, 1), (14, 2), (25, 3), (4, 4), (41, 5), (5, 6))]
"""With steps of one row, the fourth corrects what is published; the last comes 35 after the end of its window."""


def batches(emission: Emission) -> list[list[tuple[object, ...]]]:
    """What each step of one row publishes, and the end."""
    last = list(Twin(ROWS, 1, emission).steps().values())[-1]
    return [[row[1:] for row in batch] for batch in last.batches]


@pytest.mark.parametrize(
    ("emission", "expected"),
    [
        (Emission(WINDOWS), [[], [], [(0, 1, 1)], [(10, 1, 2)], [], [(20, 1, 3)], [(40, 1, 5)]]),
        (
            Emission(WINDOWS, 20, "accumulate"),
            [[], [], [(0, 1, 1)], [(10, 1, 2), (0, 2, 5)], [], [(20, 1, 3)], [(40, 1, 5)]],
        ),
        (
            Emission(WINDOWS, 20, "retract"),
            [[], [], [(0, 1, 1)], [(10, 1, 2), (0, 1, 1, TAKEN_BACK), (0, 2, 5)], [], [(20, 1, 3)], [(40, 1, 5)]],
        ),
        (
            Emission(WINDOWS, 50, "delta"),
            [[], [], [(0, 1, 1)], [(10, 1, 2), (0, 1, 4)], [], [(20, 1, 3), (0, 1, 6)], [(40, 1, 5)]],
        ),
        (Emission(WINDOWS, 20, emit="final"), [[], [], [], [], [], [(0, 2, 5), (10, 1, 2)], [(20, 1, 3), (40, 1, 5)]]),
        (
            Emission(WINDOWS, 20, emit="change", changes="retract"),
            [[(0, 1, 1)], [(10, 1, 2)], [(20, 1, 3)], [(0, 1, 1, TAKEN_BACK), (0, 2, 5)], [(40, 1, 5)], [], []],
        ),
        (
            Emission(emit="change"),
            [[(None, 1, 1)], [(None, 2, 3)], [(None, 3, 6)], [(None, 4, 10)], [(None, 5, 15)], [(None, 6, 21)], []],
        ),
        (Emission(EVERYTHING), [[], [], [], [], [], [], [(None, 6, 21)]]),
    ],
    ids=str,
)
def test_each_step_publishes_what_one_works_out_by_hand(emission: Emission, expected: list[list[object]]) -> None:
    """A reference that is wrong as the code is wrong would agree with it."""
    assert batches(emission) == expected


def test_what_is_late_follows_from_the_clock_before_and_the_lateness() -> None:
    """A window that is final takes nothing more, and no state holds it."""
    lates = [list(Twin(ROWS, 1, Emission(WINDOWS, allowed)).steps().values())[-1].late for allowed in (0, 20, 50)]
    assert lates == [(3, 5), (5,), ()]


def test_days_are_those_of_a_zone_that_sets_its_clocks_forward() -> None:
    """A reference that counts days of 24 hours would agree with code that knows no zone."""
    emission = Emission(DAYS)
    (start,) = emission.starts(round(datetime(2024, 3, 31, 12, tzinfo=UTC).timestamp() * 1000))
    assert start == datetime(2024, 3, 30, 23, tzinfo=UTC).timestamp() * 1000
    assert (emission.end(start) - start) / 3_600_000 == 23
    assert len({next(emission.starts(emission.at(tick))) for tick in range(120)}) == 12


@pytest.mark.parametrize("job", EMITTING, ids=repr)
def test_what_a_reader_holds_at_the_end_is_the_sum_of_what_counted(job: object) -> None:
    """Whatever was taken back or added, the table is that of the records."""
    last = list(job.twin.steps().values())[-1]  # type: ignore[attr-defined]
    assert job.emission.table(last.batches) == last.table != {}  # type: ignore[attr-defined]


def test_a_table_tells_rows_that_do_not_fit() -> None:
    """A reader that takes anything would hold the right sums by chance."""
    emission = Emission(WINDOWS, 20, "retract")
    new, old = ("a", 0, 2, 5), ("a", 0, 1, 1)
    assert emission.table([[old], [new, (*old, TAKEN_BACK)]]) == {("a", 0): (2, 5)}
    for wrong in ([[old], [new]], [[old], [(*new, TAKEN_BACK)]]):
        with pytest.raises(AssertionError):
            emission.table(wrong)


def test_seeds_draw_every_emission() -> None:
    """A seed that is never drawn shows nothing."""
    drawn = [drawn_emission(random.Random(seed), (WINDOWS, None)[seed % 3 == 0]) for seed in range(2000)]
    kinds = Counter((str(one.window), one.late, one.emit, one.changes) for one in drawn)
    assert len(kinds) == 18 and kinds[str(WINDOWS), None, "close", "update"] > 600
    assert all(one.late != "delta" or "top" not in one.names for one in drawn)
