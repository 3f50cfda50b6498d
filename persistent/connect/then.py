"""A source made of two: a history, which has an end, then a live source, which goes on where the history ends.

    timestamp < at     counts in the history
    timestamp >= at    counts in the live source

Each half may hold records of both sides. It counts the records of the other side as duplicates, so that each record
counts in one half only. A plan that finds nothing more in the history switches to the live source, and records the
switch: a restart, a rollback and ``verify`` know which half is read. After the switch, the history is not listed again,
and the clock does not wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from persistent.codec.fields import Positions
from persistent.connect import options
from persistent.connect.halves import HISTORY, LIVE, OFFSET, PAIR, READING, SEAM, Half, has_switched
from persistent.connect.promises import LEVELS, Promise
from persistent.connect.source import Budget, Reached, Records, Source, SourcePlan, SourceState, Split
from persistent.errors import InvalidPipeline, SourceError
from persistent.text.figures import count_text, utc_text
from persistent.text.spelling import spelled
from persistent.time.clock import Duration, Instant, bare, duration_ms, instant_ms

logger = logging.getLogger("persistent.sources")

_FIRST: Final = (0, 0)
_SHOWN: Final = (*READING, "format", "folders", "topic_id", "log")
"""What drivers and commands look up in the record of a source: here that of the half that is read."""
_ARRIVAL: Final = "_timestamp"
_SIDES: Final = "records on each side of it are counted in another half"


@spelled
def then(files: Source, live: Source, *, at: Instant, max_skew: Duration = "10 min") -> ThenSource:
    """One source made of a history, ``files``, and the source that goes on where it ends, ``live``.

    The history gives the records with a timestamp before ``at``, the live source those from ``at`` on, so that each
    counts once although both may hold it. The history is a ``FileSource``, or another source that has an end. It must
    hold every record before ``at``; the live source, every one from then on.

    The history is complete when a plan finds nothing more in it, whether the run follows or not; files that appear
    later are not read. Then the live source is read from the position of ``at - max_skew`` on, whatever its ``start``.
    The first plan looks that up, so a live source that no longer has it is refused (RetentionGap) before anything is
    read. ``max_skew``: how far the event time of a record may be ahead of its time in the broker or log, in addition to
    the ``max_skew`` of the source.

    ``at``: milliseconds since the epoch, a datetime, or ISO 8601. The checkpoint records it.

    >>> from persistent.connect.memory import MemorySource
    >>> both = then(MemorySource([{"ts": 1}, {"ts": 5}]), MemorySource([{"ts": 1}, {"ts": 5}, {"ts": 6}]), at=5)
    >>> both
    then(MemorySource(2 rows, timestamp='ts'), MemorySource(3 rows, timestamp='ts'), at=5)
    """
    for name, source in (("files", files), ("live", live)):
        if isinstance(source, ThenSource) or not isinstance(source, Source):
            raise InvalidPipeline(f"then: {name}={source!r} is not one source: give a FileSource, a KafkaSource ...")
    if files.codec != PAIR:
        raise InvalidPipeline(
            f"then: files={files!r} has no end that a plan could reach: give a FileSource, or another source of "
            "finite input"
        )
    if not live.finds_times or live.codec not in (OFFSET, PAIR):
        raise InvalidPipeline(
            f"then: live={live!r} cannot be read from a time on: it finds no position of a time. Give a "
            "KafkaSource, a LogSource or a RabbitStreamSource; a queue or topic, once another job has written it "
            "into a log"
        )
    if files is live or (files.address is not None and files.address == live.address):
        raise InvalidPipeline(f"then: files and live are the same, {files!r}: give the history and what follows it")
    _check_times(files, live)
    try:
        at_ms, skew_ms = instant_ms(at, "at"), duration_ms(max_skew, "max_skew")
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(f"then: {error}") from error
    if at_ms <= 0:
        raise InvalidPipeline(f"then: at={at!r} is not after 1970, so the history would count nothing; give live alone")
    return ThenSource(files, live, at_ms, skew_ms, bare(max_skew=max_skew))


def _check_times(files: Source, live: Source) -> None:
    """InvalidPipeline if one half has the time of arrival for its timestamp, and the other another time: a record would
    be on both sides of the border, or on none."""
    times = [half.timestamp for half in (files, live)]
    if None not in times and times[0] != times[1] and _ARRIVAL in times:
        raise InvalidPipeline(
            f"then: the timestamp of files is {times[0]!r}, that of live is {times[1]!r}. {_ARRIVAL!r} is when the "
            "broker received a record, so one record would have two times, and count twice or not at all. Give both "
            "halves the event time: timestamp= of the live source names its column"
        )


class ThenSource(Source):
    """The source that ``then`` makes."""

    kind: str = "ThenSource"

    def __init__(self, files: Source, live: Source, at: int, max_skew: int, bare: Mapping[str, int]) -> None:
        self.halves = files, live
        self._history, self._live = Half(HISTORY, files), Half(LIVE, live)
        self._at = at
        self._skew_ms = max_skew
        self._warning = ""
        self.bare = {**files.bare, **live.bare, **bare}
        self.max_out_of_orderness: int = max(files.max_out_of_orderness, live.max_out_of_orderness)
        self.infers = any(half.infers for half in self.halves)
        self.lists = files.lists
        self.forgets = any(half.forgets for half in self.halves)

    def __repr__(self) -> str:
        return f"then({self.halves[0]!r}, {self.halves[1]!r}, at={self._at})"

    def partitions(self) -> Sequence[str]:
        """Empty: those of the history join with the first plan, those of the live source with the switch."""
        return ()

    def declared(self) -> Mapping[str, tuple[bool, bool]]:
        """Nothing: it can do what its halves can."""
        return {}

    # -- plans ---------------------------------------------------------------------------------------------------

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        """What to read next: of the history until it is read, then of the live source."""
        self._require_recorded(state.recorded)
        recorded = state.recorded if SEAM in state.recorded else self._begun(self._at)
        if has_switched(recorded) and self._is_read(state.positions, recorded[SEAM]["end"]):
            return self._joined(state, self._plan_live(state, recorded, budget, follow))
        # ``follow``: this method refuses an empty history itself, with a remedy that fits.
        of_history = replace(state, recorded=self._history.record(recorded))
        plan = self._history.plan(of_history, budget, follow=True)
        if plan.splits or any(map(self._history.owns, budget.ahead)):
            # A history that waits for another source is not read yet.
            whole = _shown({**recorded, HISTORY: plan.recorded}, HISTORY)
            return self._joined(state, replace(plan, recorded=whole))
        end = {partition: list(at) for partition, at in plan.end.items() if self._history.owns(partition)}
        if all(tuple(at) == _FIRST for at in end.values()):
            raise SourceError(
                f"{self!r}: the history holds no record: check its path. If there is none, give the live source alone, "
                "with its start="
            )
        reached = max(self._history.own(state.largest).values(), default=-1)
        seam = {**recorded[SEAM], "end": end, "reached": reached}
        switched = {**recorded, HISTORY: plan.recorded, SEAM: seam}
        return self._joined(state, self._plan_live(replace(state, positions=plan.end), switched, budget, follow))

    def corrected(self, state: SourceState, put: SourcePlan) -> SourcePlan | None:
        """The same records of the half that is read, by its present options. None if those begin elsewhere."""
        self._require_recorded(state.recorded)
        half = self._read_by(put.recorded)
        if SEAM not in state.recorded:
            return None
        whole = half.state(state, half.record(state.recorded))
        planned = half.source.corrected(whole, half.planned(put))
        if planned is None:
            return None
        return replace(
            put,
            cap={**put.cap, **half.named(planned.cap)},
            recorded=_shown({**put.recorded, half.name: planned.recorded}, half.name),
            max_out_of_orderness=half.source.max_out_of_orderness,
        )

    def from_clock(self, recorded: Mapping[str, Any], clock: int) -> SourceState:
        """Both halves again: the history from its beginning, the live source from the clock, or from the border if that
        is later."""
        return SourceState({}, self._begun(max(self._at, clock)))

    def _begun(self, since: int) -> dict[str, Any]:
        """The record before the first step. It says where the live source begins: its records ``since`` then count."""
        begins = self._live_begins(max(since - self._skew_ms, 0))
        places = {partition: list(at) for partition, at in self._live.placed(begins.positions).items()}
        if all(tuple(at) == _FIRST for at in places.values()):
            self._warning = (
                f"{self._live.source!r} holds nothing from before {utc_text(since)}, less max_skew: if it began "
                "later than that, the records from then to its beginning count in neither half. Choose an at= that "
                "both halves reach"
            )
            logger.warning("%s", self._warning)
        seam = {"at": self._at, "kinds": self._kinds(), "begins": places}
        return {HISTORY: {}, LIVE: dict(begins.recorded), SEAM: seam}

    def _live_begins(self, clock: int) -> SourceState:
        live = self._live.source
        # ``from_clock`` needs the columns, which a plan finds, to check the times of records before the position.
        columns = live.plan(SourceState({}), Budget(1), follow=True).recorded
        begins = live.from_clock(columns, clock)
        if begins is not None:
            return begins
        return SourceState({partition: live.position_at(partition, clock) for partition in live.partitions()})

    def _plan_live(self, state: SourceState, recorded: Mapping[str, Any], budget: Budget, follow: bool) -> SourcePlan:
        begins = {partition: tuple(at) for partition, at in recorded[SEAM]["begins"].items()}
        known = {**begins, **{partition: at for partition, at in state.positions.items() if self._live.owns(partition)}}
        # ``verify`` gives positions at the beginning: they stand for where the live source began.
        at = {partition: max(position, begins.get(partition, _FIRST)) for partition, position in known.items()}
        live = replace(state, positions={**state.positions, **at}, recorded=self._live.record(recorded), index=None)
        plan = self._live.plan(live, budget, follow=follow)
        past = [partition for partition in plan.end if self._history.owns(partition)]
        whole = _shown({**recorded, LIVE: plan.recorded}, LIVE)
        return replace(plan, idle=tuple(sorted((*plan.idle, *past))), recorded=whole)

    def _joined(self, state: SourceState, plan: SourcePlan) -> SourcePlan:
        """The plan, with the partitions that the checkpoint does not know."""
        return replace(plan, joins=tuple(partition for partition in plan.end if partition not in state.positions))

    def _is_read(self, positions: Positions, end: Mapping[str, Any]) -> bool:
        return all(tuple(positions.get(partition, _FIRST)) >= tuple(at) for partition, at in end.items())

    def _kinds(self) -> list[str]:
        return [half.kind for half in self.halves]

    def _require_recorded(self, recorded: Mapping[str, Any]) -> None:
        seam = recorded.get(SEAM, {})
        options.require_recorded(seam, {"at": self._at}, {"at": _SIDES})
        if seam and seam["kinds"] != self._kinds():
            raise InvalidPipeline(
                f"{self!r}: the checkpoint has read {' then '.join(seam['kinds'])}: give both halves again, or read "
                "the source anew into a fresh checkpoint and sink"
            )

    def confirm(self, recorded: Mapping[str, Any]) -> None:
        """Raise SourceChanged if the half that was read is not the one that was planned."""
        half = self._read_by(recorded)
        half.source.confirm(half.recorded(recorded))

    def has_forgotten(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> bool:
        """Whether records of a plan are gone, and may be skipped."""
        half = self._read_by(recorded)
        half_splits = half.splits(splits)
        return bool(half_splits) and half.source.has_forgotten(half_splits, half.recorded(recorded))

    def _read_by(self, recorded: Mapping[str, Any]) -> Half:
        """The half that a plan with this record reads."""
        return self._live if has_switched(recorded) else self._history

    # -- reading -------------------------------------------------------------------------------------------------

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        """The columns of the half that is read; of the history, until the live source has any."""
        self._require_recorded(recorded)
        history = self._history.source.schema(self._history.record(recorded))
        live = self._live.record(recorded)
        return self._live.source.schema(live) if has_switched(recorded) and "schema" in live else history

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        half = self._live if self._live.owns(split.partition) else self._history
        reached = recorded[SEAM].get("reached", -1)
        for records in half.source.read(half.splits([split])[0], half.recorded(recorded)):
            yield self._of_history(records) if half is self._history else self._of_live(records, reached)

    def _of_history(self, records: Records) -> Records:
        return replace(records, elsewhere=_if_any(records.timestamps >= self._at))

    def _of_live(self, records: Records, reached: int) -> Records:
        """``reached``: the last time in the history, -1 without any. The history cannot hold a record that is later,
        but before the border: such a record counts in neither half."""
        times = records.timestamps
        before = times < self._at
        if not before.any():
            return records
        nowhere = before & (times > reached)
        why = partial(_why_dead, nowhere, records, f"{utc_text(self._at)}, which is for the history", reached)
        return replace(records, elsewhere=_if_any(before & ~nowhere), nowhere=_if_any(nowhere), unreadable=why)

    def listed(self, index: pa.Table, recorded: Mapping[str, Any]) -> pa.ChunkedArray:
        """The files of the history."""
        return self._history.source.listed(index, self._history.record(recorded))

    def losing(self) -> ThenSource:
        """The same source, whose history may lose inputs."""
        files, live = (half.losing() for half in self.halves)
        source = copy(self)
        source.halves = files, live
        source._history, source._live = Half(HISTORY, files), Half(LIVE, live)
        return source

    def without_lost(self, splits: Sequence[Split], recorded: Mapping[str, Any]) -> tuple[Split, ...] | None:
        """The splits with each input of the history that is certainly gone as one dead record."""
        half = self._history
        half_splits = half.splits(splits)
        if not half_splits:
            return None
        replacements = half.source.without_lost(half_splits, half.recorded(recorded))
        return None if replacements is None else half.renamed(replacements)

    def text_columns(self, recorded: Mapping[str, Any]) -> frozenset[str]:
        """The columns of text of the half that is read."""
        half = self._read_by(recorded)
        return half.source.text_columns(half.recorded(recorded))

    # -- what is said --------------------------------------------------------------------------------------------

    def reached(self, state: SourceState) -> Reached | None:
        """How far the source of the present half has been read."""
        half = self._read_by(state.recorded)
        return half.source.reached(half.state(state, half.recorded(state.recorded)))

    def account_text(self, recorded: Mapping[str, Any], accounts: Mapping[str, Any]) -> str:
        """How many records of each half count in the other, for the report of a run."""
        border, switched = utc_text(self._at), has_switched(recorded)
        reasons = (
            (self._history, f"counted in the live source if they are from {border} on"),
            (self._live, f"counted in the history if they are before {border}"),
        )
        parts = []
        for half, why in reasons if switched else reasons[:1]:
            half_accounts = [account for partition, account in accounts.items() if half.owns(partition)]
            read = sum(account.read for account in half_accounts)
            again = sum(account.duplicate for account in half_accounts)
            parts.append(f"{half.name}: {count_text(read, 'record')}, {count_text(again, 'duplicate')} ({why})")
        return "; ".join(parts if switched else [*parts, "the live source is read once the history is"])

    def guarantee(self) -> Promise:
        """The weaker of both halves."""
        promises = [half.guarantee() for half in self.halves]
        weakest = min(promises, key=lambda promise: (LEVELS.index(promise.level), not promise.while_))
        return replace(weakest, reason=", then ".join(promise.reason for promise in promises))

    def warnings(self) -> tuple[str, ...]:
        """The warnings of both halves; and one if nothing shows whether the halves meet."""
        texts = [text for half in self.halves for text in half.warnings()]
        return (*texts, *filter(None, [self._warning]))

    def acknowledge(self, positions: Positions) -> None:
        for half in (self._history, self._live):
            half.source.acknowledge(half.at(positions))

    def close(self) -> None:
        for half in self.halves:
            half.close()


def _shown(recorded: Mapping[str, Any], half: str) -> dict[str, Any]:
    """The record of the whole, with the facts of one half that drivers and commands look up in any source's record."""
    facts = {name: recorded[half][name] for name in _SHOWN if name in recorded[half]}
    return {**{name: recorded[name] for name in (HISTORY, LIVE, SEAM)}, **facts}


def _if_any(rows: Any) -> Any:
    return rows if rows.any() else None


def _why_dead(nowhere: np.ndarray[Any, Any], records: Records, border: str, reached: int, row: int) -> str:
    if not nowhere[row]:
        return records.unreadable(row)
    ends = f"ends at {utc_text(reached)}" if reached >= 0 else "has none before at="
    return (
        f"before at={border}, but the history {ends} and cannot hold it: it counts in neither half. Choose an at= up "
        "to which the history is complete, with a new checkpoint and sink. If a record of that time is a dead letter "
        "of the history, this is a copy of it, and at= is right"
    )
