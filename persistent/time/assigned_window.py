"""Assigned windows are those of a user's own function: timestamps in, the start and the end of each one's window out.

Each time is in exactly one window, so windows follow each other without gap or overlap, and

    the window after [start, end) starts at end.

Only the assigner knows the borders, and the clock closes windows by asking it. A window's number is its start. A bound
of a range of windows can be any number: its ``start_of`` is the first start at or after it, its ``end_of`` the end of
the last window that starts at or before it. Every answer is checked, and its borders are asked for again: an assigner
whose answer depends on anything but the timestamp would close another window than the one that was filled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Protocol

import numpy as np
import pyarrow as pa

from monoids.groupby.sorting import Integers, Mask
from persistent.codec.documents import canonical_json
from persistent.errors import AssignerFailed
from persistent.text.figures import utc_text
from persistent.text.fingerprints import window_text
from persistent.time.zone import Zone

_TIME_MAX: Final = 1 << 62
_ASKED_AGAIN: Final = 64
"""Of the windows, and of the times, of an answer, at most about twice as many are asked for again."""
_TRIED: Final = np.append(np.arange(3), np.arange(257) * 7_812_500_037)
"""Times up to 2033, for which a new assigner is asked."""


class Assigner(Protocol):
    """A pure function from times to windows: equal times have equal windows, whatever other times are asked for."""

    def windows(self, timestamps: Integers) -> tuple[Integers, Integers]:
        """The start and the end of the window of each time: int64 arrays in ms since 1970, ``start <= t < end``.
        It has an answer for every time from 0 on; ``timestamps`` is not to be changed."""

    def fingerprint(self) -> Mapping[str, Any]:
        """JSON values that change whenever a border changes that a record could have met: a checkpoint with another
        fingerprint is refused."""


@dataclass(frozen=True)
class AssignedWindow:
    """The windows of an assigner. Made by ``assigned``."""

    assigner: Assigner

    width: ClassVar[int] = 1
    overlaps: ClassVar[bool] = False
    zone: ClassVar[Zone | None] = None
    step: ClassVar[int] = 1
    time_max: ClassVar[int] = _TIME_MAX

    @cached_property
    def starts_early(self) -> bool:
        """Whether the window that holds the beginning of 1970 starts before 1970."""
        return bool(self.last_start(0) < 0)

    def last_start(self, timestamps: Any) -> Any:
        """The start of the window that holds each time."""
        return self._windows(timestamps)[0]

    def last_end(self, timestamps: Any) -> Any:
        """The end of the window that holds each time."""
        return self._windows(timestamps)[1]

    def holds(self, timestamps: Integers) -> Mask:
        """Whether any window holds each time: always."""
        return np.ones(len(timestamps), bool)

    def late(self, timestamps: Integers, watermark: int) -> tuple[Mask, Mask]:
        """For each time: whether its window had ended at the watermark; whether only some had, which is never so."""
        return np.asarray(timestamps < self.last_start(watermark)), np.zeros(len(timestamps), bool)

    def may_be_late(self, time: int, watermark: int) -> bool:
        """Whether the window of a time has ended at the watermark."""
        return bool(self.last_end(time) <= watermark)

    def is_untouched(self, clock: int, closed: int) -> bool:
        """Whether the window of ``clock`` ends after ``closed``."""
        return bool(self.last_start(closed) <= self.last_start(clock))

    def first_number(self, times: Any) -> Any:
        """The number of the window that holds each time."""
        return self.last_start(times)

    def last_number(self, times: Any) -> Any:
        """The number of the window that holds each time."""
        return self.last_start(times)

    def start_of(self, numbers: Any) -> Any:
        """The first start of a window at or after each number."""
        starts, ends = self._windows(numbers)
        if isinstance(numbers, np.ndarray):
            return np.where(starts == numbers, starts, ends)
        return starts if starts == numbers else ends

    def end_of(self, numbers: Any) -> Any:
        """The end of the last window that starts at or before each number."""
        return self.last_end(numbers)

    def ends(self, starts: Any) -> Any:
        """The end of the window that starts at each time. AssignerFailed if no window starts there any longer."""
        window_starts, ends = self._windows(starts)
        moved = np.flatnonzero(np.asarray(window_starts != starts))
        if len(moved):
            time, now = int(np.atleast_1d(starts)[moved[0]]), int(np.atleast_1d(window_starts)[moved[0]])
            raise self._failed(
                f"a window of the state starts at {utc_text(time)}, and that time is now in one that starts at "
                f"{utc_text(now)}. Restore the borders that the state was kept by"
            )
        return ends

    def __str__(self) -> str:
        """Its source text: the class of the assigner, and its fingerprint."""
        return window_text(self.fingerprint())

    def fingerprint(self) -> dict[str, Any]:
        """The class of the assigner, by name, and its own fingerprint."""
        fields = self.assigner.fingerprint()
        if not isinstance(fields, Mapping):
            raise TypeError(f"{self._name}.fingerprint returned {fields!r}: return a mapping of names to JSON values")
        return {"assigned": self._name, "parameters": json.loads(canonical_json(dict(fields)))}

    def check(self) -> None:
        """AssignerFailed unless it has windows for a sample of times, the same whenever it is asked."""
        self._windows(_TRIED)

    @property
    def _name(self) -> str:
        return type(self.assigner).__name__

    def _windows(self, times: Any) -> tuple[Any, Any]:
        """The checked start and end of the window of each time."""
        if not isinstance(times, np.ndarray):
            (start,), (end,) = self._windows(np.array([times], np.int64))
            return int(start), int(end)
        if not len(times):
            return times, times
        if int(times.min()) < 0:
            # The start of the window that holds the beginning of 1970 may be before it: nothing earlier is asked for.
            times = np.maximum(times, 0)
        starts, ends = self._asked(times)
        outside = np.flatnonzero((starts > times) | (times >= ends))
        if len(outside):
            row = outside[0]
            raise self._failed(
                f"the window of {utc_text(int(times[row]))} is {_text(starts[row], ends[row])}, which does not hold "
                "it: start <= timestamp < end"
            )
        is_other = (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
        firsts = np.append(0, np.flatnonzero(is_other) + 1)
        self._check_again(times, starts, ends, *self._distinct(starts[firsts], ends[firsts]))
        return starts, ends

    def _asked(self, times: Integers) -> tuple[Integers, Integers]:
        view = times.view()
        view.flags.writeable = False
        try:
            answer = self.assigner.windows(view)
        except Exception as error:
            raise self._failed(
                f"it raised {type(error).__name__}: {error}, for times from {utc_text(int(times.min()))} to "
                f"{utc_text(int(times.max()))}. Every time since 1970 has a window"
            ) from error
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise self._failed(f"it returned {_what(answer)}: return (starts, ends), a tuple of two arrays")
        starts, ends = map(np.asarray, answer)
        for name, column in (("starts", starts), ("ends", ends)):
            if column.shape != times.shape or column.dtype != np.int64:
                raise self._failed(
                    f"{name} are {column.dtype} of shape {column.shape}, and the timestamps int64 of shape "
                    f"{times.shape}: return an int64 array with one for each"
                )
        return starts, ends

    def _distinct(self, starts: Integers, ends: Integers) -> tuple[Integers, Integers]:
        """The windows, each once, in the order of time."""
        if len(starts) == 1:
            return starts, ends
        encoded = pa.array(starts).dictionary_encode()
        codes, firsts = encoded.indices.to_numpy(), encoded.dictionary.to_numpy()
        lasts = np.empty(len(firsts), np.int64)
        lasts[codes] = ends
        two = np.flatnonzero(lasts[codes] != ends)
        if len(two):
            row = two[0]
            raise self._failed(
                f"the window that starts at {utc_text(int(starts[row]))} ends at {utc_text(int(ends[row]))} for one "
                f"time, and at {utc_text(int(lasts[codes[row]]))} for another"
            )
        order = np.argsort(firsts)
        firsts, lasts = firsts[order], lasts[order]
        over = np.flatnonzero(firsts[1:] < lasts[:-1])
        if len(over):
            row = over[0]
            window, successor = _text(firsts[row], lasts[row]), _text(firsts[row + 1], lasts[row + 1])
            raise self._failed(f"the windows {window} and {successor} overlap: each time has one window")
        return firsts, lasts

    def _check_again(
        self, times: Integers, starts: Integers, ends: Integers, firsts: Integers, lasts: Integers
    ) -> None:
        """Ask the assigner again: for one time alone; and for some of the times together with borders of some windows.
        A window holds its start and its last time, ``end - 1``, and its end is the start of the next window."""
        rows, windows = _some(len(times)), _some(len(firsts))
        alone, low, high = rows[len(rows) // 2 :][:1], firsts[windows], lasts[windows]
        begun = np.concatenate([starts[rows], low, low])
        over = np.concatenate([ends[rows], high, high])
        if len(times) > 1:
            self._expect(times[alone], starts[alone], ends[alone])
        self._expect(np.concatenate([times[rows], np.maximum(low, 0), high - 1, high]), np.append(begun, high), over)

    def _expect(self, times: Integers, starts: Integers, ends: Integers) -> None:
        """AssignerFailed unless the assigner, asked for ``times`` in reverse order, answers ``starts`` and ``ends``.
        The ends of the last times are unknown, and not compared, where ``ends`` is shorter."""
        new_starts, new_ends = (column[::-1] for column in self._asked(np.ascontiguousarray(times[::-1])))
        is_other = new_starts != starts
        is_other[: len(ends)] |= new_ends[: len(ends)] != ends
        others = np.flatnonzero(is_other)
        if len(others):
            row = others[0]
            time, window = utc_text(int(times[row])), _text(new_starts[row], new_ends[row])
            raise self._failed(
                f"asked again, {time} is in the window {window}, and not in one that starts at "
                f"{utc_text(int(starts[row]))}: a window follows from the timestamp alone, and the next one starts "
                "where it ends"
            )

    def _failed(self, fault: str) -> AssignerFailed:
        return AssignerFailed(f"{self._name}.windows: {fault}")


def assigned(assigner: Assigner) -> AssignedWindow:
    """The windows of an assigner of your own, an object with ``windows(timestamps) -> (starts, ends)`` and
    ``fingerprint()``. AssignerFailed if its windows contradict each other for a sample of times.

    >>> class Shifts:
    ...     "From six to two, from two to ten, and the night, in UTC."
    ...     def windows(self, timestamps):
    ...         hours = timestamps // 3_600_000
    ...         begun = (hours - 6) % 24
    ...         since = begun - np.array([0, 8, 16])[begun // 8]
    ...         starts = (hours - since) * 3_600_000
    ...         return starts, starts + 8 * 3_600_000
    ...     def fingerprint(self):
    ...         return {"first": 6}
    >>> str(assigned(Shifts()))
    'assigned(Shifts(first=6))'
    """
    if isinstance(assigner, type):
        raise TypeError(f"assigned({assigner.__name__}): give an instance, {assigner.__name__}()")
    for name in ("windows", "fingerprint"):
        if not callable(getattr(assigner, name, None)):
            raise TypeError(
                f"assigned({assigner!r}): an assigner has windows(timestamps) and fingerprint(), and this object has "
                f"no {name}"
            )
    window = AssignedWindow(assigner)
    window.fingerprint()
    window.check()
    return window


def _some(count: int) -> Integers:
    """Some of so many rows: the first, the last, and others between."""
    return np.arange(min(count, _ASKED_AGAIN)) * (count - 1) // max(min(count, _ASKED_AGAIN) - 1, 1)


def _what(answer: Any) -> str:
    return f"a tuple of {len(answer)}" if isinstance(answer, tuple) else f"a value of type {type(answer).__name__}"


def _text(start: Any, end: Any) -> str:
    return f"{utc_text(int(start))} to {utc_text(int(end))}"
