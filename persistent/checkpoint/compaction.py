"""Compaction folds neighbouring runs early, a bounded piece in each step.

Associativity licenses it: ``fold(a, b, c, d) == fold(a, fold(b, c), d)``. Neighbouring runs of similar size form a
*tier*; eight of a tier are folded into one. A large fold takes several steps, key group by key group. Its inputs count
only from the group it has reached, so the work of a step stays a multiple of its delta, whatever the size of the state.

    before   [----a----][----b----]            of 1,024 key groups
    between  [a+b ][--a-][--b-]                a, b: low raised
    after    [---a+b---]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from msgspec.structs import replace

from persistent.codec.fields import KEY_GROUPS, Run

FAN_IN = 8
_TIER_0_ROWS = 4096
_ROWS_MIN = 1 << 18
_DELTAS_AT_ONCE = 5
"""A step folds about as many rows as this many deltas hold. A larger number slows some steps, a smaller one most."""
_BYTES_MAX = 1 << 29
"""The number of bytes to fold at once. A column of text holds at most four times as many."""


@dataclass(frozen=True)
class Merge:
    """Fold the key groups ``low <= group < high`` of these neighbouring runs."""

    inputs: tuple[Run, ...]
    low: int
    high: int


def choose(runs: Sequence[Run], delta_rows: int, published: int = 0) -> Merge | None:
    """The fold of the next step, if one is due. ``delta_rows``: rows of a usual step. Runs up to the checkpoint
    ``published`` are not mixed with later ones."""
    inputs = _begun(runs) or _due(runs, published)
    return _merge(inputs, _budget_rows(delta_rows)) if inputs else None


def choose_all(
    runs: Sequence[Run], delta_rows: int, published: int = 0, unfolded: frozenset[str] = frozenset()
) -> list[Merge]:
    """The folds of the next step. ``unfolded``: the names of runs whose fold raised. They stay, and the runs between
    them are folded separately."""
    choices = (_choose_all(part, delta_rows, published) for part in _parts_between(runs, unfolded))
    return next((merges for merges in choices if merges), [])


def _parts_between(runs: Sequence[Run], unfolded: frozenset[str]) -> list[list[Run]]:
    """The runs, split at the unfolded ones and at every run whose deltas overlap theirs; these are omitted."""
    spans = [(run.first, run.last) for run in runs if run.name in unfolded]
    if not spans:
        return [list(runs)]
    parts: list[list[Run]] = [[]]
    for run in runs:
        if any(run.first <= last and first <= run.last for first, last in spans):
            parts.append([])
        else:
            parts[-1].append(run)
    return parts


def _choose_all(runs: Sequence[Run], delta_rows: int, published: int) -> list[Merge]:
    """The fold of ``choose``. During a large fold also a small whole fold of the runs after it, so that they do not
    pile up; the large one then takes a smaller piece. A fold of too many bytes is split into pieces, side by side in
    key groups."""
    merge = choose(runs, delta_rows, published)
    if merge is None:
        return []
    is_whole = merge.low == 0 and merge.high == KEY_GROUPS
    later = [] if is_whole else list(runs)[list(runs).index(merge.inputs[-1]) + 1 :]
    budget_rows = _budget_rows(delta_rows)
    small = _first_within(_due(later, published), budget_rows)
    if not small:
        return _pieces(merge)
    left_rows = max(budget_rows // 4, budget_rows - sum(run.rows for run in small))
    return [*_pieces(_merge(merge.inputs, left_rows)), *_pieces(Merge(small, 0, KEY_GROUPS))]


def _merge(inputs: tuple[Run, ...], budget_rows: int) -> Merge:
    """Fold as many key groups of these runs as hold about ``budget_rows`` rows, from the group that their fold has
    reached."""
    rows = sum([run.rows_left for run in inputs])
    low = min(run.low for run in inputs)
    if rows <= budget_rows:
        return Merge(inputs, low, KEY_GROUPS)
    return Merge(inputs, low, low + max(1, (KEY_GROUPS - low) * budget_rows // rows))


def shards(
    runs: Sequence[Run], least: int = 1, low: int = 0, high: int = KEY_GROUPS, panes: tuple[int, int] | None = None
) -> list[tuple[int, int]]:
    """The key groups ``low <= group < high`` in ``least`` ranges, or in more, so that each range of these runs can be
    folded at once. ``panes``: count only rows with ``from <= pane < to``."""
    whole = sum(_bytes_between(run, low, high, panes) for run in runs)
    count = min(max(least, -(-whole // _BYTES_MAX)), high - low)
    return list(pairwise(low + (high - low) * number // count for number in range(count + 1)))


def _pieces(merge: Merge) -> list[Merge]:
    """The merge as several, one after the other, with the same result."""
    ranges = shards(merge.inputs, 1, merge.low, merge.high)
    return [Merge(tuple(run for run in merge.inputs if run.high > low), low, high) for low, high in ranges]


def _bytes_between(run: Run, low: int, high: int, panes: tuple[int, int] | None) -> int:
    """An estimate of the bytes that a run holds in some key groups and panes, as if spread evenly."""
    run_bytes = run.bytes * max(0, min(run.high, high) - max(run.low, low)) // (run.high - run.start)
    if panes is None:
        return run_bytes
    start, stop = max(run.pane_min, panes[0]), min(run.pane_max + 1, panes[1])
    return run_bytes * max(0, stop - start) // (run.pane_max + 1 - run.pane_min)


def _budget_rows(delta_rows: int) -> int:
    return max(_ROWS_MIN, _DELTAS_AT_ONCE * delta_rows)


def _first_within(runs: Sequence[Run], budget_rows: int) -> tuple[Run, ...]:
    """The oldest of these deltas that together hold at most ``budget_rows`` rows; none if they hold fewer than eight
    sums."""
    chosen: list[Run] = []
    for delta in _deltas(runs):
        if sum(run.rows for run in (*chosen, *delta)) > budget_rows:
            break
        chosen += delta
    return tuple(chosen) if len(_sums(chosen)) >= FAN_IN else ()


def beside(runs: Sequence[Run], merge: Merge) -> tuple[Run, ...]:
    """The runs that hold more of the key groups of a merge: it does not see the whole sum of a key if there are any."""
    inputs = {run.name for run in merge.inputs}
    return tuple(run for run in runs if run.name not in inputs and run.low < merge.high and merge.low < run.high)


def replaced(runs: Sequence[Run], merge: Merge, output: Run | None) -> tuple[Run, ...]:
    """The runs after a merge: ``output`` replaces what it sums, and precedes the rest of its inputs."""
    inputs = {run.name for run in merge.inputs}
    next_runs: list[Run] = []
    for run in runs:
        if run.name not in inputs:
            next_runs.append(run)
            continue
        if run.name == merge.inputs[0].name and output is not None:
            next_runs.append(output)
        if merge.high < run.high:
            next_runs.append(replace(run, low=max(run.low, merge.high)))
    return tuple(next_runs)


def _begun(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The inputs of an unfinished fold, including pieces of a sum that it has not reached yet."""
    begun = [run for run in runs if run.low > run.start]
    if not begun:
        return ()
    reached, first, last = begun[0].low, min(run.first for run in begun), max(run.last for run in begun)
    # Once a fold has consumed pieces of a sum, its next piece has not begun; the fold's outputs show that it belongs.
    made = [run for run in runs if run.high <= reached and run.first <= last and first <= run.last]
    first, last = min(run.first for run in (*begun, *made)), max(run.last for run in (*begun, *made))
    return tuple(run for run in runs if first <= run.first and run.last <= last and run.high > reached)


def _due(runs: Sequence[Run], published: int) -> tuple[Run, ...]:
    """The oldest neighbours in the lowest tier that has eight sums, from first to last, and the smaller deltas between
    them."""
    if len(runs) < FAN_IN:
        return ()
    deltas = _deltas(runs)
    tiers = [_tier(sum([run.rows for run in delta])) for delta in deltas]
    for tier in sorted(set(tiers)):
        streak: list[Run] = []
        until = sums = 0
        for delta, its_tier in zip(deltas, tiers):
            mixes = bool(streak) and (streak[0].first <= published) != (delta[0].last <= published)
            if its_tier > tier or mixes:
                if sums >= FAN_IN:
                    break
                streak, sums = [], 0
            if its_tier == tier or streak:
                streak += delta
            if its_tier == tier:
                until, sums = len(streak), sums + len(_sums(delta))
        if sums >= FAN_IN:
            return tuple(streak[:until])
    return ()


def _deltas(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs by the checkpoints whose deltas they sum. The runs of one step's splits belong together, and so do the
    pieces of one fold."""
    deltas: list[list[Run]] = []
    last = -1
    for run in runs:
        if run.first <= last:
            deltas[-1].append(run)
            last = max(last, run.last)
        else:
            deltas.append([run])
            last = run.last
    return deltas


def _sums(runs: Sequence[Run]) -> list[list[Run]]:
    """The runs as whole sums: the pieces of one fold, side by side in key groups, belong together."""
    sums: list[list[Run]] = []
    for run in runs:
        last = sums[-1][-1] if sums else None
        if last is not None and (last.first, last.last, last.high) == (run.first, run.last, run.start):
            sums[-1].append(run)
        else:
            sums.append([run])
    return sums


def _tier(rows: int) -> int:
    tier = 0
    while rows >= _TIER_0_ROWS:
        rows //= FAN_IN
        tier += 1
    return tier
