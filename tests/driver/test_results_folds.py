"""A fold that raises leaves its runs as they were."""

from __future__ import annotations

from msgspec.structs import replace

from persistent.checkpoint.compaction import Merge
from persistent.checkpoint.parts import SeenColumns, SeenPart
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.driver.results import Fold, runs_after, seen_after, unfolded
from persistent.names import Attempt
from persistent.task.dedupe import Dedupe
from persistent.worker.job import Folded, FoldRuns

HALF = KEY_GROUPS // 2


def run(name: str, first: int, last: int | None = None, low: int = 0, high: int = KEY_GROUPS) -> Run:
    return Run(name, 5, 100, "0" * 64, low, low, high, 40, 40, first, first if last is None else last)


ONE, OTHER, NEXT = run("one", 1), run("other", 2), run("next", 3)


def fold(inputs: tuple[Run, ...], low: int, high: int, result: Run | None, failure: str = "") -> Fold:
    return FoldRuns(Attempt(2, 5), Merge(inputs, low, high), 0), Folded(result, None, failure)


def test_pieces_that_all_succeed_take_the_place_of_their_runs() -> None:
    """What is left of a run counts from the group that its fold has reached."""
    lower, upper = run("lower", 1, 2, 0, HALF), run("upper", 1, 2, HALF, KEY_GROUPS)
    pieces = [fold((ONE, OTHER), 0, HALF, lower), fold((ONE, OTHER), HALF, KEY_GROUPS, upper)]
    assert runs_after((ONE, OTHER, NEXT), pieces) == (lower, upper, NEXT)
    assert runs_after((ONE, OTHER), pieces[:1]) == (lower, replace(ONE, low=HALF), replace(OTHER, low=HALF))
    assert unfolded(pieces) == frozenset() and runs_after((ONE,), []) == (ONE,)


def test_a_fold_of_which_a_piece_raised_leaves_everything() -> None:
    """The piece that did succeed takes the runs away, and with them the groups of the one that raised."""
    upper = run("upper", 1, 2, HALF, KEY_GROUPS)
    pieces = [fold((ONE, OTHER), 0, HALF, None, "raised"), fold((ONE, OTHER), HALF, KEY_GROUPS, upper)]
    beside = fold((NEXT,), 0, KEY_GROUPS, run("sum", 3))
    assert unfolded([*pieces, beside]) == {"one", "other"}
    assert runs_after((ONE, OTHER, NEXT), [*pieces, beside]) == (ONE, OTHER, run("sum", 3))


def test_what_was_seen_is_folded_whole_too() -> None:
    """Numbers that vanish with the groups of a failed piece would let their copies count."""
    pieces = [
        fold((ONE, OTHER), 0, HALF, None, "raised"),
        fold((ONE, OTHER), HALF, KEY_GROUPS, run("upper", 1, 2, HALF, KEY_GROUPS)),
    ]
    dedupe = Dedupe(origin="origin", sequence="n", within=40)
    seen = seen_after(SeenPart(SeenColumns(**dedupe.columns()), 10, 0, (ONE, OTHER)), dedupe, (NEXT,), pieces, 50)
    assert [one.name for one in seen.runs] == ["one", "other", "next"]
