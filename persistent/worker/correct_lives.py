"""Correcting keys that expire puts records into lives that last, and takes values out of them.

An update is taken if its time lies in a life of its key that has not ended. An added update is also taken if a life of
its time alone would not have ended. Until the updates are judged, their times stay apart, in rows of the state
``by_moment``.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np

from monoids.column import take
from monoids.groupby.cells import Integers
from monoids.groupby.grouping import take_keys
from monoids.groupby.sorting import Mask
from monoids.groupby.summing import GroupSums
from persistent.codec import KEY_GROUPS, Run
from persistent.session_window import group_sessions, sessions_after, values_of
from persistent.state import PersistentState
from persistent.state_rows import fold
from persistent.task import STATE
from persistent.text.figures import utc_text
from persistent.time_to_live import TimeToLive
from persistent.views.rows import COUNT, counted, over, same_rows
from persistent.worker.job import Node
from persistent.worker.merge_runs import key_text, monoid_errors, parts_of

_MOMENT = TimeToLive(1)


@dataclass(frozen=True)
class Points:
    """The updates of a state whose keys expire: ``rows``, with one entry per key and time, and the mask ``taken`` of
    the entries that the state takes."""

    node: Node
    rows: GroupSums
    taken: Mask

    @property
    def times(self) -> Integers:
        """The time of each update."""
        return np.asarray(self.rows.columns[0].flat()[0])

    def places(self) -> Any:
        """The hash of the key, and the time, of each update."""
        places = np.empty(len(self.taken), [("hash", np.uint64), ("time", np.int64)])
        places["hash"], places["time"] = self.rows.columns[0].spread(self.rows.hashes), self.times
        return places

    def joined(self) -> GroupSums | None:
        """The taken updates, joined into lives; None if no update is taken."""
        (table,) = self.rows.columns
        ttl, chosen = self.node.state.time_to_live, np.flatnonzero(self.taken)
        if ttl is None or not len(chosen):
            return None
        times, _, *values = table.flat()
        keys = take_keys(self.rows.keys, table.spread(np.arange(len(self.rows)))[chosen])
        with monoid_errors(self.node.task, self.node.id):
            return group_sessions(self.node.state.monoid, ttl, keys, times[chosen], take(tuple(values), chosen))

    def refused_text(self, place: int, final: int, *, adds: bool) -> str:
        """Why the point at this place is not taken, where keys have expired up to ``final``."""
        owners = self.rows.columns[0].spread(np.arange(len(self.rows)))
        key = key_text(self.rows, int(owners[place]))
        of_key, time = f" of the key {key}" if key else "", utc_text(int(self.times[place]))
        kept = f"with {self.node.state.time_to_live}{state_text(self.node)}"
        if adds:
            fault, why = (
                f"an update{of_key} at {time} is too late: {kept} it would have expired",
                "and the key has no life",
            )
            return f"{fault} by {utc_text(final)}, {why} that lasts holds that time"
        fault = f"no life{of_key} that lasts holds {time}: {kept} it has expired"
        return f"{fault} by {utc_text(final)}, or never had a record of that time"


def state_text(node: Node) -> str:
    """Names the state, if the task has several."""
    return "" if node.name == STATE else f" of the state {node.name!r}"


def by_moment(state: PersistentState) -> PersistentState:
    """The same state, whose keys live for a moment: its rows keep each time apart."""
    apart = copy(state)
    apart.time_to_live, apart.monoid = _MOMENT, _MOMENT.kept_as(values_of(state.monoid))
    return apart


def judged_points(node: Node, runs: tuple[Run, ...], final: int, rows: GroupSums, *, adds: bool) -> Points:
    """Judge the updates in the rows of a state ``by_moment``. ``runs``: those of the state, which hold the lives.
    ``final``: the clock by which keys have expired. ``adds``: the updates are added, not removed."""
    ttl = node.state.time_to_live
    assert ttl is not None
    times = np.asarray(rows.columns[0].flat()[0])
    taken = ~ttl.late(times, final)[0] if adds else np.zeros(len(times), bool)
    kept, hashes = node.state.monoid, np.unique(rows.hashes)
    parts = [] if taken.all() else counted(kept, parts_of(node, runs, 0, KEY_GROUPS, hashes=hashes))
    if parts:
        lives = fold(over(kept, COUNT), parts, node.state.panes.step)
        taken = taken | _inside(rows, times, sessions_after(ttl, lives, final))
    return Points(node, rows, taken)


def _inside(rows: GroupSums, times: Integers, lives: GroupSums) -> Mask:
    """For each entry of the rows: whether a life of the same key holds its time."""
    (points,), (table,) = rows.columns, lives.columns
    here, there = same_rows(rows, lives, 1)
    numbers = np.full(len(lives), -1)
    numbers[there] = here
    starts, lasts, *_ = table.flat()
    owner, point_owner = table.spread(numbers), points.spread(np.arange(len(rows)))
    owners, moments = np.concatenate((owner, point_owner)), np.concatenate((starts, times))
    is_time = np.arange(len(owners)) >= len(owner)
    order = np.lexsort((is_time, moments, owners))
    # The life that has begun last before each time, in the order of keys.
    begun = np.maximum.accumulate(np.where(is_time[order], -1, np.arange(len(order))))
    ends = np.concatenate((lasts, times))[order]
    inside = (begun >= 0) & (owners[order][begun] == owners[order]) & (ends[begun] >= moments[order])
    is_inside = np.empty(len(order), bool)
    is_inside[order] = inside
    return is_inside[len(owner) :]
