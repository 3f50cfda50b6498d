"""Correcting the states of a task sums up what it makes of records, each judged as in a step.

correction  =  the sum of what is added  -  the sum of what is removed       the second needs a Group

A record goes into every state that takes it. If no state takes a record, the whole correction is refused; a task with
one state refuses it also if that state takes a record only in part. A state whose keys expire takes an update if its
time lies in a life that has not ended, and an added update also if a life of its time alone would not have ended. A
removal takes a value out of a life, which keeps its times: the key lives on.

Correcting keys that expire puts records into lives that last, and takes values out of them.

An update is taken if its time lies in a life of its key that has not ended. An added update is also taken if a life of
its time alone would not have ended. Until the updates are judged, their times stay apart, in rows of the state
``by_moment``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from monoids import Group
from monoids.column import take
from monoids.groupby.cells import Integers
from monoids.groupby.grouping import take_keys
from monoids.groupby.sorting import Mask
from monoids.groupby.summing import GroupSums
from persistent.codec.fields import KEY_GROUPS, Run, type_of
from persistent.connect.formats.timestamps import TimeLimit
from persistent.connect.source import Records
from persistent.errors import Refused, UserCodeError
from persistent.names import STATE
from persistent.state.rows import COUNT, counted, fold, over, result_columns, same_rows, values_of, with_values
from persistent.state.state import PersistentState
from persistent.state.time_to_live import TimeToLive
from persistent.task.delta import Delta
from persistent.task.message import Batch
from persistent.task.processing import Deltas, TaskFailure, key_columns, process
from persistent.task.task import check_key, key_names
from persistent.text.figures import utc_text
from persistent.time.session_window import SessionWindow, group_sessions, sessions_after
from persistent.worker.correct_records import CORRECT_IT, NOTHING, Given, record_text
from persistent.worker.job import Job, Node
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


Late = tuple[int, str]
"""Time and text of a record."""

_ANEW = "or read the source again into a new checkpoint and sink"


@dataclass(frozen=True)
class Judged:
    """How a state judges records: the clock of the checkpoint, the clock up to which windows are ``final`` or keys have
    expired, the types of the key columns, and the ``runs`` of the state, which hold the lives of its keys."""

    watermark: int
    final: int
    key_types: tuple[str, ...]
    runs: tuple[Run, ...] = ()


@dataclass
class CorrectedRows:
    """The rows that correct the states, by the name of the state in the checkpoint; a state that stays as it is has
    none. ``refused``: the names of the states that have refused some records, or a part of their windows."""

    rows: dict[str, GroupSums] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)


def corrected_rows(
    job: Job, judged: Mapping[str, Judged], limit: TimeLimit, added: Given, removed: Given
) -> CorrectedRows:
    """The rows that correct the states. ``judged``: by the name of each state in the checkpoint. ``limit``: which
    timestamps are dead. Refused, UserCodeError if a record cannot count, with what to do."""
    additions, removals = _sums(job, judged, limit, added), _sums(job, judged, limit, removed)
    corrected = CorrectedRows({}, additions.refused | removals.refused)
    for id, node in job.nodes.items():
        parts = [additions.rows[id]] if id in additions.rows else []
        if id in removals.rows:
            parts.append(_taken_out(node, removals.rows[id]))
        if parts:
            with monoid_errors(node.task, id):
                corrected.rows[id] = fold(node.state.monoid, parts, node.state.panes.step)
    return corrected


def _taken_out(node: Node, rows: GroupSums) -> GroupSums:
    """The inverse of the rows of one state."""
    monoid = values_of(node.state.monoid)
    if isinstance(node.state.window, SessionWindow):
        raise Refused(
            f"remove=: {node.state.window}{state_text(node)} is no Group: a session keeps the times of its records, "
            f"and what they have joined is not taken apart; {_ANEW}. {NOTHING}"
        )
    if not isinstance(monoid, Group):
        raise Refused(
            f"remove=: {monoid!r}{state_text(node)} is no Group: what was combined cannot be taken out again. Use a "
            f"monoid with an inverse, such as Sum() or Count(); {_ANEW}. {NOTHING}"
        )
    with monoid_errors(node.task, node.id):
        columns = result_columns(node.state.monoid, rows.columns)
        inverse = monoid.pack([monoid.inverse(element) for element in monoid.unpack(columns)])
    return with_values(node.state.monoid, rows, inverse)


def _sums(job: Job, judged: Mapping[str, Judged], limit: TimeLimit, records: Given) -> CorrectedRows:
    """The sums of the updates of the task for these records."""
    if not records.parts:
        return CorrectedRows()
    check_key(job.task, records.schema)
    nodes, refused, late = job.nodes, set[str](), list[Late]()
    adds, drops = records.option == "add", len(nodes) > 1
    each = {node.name: _delta_of(node, judged[id], limit, drops=drops, adds=adds) for id, node in nodes.items()}
    deltas = Deltas(each, named=job.named)
    key_of = key_columns(job.task)
    for part in records.parts:
        _check_alive(records.option, part, limit)
        refused |= _refusing(nodes, judged, records.option, part)
        late += _late_of_all(nodes, judged, part)
        failures: list[TaskFailure] = []
        batch = Batch(part.batch, part.timestamps, records.option, part.ordinal, part.offsets, key_of)
        with monoid_errors(job.task):
            process(job.task, deltas, batch, failures, stop=True)
        if failures:
            raise UserCodeError(f"{records.option}=: {failures[0].text('')}. {NOTHING}") from failures[0].error
        for name, noted in deltas.noted().items():
            if len(nodes) == 1:
                _refuse_partly(records.option, part, noted, max(state.final for state in judged.values()))
            refused.add(name)
    return _taken(nodes, judged, records, deltas, refused, late)


def _late_of_all(nodes: Mapping[str, Node], judged: Mapping[str, Judged], part: Records) -> list[Late]:
    """The records that a step would set aside, because every state refuses their times; none if no state has keys that
    expire. A life that lasts can still take such a record."""
    if all(node.state.time_to_live is None for node in nodes.values()):
        return []
    times, late = part.timestamps, np.ones(len(part.timestamps), bool)
    for id, node in nodes.items():
        judge, final = node.state.time_to_live or node.state.window, judged[id].final
        late = late & (judge.late(times, final)[0] if judge is not None else False)
    return [(int(times[row]), record_text(part, row)) for row in np.flatnonzero(late).tolist()]


def _delta_of(node: Node, judged: Judged, limit: TimeLimit, *, drops: bool, adds: bool) -> Delta:
    """The delta of one node. A node with a time to live takes every update and keeps the times apart, for its lives to
    judge. Only additions meet the limits of the sinks: a removed record may have counted before there was a sink that
    refuses its key."""
    state, final = node.state, judged.watermark if node.state.window is None else judged.final
    if state.time_to_live is not None:
        state, final = by_moment(state), 0
    types = [type_of(name) for name in judged.key_types]
    sinks = node.sinks.values() if adds else ()
    return Delta(state, key_names(node.task), final, limit.ahead, types, drops=drops, sinks=sinks)


def _check_alive(option: str, part: Records, limit: TimeLimit) -> None:
    """Refused for a record that would be a dead letter; the first one is named."""
    for row in np.flatnonzero(limit.dead(part.timestamps))[:1].tolist():
        raise Refused(f"{option}=: {record_text(part, row)}: {limit.fault(part, row)}. {CORRECT_IT}. {NOTHING}")


def _refusing(nodes: Mapping[str, Node], judged: Mapping[str, Judged], option: str, part: Records) -> set[str]:
    """The names of the states that refuse a record, or have a final window that would hold it. Only states with windows
    are asked; lives judge later, in ``_taken``. Refused, naming the first record, if every state has windows and none
    takes it."""
    times, refused = part.timestamps, dict[str, tuple[Any, Any]]()
    for id, node in nodes.items():
        if node.state.window is not None:
            refused[id] = node.state.window.late(times, judged[id].final)
    if len(refused) == len(nodes):
        late = np.all([late | partly if len(nodes) == 1 else late for late, partly in refused.values()], axis=0)
        for row in np.flatnonzero(late)[:1].tolist():
            final = min(judged[id].final for id in refused)
            whose = "a window" if len(nodes) == 1 else "windows of every state"
            verb = "that is final: windows that" if len(nodes) == 1 else "that are final: those that"
            raise Refused(
                f"{option}=: {record_text(part, row)}, at {utc_text(int(times[row]))}, is in {whose} {verb} end up to "
                f"{utc_text(final)} have left the state, and what was published of them stays. Omit it; "
                f"allowed_lateness= keeps windows that close from now on for longer; {_ANEW}. {NOTHING}"
            )
    return {nodes[id].name for id, (late, partly) in refused.items() if (late | partly).any()}


def _refuse_partly(option: str, part: Records, noted: Any, final: int) -> None:
    """Refused: the task has updated at another time than a record's, and missed a window of its single state.
    ``noted``: the offsets of such records; the first is named."""
    row = int(np.flatnonzero(part.offsets == noted[0])[0])
    raise Refused(
        f"{option}=: {record_text(part, row)}: the task updates at a time of which a window is final: those that "
        f"end up to {utc_text(final)} have left the state, and what was published of them stays. Omit it; "
        f"allowed_lateness= keeps windows that close from now on for longer; {_ANEW}. {NOTHING}"
    )


def _taken(
    nodes: Mapping[str, Node],
    judged: Mapping[str, Judged],
    records: Given,
    deltas: Deltas,
    refused: set[str],
    late: Sequence[Late],
) -> CorrectedRows:
    """The updates that the states take. Refused if an update comes too late for its key and no other state takes it, or
    if no life takes an update at the time of one of the ``late`` records."""
    corrected, points = CorrectedRows({}, set(refused)), list[Points]()
    for id, node in nodes.items():
        with monoid_errors(node.task, id):
            rows = deltas[node.name].rows()
        if rows is None or not len(rows):
            continue
        if node.state.time_to_live is not None:
            runs, final = judged[id].runs, judged[id].final
            points.append(judged_points(node, runs, final, rows, adds=records.option == "add"))
            joined = points[-1].joined()
            corrected.refused |= set() if points[-1].taken.all() else {node.name}
            if joined is None:
                continue
            rows = joined
        corrected.rows[id] = rows
    windows = {id: node for id, node in nodes.items() if node.state.time_to_live is None}
    for updates in points:
        _check_taken_elsewhere(windows, judged, records.option, updates, points)
    lasting = {int(time) for updates in points for time in updates.times[updates.taken]}
    for time, record in late:
        if time not in lasting:
            raise Refused(
                f"{records.option}=: {record}, at {utc_text(time)}, is late in every state of the task. Omit it; "
                f"allowed_lateness= and a longer ttl= take more; {_ANEW}. {NOTHING}"
            )
    return corrected


def _check_taken_elsewhere(
    others: Mapping[str, Node], judged: Mapping[str, Judged], option: str, points: Points, all_: Sequence[Points]
) -> None:
    """Refused for a point that no other state takes; the first one is named."""
    left = ~points.taken
    for id, node in others.items():
        window, nothing = node.state.window, np.zeros(len(left), bool)
        left = left & (nothing if window is None else window.late(points.times, judged[id].final)[0])
    for updates in all_:
        left = left & ~np.isin(points.places(), updates.places()[updates.taken])
    for place in np.flatnonzero(left)[:1].tolist():
        fault = points.refused_text(place, judged[points.node.id].final, adds=option == "add")
        raise Refused(
            f"{option}=: {fault}. What has expired was taken back, and stays so. Omit the record; {_ANEW}. {NOTHING}"
        )
