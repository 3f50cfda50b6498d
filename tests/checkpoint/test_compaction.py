"""What compaction chooses, run by run: neighbours of one tier, as many as a step can fold, from where it stands."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from persistent.checkpoint import compaction
from persistent.checkpoint.compaction import Merge, beside, choose, choose_all, replaced, shards
from persistent.codec.fields import KEY_GROUPS, Run


def a_run(first: int, rows: int = 10, last: int | None = None, **changes: int) -> Run:
    """The delta of a checkpoint, or of those up to ``last``."""
    last = first if last is None else last
    start = changes.get("start", 0)
    fields = {"bytes": 1, "start": start, "low": start, "high": KEY_GROUPS, "pane_min": 0, "pane_max": 99, **changes}
    name = f"d/V/{first}-{last}-{fields['start']}-{rows}"
    return Run(name=name, rows=rows, sha256="", first=first, last=last, **fields)


def deltas(first: int, *rows: int) -> tuple[Run, ...]:
    """The deltas of one checkpoint after the other."""
    return tuple(a_run(first + number, each) for number, each in enumerate(rows))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step folds 1,024 rows; a tier ends at 64, 512, 4,096... rows."""
    monkeypatch.setattr(compaction, "_ROWS_MIN", 1024)
    monkeypatch.setattr(compaction, "_TIER_0_ROWS", 64)


# -- the bounds -------------------------------------------------------------------------------------------------------


def test_eight_of_a_tier_are_folded() -> None:
    """Fewer, and every row is written more often; more, and every window reads more runs."""
    eight = deltas(1, *[4095] * 8)
    assert choose(eight[:7], 1) is None
    assert choose(eight, 1) == Merge(eight, 0, KEY_GROUPS)
    assert choose(deltas(1, *[4095] * 7, 4096), 1) is None


def test_a_step_folds_a_quarter_of_a_million_rows_or_five_deltas() -> None:
    """More would make that step slow, however small its delta."""
    exactly = deltas(1, *[1 << 15] * 8)
    assert choose(exactly, 1) == Merge(exactly, 0, KEY_GROUPS)
    more = (*exactly[:7], a_run(8, (1 << 15) + 1))
    assert choose(more, 1) == Merge(more, 0, KEY_GROUPS - 1)
    assert choose(more, 52_428) == Merge(more, 0, KEY_GROUPS - 1)
    assert choose(more, 52_429) == Merge(more, 0, KEY_GROUPS)


def test_a_shard_reads_half_a_gigabyte() -> None:
    """A column of text holds two gigabytes, and a row in memory up to four times its bytes in a file."""
    assert len(shards([a_run(1, bytes=1 << 29)])) == 1
    assert len(shards([a_run(1, bytes=(1 << 29) + 1)])) == 2
    assert len(shards([a_run(1, bytes=1 << 30)])) == 2


@pytest.mark.usefixtures("small")
def test_a_tier_is_eight_times_the_one_below() -> None:
    """Sums of a tier come to one of the next."""
    assert [compaction._tier(rows) for rows in (0, 63, 64, 511, 512, 4095, 4096)] == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.usefixtures("small")
def test_at_least_one_key_group_is_folded() -> None:
    """A fold of very many rows would stand still for ever."""
    huge = deltas(1, *[1 << 20] * 8)
    assert choose(huge, 1) == Merge(huge, 0, 1)
    begun = tuple(replace(run, low=KEY_GROUPS - 1, rows=1 << 30) for run in huge)
    assert choose(begun, 1) == Merge(begun, KEY_GROUPS - 1, KEY_GROUPS)


# -- which runs -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ([10] * 8, (0, 8)),
        ([10] * 9, (0, 9)),
        ([10] * 7 + [100], None),
        ([10] * 8 + [100], (0, 8)),
        ([10] * 8 + [100, 10], (0, 8)),
        ([10] * 7 + [100] + [10] * 7, None),
        ([10] * 7 + [100] + [10] * 8, (8, 16)),
        ([100] * 8, (0, 8)),
        ([100, 10, 10, *[100] * 7], (0, 10)),
        ([10, 10, *[100] * 8, 10], (2, 10)),
        ([100] * 8 + [10] * 8, (8, 16)),
        ([100] * 7 + [600, 100], None),
    ],
    ids=str,
)
def test_neighbours_of_the_lowest_full_tier_are_chosen(rows: list[int], chosen: tuple[int, int] | None) -> None:
    """Runs that are none change places, and "last" answers with what came first."""
    runs = deltas(1, *rows)
    found = choose(runs, 1 << 20)
    assert (found and found.inputs) == (runs[slice(*chosen)] if chosen else None)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("published", "chosen"),
    [(0, (0, 9)), (1, (1, 9)), (2, None), (7, None), (8, (0, 8)), (9, (0, 9)), (10, (0, 9))],
)
def test_what_was_published_ends_a_streak(published: int, chosen: tuple[int, int] | None) -> None:
    """To the very id: what was updated in the one after it is published again."""
    runs = deltas(1, *[10] * 9)
    found = choose(runs, 1, published)
    assert (found and found.inputs) == (runs[slice(*chosen)] if chosen else None)


@pytest.mark.usefixtures("small")
def test_the_splits_of_a_step_belong_together() -> None:
    """Folded apart, half of a step would be older than the other half."""
    steps = tuple(a_run(id, 40) for id in range(1, 5) for _ in range(2))
    steps = tuple(replace(run, name=str(number)) for number, run in enumerate(steps))
    found = choose((*steps, *deltas(5, *[40] * 4)), 1)
    assert found is not None and found.inputs == steps


def ids(groups: Sequence[Sequence[Run]]) -> list[list[tuple[int, int]]]:
    return [[(run.first, run.last) for run in group] for group in groups]


def test_runs_are_of_one_delta_where_their_checkpoints_overlap() -> None:
    """Also where the longest of them is not the one just before."""
    runs = [a_run(1, last=5), a_run(2, last=3), a_run(4), a_run(6), a_run(6, 11), a_run(7, last=8)]
    assert ids(compaction._deltas(runs)) == [[(1, 5), (2, 3), (4, 4)], [(6, 6), (6, 6)], [(7, 8)]]
    assert compaction._deltas([]) == []


def test_pieces_side_by_side_are_one_sum() -> None:
    """Counted one by one, a fold in pieces would be due again as soon as it is done."""
    pieces = [a_run(1, last=8, start=low, high=low + 256) for low in (0, 256, 512, 768)]
    other, apart = a_run(1, last=9, start=1024 - 1), a_run(1, last=9, start=3)
    assert compaction._sums([*pieces, other, apart]) == [pieces, [other], [apart]]
    assert compaction._sums([pieces[0], pieces[2], pieces[3]]) == [[pieces[0]], pieces[2:]]
    assert compaction._sums([*pieces, *pieces]) == [pieces, pieces]
    assert compaction._sums([]) == []


# -- a fold that goes on ----------------------------------------------------------------------------------------------


def from_group(runs: Sequence[Run], low: int) -> tuple[Run, ...]:
    """As they count once a fold has come that far."""
    return tuple(replace(run, low=low) for run in runs)


@pytest.mark.usefixtures("small")
def test_a_fold_goes_on_to_what_its_sum_overlaps() -> None:
    """A piece of an older sum, which ends where the delta begins that is being folded."""
    made, piece = a_run(1, 100, last=3, high=500), a_run(1, 100, last=2, start=700)
    (begun,) = from_group([a_run(3, 100)], 500)
    old, new = a_run(0, 100), a_run(4, 100)
    assert choose((old, made, piece, begun, new), 1) == Merge((piece, begun), 500, KEY_GROUPS)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("first", "last", "of_it"), [(1, 3, 1), (4, 6, 6), (1, 6, 6)])
def test_what_a_fold_has_made_overlaps_any_of_its_inputs(first: int, last: int, of_it: int) -> None:
    """The first of them, or the last: what follows of its sum belongs to the fold."""
    made = a_run(first, 100, last=last, high=500)
    inputs = (*from_group([a_run(2, 100), a_run(5, 100)], 500), a_run(of_it, 100, start=700))
    inputs = tuple(sorted(inputs, key=lambda run: run.first))
    assert choose((made, *inputs, a_run(7, 100)), 1) == Merge(inputs, 500, KEY_GROUPS)


@pytest.mark.usefixtures("small")
def test_a_fold_takes_in_nothing_that_lay_beside_it() -> None:
    """What is older was folded before; what is younger is not its turn."""
    old = a_run(1, 5000, last=4)
    begun, later = from_group(deltas(5, 300, 200, 300), 100), deltas(8, *[10] * 7)
    assert choose((old, *begun, *later), 1) == Merge(begun, 100, KEY_GROUPS)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("rows", "left"),
    [([10] * 8, 944), ([50] * 8, 624), ([63] * 12 + [44], 256), ([60] * 12, 304), ([60] * 13, 256)],
    ids=str,
)
def test_beside_a_large_fold_small_runs_are_folded_whole(rows: list[int], left: int) -> None:
    """They would pile up while it goes on; it takes a smaller piece meanwhile, but always some."""
    large, small = from_group(deltas(1, *[300] * 8), 256), deltas(9, *rows)
    assert choose_all((*large, *small), 1) == [
        Merge(large, 256, 256 + 768 * left // 1800),
        Merge(small, 0, KEY_GROUPS),
    ]
    assert choose_all((*large, *small[:7]), 1) == [Merge(large, 256, 256 + 768 * 1024 // 1800)]


@pytest.mark.usefixtures("small")
def test_the_first_and_the_last_piece_of_a_fold_are_not_all_of_it() -> None:
    """The small runs have their turn in these steps too."""
    large, between, small = deltas(1, *[300] * 8), a_run(9, 600), deltas(10, *[100] * 8)
    assert choose_all((*large, between, *small), 1) == [
        Merge(large, 0, KEY_GROUPS * 256 // 2400),
        Merge(small, 0, KEY_GROUPS),
    ]
    begun = from_group(large, 1000)
    assert choose_all((*begun, between, *small), 1) == [
        Merge(begun, 1000, KEY_GROUPS),
        Merge(small, 0, KEY_GROUPS),
    ]


@pytest.mark.usefixtures("small")
def test_the_last_run_of_a_fold_is_in_no_other() -> None:
    """Its rows would count twice."""
    large, later = from_group(deltas(1, *[300] * 7, 100), 256), deltas(9, *[100] * 7)
    assert choose_all((*large, *later), 1) == [Merge(large, 256, 256 + 768 * 1024 // 1650)]


@pytest.mark.usefixtures("small")
def test_a_fold_that_is_whole_is_alone() -> None:
    """The next step has time for the next one."""
    first, between, second = deltas(1, *[100] * 8), a_run(9, 600), deltas(10, *[100] * 8)
    assert choose_all((*first, between, *second), 1) == [Merge(first, 0, KEY_GROUPS)]
    assert choose_all(first[:7], 1) == []


@pytest.mark.usefixtures("small")
def test_no_more_small_runs_are_folded_than_a_step_can() -> None:
    """Nor any that lies behind one that is too much."""
    large, small = from_group(deltas(1, *[300] * 8), 256), deltas(9, *[60] * 18, 4)
    assert choose_all((*large, *small), 1)[-1] == Merge(small[:17], 0, KEY_GROUPS)
    exactly = deltas(9, *[60] * 17, 4, 60)
    assert choose_all((*large, *exactly), 1)[-1] == Merge(exactly[:18], 0, KEY_GROUPS)
    much = deltas(9, *[150] * 8)
    assert choose_all((*large, *much), 1) == [Merge(large, 256, 256 + 768 * 1024 // 1800)]


# -- runs whose fold raised -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_runs_on_both_sides_of_one_that_cannot_be_folded_are_not_mixed() -> None:
    """Its place in the order would be lost: a fold across it sums what came after with what came before."""
    before, failed, after = deltas(1, *[10] * 8), a_run(9), deltas(10, *[10] * 8)
    unfolded = frozenset({failed.name})
    assert choose_all((*before, failed, *after), 1, 0, unfolded) == [Merge(before, 0, KEY_GROUPS)]
    assert choose_all((*before[1:], failed, *after), 1, 0, unfolded) == [Merge(after, 0, KEY_GROUPS)]
    assert choose_all((*before[1:], failed, *after[:7]), 1, 0, unfolded) == []
    assert choose_all((*before[1:], failed), 1) == [Merge((*before[1:], failed), 0, KEY_GROUPS)]


def test_what_overlaps_a_run_that_cannot_be_folded_stays_with_it() -> None:
    """A piece of the same deltas, folded with younger ones, would stand on both sides of it."""
    failed = a_run(4, last=6)
    runs = [a_run(2, last=3), a_run(3, last=4), failed, a_run(5), a_run(6, last=8), a_run(7)]
    parts = compaction._parts_between(runs, frozenset({failed.name}))
    assert [part for part in parts if part] == [runs[:1], runs[5:]]
    assert compaction._parts_between(runs, frozenset()) == [runs]


# -- bytes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "panes", "held"),
    [
        (0, KEY_GROUPS, None, 6000),
        (0, 300, None, 0),
        (0, 400, None, 1000),
        (500, 600, None, 1000),
        (800, 1024, None, 1000),
        (900, 1024, None, 0),
        (950, 1024, None, 0),
        (0, KEY_GROUPS, (10, 30), 6000),
        (0, KEY_GROUPS, (0, 11), 300),
        (0, KEY_GROUPS, (15, 20), 1500),
        (0, KEY_GROUPS, (29, 99), 300),
        (0, KEY_GROUPS, (0, 10), 0),
        (0, KEY_GROUPS, (30, 99), 0),
        (0, KEY_GROUPS, (40, 99), 0),
        (500, 600, (15, 20), 250),
    ],
)
def test_bytes_are_spread_evenly_over_groups_and_panes(
    low: int, high: int, panes: tuple[int, int] | None, held: int
) -> None:
    """Thought to be fewer, they do not fit where they are folded; thought to be more, there are files for nothing."""
    # Of 8,000 bytes in the groups 100 to 900, those from 300 on count.
    run = a_run(1, bytes=8000, start=100, low=300, high=900, pane_min=10, pane_max=29)
    assert compaction._bytes_between(run, low, high, panes) == held


def test_there_are_no_more_shards_than_key_groups() -> None:
    """One without any would be a task for nothing."""
    much = [a_run(1, bytes=1 << 45)]
    assert shards(much, 1, 5, 7) == [(5, 6), (6, 7)]
    assert len(shards(much)) == KEY_GROUPS
    assert shards([], 3, 0, 10) == [(0, 3), (3, 6), (6, 10)]


def test_a_piece_has_no_input_that_ended_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be read for nothing, and what it made be put beside it."""
    monkeypatch.setattr(compaction, "_BYTES_MAX", 1000)
    ended, next_to, whole = a_run(1, bytes=500, high=512), a_run(2, bytes=500, high=513), a_run(3, bytes=1000)
    merges = compaction._pieces(Merge((ended, next_to, whole), 0, KEY_GROUPS))
    assert merges == [Merge((ended, next_to, whole), 0, 512), Merge((next_to, whole), 512, KEY_GROUPS)]


# -- the runs after a merge -------------------------------------------------------------------------------------------


def test_a_sum_comes_before_what_is_left_of_its_inputs() -> None:
    """Behind it, what is older would be folded after what is younger."""
    old, a, new = a_run(0), a_run(1), a_run(4)
    b, later_piece, ended = a_run(2), a_run(2, last=3, start=700), a_run(3, high=600)
    made = a_run(1, last=3, high=600)
    merge = Merge((a, b, later_piece, ended), 0, 600)
    left = from_group([a, b], 600)
    assert replaced((old, a, b, later_piece, ended, new), merge, made) == (old, made, *left, later_piece, new)
    assert replaced((old, a, b, later_piece, ended, new), merge, None) == (old, *left, later_piece, new)


def test_beside_a_merge_are_the_runs_that_share_its_key_groups() -> None:
    """A fold that misses one of them does not see the whole sum of a key."""
    one, other, later = a_run(1, 10), replace(a_run(2, 10), low=500), replace(a_run(3, 10), high=400)
    runs = (one, other, later)
    assert beside(runs, Merge((one,), 0, KEY_GROUPS)) == (other, later)
    assert beside(runs, Merge((one,), 399, 501)) == (other, later)
    assert beside(runs, Merge((one,), 400, 500)) == ()
    assert beside(runs, Merge(runs, 0, KEY_GROUPS)) == ()
