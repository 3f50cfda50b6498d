"""Splits of one step that meet the same number are set apart: it is new in the first of them, else a copy.

The order is that of the plan, so that what a record becomes is a function of the state and the plan alone, however the
step is split. A later split is mapped again, knowing what the earlier ones have seen, if

 it has seen a number that an earlier one has seen
 it has found a number too old that an earlier one has seen: it is a copy
 it has found a number used again, and an earlier one has seen its origin, perhaps at a later time: it may be a copy

A split that is mapped again has seen fewer numbers, and none more; all splits together have seen the same as before.
Only the times may change: a record that is no longer new may have been the youngest of its origin. Then the splits
that know of it are mapped once more. The first split is right at once, the second after a round, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec import KEY_GROUPS
from persistent.driver.workbench import Workbench
from persistent.state_rows import fold, in_panes
from persistent.worker.job import Job, Mapped, MapSplit
from persistent.worker.merge_runs import read_rows
from persistent.worker.seen_items import SeenAfter, SeenSpan
from persistent.worker.seen_state import latest_of, numbers_of, seen_monoid, seen_node


def set_apart(
    bench: Workbench, maps: Sequence[MapSplit], mapped: Sequence[Mapped]
) -> tuple[list[MapSplit], list[Mapped]]:
    """The splits and their results, each as if the earlier ones of its source had been judged before it."""
    items, results = list(maps), list(mapped)
    for source in bench.job.dedupe:
        places = [place for place, result in enumerate(results) if result.source == source and result.seen is not None]
        shared = shared_hashes([_reach(results[place]) for place in places])
        known: dict[int, GroupSums] = {}
        while again := _to_tell(bench.job, items, [(place, results[place]) for place in places], shared, known):
            known |= again
            for place, earlier in again.items():
                items[place] = _told(items[place], earlier)
            for place, result in zip(again, bench.engine.map(bench.work, [items[place] for place in again])):
                assert isinstance(result, Mapped)
                results[place] = result
    return items, results


def _to_tell(
    job: Job,
    items: Sequence[MapSplit],
    results: Sequence[tuple[int, Mapped]],
    shared: Words,
    known: Mapping[int, GroupSums],
) -> dict[int, GroupSums]:
    """The rows that each split of one source must know, by the place of the split: what earlier splits have seen of the
    ``shared`` keys. A split that already knows the same rows (``known``) is left out."""
    to_tell = {}
    earlier: GroupSums | None = None
    for place, result in results if len(shared) else ():
        seen = result.seen
        assert seen is not None
        rows = _rows_of(job, items[place], seen, shared)
        if earlier is not None and _matters(earlier, rows, seen, known.get(place)):
            to_tell[place] = earlier
        parts = [part for part in (earlier, rows) if part is not None]
        earlier = fold(seen_monoid(), parts, 1) if parts else None
    return to_tell


def _matters(earlier: GroupSums, rows: GroupSums | None, seen: SeenAfter, known: GroupSums | None) -> bool:
    """Whether a split that has seen these ``rows`` must be mapped again, knowing what was seen ``earlier``. ``known``:
    what it knew when it was mapped; None at first."""
    if known is not None:
        # The keys and numbers of all splits before one stay the same, round after round.
        return not np.array_equal(latest_of(known), latest_of(earlier))
    if _have_met(seen.doubtful, earlier):
        return True
    return rows is not None and _count(earlier) + _count(rows) != _count(fold(seen_monoid(), (earlier, rows), 1))


def _have_met(doubtful: SeenSpan, earlier: GroupSums) -> bool:
    """Whether numbers that were seen earlier lie in these spans."""
    if not len(doubtful.hashes):
        return False
    place = np.minimum(np.searchsorted(doubtful.hashes, earlier.hashes), len(doubtful.hashes) - 1)
    same = doubtful.hashes[place] == earlier.hashes
    if doubtful.is_of_ids:
        return bool(same.any())
    numbers = numbers_of(earlier)
    firsts, lasts = numbers.flat()
    place, same = numbers.spread(place), numbers.spread(same)
    return bool((same & (firsts <= doubtful.lasts[place]) & (lasts >= doubtful.firsts[place])).any())


def _reach(result: Mapped) -> SeenSpan:
    """The span of what a split has seen, and of what others may have seen before it."""
    assert result.seen is not None
    return SeenSpan.joined([result.seen.span, result.seen.doubtful])


def shared_hashes(spans: Sequence[SeenSpan]) -> Words:
    """The ascending hashes of the keys that several spans have with numbers in a common range; of ids, the hashes that
    several spans have.

    >>> def span(*numbers): return SeenSpan(np.array([7], np.uint64), *(np.array([n]) for n in (*numbers, 0, 0, 0)))
    >>> shared_hashes([span(1, 4), span(5, 9)]).tolist(), shared_hashes([span(1, 9), span(5, 5)]).tolist()
    ([], [7])
    """
    if len(spans) < 2:
        return np.zeros(0, np.uint64)
    hashes = np.concatenate([span.hashes for span in spans])
    if any(span.is_of_ids for span in spans):
        distinct, counts = np.unique(hashes, return_counts=True)
        return distinct[counts > 1]
    firsts, lasts = (np.concatenate([getattr(span, name) for span in spans]) for name in ("firsts", "lasts"))
    order = np.lexsort((firsts, hashes))
    hashes, firsts, lasts = hashes[order], firsts[order], lasts[order]
    # If the first of three spans reaches over the second into the third, it overlaps the second as well.
    meets = (hashes[1:] == hashes[:-1]) & (firsts[1:] <= lasts[:-1])
    return np.unique(hashes[1:][meets])


def _rows_of(job: Job, item: MapSplit, seen: SeenAfter, shared: Words) -> GroupSums | None:
    """What a split has seen of these keys, a row for each; None if nothing."""
    if seen.run is None or item.seen is None:
        return None
    rows = read_rows(seen_node(job, item.source, item.seen.pane_ms), seen.run, 0, KEY_GROUPS)
    rows = rows.take(np.flatnonzero(np.isin(rows.hashes, shared)))
    # In one live pane: within a step, the pane in which a number was seen decides nothing.
    return in_panes(seen_monoid(), rows, np.full(len(rows), item.seen.horizon)) if len(rows) else None


def _count(rows: GroupSums) -> int:
    """The number of sequence numbers in these rows."""
    firsts, lasts = (column.astype(np.uint64) for column in numbers_of(rows).flat())
    between = lasts - firsts
    # In two halves: the sum of a million 64-bit ranges exceeds 64 bits.
    return len(between) + (int((between >> np.uint64(32)).sum()) << 32) + int((between & np.uint64(2**32 - 1)).sum())


def _told(item: MapSplit, earlier: GroupSums) -> MapSplit:
    assert item.seen is not None
    return replace(item, seen=replace(item.seen, also=(earlier,)))
