"""Splits of one step that have seen the same number are set apart: it is new in the first of them, else a copy.

The order is that of the plan. A later split is mapped again, knowing what the earlier ones have seen: this takes from
what it counts, and adds nothing, so one round is enough, and the result is a function of the state and the plan alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from monoids.groupby.summing import GroupSums
from monoids.text import Words
from persistent.codec import KEY_GROUPS
from persistent.driver.workbench import Workbench
from persistent.state_rows import fold, in_panes
from persistent.worker.job import Job, Mapped, MapSplit
from persistent.worker.merge_runs import read_rows
from persistent.worker.seen_items import SeenSpan
from persistent.worker.seen_state import numbers_of, seen_job, seen_monoid


def set_apart(
    bench: Workbench, maps: Sequence[MapSplit], mapped: Sequence[Mapped]
) -> tuple[list[MapSplit], list[Mapped]]:
    """The splits and their results, none of which has seen what an earlier one of its source has."""
    items, results = list(maps), list(mapped)
    again: list[int] = []
    for source in bench.job.dedupe:
        again += _to_map_again(bench.job, items, [one if one.source == source else None for one in results])
    for place, result in zip(again, bench.engine.map(bench.work, [items[place] for place in again])):
        assert isinstance(result, Mapped)
        results[place] = result
    return items, results


def _to_map_again(job: Job, items: list[MapSplit], results: Sequence[Mapped | None]) -> list[int]:
    """The places of splits of one source that have seen what an earlier one has; these are told, in ``items``.
    ``results``: None for those of other sources."""
    spans = [None if one is None or one.seen is None else one.seen.span for one in results]
    places = [place for place, span in enumerate(spans) if span is not None and len(span.hashes)]
    shared = shared_hashes([span for span in spans if span is not None])
    again: list[int] = []
    earlier: GroupSums | None = None
    for place in places if len(shared) else ():
        rows = _rows_of(job, items[place], results[place], shared)
        if rows is None:
            continue
        both = rows if earlier is None else fold(seen_monoid(), (earlier, rows), 1)
        if earlier is not None and _count(earlier) + _count(rows) != _count(both):
            again.append(place)
            items[place] = _told(items[place], earlier)
        earlier = both
    return again


def shared_hashes(spans: Sequence[SeenSpan]) -> Words:
    """The hashes of keys of which several spans have numbers in a common range, ascending; of ids that several have.

    >>> def span(*numbers): return SeenSpan(np.array([7], np.uint64), *(np.array([n]) for n in (*numbers, 0, 0, 0)))
    >>> shared_hashes([span(1, 4), span(5, 9)]).tolist(), shared_hashes([span(1, 9), span(5, 5)]).tolist()
    ([], [7])
    """
    if len(spans) < 2:
        return np.zeros(0, np.uint64)
    hashes = np.concatenate([span.hashes for span in spans])
    if any(span.is_of_ids for span in spans):
        found, counts = np.unique(hashes, return_counts=True)
        return found[counts > 1]
    firsts, lasts = (np.concatenate([getattr(span, name) for span in spans]) for name in ("firsts", "lasts"))
    order = np.lexsort((firsts, hashes))
    hashes, firsts, lasts = hashes[order], firsts[order], lasts[order]
    # Of three spans the first may reach over the second into the third; then it overlaps the second as well.
    meets = (hashes[1:] == hashes[:-1]) & (firsts[1:] <= lasts[:-1])
    return np.unique(hashes[1:][meets])


def _rows_of(job: Job, item: MapSplit, result: Mapped | None, shared: Words) -> GroupSums | None:
    """What a split has seen of these keys, a row for each."""
    if result is None or result.seen is None or result.seen.run is None or item.seen is None:
        return None
    rows = read_rows(seen_job(job, item.source, item.seen.pane_ms), result.seen.run, 0, KEY_GROUPS)
    rows = rows.take(np.flatnonzero(np.isin(rows.hashes, shared)))
    # In one live pane: in which of them a number was seen decides nothing within a step.
    return in_panes(seen_monoid(), rows, np.full(len(rows), item.seen.horizon)) if len(rows) else None


def _count(rows: GroupSums) -> int:
    """How many numbers these rows hold."""
    firsts, lasts = (column.astype(np.uint64) for column in numbers_of(rows).flat())
    between = lasts - firsts
    # In two halves: the sum of a million ranges of 64 bits is beyond 64 bits.
    return len(between) + (int((between >> np.uint64(32)).sum()) << 32) + int((between & np.uint64(2**32 - 1)).sum())


def _told(item: MapSplit, earlier: GroupSums) -> MapSplit:
    assert item.seen is not None
    return replace(item, seen=replace(item.seen, also=(earlier,)))
