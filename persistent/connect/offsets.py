"""Plans for a source whose partitions are sequences of offsets. The broker keeps only the newest of them.

gap         the next offset to read is below the first that is kept: records were deleted before they were read
caught up   the next offset to read is the offset of the next record; for ``idle_timeout``: idle

The offsets that a broker keeps of a partition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from persistent.codec.fields import Positions
from persistent.connect.source import Budget, Reached, Records, SourcePlan, SourceState, Span, Split
from persistent.errors import RetentionGap, SourceChanged, SourceError
from persistent.text.figures import utc_text
from persistent.time.clock import monotonic_s


@dataclass(frozen=True)
class Kept:
    """The kept offsets of a partition that can be read: ``first <= offset < stop``. ``end``: the offset of the next
    record, if an open transaction holds some back; None: ``stop``."""

    first: int
    stop: int
    end: int | None = None

    def behind(self, offset: int) -> int:
        """The number of offsets that follow this one, readable or not."""
        return (self.stop if self.end is None else self.end) - offset


logger = logging.getLogger("persistent.sources")

UNCONFIRMED: Final = "unconfirmed"
"""In the record of a plan, a time (ms): messages journaled since then may come again, with lost acknowledgements."""
_PIECE_MIN: Final = 10_000
"""In offsets: a smaller piece of a partition is not worth a worker of its own."""
_SKEW_ROWS: Final = 100
"""The number of records before a position that are checked for one that belongs after it."""


@dataclass(frozen=True)
class _Begun:
    """Where each partition began (``at``), and which of them ``joined`` after the first plan."""

    at: Mapping[str, int]
    joined: tuple[str, ...]

    @staticmethod
    def of(recorded: Mapping[str, Any]) -> _Begun:
        return _Begun(recorded.get("begins", {}), tuple(recorded.get("joined", ())))

    def recorded(self) -> dict[str, Any]:
        return {"begins": dict(self.at), "joined": list(self.joined)}


class OffsetPlans:
    """Plans one source in one driver.

    ``place``: names the source in errors. ``on_gap``: "fail" with RetentionGap, or skip the gap, to the "earliest" kept
    offset or to the "latest". ``idle_timeout_ms``: the watermark does not wait for a partition at whose end this driver
    has been for this long; None: it always waits.
    """

    def __init__(self, place: str, *, on_gap: str, idle_timeout_ms: int | None) -> None:
        self._place = place
        self._on_gap = on_gap
        self._idle_timeout_ms = idle_timeout_ms
        self._caught_up_s: dict[str, float] = {}

    def plan(
        self,
        state: SourceState,
        budget: Budget,
        kept: Mapping[str, Kept],
        begin: Callable[[Sequence[str]], Mapping[str, int]],
    ) -> SourcePlan:
        """What to read next. ``begin``: where to begin in the partitions that the first plan finds; one that joins
        later is read from its first record. RetentionGap, SourceChanged."""
        begun = self._begun(state, kept, begin)
        start = {partition: max(state.positions.get(partition, 0), begun.at.get(partition, 0)) for partition in kept}
        at, skipped = self._without_gaps(start, kept)
        left = {partition: kept[partition].stop - offset for partition, offset in at.items()}
        shares = _shares({name: rows for name, rows in left.items() if name not in budget.ahead}, max(budget.rows, 1))
        caught_up = {partition for partition, offset in at.items() if not kept[partition].behind(offset)}
        unseen = {partition for partition in begun.joined if partition not in state.largest} & caught_up
        asleep = unseen | self._idle(caught_up)
        idle = _but_the_last(asleep, kept, state.largest)
        end = {partition: offset + shares.get(partition, 0) for partition, offset in at.items()}
        return SourcePlan(
            splits=tuple(_splits(at, end, budget.splits_of(sum(shares.values())))),
            end=end,
            cap=dict.fromkeys(partition for partition in kept if partition not in idle),
            recorded={**state.recorded, **begun.recorded()},
            joins=tuple(partition for partition in kept if partition not in state.positions),
            idle=tuple(sorted(idle)),
            skipped=skipped,
            held=any(kept[partition].behind(max(offset, kept[partition].stop)) for partition, offset in end.items()),
            rests=min(asleep - idle, default=None),
            more=tuple(sorted(partition for partition, rows in left.items() if rows)),
        )

    def from_clock(self, kept: Mapping[str, Kept], at: Mapping[str, int], clock: str) -> dict[str, Any]:
        """The record of a source that continues from a clock at these offsets. RetentionGap if records since the clock
        may have been deleted, because the first kept one is not before it."""
        lost = sorted(partition for partition, offset in at.items() if 0 < offset == kept[partition].first)
        fault = (
            f"{self._place}: the first kept record of partition {', '.join(lost)} is not before {clock}, and older "
            "ones were deleted: some of them may belong to the time since then"
        )
        if lost and self._on_gap == "fail":
            raise RetentionGap(f'{fault}. on_gap="earliest" continues without them')
        if lost:
            logger.warning("%s. on_gap=%r continues without them", fault, self._on_gap)
        return _Begun(at, ()).recorded()

    def has_forgotten(self, splits: Sequence[Split], kept: Mapping[str, Kept]) -> bool:
        """Whether records of these splits are gone, and may be skipped."""
        gone = (span.start < kept[one.partition].first for one in splits if one.partition in kept for span in one.spans)
        return self._on_gap != "fail" and any(gone)

    def _begun(
        self,
        state: SourceState,
        kept: Mapping[str, Kept],
        begin: Callable[[Sequence[str]], Mapping[str, int]],
    ) -> _Begun:
        missing = sorted(state.positions.keys() - kept.keys())
        if missing:
            raise SourceChanged(
                f"{self._place}: the checkpoint has read partition {', '.join(missing)}, which does not exist: it has "
                f"{', '.join(kept) or 'none'}. Is it another one with the same name? A fresh checkpoint and sink "
                "begin anew; 'persistent restart' continues from a clock"
            )
        begun = _Begun.of(state.recorded)
        new = [partition for partition in kept if partition not in state.positions]
        if not state.positions:
            return _Begun(begin(new), ())
        # A partition that joins holds the records since the last plan: what it no longer has is a gap.
        return _Begun({**begun.at, **dict.fromkeys(new, 0)}, (*begun.joined, *new))

    def _without_gaps(
        self, start: Mapping[str, int], kept: Mapping[str, Kept]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Where to read each partition from, and how many offsets are skipped to get there."""
        at, skipped = dict(start), {}
        for partition, offset in start.items():
            there = kept[partition]
            if offset > there.stop:
                raise SourceChanged(
                    f"{self._place}, partition {partition}: the checkpoint has read up to offset {offset:,}, but the "
                    f"partition ends at {there.stop:,}. Its end was truncated, or it is another one with the same "
                    "name. A fresh checkpoint and sink begin anew; 'persistent restart' continues from a clock"
                )
            if offset >= there.first:
                continue
            if self._on_gap == "fail":
                raise RetentionGap(
                    f"{self._place}, partition {partition}: the next offset to read is {offset:,}, but the first that "
                    f"remains is {there.first:,}: {there.first - offset:,} offsets were deleted before they were "
                    'read. on_gap="earliest" continues with the first, on_gap="latest" with the next to come; both '
                    "count the skipped offsets"
                )
            at[partition] = there.first if self._on_gap == "earliest" else there.stop
            skipped[partition] = at[partition] - offset
            logger.warning(
                "%s, partition %s: skipping %s offsets that no longer exist",
                self._place,
                partition,
                f"{skipped[partition]:,}",
            )
        return at, skipped

    def _idle(self, caught_up: set[str]) -> set[str]:
        """The partitions at whose end this driver has been for the timeout. Time before this driver does not count,
        because it is unknown whether records arrived then."""
        now = monotonic_s()
        self._caught_up_s = {name: self._caught_up_s.get(name, now) for name in caught_up}
        if self._idle_timeout_ms is None:
            return set()
        return {name for name, since in self._caught_up_s.items() if (now - since) * 1_000 >= self._idle_timeout_ms}


def _but_the_last(idle: set[str], kept: Mapping[str, Kept], largest: Mapping[str, int]) -> set[str]:
    """The idle partitions. If all are idle, without the one that is farthest ahead: the watermark must not depend on
    the order in which they became idle.

    >>> sorted(_but_the_last({"a", "b"}, {"a": Kept(0, 1), "b": Kept(0, 1)}, {"a": 7, "b": 5}))
    ['b']
    """
    if idle != kept.keys() or not largest:
        return idle
    return idle - {max(largest, key=lambda partition: (largest[partition], partition))}


def _shares(left: Mapping[str, int], rows: int) -> dict[str, int]:
    """How many offsets of each partition a step reads: as equal as the remaining offsets allow, ``rows`` in all if that
    many remain.

    >>> _shares({"a": 2, "b": 100, "c": 50}, 90), _shares({"a": 2, "b": 3}, 1)
    ({'a': 2, 'c': 44, 'b': 44}, {'a': 0, 'b': 1})
    """
    shares = {}
    for count, partition in enumerate(sorted(left, key=lambda name: (left[name], name))):
        shares[partition] = min(left[partition], rows // (len(left) - count))
        rows -= shares[partition]
    return shares


def _splits(at: Mapping[str, int], end: Mapping[str, int], workers: int) -> Iterator[Split]:
    """Pieces of the partitions, about as many as there are workers, none across partitions."""
    total = sum(end[partition] - offset for partition, offset in at.items())
    size = max(-(-total // max(workers, 1)), _PIECE_MIN)
    for partition, start in at.items():
        count = -(-(end[partition] - start) // size)
        cuts = [start + (end[partition] - start) * piece // max(count, 1) for piece in range(count + 1)]
        for low, high in pairwise(cuts):
            yield Split(partition, (Span(0, low, high),))


def begun(recorded: Mapping[str, Any]) -> dict[str, int]:
    """Where the partitions of the first plan began, from the record of a plan; empty for another source."""
    begins = _Begun.of(recorded)
    return {partition: offset for partition, offset in begins.at.items() if partition not in begins.joined}


def place_id(recorded: Mapping[str, Any]) -> str | None:
    """The id of the topic or log that was read, from the record of a plan; None for another source.

    >>> place_id({"topic": "clicks", "topic_id": "7f"}), place_id({"log": "9a"}), place_id({"root": "/in"})
    ('7f', '9a', None)
    """
    identity: str | None = recorded.get("topic_id", recorded.get("log"))
    return identity


def begun_anew(recorded: Mapping[str, Any], at: Mapping[str, int]) -> dict[str, Any]:
    """The record of a source that begins again at these offsets."""
    return {**recorded, **_Begun(at, ()).recorded()}


def gone_back(
    recorded: Mapping[str, Any], newest: Mapping[str, Any], at: Positions, *, is_known: bool
) -> dict[str, Any]:
    """``recorded``, for a source that goes back to it from the positions ``at`` and the record ``newest``. It notes as
    acknowledged what a journal held before ``at``, also if the journal is lost. ``is_known``: whether nothing newer was
    committed."""
    if "journals" not in newest:
        return dict(recorded)
    before: Mapping[str, int] = newest.get("acknowledged", {})
    acknowledged = {**before, **{partition: max(end, before.get(partition, 0)) for partition, end in at.items()}}
    return {**recorded, "acknowledged": acknowledged, **({} if is_known else {"job": ""})}


def reached(state: SourceState, kept: Mapping[str, Kept]) -> Reached:
    """How many of the offsets found by the last plan have been read."""
    begins = state.recorded.get("begins", {})
    done = sum(position - begins.get(partition, 0) for partition, position in state.positions.items())
    ends = {partition: there.stop for partition, there in kept.items()} or state.positions
    return Reached(done, max(done, sum(end - begins.get(partition, 0) for partition, end in ends.items())), "rows")


def require_skew(
    place: str,
    at: Mapping[str, int],
    kept: Mapping[str, Kept],
    clock: tuple[int, int],
    read: Callable[[Split], Iterable[Records]],
) -> None:
    """Raise SourceError if a record just before these offsets has an event time of the clock or later: the broker's
    times are further behind than ``max_skew`` allows. ``clock``: the clock and ``max_skew``, in ms."""
    time, skew_ms = clock
    for partition, offset in at.items():
        span = Span(0, max(kept[partition].first, offset - _SKEW_ROWS), offset)
        batches = read(Split(partition, (span,))) if span.start < span.stop else ()
        latest = max((int(records.timestamps.max()) for records in batches if len(records.timestamps)), default=-1)
        if latest >= time:
            raise SourceError(
                f"{place}, partition {partition}: a record before offset {offset}, where the broker's timestamps "
                f"reach {utc_text(time - skew_ms)}, has the event time {utc_text(latest)}: it would not be "
                "read again. The clock of the broker or of a producer is behind: give a larger max_skew="
            )
