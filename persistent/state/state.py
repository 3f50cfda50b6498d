"""A state is the monoid sum of the messages' contributions, kept by pane, so any prefix in event time is a sum too.

Contract of a state on its own, for clocks on its grid:

- ``checkpoint(clock)`` holds exactly the updates with ``timestamp < clock`` and changes nothing; equal states give
  equal bytes;
- ``recover(clock, data)`` restores that state. Replay every update with ``timestamp >= clock``, and every update made
  after the checkpoint, and the state is that of a run that never stopped.

In a pipeline this object only describes the state; the rows live in runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from monoids.column import take
from monoids.groupby.cells import Integers, group_codes
from monoids.groupby.summing import GroupSums
from monoids.monoid import Monoid, check
from persistent.codec.documents import decode_document, encode_document
from persistent.codec.fields import Run
from persistent.codec.runs import decode_run, encode_run
from persistent.errors import CorruptCheckpoint, FingerprintChanged
from persistent.state.rows import (
    at_times,
    kept_as,
    lift_at,
    lift_rows,
    open_panes,
    presented,
    presented_sessions,
    values_of,
)
from persistent.state.time_to_live import TimeToLive, checked_ttl, gaps_of
from persistent.state.updates import checked_timestamp, checked_timestamps
from persistent.text.figures import utc_text
from persistent.text.fingerprints import Described, changes_text
from persistent.text.spelling import spelled
from persistent.time.assigned_window import AssignedWindow
from persistent.time.calendar_window import CalendarWindow
from persistent.time.clock import Duration, Instant, bare, duration_ms, instant_ms
from persistent.time.lateness import ALLOWS_NONE, CLOSE, Lateness, checked_lateness, checked_totals
from persistent.time.session_window import SessionWindow, lateness_of
from persistent.time.window import AnyWindow, Panes, Window, no_window
from persistent.time.zone import Zone

_FORMAT = 1
_HEADER_BYTES = 4


class PersistentState(Described):
    """A monoid, and elements by pane: the common part of ``NonWindowState`` and ``WindowState``. ``window``: the
    windows that the clock closes; None if there are none. ``gaps``: what ends a session, or the life of a key; None in
    a state of neither."""

    window: AnyWindow | None
    bare: Mapping[str, int] = {}
    lateness: Lateness = ALLOWS_NONE
    time_to_live: TimeToLive | None = None

    def __init__(self, monoid: Monoid[Any], panes: Panes) -> None:
        if not isinstance(monoid, Monoid):
            raise TypeError(f"a state is made of a monoid, not of {monoid!r}; give for example Count() or Sum(float)")
        check(monoid)
        self.monoid = monoid
        self.panes = panes
        self.window = panes.window
        self.gaps = gaps_of(panes.window, self.time_to_live)
        self._elements: dict[int, Any] = {}

    @property
    def zone(self) -> Zone | None:
        """The time zone whose rules move the borders of its windows, if any."""
        return None if self.window is None else self.window.zone

    def in_zone(self, zone: Zone | None) -> PersistentState:
        """This state without elements, its windows by these rules of their zone; itself if the rules change nothing."""
        window = self.window
        if zone is None or not isinstance(window, CalendarWindow) or window.zone == zone:
            return self
        state = copy(self)
        state.window = replace(window, zone=zone)
        state.panes = replace(self.panes, window=state.window)
        state._elements = {}
        return state

    def zone_after(self, kept: Zone | None, begun: int) -> Zone | None:
        """The rules of the zone for a state whose windows were kept by the rules ``kept`` (None: by none), the last of
        them begun by ``begun``. Where rows are published before their windows end, begun windows keep their ends."""
        window = self.window
        if kept is None or not isinstance(window, CalendarWindow):
            return self.zone
        return window.kept_by(kept, begun, ends=self.lateness.of_changes is not None).zone

    def stored_panes(self, timestamps: Integers, watermark: int) -> Integers:
        """In a pipeline: the pane of each update, in a step that begins at ``watermark``."""
        raise NotImplementedError

    def folded_panes(self, panes: Integers, watermark: int) -> Integers:
        """In a pipeline: the pane that each of these panes is folded into, in the same order."""
        return panes

    def known_from(self, watermark: int) -> int | None:
        """In a pipeline: the first clock that a step beginning at ``watermark`` can separate from older times; None if
        the windows determine it, or nothing is separated."""
        return None

    def knows(self, clock: int, watermark: int) -> bool:
        """Whether a checkpoint at ``watermark`` can separate records before ``clock`` from later ones. There are none
        before 1970."""
        return 0 <= clock <= watermark and self.panes.is_cut(clock)

    def fingerprint(self) -> dict[str, Any]:
        """JSON values by which a checkpoint recognises this state and refuses another."""
        values = values_of(self.monoid)
        return {"state": type(self).__name__, "monoid": values.fingerprint(), **self.panes.fingerprint()}

    # -- on its own ------------------------------------------------------------------------------------------

    def update(self, timestamp: int, value: Any, *, key: Any = None) -> None:
        """Add one value at a time (ms since the epoch)."""
        if key is not None:
            raise TypeError("a state on its own is one key: omit key=, or run the task in a pipeline")
        time = checked_timestamp(timestamp)
        self._add(time, lift_at(self.monoid, time, value))

    def update_batch(self, timestamps: Any, values: Any, *, keys: Any = None) -> None:
        """Add many values: ``timestamps`` int64 ms; lists, generators, Series and arrays are columns of that length."""
        if keys is not None:
            raise TypeError("a state on its own is one key: omit keys=, or run the task in a pipeline")
        times = checked_timestamps(timestamps)
        lifted = lift_rows(self.monoid, values, len(times))
        columns = at_times(self.monoid, times, lifted)
        in_window = self._held(times)
        panes, rows = self.panes.starts(times[in_window]), np.flatnonzero(in_window)
        order, starts = group_codes(np.zeros(len(panes), np.int64), panes)
        reduced = self.monoid.reduce_sorted(take(columns, rows[order]), starts)
        for pane, element in zip(panes[order[starts]].tolist(), self.monoid.unpack(reduced)):
            self._add(pane, element)

    def checkpoint(self, clock: Instant) -> bytes:
        """Exactly the updates before ``clock`` (on the grid), as bytes for ``recover``."""
        clock = self._checked_clock(clock)
        panes = sorted(pane for pane in self._elements if pane < clock)
        columns = self.monoid.pack([self._elements[pane] for pane in panes])
        rows = GroupSums(np.zeros(len(panes), np.uint64), (), np.array(panes, np.int64), columns)
        data, sha256 = encode_run(self.monoid, rows, ())
        header = {
            "format": _FORMAT,
            "clock": clock,
            "of": self.fingerprint(),
            "rows": len(panes),
            "sha256": sha256,
        }
        document = encode_document(header)
        return len(document).to_bytes(_HEADER_BYTES, "big") + document + data

    def recover(self, clock: Instant, data: bytes) -> None:
        """Replace this state by the one that ``checkpoint(clock)`` returned. Corrupt bytes raise and change nothing."""
        clock = self._checked_clock(clock)
        size = int.from_bytes(data[:_HEADER_BYTES], "big")
        place = f"checkpoint of a {type(self).__name__} at clock {clock}"
        if len(data) < _HEADER_BYTES + size:
            raise CorruptCheckpoint(f"{place}: cut short ({len(data)} bytes)")
        header = decode_document(data[_HEADER_BYTES : _HEADER_BYTES + size], place)
        if header["of"] != self.fingerprint():
            raise FingerprintChanged(
                f"{place}: made differently, {changes_text(header['of'], self.fingerprint())}. Recover it into a "
                "state like the one it was taken from"
            )
        if header["clock"] != clock:
            raise ValueError(f"{place}: these bytes were taken at clock {header['clock']}; recover with that clock")
        run = Run("", header["rows"], 0, header["sha256"], 0, 0, 1, 0, 0, 0, 0, wide=True)
        rows = decode_run(self.monoid, pa.py_buffer(data[_HEADER_BYTES + size :]), run, place)
        self._elements = dict(zip(rows.panes.tolist(), self.monoid.unpack(rows.columns)))

    def get(self) -> Any:
        """The presented value."""
        raise NotImplementedError

    def _held(self, timestamps: Integers) -> Any:
        return np.ones(len(timestamps), bool)

    def _add(self, timestamp: int, element: Any) -> None:
        pane = int(self.panes.starts(timestamp))
        if pane in self._elements:
            element = self.monoid.combine(self._elements[pane], element)
        self._elements[pane] = element

    def _checked_clock(self, clock: Instant) -> int:
        time = instant_ms(clock)
        if time < 0 or not self.panes.is_cut(time):
            raise ValueError(
                f"clock {utc_text(time)} is not on the grid of this state, {self.panes}: the previous one is "
                f"{utc_text(self.panes.cut_before(max(time, 0)))}"
            )
        return time


class NonWindowState(PersistentState):
    """One running value over all time.

    ``interval_ms``: the grid of clocks at which it can be checkpointed on its own or, in a pipeline, read as of.
    ``history``: how far back from the clock a pipeline can read it as of (a duration; None: not at all); older updates
    share one open pane. ``emit``: "close" publishes each key that has changed at the end of the input; "change" in each
    step. ``changes``: with emit="change", "update" publishes the new value; "retract" publishes the old row before it,
    with ``retracted`` = true. The rows carry ``revision``, and the largest wins. ``early``: what has changed is
    published whenever the clock passes a multiple of this duration, and at the end. ``ttl``: how long a key lives after
    its last message, by the clock of the pipeline; the row of an expired key is published with ``retracted`` = true. A
    state on its own has no clock: its value is the sum since the last pause of ``ttl``, and it keeps every update.

    >>> from monoids import Sum
    >>> state = NonWindowState(Sum(), interval_ms=10)
    >>> for timestamp in (1, 9, 10): state.update(timestamp, 5)
    >>> state.get()
    15
    >>> saved = state.checkpoint(10)
    >>> state.recover(10, saved); state.get()
    10
    """

    @spelled
    def __init__(
        self,
        monoid: Monoid[Any],
        *,
        interval_ms: Duration = 60_000,
        history: Duration | None = None,
        emit: str = CLOSE,
        changes: str = "update",
        early: Duration | None = None,
        ttl: Duration | None = None,
    ) -> None:
        interval = duration_ms(interval_ms, "interval_ms")
        if interval < 1:
            raise ValueError("interval_ms is at least 1 ms")
        self.time_to_live = checked_ttl(None if ttl is None else duration_ms(ttl, "ttl"), monoid, history)
        super().__init__(self.time_to_live.kept_as(monoid) if self.time_to_live else monoid, Panes(None, interval))
        self.history_ms = None if history is None else duration_ms(history, "history")
        self.bare = bare(history=history, early=early, ttl=ttl)
        self._interval_ms = interval
        self.lateness = checked_totals(emit, changes, early)
        if history is not None and not monoid.commutative:
            raise TypeError(
                f"history={history!r} keeps panes of event time, and {monoid!r} is not declared commutative: updates "
                "are then summed pane by pane, not in the order of their messages. Omit history, or use a "
                "commutative monoid"
            )

    def stored_panes(self, timestamps: Integers, watermark: int) -> Integers:
        if self.history_ms is None:
            return open_panes(timestamps)
        return self.folded_panes(np.asarray(self.panes.starts(timestamps)), watermark)

    def folded_panes(self, panes: Integers, watermark: int) -> Integers:
        if self.history_ms is None:
            return panes
        # A multiple of the interval, as all panes of a state must be.
        return np.where(panes < self._folded_before(watermark), -self._interval_ms, panes)

    def knows(self, clock: int, watermark: int) -> bool:
        return (
            self.history_ms is not None and super().knows(clock, watermark) and clock >= self._folded_before(watermark)
        )

    def known_from(self, watermark: int) -> int | None:
        return None if self.history_ms is None else self._folded_before(watermark)

    def fingerprint(self) -> dict[str, Any]:
        return {
            "state": "NonWindowState",
            "monoid": values_of(self.monoid).fingerprint(),
            "window": None,
            "interval_ms": None if self.history_ms is None else self._interval_ms,
            **({"ttl_ms": self.time_to_live.ttl_ms} if self.time_to_live else {}),
        }

    def _folded_before(self, watermark: int) -> int:
        """The first clock of the grid that a step beginning at ``watermark`` separates from older times."""
        assert self.history_ms is not None
        return max(0, int(self.panes.starts(watermark - self.history_ms)))

    def get(self) -> Any:
        """The presented sum of all updates; with a time to live, of the updates in the last life. Without updates, the
        presented identity."""
        total, values = self.monoid.fold([part for _, part in sorted(self._elements.items())]), self.monoid
        if self.time_to_live is not None:
            values = values_of(values)
            total = total[-1][-1] if total else values.identity
        return presented(values, [total])


class WindowState(PersistentState):
    """A value for each window of event time. Needs no group: a window is the sum of its panes.

    ``allowed_lateness``: how long after its end, by the clock, a window still takes records; a result that was
    published is then corrected, in the way of ``late``: "accumulate" publishes the new value; "retract", the only way
    of sessions, the old row with ``retracted`` = true and then the new one. The rows carry ``revision``, and the
    largest wins. ``emit``: "close" publishes a window when the clock passes its end;
    "change" whenever a step has changed it, open or closed, and not again when it closes; "final" once, when nothing
    can change it. ``changes``: with emit="change", "update" (None) publishes the new value, "retract", the only way of
    sessions, the old row before it.
    ``early``: what has changed is published whenever the clock passes a multiple.

    >>> from monoids import Max
    >>> from persistent.time.window import sliding
    >>> state = WindowState(Max(), sliding(10, every=5))
    >>> state.update(7, 3); state.update(12, 1)
    >>> state.get()
    {(0, 10): 3, (5, 15): 3, (10, 20): 1}
    """

    window: AnyWindow

    @spelled
    def __init__(
        self,
        monoid: Monoid[Any],
        window: Window | CalendarWindow | AssignedWindow,
        *,
        interval_ms: Duration | None = None,
        allowed_lateness: Duration = 0,
        late: str | None = None,
        emit: str = CLOSE,
        changes: str | None = None,
        early: Duration | None = None,
    ) -> None:
        if not isinstance(window, Window | CalendarWindow | AssignedWindow):
            raise TypeError(no_window(window))
        interval = None if interval_ms is None else duration_ms(interval_ms, "interval_ms")
        if interval is not None and interval < 1:
            raise ValueError("interval_ms is at least 1 ms")
        super().__init__(kept_as(monoid, window), Panes(window, interval))
        lateness = checked_lateness(allowed_lateness, late, emit, changes, early)
        self.lateness = lateness_of(window, interval, lateness, late, changes)
        self.bare = bare(allowed_lateness=allowed_lateness, early=early)

    def stored_panes(self, timestamps: Integers, watermark: int) -> Integers:
        return np.asarray(self.panes.starts(timestamps))

    def get(self) -> Mapping[tuple[int, int], Any]:
        """Every non-empty window, (start, end) to presented value, in order of time."""
        window, elements = self.window, sorted(self._elements.items())
        if isinstance(window, SessionWindow):
            return presented_sessions(self.monoid, window, [element for _, element in elements])
        elements_by_number: dict[int, list[Any]] = {}
        for pane, element in elements:
            for number in range(window.first_number(pane), window.last_number(pane) + 1):
                elements_by_number.setdefault(number, []).append(element)
        return {
            (window.start_of(number), window.end_of(number)): presented(self.monoid, parts)
            for number, parts in sorted(elements_by_number.items())
        }

    def _held(self, timestamps: Integers) -> Any:
        return self.window.holds(timestamps)

    def _add(self, timestamp: int, element: Any) -> None:
        window = self.window
        if window.first_number(timestamp) <= window.last_number(timestamp):
            super()._add(timestamp, element)
