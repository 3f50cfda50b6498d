"""How many records were late, by the window that they missed: the last one that holds each.

Counted where records are judged. The number of windows is bounded: of many, those with most records are named, and the
others are one sum, under None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from monoids.groupby.sorting import Integers
from persistent.text.figures import utc_text
from persistent.time_to_live import Judge, TimeToLive

LateWindows = Mapping[int | None, int]
"""Late records by the start of their window (ms); None: of all other windows, or of a state that has none."""

PARTLY_LATE = "partly-late"
"""The reason of a record that counts, but not in each window that holds its time, or not in each state of its task."""
WINDOWS_MAX = 1_000
_SHOWN_MAX = 3


def windows_missed(window: Judge, times: Integers) -> LateWindows:
    """How many of these times are in each window.

    >>> from persistent.window import tumbling
    >>> windows_missed(tumbling(10), np.array([3, 12, 4]))
    {0: 2, 10: 1}
    """
    if isinstance(window, TimeToLive):
        return {None: len(times)}
    starts, counts = np.unique(window.last_start(times), return_counts=True)
    return dict(zip(starts.tolist(), counts.tolist()))


def added(counted: Iterable[LateWindows], most: int = WINDOWS_MAX) -> LateWindows:
    """The sum, with at most so many windows: those with most records, and of these the first, in the order of time.

    >>> added([{0: 2, 10: 1}, {20: 5, 0: 1}], 2), added([{0: 1, None: 4}, {10: 1}])
    ({0: 3, 20: 5, None: 1}, {0: 1, 10: 1, None: 4})
    """
    counted = [one for one in counted if one]
    if not counted:
        return {}
    sums: Counter[int | None] = Counter()
    for one in counted:
        sums.update(one)
    others = sums.pop(None, 0)
    ranked = sorted(((start, count) for start, count in sums.items() if start is not None), key=_most_first)
    others += sum(count for _, count in ranked[most:])
    return {**dict(sorted(ranked[:most])), **({None: others} if others else {})}


def missed_text(missed: LateWindows) -> str:
    """The windows that most records have missed, in the order of time; without windows, how many are late.

    >>> missed_text({0: 3, 10: 1, 20: 1_200, 30: 1, None: 4})
    '3 of 1970-01-01 00:00:00Z, 1 of 1970-01-01 00:00:00.010Z, 1,200 of 1970-01-01 00:00:00.020Z, 5 of other windows'
    >>> missed_text({None: 1_200})
    '1,200'
    """
    if missed.keys() == {None}:
        return f"{missed[None]:,}"
    shown = added([missed], _SHOWN_MAX)
    return ", ".join(
        f"{count:,} of {'other windows' if start is None else utc_text(start)}" for start, count in shown.items()
    )


def _most_first(pair: tuple[int, int]) -> tuple[int, int]:
    return -pair[1], pair[0]
