"""A session is a stretch of a key's messages without a long pause: each follows another after less than the gap.

    window_start    the time of its first message
    window_end      the time of its last message + gap; at most the next multiple of ``cut``

The state keeps *cells*, the stretches between two multiples of the cut, as it keeps windows side by side: a row is one
(key, cell), and its element holds the sessions (``monoids.containers.intervals``). So no fold, in whatever grouping,
loses a time that may join two sessions. A final session never changes, and stays until a fold that sees all of it drops
it:

    closed up to W            last + gap <= W, or its cell ends at or before W: it is published
    final up to F             the same with F for W; F is W less the allowed lateness
    late                      timestamp < F, by the clock of the step before
    so a record that counts   is at least the gap after a final session, or in another cell

A record that counts can make a published session longer, and join it to others: their published rows are taken back
(``persistent.state.views``). A step publishes closed sessions; one that publishes what it has changed, open sessions
too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from monoids.column import Columns, Ragged, take
from monoids.containers.intervals import Sessions
from monoids.groupby.cells import Integers, segment_starts
from monoids.groupby.grouping import number_keys, take_keys
from monoids.groupby.sorting import Mask
from monoids.groupby.summing import GroupSums, group_by
from monoids.monoid import Monoid
from persistent.text.figures import duration_text
from persistent.time.clock import Duration, bare, duration_ms
from persistent.time.lateness import CLOSE, RETRACT, Lateness
from persistent.time.window import Window


@dataclass(frozen=True)
class SessionWindow(Window):
    """The cells of sessions, which are windows side by side, and the gap. Made by ``session``."""

    gap_ms: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        if self.size_ms < 1 or self.gap_ms < 1:
            raise ValueError(
                f"session(gap, cut): both are at least 1 ms, not {self.gap_ms} and {self.size_ms}: a session ends "
                "after a pause as long as the gap, and at each multiple of the cut"
            )
        if self.gap_ms > self.size_ms:
            raise ValueError(
                f"{self}: the gap is longer than the cut, and every session ends at a multiple of the cut: give a "
                "longer cut"
            )
        super().__post_init__()

    def late(self, timestamps: Integers, watermark: int) -> tuple[Mask, Mask]:
        """Whether each time could be in a session that is final, or join two; no time is partly late."""
        return timestamps < watermark, np.zeros(len(timestamps), bool)

    def may_be_late(self, time: int, watermark: int) -> bool:
        return time < watermark

    def is_untouched(self, clock: int, closed: int) -> bool:
        return closed <= clock

    def ends(self, starts: Any) -> Any:
        """The end of a session with one message, at each of these times."""
        return np.minimum(starts + self.gap_ms, self.last_end(starts))

    def session_ends(self, starts: Integers, lasts: Integers) -> Integers:
        """The end of each session."""
        return np.asarray(np.minimum(lasts + self.gap_ms, self.last_end(starts)))

    def __str__(self) -> str:
        return f'session("{duration_text(self.gap_ms)}", cut="{duration_text(self.size_ms)}")'

    def fingerprint(self) -> dict[str, int]:
        return {"gap_ms": self.gap_ms, "cut_ms": self.size_ms}


class Gaps(Protocol):
    """What decides which messages of a key belong together: windows of sessions, or a time to live."""

    def last_start(self, timestamps: Any) -> Any:
        """The pane of each time: messages in different panes are never joined."""

    def session_ends(self, starts: Integers, lasts: Integers) -> Integers:
        """The end of each session."""


def session(gap: Duration, *, cut: Duration = "1 day") -> SessionWindow:
    """Windows that end when a key has been silent for the gap. Each key has its own sessions. A message less than
    ``gap`` after another message of its key is in the same session, and can join two open sessions.

    ``cut``: every session also ends at each multiple of it since the epoch, in UTC, so that none grows for ever.

    >>> str(session("30 min"))
    'session("30 min", cut="1 d")'
    """
    cut_ms = duration_ms(cut, "cut")
    written = f"session({gap!r})" if bare(gap=gap) else ""
    return SessionWindow(cut_ms, cut_ms, bare=written, gap_ms=duration_ms(gap, "gap"))


def lateness_of(
    window: Any, interval_ms: int | None, lateness: Lateness, late: str | None, changes: str | None = None
) -> Lateness:
    """The lateness of a state with these windows. For sessions, retractions answer a record that changes published
    ones. ``late``, ``changes``: the options of the state. ValueError for options that sessions do not have.

    >>> lateness_of(session(10), None, Lateness(5, "accumulate"), None).answer
    'retract'
    """
    if not isinstance(window, SessionWindow):
        return lateness
    takes_back = lateness.of_changes is not None or (lateness.emit == CLOSE and lateness.allowed_ms)
    if takes_back and changes not in (None, RETRACT):
        raise ValueError(
            f"changes={changes!r}: a record can give a published session of {window} other borders, or join it to "
            'another, and a row of other borders replaces nothing: omit changes=, or use changes="retract"'
        )
    if late not in (None, RETRACT):
        raise ValueError(
            f"late={late!r}: a late record can join published sessions of {window} to one with other borders, and "
            'then they are taken back: omit late=, or use late="retract". emit="final" publishes each session once, '
            "when nothing can change it"
        )
    if interval_ms is not None:
        raise ValueError(f"{window} can be read as of the multiples of its cut: omit interval_ms=, or change the cut")
    return replace(lateness, answer=RETRACT) if takes_back else lateness


def group_sessions(
    monoid: Monoid[Any], window: Gaps, keys: Sequence[pa.Array], times: Integers, values: Columns
) -> GroupSums:
    """The sum of lifted values by (key, cell): what grouping them as sessions of one value gives, in one pass."""
    assert isinstance(monoid, Sessions)
    rows = group_by(monoid.inner, keys, times, values, 1)
    if not len(rows):
        return GroupSums(rows.hashes, rows.keys, rows.panes, monoid.pack([]))
    numbers, _ = number_keys(rows.keys, rows.hashes)
    times = rows.panes
    cells = np.asarray(window.last_start(times))
    is_other = (numbers[1:] != numbers[:-1]) | (cells[1:] != cells[:-1])
    firsts = segment_starts(is_other | (times[1:] - times[:-1] >= monoid.gap))
    lasts = np.append(firsts[1:], len(rows)) - 1
    sums = monoid.inner.reduce_sorted(rows.columns, firsts) if len(firsts) < len(rows) else rows.columns
    heads = segment_starts(is_other[firsts[1:] - 1])
    table = Ragged.of(np.diff(heads, append=len(firsts)), (times[firsts], times[lasts], *sums))
    row_firsts = firsts[heads]
    return GroupSums(rows.hashes[row_firsts], take_keys(rows.keys, row_firsts), cells[row_firsts], (table,))


def each_session(window: SessionWindow, rows: GroupSums, closed: int | None, until: int | None = None) -> GroupSums:
    """The sessions of rows with ``closed < end <= until`` (None: any earlier, or later, end), one in each row;
    ``panes`` are their starts."""
    (table,) = rows.columns
    columns = table.flat()
    ends = window.session_ends(*columns[:2])
    chosen = np.ones(len(ends), bool) if closed is None else ends > closed
    chosen = np.flatnonzero(chosen if until is None else chosen & (ends <= until))
    owners = table.spread(np.arange(len(rows)))[chosen]
    sessions = take(columns, chosen)
    return GroupSums(rows.hashes[owners], take_keys(rows.keys, owners), sessions[0], (Ragged.singles(sessions),))


def sessions_after(window: Gaps, rows: GroupSums, closed: int) -> GroupSums:
    """The rows without the sessions that end at or before ``closed``. Rows without any other session are dropped."""
    (table,) = rows.columns
    columns = table.flat()
    chosen = np.flatnonzero(window.session_ends(*columns[:2]) > closed)
    lengths = np.bincount(table.spread(np.arange(len(rows)))[chosen], minlength=len(rows))
    kept = np.flatnonzero(lengths)
    left = Ragged.of(lengths[kept], take(columns, chosen))
    return GroupSums(rows.hashes[kept], take_keys(rows.keys, kept), rows.panes[kept], (left,))


def last_sessions(window: Gaps, rows: GroupSums, closed: int) -> GroupSums:
    """The last session of each row, one in each row, where it ends after ``closed``; other rows are dropped."""
    (table,) = rows.columns
    columns, lasts = table.flat(), np.cumsum(table.lengths) - 1
    kept = np.flatnonzero(window.session_ends(columns[0][lasts], columns[1][lasts]) > closed)
    sessions = (Ragged.singles(take(columns, lasts[kept])),)
    return GroupSums(rows.hashes[kept], take_keys(rows.keys, kept), rows.panes[kept], sessions)
