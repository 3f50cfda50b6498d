"""A window is a half-open interval of event time; a pane is an interval that no window, nor grid clock, ever cuts.

Window k of size s every e with offset o is ``[k*e + o, k*e + o + s)``, for every integer k. The cuts are all window
starts and ends, the multiples of the grid interval if there is one, and 0, before which there is no time. A pane lies
between neighbouring cuts; its start is its name. So

    every window is a union of panes, and so is every checkpoint on the grid.

``AnyWindow`` is what the rest of the house asks of windows, whether they are of a fixed length, of a calendar
(``persistent.time.calendar_window``) or of a user's assigner (``persistent.time.assigned_window``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import numpy as np

from monoids.groupby.cells import Integers
from monoids.groupby.sorting import Mask
from persistent.text.figures import duration_text
from persistent.time.clock import Duration, bare, duration_ms
from persistent.time.zone import Zone

_FOR_EVER = 1 << 62


class AnyWindow(Protocol):
    """Windows in the order of their starts, by number. Times, numbers and results are ints or int64 arrays."""

    @property
    def zone(self) -> Zone | None:
        """The time zone whose rules move the borders, if any."""

    @property
    def width(self) -> int | None:
        """How many windows hold each time; None if some times are in more of them than others."""

    @property
    def overlaps(self) -> bool:
        """Whether a time can be in two windows."""

    @property
    def starts_early(self) -> bool:
        """Whether a window that holds times since 1970 may start before, so that its first pane does not."""

    @property
    def step(self) -> int:
        """A divisor of all starts and ends."""

    @property
    def time_max(self) -> int:
        """The last time that a window counts: later ones are dead letters."""

    def last_start(self, timestamps: Any) -> Any:
        """The largest window start at or before each time."""

    def last_end(self, timestamps: Any) -> Any:
        """The end of the last window that starts at or before each time: at that clock all its windows are over."""

    def holds(self, timestamps: Integers) -> Mask:
        """Whether any window holds each time."""

    def late(self, timestamps: Integers, watermark: int) -> tuple[Mask, Mask]:
        """For each time in a window: whether all its windows had ended at the watermark; whether only some had."""

    def may_be_late(self, time: int, watermark: int) -> bool:
        """Whether some window that holds a time has ended at the watermark."""

    def is_untouched(self, clock: int, closed: int) -> bool:
        """Whether no window that ends at or before ``closed`` holds ``clock`` or a later time."""

    def first_number(self, times: Any) -> Any:
        """The smallest number of a window that ends after each time."""

    def last_number(self, times: Any) -> Any:
        """The largest number of a window that starts at or before each time."""

    def start_of(self, numbers: Any) -> Any:
        """The start of each window."""

    def end_of(self, numbers: Any) -> Any:
        """The end of each window."""

    def ends(self, starts: Any) -> Any:
        """The end of the window that starts at each of these times."""

    def fingerprint(self) -> dict[str, Any]:
        """JSON values by which a checkpoint recognises these windows and refuses others."""


@dataclass(frozen=True)
class Window:
    """Windows of ``size_ms`` that start every ``every_ms``, one of them at ``offset_ms``. Made by ``tumbling`` and
    ``sliding``.

    ``bare``: its source text, if it has numbers without a unit that may have been meant as seconds.
    """

    size_ms: int
    every_ms: int
    offset_ms: int = 0
    bare: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.size_ms < 1 or self.every_ms < 1:
            raise ValueError(f"a window's size and step are at least 1 ms, not {self.size_ms} and {self.every_ms}")
        if not 0 <= self.offset_ms < self.every_ms:
            raise ValueError(
                f"a window's offset is at least 0 and less than its step, {self.every_ms} ms, not {self.offset_ms}: "
                "an offset of a whole step gives the same windows"
            )

    @property
    def zone(self) -> Zone | None:
        return None

    @property
    def width(self) -> int | None:
        """How many windows hold each time; None if some times are in more of them than others.

        >>> tumbling("1 h").width, sliding("1 h", every="1 min").width, sliding("1 h", every="40 min").width
        (1, 60, None)
        """
        return None if self.size_ms % self.every_ms else self.size_ms // self.every_ms

    @property
    def overlaps(self) -> bool:
        return self.size_ms > self.every_ms

    @property
    def starts_early(self) -> bool:
        return self.offset_ms > 0

    @property
    def step(self) -> int:
        return math.gcd(self.size_ms, self.every_ms, self.offset_ms)

    @property
    def time_max(self) -> int:
        return _FOR_EVER

    def last_start(self, timestamps: Any) -> Any:
        """The largest window start at or before each time."""
        if self.every_ms == 1:
            return timestamps
        return (timestamps - self.offset_ms) // self.every_ms * self.every_ms + self.offset_ms

    def last_end(self, timestamps: Any) -> Any:
        """The end of the last window that starts at or before each time: at that clock all its windows are over."""
        return self.last_start(timestamps) + self.size_ms

    def holds(self, timestamps: Integers) -> Mask:
        """Whether any window holds each time (when ``every > size`` there are gaps)."""
        if self.every_ms <= self.size_ms:
            return np.ones(len(timestamps), bool)
        return np.asarray(timestamps - self.last_start(timestamps) < self.size_ms)

    def late(self, timestamps: Integers, watermark: int) -> tuple[Mask, Mask]:
        """For each time in a window: whether all its windows had ended at the watermark; whether only some had."""
        ended = self.last_end(timestamps) <= watermark
        late = ended & self.holds(timestamps)
        first_end = self.end_of(self.first_number(timestamps))
        partly = (first_end <= watermark) & ~ended & self.holds(timestamps)
        return late, partly

    def may_be_late(self, time: int, watermark: int) -> bool:
        """Whether some window that holds a time has ended at the watermark."""
        return bool(self.end_of(self.first_number(time)) <= watermark)

    def is_untouched(self, clock: int, closed: int) -> bool:
        """Whether no window that ends at or before ``closed`` holds ``clock`` or a later time."""
        return bool(self.first_number(closed) <= self.first_number(clock))

    def first_number(self, times: Any) -> Any:
        """The smallest k whose window ends after each time."""
        return (times - self.offset_ms - self.size_ms) // self.every_ms + 1

    def last_number(self, times: Any) -> Any:
        """The largest k whose window starts at or before each time."""
        return (times - self.offset_ms) // self.every_ms

    def start_of(self, numbers: Any) -> Any:
        """The start of each window."""
        return numbers * self.every_ms + self.offset_ms

    def end_of(self, numbers: Any) -> Any:
        """The end of each window."""
        return numbers * self.every_ms + self.offset_ms + self.size_ms

    def ends(self, starts: Any) -> Any:
        """The end of the window that starts at each of these times."""
        return starts + self.size_ms

    def __str__(self) -> str:
        """Its source text.

        >>> str(tumbling(60_000)), str(sliding("1 h", every=90_000, offset="6 s"))
        ('tumbling("1 min")', 'sliding("1 h", every="90 s", offset="6 s")')
        """
        size, every = duration_text(self.size_ms), duration_text(self.every_ms)
        moved = f', offset="{duration_text(self.offset_ms)}"' if self.offset_ms else ""
        return f'tumbling("{size}"{moved})' if size == every else f'sliding("{size}", every="{every}"{moved})'

    def fingerprint(self) -> dict[str, int]:
        moved = {"offset_ms": self.offset_ms} if self.offset_ms else {}
        return {"size_ms": self.size_ms, "every_ms": self.every_ms, **moved}


@dataclass(frozen=True)
class WindowRange:
    """The windows number ``first`` to ``last`` (None: to the end), over their panes before ``until`` (None: all)."""

    window: AnyWindow
    first: int
    last: int | None
    until: int | None = None

    def panes(self) -> tuple[int, int]:
        """Their panes, ``from <= pane < to``."""
        window = self.window
        end = _FOR_EVER if self.last is None else window.end_of(self.last)
        return window.start_of(self.first), end if self.until is None else min(end, self.until)


def offset_ms(offset: Duration, step_ms: int | None) -> int:
    """The offset of windows that begin every ``step_ms`` (None: of several lengths). ValueError, with the remedy, for a
    negative one.

    >>> offset_ms("6 h", 86_400_000)
    21600000
    """
    if isinstance(offset, str):
        before = duration_ms(offset.strip()[1:], "offset") if offset.strip().startswith("-") else 0
    else:
        span = offset // timedelta(milliseconds=1) if isinstance(offset, timedelta) else offset
        before = -span if isinstance(span, int) else 0
    if before <= 0:
        return duration_ms(offset, "offset")
    same = (
        f'offset="{duration_text(-before % step_ms)}" gives the same windows'
        if step_ms
        else "give one after the border"
    )
    raise ValueError(f"offset: {offset!r} is negative: {same}")


def tumbling(size: Duration, *, offset: Duration = 0) -> Window:
    """Windows side by side: each time is in exactly one. ``offset``: how long after a multiple of ``size`` since the
    epoch, in UTC, they start; less than ``size``.

    >>> tumbling("1 day", offset="6 h").start_of(0)
    21600000
    """
    size_ms = duration_ms(size, "size")
    written = f"tumbling({size!r}{_moved(offset)})" if bare(size=size) else ""
    return Window(size_ms, size_ms, offset_ms(offset, size_ms), written)


def sliding(size: Duration, every: Duration, *, offset: Duration = 0) -> Window:
    """Windows of ``size`` that start every ``every``; they overlap if ``every < size``, and leave gaps if it is larger.
    ``offset``: how long after a multiple of ``every`` since the epoch, in UTC, they start; less than ``every``.

    >>> sliding("1 h", every="1 min").size_ms
    3600000
    """
    written = f"sliding({size!r}, every={every!r}{_moved(offset)})" if bare(size=size) else ""
    every_ms = duration_ms(every, "every")
    return Window(duration_ms(size, "size"), every_ms, offset_ms(offset, every_ms), written)


def no_window(value: object) -> str:
    """What to write instead of a value that is no window.

    >>> no_window("1 hour")[-38:]
    "not '1 hour': write tumbling('1 hour')"
    """
    meant = f": write tumbling({value!r})" if isinstance(value, str) else ""
    return (
        "a window is made by tumbling(size), sliding(size, every), session(gap), calendar(unit) or "
        f"assigned(assigner), not {value!r}{meant}"
    )


def _moved(offset: Duration) -> str:
    return f", offset={offset!r}" if offset else ""


@dataclass(frozen=True)
class Panes:
    """The panes of a window, of a grid of clocks every ``interval_ms``, or of both."""

    window: AnyWindow | None
    interval_ms: int | None

    def starts(self, timestamps: Any) -> Any:
        """The pane of each time: the largest cut at or before it. NumPy int64 array or int, >= 0."""
        cuts, window = [], self.window
        if window is not None:
            cuts.append(window.last_start(timestamps))
            if window.width is None:
                cuts.append(window.end_of(window.first_number(timestamps) - 1))
        if self.interval_ms is not None:
            cuts.append(timestamps // self.interval_ms * self.interval_ms)
        if window is not None and window.starts_early:
            cuts.append(0)
        start = cuts[0]
        for cut in cuts[1:]:
            start = np.maximum(start, cut) if isinstance(start, np.ndarray) else max(start, cut)
        return start

    @property
    def step(self) -> int:
        """A divisor of all cuts."""
        return math.gcd(self.window.step if self.window else 0, self.interval_ms or 0)

    @property
    def is_window(self) -> bool:
        """Whether each window is one pane."""
        return self.window is not None and not self.window.overlaps and self.interval_ms is None

    def __str__(self) -> str:
        """The grid of clocks.

        >>> str(Panes(None, 60_000)), str(Panes(tumbling("1 s"), None))
        ('clocks every 1 min', 'the borders of tumbling("1 s")')
        """
        return (
            f"the borders of {self.window}"
            if self.interval_ms is None
            else f"clocks every {duration_text(self.interval_ms)}"
        )

    def cut_before(self, clock: int) -> int:
        """The last clock on the grid at or before this one."""
        if self.interval_ms is not None:
            return clock // self.interval_ms * self.interval_ms
        known = clock if self.window is None else min(max(clock, 0), self.window.time_max)
        return int(self.starts(known))

    def is_cut(self, clock: int) -> bool:
        """Whether this clock is on the grid: a checkpoint there cuts no pane."""
        if self.interval_ms is not None:
            return clock % self.interval_ms == 0
        return self.cut_before(clock) == clock

    def fingerprint(self) -> dict[str, Any]:
        return {
            "window": self.window.fingerprint() if self.window else None,
            "interval_ms": self.interval_ms,
        }
