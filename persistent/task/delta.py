"""A delta collects the updates of a step and sums them up as columns.

The updates of a batch apply together or not at all: ``begin``, then the task's calls, then ``end``, which lifts and
checks them. If anything raises, ``abandon`` drops them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from monoids.arrays import columnar
from monoids.column import Columns, take
from monoids.groupby.cells import Integers
from monoids.groupby.sorting import Mask
from monoids.groupby.summing import GroupSums, group_by
from monoids.numbers.sums import Count
from monoids.records import RecordMonoid
from monoids.scalars import FROZEN, snapshot
from persistent.state.rows import fold, values_of
from persistent.state.state import PersistentState
from persistent.state.updates import (
    TIMESTAMP_MAX,
    KeyLimits,
    check_no_mapping,
    checked_timestamps,
    is_far_before,
    key_array,
    listed_key,
    listed_timestamps,
    swapped,
    types_with,
)
from persistent.task.message import Batch
from persistent.text.figures import date_text, utc_text
from persistent.time.session_window import SessionWindow, group_sessions

_FOLD_PARTS = 32
_TRIED_MAX = 1_000


class _OwnKey:
    """The default of ``key=``: the key of the message."""


_OWN_KEY: Any = _OwnKey()


class _Messages(NamedTuple):
    """The message of each update."""

    timestamps: Integers
    offsets: Integers


class Delta:
    """The state as a task sees it in a pipeline: it takes updates and cannot be read.

    An update whose windows were all final at ``watermark`` is an error in the task. So is one after ``limit`` (ms): one
    far-off update must not close every window. ``key_types``: the types of the key columns so far, empty before the
    first key; a key of another type is an error in the task. ``drops``: other states of the task take messages that
    this one refuses: an update at the time of such a message is dropped here, and is no error. An update at another
    time than its message's, with some final windows, counts in its other windows, and its message is noted.
    ``since``: the clock of a restart; an update before it is an error in the task. ``sinks`` limit the keys.
    """

    def __init__(
        self,
        state: PersistentState,
        key_names: Sequence[str],
        watermark: int,
        limit: int = TIMESTAMP_MAX,
        key_types: Sequence[pa.DataType] = (),
        *,
        drops: bool = False,
        since: int | None = None,
        sinks: Iterable[Any] = (),
    ) -> None:
        self._state = state
        self._key_limits = KeyLimits(sinks, key_names)
        monoid = values_of(state.monoid)
        fields = monoid.fields if isinstance(monoid, RecordMonoid) else None
        self._constant = monoid.takes_constants
        self._changeable = fields and [name for name, inner in fields.items() if not inner.takes_constants]
        self._drops, self._since = drops, since
        self._key_names = tuple(key_names)
        self._watermark, self._limit = watermark, limit
        self._key_types = tuple(key_types)
        self._pending_types = self._key_types
        self._parts: list[GroupSums] = []
        self._pending: list[GroupSums] = []
        self._partly: list[Integers] = []
        self._pending_partly: list[Integers] = []
        self._batch: Batch | None = None
        self._listed_batch: Batch | None = None
        self.row: int | None = None
        """The row of the batch that updates belong to; None: they must give their key."""
        self._clear()

    # -- what a task calls -----------------------------------------------------------------------------------

    def update(self, timestamp: int, value: Any, *, key: Any = _OWN_KEY) -> None:
        """Add ``value`` at a time (ms) to the message's key, or to ``key``."""
        row = self.row
        if key is not _OWN_KEY:
            self._given_keys[len(self._times)] = snapshot(key)
        elif row is None and self._key_names:
            raise TypeError(
                "update without key= outside process_message: the message it belongs to is unknown. Give "
                "key=message.key, or call super().process_batch(state, batch)"
            )
        # As it is now: a task may use one dict for all its updates. Of a record, fields of plain numbers need no look.
        if self._changeable is not None and value.__class__ is dict:
            value = value.copy()
            for name in self._changeable:
                if name in value and value[name].__class__ not in FROZEN:
                    value[name] = snapshot(value[name])
        elif not self._constant:
            value = snapshot(value)
        self._rows.append(-1 if row is None else row)
        self._times.append(timestamp)
        self._values.append(value)

    def update_batch(self, timestamps: Any, values: Any, *, keys: Any = _OWN_KEY) -> None:
        """Add many: an Arrow or NumPy array, list, generator or Series is a column of as many values, also in a tuple
        or mapping; anything else is one value for every row.

        Give ``batch.timestamps``, or the timestamps of ``batch.filter(mask)``. The messages of any other array of times
        are unknown: if a time is late, the batch is processed again in halves, until its message is alone.
        """
        # The listed updates came before: a monoid need not commute.
        self._sum_listed()
        batch = self._batch.of_timestamps(timestamps) if self._batch is not None else None
        times = batch.timestamps if batch is not None else checked_timestamps(timestamps)
        exchanged = self._batch.of_timestamps(values) if self._batch is not None and batch is None else None
        if exchanged is not None and is_far_before(times, exchanged.timestamps):
            raise swapped("update_batch", int(times.min()), int(exchanged.timestamps.min()))
        if keys is _OWN_KEY:
            if batch is None and self._key_names:
                raise TypeError(
                    "update_batch needs keys=: they may be omitted only with the timestamps of a batch itself "
                    "(batch.timestamps, or those of batch.filter(mask))"
                )
            columns = batch.keys if batch is not None else ()
        else:
            columns = self._key_columns(keys, len(times))
        monoid, values = values_of(self._state.monoid), columnar(values)
        if type(monoid) is Count:
            check_no_mapping(values if isinstance(values, list) else [values])
        lifted = monoid.lift_rows(values, len(times))
        self._sum(columns, times, lifted, None if batch is None else _Messages(batch.timestamps, batch.offsets))

    def get(self) -> Any:
        raise TypeError(
            "state.get() in a pipeline: this task runs where its messages are, not where its state is. "
            "Only update the state here; read it with pipeline.state()"
        )

    # -- what the step calls ---------------------------------------------------------------------------------

    def begin(self, batch: Batch) -> None:
        """The following updates belong to this batch."""
        self._batch = self._listed_batch = batch
        self.row = None
        self._pending, self._pending_partly = [], []
        self._pending_types = self._key_types
        self._clear()

    def at_once(self) -> Delta:
        """An empty delta that checks each update at once: slow, but an error is raised in the line of the call."""
        limits = self._watermark, self._limit, self._key_types
        return _AtOnce(self._state, self._key_names, *limits, drops=self._drops, since=self._since)

    def of(self, batch: Batch) -> None:
        """The following rows belong to this batch: the one begun, or one filtered from it."""
        if batch is not self._listed_batch:
            self._sum_listed()
            self._listed_batch = batch

    def end(self) -> None:
        """Lift, check and keep the updates since ``begin``."""
        self.check()
        self._parts += self._pending
        self._partly += self._pending_partly
        self._key_types = self._pending_types
        self.abandon()

    def check(self) -> None:
        """Lift and check the updates since ``begin``; ``end`` then raises nothing."""
        self._sum_listed()
        self._key_limits.check()

    def settle(self) -> None:
        """Fold the kept sums once they are many. An error here belongs to the sum, not to a message."""
        if len(self._parts) > _FOLD_PARTS:
            self._parts = [fold(self._state.monoid, self._parts, self._state.panes.step)]

    def abandon(self) -> None:
        """Drop the updates since ``begin``."""
        self._pending, self._pending_partly = [], []
        self._key_limits.clear()
        self._batch = None
        self._clear()

    def noted(self) -> Integers:
        """The messages, as ascending offsets, whose updates at another time have missed windows that were final: those
        since the last call."""
        offsets = np.unique(np.concatenate([np.zeros(0, np.int64), *self._partly]))
        self._partly = []
        return offsets

    def rows(self) -> GroupSums | None:
        """The sum of all updates; None if there were none."""
        return fold(self._state.monoid, self._parts, self._state.panes.step) if self._parts else None

    # -- internals -------------------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._rows: list[int] = []
        self._times: list[Any] = []
        self._values: list[Any] = []
        self._given_keys: dict[int, Any] = {}

    def _sum_listed(self) -> None:
        if self._times:
            times = listed_timestamps(self._times)
            self._check_not_swapped(times)
            monoid = values_of(self._state.monoid)
            if type(monoid) is Count:
                check_no_mapping(self._values)
            values = monoid.lift_list(self._values)
            self._sum(self._listed_keys(), times, values, self._listed_own() if self._needs_own else None)
            self._clear()

    def _check_not_swapped(self, times: Integers) -> None:
        """ValueError if an update has its message's timestamp as its value, and a time that is far from it."""
        batch = self._listed_batch
        if batch is None or not len(batch) or not is_far_before(times, batch.timestamps):
            return
        message_times = batch.timestamps
        for place in np.flatnonzero(times * 2 < int(message_times.min()))[:_TRIED_MAX].tolist():
            value, row = self._values[place], self._rows[place]
            if times[place] and row >= 0 and type(value) is int and value == message_times[row]:
                raise swapped("update", int(times[place]), value)

    @property
    def _needs_own(self) -> bool:
        """Whether the message of an update can matter: because the update is too late, or its key is refused."""
        window = self._state.window
        return self._drops or (window is not None and window.overlaps) or bool(self._key_limits)

    def _listed_own(self) -> _Messages | None:
        """The message of each listed update; None if the message of some update is unknown."""
        rows = np.array(self._rows, np.int64)
        batch = self._listed_batch
        if batch is None or not len(rows) or int(rows.min()) < 0:
            return None
        return _Messages(batch.timestamps[rows], batch.offsets[rows])

    def _sum(self, keys: Sequence[pa.Array], times: Integers, columns: Columns, cause: _Messages | None = None) -> None:
        """``cause``: the messages that made the updates; None where they are not known."""
        window = self._state.window or self._state.time_to_live
        if len(times):
            self._check_limits(int(times.min()), int(times.max()))
        if window is not None and len(times):
            in_window = window.holds(times)
            if window.may_be_late(int(times.min()), self._watermark):
                late, partly = window.late(times, self._watermark)
                if cause is None and (partly | (late & self._drops)).any():
                    cause = self._messages(times)
                ended = self._refused(times, late, cause) if self._drops else late
                if ended.any():
                    raise ValueError(
                        f"an update at {int(times[ended][0])} ({utc_text(int(times[ended][0]))}): {self._why_late()}, "
                        f"{utc_text(self._watermark)}; update at the message's own timestamp"
                    )
                if cause is not None and partly.any():
                    self._pending_partly.append(cause.offsets[self._refused(times, partly, cause)])
                in_window = in_window & ~late
            if not in_window.all():
                rows = np.flatnonzero(in_window)
                keys = [column.take(pa.array(rows)) for column in keys]
                times, columns = times[rows], take(columns, rows)
                cause = None if cause is None else _Messages(cause.timestamps[rows], cause.offsets[rows])
        if len(times):
            self._pending_types = types_with(keys, self._pending_types, self._key_names)
            self._pending.append(self._grouped(keys, times, columns))
            self._key_limits.note(self._pending[-1].keys, keys, None if cause is None else cause.offsets)

    def _check_limits(self, first: int, last: int) -> None:
        """ValueError if one of the updates from ``first`` to ``last`` is too far ahead, or before a restart."""
        if last > self._limit:
            raise ValueError(
                f"an update at {last} ({date_text(last)}), after {date_text(self._limit)}: too far ahead (see "
                "max_future); update at the message's own timestamp"
            )
        if self._since is not None and first < self._since:
            raise ValueError(
                f"an update at {first} ({utc_text(first)}), before the clock of a restart, {utc_text(self._since)}, "
                "for a message after it: the state as of that clock may hold it, and it would count twice; update at "
                "the message's own timestamp, or go back to before the restart ('persistent rollback')"
            )

    def _messages(self, times: Integers) -> _Messages:
        """The messages of updates: those of the batch if ``times`` are its timestamps; its only message. ValueError
        otherwise: the batch is then halved."""
        batch = self._batch
        if batch is not None and np.array_equal(times, batch.timestamps):
            return _Messages(batch.timestamps, batch.offsets)
        if batch is None or len(batch) != 1:
            raise ValueError("updates of which it is unknown whether they are at the time of their own message")
        return _Messages(np.repeat(batch.timestamps, len(times)), np.repeat(batch.offsets, len(times)))

    def _refused(self, times: Integers, ended: Mask, cause: _Messages | None) -> Mask:
        """The updates that are too late, except updates at the time of their message: the message is counted as late.
        ``cause`` is None only if no update is too late."""
        mask: Mask = ended if cause is None else ended & (times != cause.timestamps)
        return mask

    def _grouped(self, keys: Sequence[pa.Array], times: Integers, columns: Columns) -> GroupSums:
        state = self._state
        if state.gaps is not None:
            return group_sessions(state.monoid, state.gaps, keys, times, columns)
        return group_by(state.monoid, keys, state.stored_panes(times, self._watermark), columns, state.panes.step)

    def _why_late(self) -> str:
        if isinstance(self._state.window, SessionWindow):
            closed, less = "closed", ""
            if self._state.lateness.allowed_ms:
                closed, less = "become final", ", less the allowed lateness"
            return f"it could join a session that has {closed}, because it is before the clock of the step{less}"
        if self._state.time_to_live is not None:
            return f"with {self._state.time_to_live} it has ended by the clock of the step"
        less = ", less the allowed lateness" if self._state.lateness.allowed_ms else ""
        return f"every window of that time ended before the clock of the step{less}"

    def _key_columns(self, keys: Any, rows: int) -> tuple[pa.Array, ...]:
        names = self._key_names
        if not names:
            raise TypeError("keys= given, but the task has no key: declare it, for example key = {'word': None}")
        if isinstance(keys, Mapping):
            keys = tuple(keys[name] for name in names)
        parts = keys if isinstance(keys, tuple) else (keys,)
        if len(parts) != len(names):
            raise ValueError(f"keys= has {len(parts)} columns, the task's key has {len(names)}: {', '.join(names)}")
        return tuple(key_array(part, rows, name) for part, name in zip(parts, names))

    def _listed_keys(self) -> Sequence[pa.Array]:
        names, keys = self._key_names, self._given_keys
        if not names:
            if keys:
                raise TypeError("key= given, but the task has no key: declare it, for example key = {'word': None}")
            return ()
        if len(keys) == len(self._times):
            return self._given_columns([keys[place] for place in range(len(self._times))])
        if not keys:
            return self._own_keys(self._rows)
        places = [place for place in range(len(self._times)) if place not in keys]
        lists = [column.to_pylist() for column in self._own_keys([self._rows[place] for place in places])]
        own_keys = list(zip(*lists)) if len(names) > 1 else lists[0]
        mixed = {**keys, **dict(zip(places, own_keys))}
        return self._given_columns([mixed[place] for place in range(len(self._times))])

    def _own_keys(self, rows: list[int]) -> Sequence[pa.Array]:
        """The messages' own keys for these rows of the batch. Key functions run only for messages with an update."""
        batch = self._listed_batch
        assert batch is not None
        numbers = np.fromiter(rows, np.int64, len(rows))
        if np.array_equal(numbers, np.arange(len(batch))):
            return batch.keys
        distinct, numbers = np.unique(numbers, return_inverse=True)
        taken = pa.array(numbers)
        return [column.take(taken) for column in batch.take(distinct).keys]

    def _given_columns(self, keys: Sequence[Any]) -> Sequence[pa.Array]:
        names = self._key_names
        if len(names) == 1:
            return [listed_key(keys, names[0])]
        for key in keys:
            if not isinstance(key, tuple) or len(key) != len(names):
                raise ValueError(f"key={key!r}: give a tuple of {len(names)}, in the order {', '.join(names)}")
        return [listed_key([key[i] for key in keys], name) for i, name in enumerate(names)]


class _AtOnce(Delta):
    def update(self, timestamp: int, value: Any, *, key: Any = _OWN_KEY) -> None:
        super().update(timestamp, value, key=key)
        self._sum_listed()
