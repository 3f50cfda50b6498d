"""A state is the monoid sum of the messages' contributions, kept by pane, so any prefix in event time is a sum too.

Contract of a state on its own, for clocks on its grid:

- ``checkpoint(clock)`` holds exactly the updates with ``timestamp < clock`` and changes nothing; equal states give
  equal bytes;
- ``recover(clock, data)`` restores that state. Replay every update with ``timestamp >= clock``, and every update made
  after the checkpoint, and the state is that of a run that never stopped.

In a pipeline this object only describes the state; the rows live in runs.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from monoids import Monoid
from monoids.column import take
from monoids.groupby.cells import Integers, group_codes
from monoids.groupby.summing import GroupSums
from monoids.monoid import check
from persistent.clock import Duration, Instant, bare, duration_ms, instant_ms
from persistent.codec import Run, decode_document, decode_run, encode_document, encode_run
from persistent.errors import CorruptCheckpoint, FingerprintChanged
from persistent.lateness import ALLOWS_NONE, CHANGE, CLOSE, DELTA, Lateness, checked_changes, checked_lateness
from persistent.state_rows import OPEN_PANE
from persistent.text.figures import utc_text
from persistent.text.fingerprints import changes_text
from persistent.window import Panes, Window

_FORMAT = 1
_HEADER_BYTES = 4
TIMESTAMP_MAX = 1 << 62


class State(Protocol):
    """The state as ``process_message`` and ``process_batch`` see it."""

    def update(self, timestamp: int, value: Any, *, key: Any = ...) -> None:
        """Add one value at a time (ms). ``key``: instead of the message's key; a tuple for several columns."""

    def update_batch(self, timestamps: Any, values: Any, *, keys: Any = ...) -> None:
        """Add many. Arrow or NumPy arrays are columns, anything else is one value for every row."""

    def get(self) -> Any:
        """The presented value."""


class PersistentState:
    """A monoid, and elements by pane: the common part of ``NonWindowState`` and ``WindowState``."""

    lateness: Lateness = ALLOWS_NONE

    def __init__(self, monoid: Monoid[Any], panes: Panes) -> None:
        if not isinstance(monoid, Monoid):
            raise TypeError(f"a state is made of a monoid, not of {monoid!r}; give for example Count() or Sum(float)")
        check(monoid)
        self.monoid = monoid
        self.panes = panes
        self._elements: dict[int, Any] = {}

    @property
    def window(self) -> Window | None:
        return self.panes.window

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
        """Whether a checkpoint at ``watermark`` can separate records before ``clock`` from later ones."""
        return self.panes.is_cut(clock) and clock <= watermark

    def fingerprint(self) -> dict[str, Any]:
        """JSON values by which a checkpoint recognises this state and refuses another."""
        return {"state": type(self).__name__, "monoid": self.monoid.fingerprint(), **self.panes.fingerprint()}

    # -- on its own ------------------------------------------------------------------------------------------

    def update(self, timestamp: int, value: Any, *, key: Any = None) -> None:
        """Add one value at a time (ms since the epoch)."""
        if key is not None:
            raise TypeError("a state on its own is one key: omit key=, or run the task in a pipeline")
        self._add(checked_timestamp(timestamp), self.monoid.lift(value))

    def update_batch(self, timestamps: Any, values: Any, *, keys: Any = None) -> None:
        """Add many values: ``timestamps`` int64 ms; Arrow and NumPy arrays in ``values`` are columns of that length."""
        if keys is not None:
            raise TypeError("a state on its own is one key: omit keys=, or run the task in a pipeline")
        times = checked_timestamps(timestamps)
        columns = self.monoid.lift_rows(values, len(times))
        held = self._held(times)
        panes, rows = self.panes.starts(times[held]), np.flatnonzero(held)
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

    def _total(self, elements: list[Any]) -> Any:
        total = self.monoid.identity
        for element in elements:
            total = self.monoid.combine(total, element)
        return total


class NonWindowState(PersistentState):
    """One running value over all time.

    ``interval_ms``: the grid of clocks at which it can be checkpointed on its own or, in a pipeline, read as of.
    ``history``: how far back from the clock that works in a pipeline (a duration; None: not at all); older updates
    share one open pane. ``emit``: "close" publishes each key that has changed at the end of the input; "change" in each
    step. ``changes``: with emit="change", "update" publishes the new value; "retract" before it the old row, with
    ``retracted`` = true. The rows carry ``revision``, and the largest wins.

    >>> from monoids import Sum
    >>> state = NonWindowState(Sum(), interval_ms=10)
    >>> for timestamp in (1, 9, 10): state.update(timestamp, 5)
    >>> state.get()
    15
    >>> saved = state.checkpoint(10)
    >>> state.recover(10, saved); state.get()
    10
    """

    def __init__(
        self,
        monoid: Monoid[Any],
        *,
        interval_ms: Duration = 60_000,
        history: Duration | None = None,
        emit: str = CLOSE,
        changes: str = "update",
    ) -> None:
        interval = duration_ms(interval_ms, "interval_ms")
        if interval < 1:
            raise ValueError("interval_ms is at least 1 ms")
        super().__init__(monoid, Panes(None, interval))
        self.history_ms = None if history is None else duration_ms(history, "history")
        self.bare = bare(history=history)
        self._interval_ms = interval
        self.lateness = Lateness(0, checked_changes(emit, changes, (CLOSE, CHANGE)), emit)
        if history is not None and not monoid.commutative:
            raise TypeError(
                f"history={history!r} keeps panes of event time, and {monoid!r} is not declared commutative: updates "
                "are then summed pane by pane, not in the order of their messages. Omit history, or use a "
                "commutative monoid"
            )

    def stored_panes(self, timestamps: Integers, watermark: int) -> Integers:
        if self.history_ms is None:
            return np.broadcast_to(np.int64(OPEN_PANE), len(timestamps))
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
            "monoid": self.monoid.fingerprint(),
            "window": None,
            "interval_ms": None if self.history_ms is None else self._interval_ms,
        }

    def _folded_before(self, watermark: int) -> int:
        """The first clock of the grid that a step beginning at ``watermark`` separates from older times."""
        assert self.history_ms is not None
        return max(0, int(self.panes.starts(watermark - self.history_ms)))

    def get(self) -> Any:
        """The presented sum of all updates; without any, the presented identity."""
        return self.monoid.present(self._total([element for _, element in sorted(self._elements.items(), key=_first)]))


class WindowState(PersistentState):
    """A value for each window of event time. Needs no group: a window is the sum of its panes.

    ``allowed_lateness``: how long after its end, by the clock, a window still takes records; a result that was
    published is then corrected, in the way of ``late``: "accumulate" publishes the new value; "retract" the old row
    with ``retracted`` = true and then the new one; "delta" what the late records add. The rows carry ``revision``, and
    the largest wins. ``emit``: "close" publishes a window when the clock passes its end; "change" whenever a step has
    changed it, open or closed, and not again when it closes; "final" once, when nothing can change it. ``changes``:
    with emit="change", "update" publishes the new value, and "retract" the old row before it.

    >>> from monoids import Max
    >>> from persistent.window import sliding
    >>> state = WindowState(Max(), sliding(10, every=5))
    >>> state.update(7, 3); state.update(12, 1)
    >>> state.get()
    {(0, 10): 3, (5, 15): 3, (10, 20): 1}
    """

    def __init__(
        self,
        monoid: Monoid[Any],
        window: Window,
        *,
        interval_ms: Duration | None = None,
        allowed_lateness: Duration = 0,
        late: str | None = None,
        emit: str = CLOSE,
        changes: str = "update",
    ) -> None:
        if not isinstance(window, Window):
            raise TypeError(f"a window is made by tumbling(size) or sliding(size, every), not {window!r}")
        interval = None if interval_ms is None else duration_ms(interval_ms, "interval_ms")
        if interval is not None and interval < 1:
            raise ValueError("interval_ms is at least 1 ms")
        super().__init__(monoid, Panes(window, interval))
        self.lateness = checked_lateness(allowed_lateness, late, emit, changes)
        self.bare = bare(allowed_lateness=allowed_lateness)
        if late == DELTA and not monoid.additive:
            raise TypeError(
                f'late="delta" publishes what late records add to a result, and values of {monoid!r} cannot be added: '
                'use late="accumulate", which publishes the new value; or, for a monoid of your own whose presented '
                "values do add up, set additive = True in its class"
            )

    @property
    def window(self) -> Window:
        assert self.panes.window is not None
        return self.panes.window

    def stored_panes(self, timestamps: Integers, watermark: int) -> Integers:
        return np.asarray(self.panes.starts(timestamps))

    def get(self) -> Mapping[tuple[int, int], Any]:
        """Every non-empty window, (start, end) to presented value, in order of time."""
        found: dict[int, list[Any]] = {}
        for pane, element in sorted(self._elements.items(), key=_first):
            for number in range(self.window.first_number(pane), self.window.last_number(pane) + 1):
                found.setdefault(number, []).append(element)
        return {
            (self.window.start_of(number), self.window.end_of(number)): self.monoid.present(self._total(elements))
            for number, elements in sorted(found.items(), key=_first)
        }

    def _held(self, timestamps: Integers) -> Any:
        return self.window.holds(timestamps)

    def _add(self, timestamp: int, element: Any) -> None:
        if timestamp - self.window.last_start(timestamp) < self.window.size_ms:
            super()._add(timestamp, element)


def checked_timestamp(timestamp: Any) -> int:
    """A timestamp: an integer, milliseconds since the epoch, zero or more. TypeError, ValueError."""
    if isinstance(timestamp, bool) or not isinstance(timestamp, numbers.Integral):
        raise TypeError(f"a timestamp is an integer, milliseconds since the Unix epoch, not {timestamp!r}")
    if timestamp < 0:
        raise ValueError(f"timestamp {timestamp} is before 1970")
    if int(timestamp) > TIMESTAMP_MAX:
        raise ValueError(f"timestamp {timestamp} is too large: give milliseconds since the Unix epoch")
    return int(timestamp)


def checked_timestamps(timestamps: Any) -> Integers:
    """Timestamps as int64 ms, zero or more; an Arrow array (of integers or Arrow timestamps) or a NumPy array."""
    if isinstance(timestamps, pa.Array | pa.ChunkedArray):
        if timestamps.null_count:
            raise ValueError(f"{timestamps.null_count} timestamps are null: filter them out first")
        if pa.types.is_timestamp(timestamps.type):
            timestamps = timestamps.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
        timestamps = (
            timestamps.to_numpy(zero_copy_only=False) if isinstance(timestamps, pa.Array) else timestamps.to_numpy()
        )
    if not isinstance(timestamps, np.ndarray) or timestamps.dtype.kind not in "iu" or timestamps.ndim != 1:
        raise TypeError(
            f"timestamps are a one-dimensional NumPy or Arrow array of integers (ms), not {type(timestamps).__name__}"
        )
    times = timestamps.astype(np.int64, copy=False)
    if len(times) and int(times.min()) < 0:
        raise ValueError(f"timestamp {int(times.min())} is before 1970")
    if len(times) and int(times.max()) > TIMESTAMP_MAX:
        raise ValueError(f"timestamp {int(times.max())} is too large: give milliseconds since the Unix epoch")
    return times


def _first(pair: tuple[int, Any]) -> int:
    return pair[0]
