"""The plain reference of what is published, and when, says what one works out by hand."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest

from tests.proof.borders import Gap, Life, Shifts, shift_of
from tests.proof.emission import DAYS, SHIFTS, TAKEN_BACK, Emission, drawn_emission
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
        (Emission(WINDOWS, 20, emit="final"), [[], [], [], [], [], [(0, 2, 5), (10, 1, 2)], [(20, 1, 3), (40, 1, 5)]]),
        (
            Emission(WINDOWS, 20, emit="change", changes="retract"),
            [[(0, 1, 1)], [(10, 1, 2)], [(20, 1, 3)], [(0, 1, 1, TAKEN_BACK), (0, 2, 5)], [(40, 1, 5)], [], []],
        ),
        (
            Emission(emit="change"),
            [[(None, 1, 1)], [(None, 2, 3)], [(None, 3, 6)], [(None, 4, 10)], [(None, 5, 15)], [(None, 6, 21)], []],
        ),
        (
            Emission(Gap(15, 40)),
            [[], [], [], [], [], [((3, 40), 3, 6)], [((41, 56), 1, 5)]],
        ),
        (
            Emission(Gap(10, 40), 50, "retract"),
            [
                [],
                [],
                [((3, 13), 1, 1)],
                [((14, 24), 1, 2), ((3, 13), 1, 1, TAKEN_BACK), ((3, 14), 2, 5)],
                [],
                [((25, 35), 1, 3), ((14, 24), 1, 2, TAKEN_BACK), ((3, 14), 2, 5, TAKEN_BACK), ((3, 24), 4, 13)],
                [((41, 51), 1, 5)],
            ],
        ),
        (
            Emission(Gap(10, 40), 50, emit="change", changes="retract"),
            [
                [((3, 13), 1, 1)],
                [((14, 24), 1, 2)],
                [((25, 35), 1, 3)],
                [((3, 13), 1, 1, TAKEN_BACK), ((3, 14), 2, 5)],
                [((41, 51), 1, 5)],
                [((14, 24), 1, 2, TAKEN_BACK), ((3, 14), 2, 5, TAKEN_BACK), ((3, 24), 4, 13)],
                [],
            ],
        ),
        (
            Emission(Gap(10, 40), 50, "retract", early=13),
            [
                [],
                [],
                [((3, 13), 1, 1), ((14, 24), 1, 2), ((25, 35), 1, 3)],
                [((3, 13), 1, 1, TAKEN_BACK), ((3, 14), 2, 5)],
                [],
                [
                    *(((14, 24), 1, 2, TAKEN_BACK), ((3, 14), 2, 5, TAKEN_BACK)),
                    *(((41, 51), 1, 5), ((3, 24), 4, 13)),
                ],
                [],
            ],
        ),
        (
            Emission(Life(20), emit="change"),
            [[(None, 1, 1)], [(None, 2, 3)], [(None, 3, 6)], [], [(None, 4, 11)], [], []],
        ),
        (
            Emission(Life(10), emit="change", changes="retract"),
            [
                [(None, 1, 1)],
                [(None, 1, 1, TAKEN_BACK), (None, 1, 2)],
                [(None, 1, 2, TAKEN_BACK), (None, 1, 3)],
                [],
                [(None, 1, 3, TAKEN_BACK), (None, 1, 5)],
                [],
                [],
            ],
        ),
        (Emission(Life(10)), [[], [], [], [], [], [], [(None, 1, 5)]]),
        (
            Emission(SHIFTS, 20),
            [[], [], [(-3, 1, 1)], [(4, 2, 6)], [], [(21, 1, 3)], [(37, 1, 5)]],
        ),
        (
            Emission(WINDOWS, 20, "retract", early=13),
            [[], [], [(0, 1, 1), (10, 1, 2), (20, 1, 3)], [(0, 1, 1, TAKEN_BACK), (0, 2, 5)], [], [(40, 1, 5)], []],
        ),
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


def test_sessions_of_any_order_are_those_in_the_order_of_time() -> None:
    """One by one, joined where they meet; and all at once, sorted: two references that know nothing of each other."""
    emission = Emission(Gap(5, 30))
    for seed in range(50):
        drawn, held, counted = random.Random(seed), {}, []
        for n in range(12):
            place = drawn.choice("ab"), next(emission.starts(drawn.randrange(70)))
            emission.count(held, place, n)
            counted.append((place, n))
        assert held == emission.summed(counted)
    assert emission.summed([(("a", next(emission.starts(ms))), 1) for ms in (8, 0, 4, 13, 31, 29)]) == {
        ("a", (0, 13)): (3, 3),
        ("a", (13, 18)): (1, 1),
        ("a", (29, 30)): (1, 1),
        ("a", (31, 36)): (1, 1),
    }


def test_a_key_that_is_silent_is_taken_back_by_the_clock_of_the_step() -> None:
    """A record of the step that finds it so can keep it; the clock that the step leaves behind cannot end it."""
    rows = [{"ts": ts, "page": page, "n": 1} for ts, page in ((3, "a"), (14, "b"), (12, "a"), (40, "b"), (41, "b"))]
    for changes in ("update", "retract"):
        last = list(Twin(rows, 1, Emission(Life(10), emit="change", changes=changes)).steps().values())[-1]
        taken_back = [[row[0] for row in batch if row[-1] == TAKEN_BACK] for batch in last.batches]
        assert last.table == {("b", None): (2, 2)} and last.late == ()
        expected = {2: [], 4: ["a"]} if changes == "update" else {2: ["a"], 4: ["a", "b"]}
        assert taken_back == [expected.get(step, []) for step in range(6)]


def test_the_shifts_of_the_assigner_are_those_of_the_reference() -> None:
    """The job asks for columns, the reference for one time after the other."""
    times = np.arange(200)
    starts, ends = Shifts().windows(times)
    assert list(zip(starts.tolist(), ends.tolist())) == [shift_of(ms) for ms in range(200)]


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
    assert len(kinds) == 49 and kinds[str(WINDOWS), None, "close", "update"] > 400
    assert min(sum(one.has_sessions for one in drawn), sum(one.early is not None for one in drawn)) > 100
