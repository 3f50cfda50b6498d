"""Correcting the states of a task sums up what it makes of records, each judged as in a step.

correction  =  the sum of what is added  -  the sum of what is removed       the second needs a Group

A record goes into every state that takes it; one that no state takes refuses the whole correction, and so does a state
without others for any. Of keys that expire, a time is taken that lies in a life which has not ended; and what is added
also if a life of that time alone has not. A life keeps its times: what is removed is the value, and the key lives on.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace

import numpy as np

from monoids import Group
from monoids.column import take
from monoids.groupby.cells import Integers
from monoids.groupby.grouping import take_keys
from monoids.groupby.sorting import Mask
from monoids.groupby.summing import GroupSums
from persistent.codec import Run, type_of
from persistent.delta import Delta
from persistent.deltas import Deltas
from persistent.errors import Refused, UserCodeError
from persistent.message import Batch
from persistent.session_window import group_sessions, sessions_after, values_of
from persistent.sources.protocol import NO_TIMESTAMP, Records
from persistent.state import PersistentState
from persistent.state_rows import fold
from persistent.task import STATE, TaskFailure, check_key, key_columns, key_names, process
from persistent.text.figures import date_text, utc_text
from persistent.time_to_live import TimeToLive
from persistent.worker.close_sessions import with_values
from persistent.worker.correct_records import NOTHING, Given
from persistent.worker.correct_windows import same_rows
from persistent.worker.expire_keys import lives_of
from persistent.worker.job import Job
from persistent.worker.merge_runs import monoid_errors

_SHOWN_MAX = 200
_MOMENT = TimeToLive(1)
_ANEW = "or read the source again into a new checkpoint"


@dataclass(frozen=True)
class Judged:
    """By what a state judges records: the clock of the checkpoint, what is ``final``, the types of the key columns, and
    its ``runs``, which hold the lives of its keys."""

    watermark: int
    final: int
    key_types: tuple[str, ...]
    runs: tuple[Run, ...] = ()


@dataclass
class CorrectedRows:
    """The rows that correct each state, by its name in the checkpoint, without those that stay as they are.
    ``refused``: the names of the states that have refused some records, or a part of their windows."""

    rows: dict[str, GroupSums] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)


def corrected_rows(job: Job, judged: Mapping[str, Judged], limit: int, added: Given, removed: Given) -> CorrectedRows:
    """The rows that correct the states. ``judged``: by the name of each state in the checkpoint. ``limit``: the largest
    timestamp that a step would accept. Refused, UserCodeError if a record cannot count, with what to do."""
    one, other = _sums(job, judged, limit, added), _sums(job, judged, limit, removed)
    found = CorrectedRows({}, one.refused | other.refused)
    for operator, of_state in job.each().items():
        parts = [one.rows[operator]] if operator in one.rows else []
        if operator in other.rows:
            parts.append(_taken_out(of_state, other.rows[operator]))
        if parts:
            with monoid_errors(of_state):
                found.rows[operator] = fold(of_state.state.monoid, parts, of_state.state.panes.step)
    return found


def _taken_out(job: Job, rows: GroupSums) -> GroupSums:
    """The inverse of the rows of one state."""
    monoid, has_lives = job.state.monoid, job.state.time_to_live is not None
    monoid = values_of(monoid) if has_lives else monoid
    if not isinstance(monoid, Group):
        raise Refused(
            f"remove=: {monoid!r}{_of(job)} is no Group: what was combined cannot be taken out again. Use a monoid "
            f"with an inverse, such as Sum() or Count(); {_ANEW}. {NOTHING}"
        )
    with monoid_errors(job):
        columns = rows.columns[0].flat()[2:] if has_lives else rows.columns
        inverse = monoid.pack([monoid.inverse(element) for element in monoid.unpack(columns)])
    return with_values(rows, inverse) if has_lives else replace(rows, columns=inverse)


def _sums(job: Job, judged: Mapping[str, Judged], limit: int, given: Given) -> CorrectedRows:
    """The sums of the updates of the task for these records."""
    if not given.parts:
        return CorrectedRows()
    check_key(job.task, given.schema)
    each, refused = job.each(), set[str]()
    deltas = {operator: _delta_of(one, judged[operator], limit, drops=len(each) > 1) for operator, one in each.items()}
    is_one = isinstance(job.declared, PersistentState)
    delta = deltas[job.operator] if is_one else Deltas({one.name: deltas[operator] for operator, one in each.items()})
    key_of = key_columns(job.task)
    for part in given.parts:
        _check_alive(given.option, part, limit)
        refused |= _refusing(job, judged, given.option, part)
        failures: list[TaskFailure] = []
        batch = Batch(part.batch, part.timestamps, given.option, part.ordinal, part.offsets, key_of)
        with monoid_errors(job):
            process(job.task, delta, batch, failures, stop=True)
        if failures:
            raise UserCodeError(f"{given.option}=: {failures[0].text('')}. {NOTHING}") from failures[0].error
    return _taken(job, judged, given, deltas, refused)


def _delta_of(job: Job, judged: Judged, limit: int, *, drops: bool) -> Delta:
    """The delta of one state. One with a time to live takes all: each time stays apart, to be judged by its lives."""
    state, final = job.state, judged.watermark if job.state.window is None else judged.final
    if state.time_to_live is not None:
        state, final = copy(state), 0
        state.time_to_live, state.monoid = _MOMENT, _MOMENT.kept_as(values_of(state.monoid))
    types = [type_of(name) for name in judged.key_types]
    return Delta(state, key_names(job.task), final, limit, types, drops=drops)


def _check_alive(option: str, part: Records, limit: int) -> None:
    """Refused for a record that would be a dead letter; the first one is named."""
    times = part.timestamps
    for row in np.flatnonzero((times < 0) | (times > limit))[:1].tolist():
        raise Refused(f"{option}=: {_record(part, row)}: {_why_dead(part, row, limit)}. {NOTHING}")


def _refusing(job: Job, judged: Mapping[str, Judged], option: str, part: Records) -> set[str]:
    """The names of the states with windows that refuse records, or of which a window of one is final. Refused for a
    record that no state takes; the first one is named. What has lives is judged by them."""
    times, each, found = part.timestamps, job.each(), dict[str, tuple[Mask, Mask]]()
    for operator, one in each.items():
        if one.state.window is not None:
            found[operator] = one.state.window.late(times, judged[operator].final)
    if len(found) == len(each):
        late = np.all([late for late, _ in found.values()], axis=0)
        if len(each) == 1:
            late = late | next(iter(found.values()))[1]
        for row in np.flatnonzero(late)[:1].tolist():
            final = min(judged[operator].final for operator in found)
            whose = "a window" if len(each) == 1 else "windows of every state"
            verb = "that is final: windows that" if len(each) == 1 else "that are final: those that"
            raise Refused(
                f"{option}=: {_record(part, row)}, at {utc_text(int(times[row]))}, is in {whose} {verb} end up to "
                f"{utc_text(final)} have left the state, and what was published of them stays. Omit it; "
                f"allowed_lateness= keeps windows that close from now on for longer; {_ANEW}. {NOTHING}"
            )
    return {each[operator].name for operator, (late, partly) in found.items() if (late | partly).any()}


# -- keys that expire ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Points:
    """The updates of a state whose keys expire, one of each key and time, in ``rows``; and which of them are taken."""

    job: Job
    rows: GroupSums
    taken: Mask

    def places(self) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """The hash of the key, and the time, of each."""
        (table,) = self.rows.columns
        places = np.empty(len(self.taken), [("hash", np.uint64), ("time", np.int64)])
        places["hash"], places["time"] = table.spread(self.rows.hashes), table.flat()[0]
        return places

    def joined(self) -> GroupSums | None:
        """Those that are taken, joined to lives; None if none is."""
        (table,) = self.rows.columns
        ttl, chosen = self.job.state.time_to_live, np.flatnonzero(self.taken)
        if ttl is None or not len(chosen):
            return None
        times, _, *values = table.flat()
        keys = take_keys(self.rows.keys, table.spread(np.arange(len(self.rows)))[chosen])
        with monoid_errors(self.job):
            return group_sessions(self.job.state.monoid, ttl, keys, times[chosen], take(tuple(values), chosen))


def _taken(
    job: Job, judged: Mapping[str, Judged], given: Given, deltas: Mapping[str, Delta], refused: set[str]
) -> CorrectedRows:
    """What the states take of these updates. Refused for one that comes too late for a key, and that no other state
    takes."""
    found, points = CorrectedRows({}, set(refused)), list[_Points]()
    each = job.each()
    for operator, one in each.items():
        with monoid_errors(one):
            rows = deltas[operator].rows()
        if rows is None or not len(rows):
            continue
        if one.state.time_to_live is not None:
            points.append(_judged_points(one, judged[operator], rows, adds=given.option == "add"))
            joined = points[-1].joined()
            found.refused |= set() if points[-1].taken.all() else {one.name}
            if joined is None:
                continue
            rows = joined
        found.rows[operator] = rows
    windows = {operator: one for operator, one in each.items() if one.state.time_to_live is None}
    for one_ in points:
        _check_taken_elsewhere(windows, judged, given.option, one_, points)
    return found


def _judged_points(job: Job, judged: Judged, rows: GroupSums, *, adds: bool) -> _Points:
    """Which points are in a life that has not ended; or, if they are added, would begin one that has not."""
    ttl = job.state.time_to_live
    assert ttl is not None
    (table,) = rows.columns
    times = np.asarray(table.flat()[0])
    taken = ~ttl.late(times, judged.final)[0] if adds else np.zeros(len(times), bool)
    lives = None if taken.all() else lives_of(job, judged.runs, np.unique(rows.hashes))
    if lives is not None:
        taken = taken | _inside(rows, times, sessions_after(ttl, lives, judged.final))
    return _Points(job, rows, taken)


def _inside(rows: GroupSums, times: Integers, lives: GroupSums) -> Mask:
    """Which times of the rows, one for each entry, are in a life of the same key."""
    (points,), (table,) = rows.columns, lives.columns
    here, there = same_rows(rows, lives, 1)
    numbers = np.full(len(lives), -1)
    numbers[there] = here
    starts, lasts, *_ = table.flat()
    owner, own = table.spread(numbers), points.spread(np.arange(len(rows)))
    owners, moments = np.concatenate((owner, own)), np.concatenate((starts, times))
    is_time = np.arange(len(owners)) >= len(owner)
    order = np.lexsort((is_time, moments, owners))
    # The life that has begun last before each time, in the order of keys.
    begun = np.maximum.accumulate(np.where(is_time[order], -1, np.arange(len(order))))
    ends = np.concatenate((lasts, times))[order]
    inside = (begun >= 0) & (owners[order][begun] == owners[order]) & (ends[begun] >= moments[order])
    found = np.empty(len(order), bool)
    found[order] = inside
    return found[len(owner) :]


def _check_taken_elsewhere(
    others: Mapping[str, Job], judged: Mapping[str, Judged], option: str, points: _Points, all_: list[_Points]
) -> None:
    """Refused for a point that no other state takes; the first one is named."""
    left, times = ~points.taken, points.places()["time"]
    for operator, one in others.items():
        window = one.state.window
        left = left & (np.zeros(len(left), bool) if window is None else window.late(times, judged[operator].final)[0])
    for other in all_:
        left = left & ~np.isin(points.places(), other.places()[other.taken])
    for place in np.flatnonzero(left)[:1].tolist():
        (table,) = points.rows.columns
        row = int(table.spread(np.arange(len(points.rows)))[place])
        key = ", ".join(repr(column[row].as_py()) for column in points.rows.keys)
        raise Refused(_expired_text(points.job, option, key, int(times[place]), judged[points.job.operator].final))


def _expired_text(job: Job, option: str, key: str, time: int, final: int) -> str:
    of_key, with_ttl = f" of the key {key}" if key else "", f"with {job.state.time_to_live}{_of(job)} it"
    if option == "add":
        fault = f"an update{of_key} at {utc_text(time)} is too late: {with_ttl} would have expired"
        why = "and the key has no life that lasts and holds that time"
    else:
        fault = f"no life{of_key} that lasts holds {utc_text(time)}: {with_ttl} has expired"
        why = "or never had a record of that time"
    return (
        f"{option}=: {fault} by {utc_text(final)}, {why}. What has expired was taken back, and stays so. Omit the "
        f"record; {_ANEW}. {NOTHING}"
    )


def _of(job: Job) -> str:
    return "" if job.name == STATE else f" of the state {job.name!r}"


def _why_dead(part: Records, row: int, limit: int) -> str:
    time = int(part.timestamps[row])
    if time == NO_TIMESTAMP:
        return part.unreadable(row)
    if time < 0:
        return "its timestamp is before 1970"
    return f"its timestamp {date_text(time)} is after {date_text(limit)}, the largest that a step would accept"


def _record(part: Records, row: int) -> str:
    values = {name: part.batch.column(name)[row].as_py() for name in part.batch.schema.names}
    return f"the record {str(values)[:_SHOWN_MAX]}"
