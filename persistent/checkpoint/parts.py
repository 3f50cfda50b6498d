"""The parts of a manifest describe each source, task and node, all of them by name.

The parts about its outputs are in ``persistent.checkpoint.output_parts``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import asdict, astuple, replace

from persistent.codec.documents import Misfit, canonical_json
from persistent.codec.fields import (
    CODECS,
    INT64_MAX,
    MANY,
    ORDINAL_OFFSET,
    PARTS_MAX,
    AnyPositions,
    Codec,
    FreeFacts,
    LongText,
    Name,
    Natural,
    Part,
    Partition,
    Partitions,
    Position,
    Positive,
    Run,
    ShortText,
    Times,
    Whole,
)
from persistent.time.clock import Clock
from persistent.time.lateness import Answer, Emission
from persistent.time.zone import Zone

NodeName = Annotated[
    str,
    Meta(max_length=401, pattern=r"\A[A-Za-z0-9][A-Za-z0-9._=@+-]*(/[A-Za-z0-9][A-Za-z0-9._=@+-]*)?\Z"),
]
"""The name of a node: of its task, or ``task/state`` if the states of the task have names."""
RunList = Annotated[tuple[Run, ...], Meta(max_length=MANY)]
NOTHING = -1
"""``published`` of a node that is to publish everything: below the number of every run."""
_MODULUS = 1 << 64
_FOREIGN = re.compile(r"[^A-Za-z0-9._=@+-]+")
_NAME_LENGTH_MAX = 200


def default_name(kind: str, part: str) -> str:
    """The default name in the checkpoint of a ``part``, "source" or "sink": its kind, in the alphabet of names.

    >>> default_name("FileSource", "source"), default_name("MemorySink", "sink"), default_name("Source", "source")
    ('file', 'memory', 'source')
    """
    name = _FOREIGN.sub("-", kind.removesuffix(part.capitalize())).lstrip("._=@+-").lower()
    return name[:_NAME_LENGTH_MAX] or part


def partition_name(source: str, partition: str, sources: int) -> str:
    """The name of a partition among those of all sources: its own if there is one source, otherwise prefixed with that
    of its source. A source's name holds no slash, so no two are equal.

    >>> partition_name("clicks", "0", 1), partition_name("clicks", "0", 2)
    ('0', 'clicks/0')
    """
    return partition if sources == 1 else f"{source}/{partition}"


class Account(Part, frozen=True):
    """The fate of the records read from one partition, each counted once.

    ``mix``: the sum modulo 2**64 of the hashes of (partition, ordinal, offset, timestamp) of every record read.
    ``skipped``: positions that were skipped because the source no longer had them; none of them was read.
    """

    read: Natural = 0
    processed: Natural = 0
    late: Natural = 0
    dead: Natural = 0
    duplicate: Natural = 0
    mix: Annotated[int, Meta(ge=0)] = 0
    skipped: Natural = 0

    def __add__(self, other: Account) -> Account:
        sums = Account(*map(add, astuple(self), astuple(other)))
        return replace(sums, mix=sums.mix % _MODULUS)

    @property
    def fates(self) -> dict[str, int]:
        """The number of records read and of each fate, and of positions skipped."""
        fates = asdict(self)
        del fates["mix"]
        return fates

    @property
    def balances(self) -> bool:
        return self.read == self.processed + self.late + self.dead + self.duplicate


def total(accounts: Iterable[Account]) -> Account:
    """The sum of accounts."""
    return sum(accounts, Account())


Accounts = Annotated[Mapping[Partition, Account], Meta(max_length=MANY)]
"""By partition."""


class SeenColumns(Part, frozen=True):
    """The columns that identify a record: who sent it, its number (None if the origin is an id unique to each record),
    and the life of the sender (None if there is no such column)."""

    origin: Annotated[tuple[LongText, ...], Meta(max_length=PARTS_MAX)]
    sequence: LongText | None = None
    epoch: LongText | None = None


class SeenPart(Part, frozen=True):
    """The seen records of a source, by which copies are recognised. ``pane_ms``: the panes of its ``runs``.
    ``expired``: panes before that time (ms) are gone. ``kinds``: of the values of its key columns; empty while
    unknown."""

    columns: SeenColumns
    pane_ms: Positive
    expired: Whole = 0
    runs: RunList = ()
    kinds: Annotated[Mapping[LongText, ShortText], Meta(max_length=PARTS_MAX)] = {}

    def horizon(self, watermark: int, within_ms: int) -> int:
        """The first pane that counts at this watermark. It never goes back."""
        return max(self.expired, (watermark - within_ms) // self.pane_ms * self.pane_ms)


class ReadBefore(Part, frozen=True):
    """How records before the positions ``until`` were read: with these ``recorded`` options; empty if forgotten. A
    partition that it does not name was not read in this way."""

    until: AnyPositions
    recorded: Annotated[FreeFacts, Meta(max_length=PARTS_MAX)]


class SourcePart(Part, frozen=True):
    """The positions of a source, and its record. ``partitions``: in the order in which they joined. ``largest``: the
    largest timestamp processed of each partition; ``idle``: the partitions that the clock does not wait for. ``since``:
    records of an earlier time (ms) were counted in an earlier reading, at positions that are gone. ``seen``: with
    deduplication, its seen records. ``readings``: how records were read before that changed, oldest first."""

    kind: ShortText
    partitions: Partitions
    positions: AnyPositions
    recorded: FreeFacts = {}
    index: RunList = ()
    since: Whole | None = None
    largest: Times = {}
    idle: Partitions = ()
    codec: Codec = ORDINAL_OFFSET.name
    seen: SeenPart | None = None
    readings: Annotated[tuple[ReadBefore, ...], Meta(max_length=PARTS_MAX)] = ()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of its index, and of its seen records."""
        return (*self.index, *(() if self.seen is None else self.seen.runs))


class NodeClock(Part, frozen=True):
    """The clock of a node. ``closed``: every window with ``end <= closed`` has been staged. ``ended``: its input was
    declared complete, and no record has arrived since. ``quiet_ms``: for how long every partition had been at its end
    when the clock last moved on by that; 0 once something was read."""

    watermark: Whole = 0
    closed: Whole = 0
    ended: bool = False
    quiet_ms: Natural = 0

    @staticmethod
    def of(clock: Clock) -> NodeClock:
        """A clock without the timestamps of its sources."""
        return NodeClock(clock.watermark, clock.closed, clock.end_of_input)

    def quiet_from(self, reached: int) -> int:
        """The clock when the sources went quiet: what they ``reached``; its own watermark then, without a record."""
        return reached or self.watermark - self.quiet_ms


class TaskPart(Part, frozen=True):
    """What a task has read. ``inputs``: its accounts by source, which hold for all nodes of the task."""

    inputs: Annotated[Mapping[Name, Accounts], Meta(max_length=PARTS_MAX)]


class NodePart(Part, frozen=True):
    """A node: a state of a task, with its clock, the columns of its key, its fingerprint, and the runs whose sum it is,
    oldest first.

    ``published``: the id of the checkpoint that last published a state without windows, or one that is published as it
    changes: only what is in later runs is not published yet; ``NOTHING`` if all is to be published, even the runs
    number 0 of a job that started from a savepoint. ``lowest``: the smallest pane that an open window still needs, None
    if the state is empty. ``known_from``: with ``history=``, the clock from which its panes are kept apart, however
    long they were kept before; None without. ``zone``: the rules of the time zone by which its windows have their
    borders; None without a calendar. ``final_at``: every window that ends at or before it is final, and its panes are
    gone; None if all closed ones are. ``late``: how late records, or changes, revise what is published; None if the
    rows carry no revision. ``emit``: ``CHANGE`` if each step publishes what it has changed, ``EARLY`` if some do.
    ``passed``: with early results, the clock of the last step. ``added``: the clock at which it was added to a job that
    had begun: it lacks all that the job had read; None if it lacks nothing. ``shown_at``: with a time to live, the
    clock by which keys had expired when it was published; None before.
    """

    fingerprint: FreeFacts
    clock: NodeClock = NodeClock()
    key_names: Annotated[tuple[LongText, ...], Meta(max_length=PARTS_MAX)] = ()
    key_types: Annotated[tuple[Annotated[str, Meta(max_length=60)], ...], Meta(max_length=PARTS_MAX)] = ()
    runs: RunList = ()
    lowest: Whole | None = None
    published: Annotated[int, Meta(ge=NOTHING, le=INT64_MAX)] = 0
    known_from: Whole | None = None
    zone: Zone | None = None
    final_at: Whole | None = None
    late: Answer | None = None
    emit: Emission | None = None
    passed: Whole | None = None
    added: Whole | None = None
    shown_at: Whole | None = None

    def fresh(self) -> tuple[Run, ...]:
        """The runs of which nothing is published."""
        return tuple(run for run in self.runs if run.first > self.published)

    @property
    def has_windows(self) -> bool:
        """Whether the clock closes windows of the node."""
        return self.fingerprint.get("window") is not None

    @property
    def has_sessions(self) -> bool:
        """Whether its windows are sessions, which a record can make longer, or join."""
        return "gap_ms" in (self.fingerprint.get("window") or {})

    @property
    def has_time_to_live(self) -> bool:
        return "ttl_ms" in self.fingerprint

    @property
    def final(self) -> int:
        """The clock up to which its windows are final: their panes are gone."""
        return self.clock.closed if self.final_at is None else self.final_at

    def shown_to(self, runs: Sequence[Run]) -> int | None:
        """The clock up to which the sinks know which keys of these ``runs`` have expired; None if no sink has any of
        the keys."""
        return self.shown_at if self.published <= 0 or any(run.first <= self.published for run in runs) else None

    def shown_after(self, closed: int, *, publishes: bool) -> int | None:
        """``shown_at`` after a step that closes up to ``closed``. ``publishes``: it publishes all that has changed."""
        return closed if publishes and self.has_time_to_live else self.shown_at

    def unpublished(self) -> NodePart:
        """The same node, with every key to be published."""
        return replace(self, published=NOTHING)

    def shown_since(self, closed: int) -> NodePart:
        """The same node, whose sinks keep later outputs. With a time to live, the sinks may know keys that expire after
        ``closed``, but no key that had expired by then: so ``shown_at`` is ``closed``, unless the node had one."""
        begins = self.shown_at is None and self.has_time_to_live
        return replace(self, shown_at=closed) if begins else self

    def described(self) -> dict[str, Any]:
        """The fingerprint with the key, for the text of a change."""
        return {**self.fingerprint, "key": list(self.key_names)}


_CHANGING: Final = ("schema", "reader")
"""The recorded facts about columns that can change."""
_KEPT_MAX: Final = 16


@dataclass(frozen=True)
class Reading:
    """The way in which the records ``low <= position < high`` of a partition became columns, by options that can
    change, such as ``schema=``: ``recorded`` replaces what is recorded now; None if that is forgotten. ``high`` None:
    the present reading.

    Records that were read before a change stay counted as they were read. So the checkpoint keeps the earlier readings
    too, each with the positions at which it ended; ``verify --source`` reads every record the way it was counted. Of
    more than 16 readings the oldest are forgotten."""

    low: Position
    high: Position | None
    recorded: Mapping[str, Any] | None


def readings_after(source: SourcePart, recorded: Mapping[str, Any]) -> tuple[ReadBefore, ...]:
    """The readings of ``source`` before the present one, after a step that records this."""
    before, after, kept = _changing(source.recorded), _changing(recorded), list(source.readings)
    # Equal values have equal spellings; so have a list that was read back and a tuple.
    if before and before != after and canonical_json(before) != canonical_json(after):
        read = {name: end for name, end in source.positions.items() if readings_of(source, name)[-1].low < end}
        if read:
            kept.append(ReadBefore(read, before))
    while len(kept) > _KEPT_MAX:
        kept[:2] = [ReadBefore({**kept[0].until, **kept[1].until}, {})]
    return tuple(kept)


def readings_of(source: SourcePart, partition: str) -> list[Reading]:
    """How a partition was read, from its beginning; the last reading is the present one."""
    low, readings = CODECS[source.codec].first, []
    for reading in source.readings:
        if partition in reading.until:
            readings.append(Reading(low, reading.until[partition], reading.recorded or None))
            low = reading.until[partition]
    return [*readings, Reading(low, None, _changing(source.recorded))]


def _changing(recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {name: recorded[name] for name in _CHANGING if name in recorded}


def check_some(what: str, names: Collection[str]) -> None:
    """Misfit for a document without any."""
    if not names:
        raise Misfit(f"has no {what}, which no release writes")


def check_closed(final: int | None, closed: int, place: str) -> None:
    """Misfit if windows are final that are not closed."""
    if final is not None and final > closed:
        raise Misfit(f"{place}: {final}: windows are final that end after {closed}, up to which they are closed")


def check_fit(codec: str, positions: Mapping[str, Any], place: str) -> None:
    """Misfit unless all of these are positions of the codec."""
    for partition, position in positions.items():
        if not CODECS[codec].has(position):
            raise Misfit(f"{place}: {position} of {partition:.60} is no position of the codec {codec}")


def check_once(names: Collection[str], place: str) -> None:
    """Misfit if a name occurs twice."""
    if len(set(names)) != len(names):
        raise Misfit(f"{place}: {names_text(names)}: one of them twice")


def check_same(names: Collection[str], partitions: Collection[str], place: str) -> None:
    """Misfit unless the names are exactly the partitions."""
    if set(names) != set(partitions):
        raise Misfit(f"{place}: of {names_text(names)}, the partitions are {names_text(partitions)}")


def check_among(names: Collection[str], there: Collection[str], place: str, what: str = "partitions") -> None:
    """Misfit unless each name is there."""
    known = set(there)
    others = [name for name in names if name not in known]
    if others:
        raise Misfit(f"{place}: {names_text(others)}, the {what} are {names_text(there)}")


def names_text(names: Iterable[str]) -> str:
    """Names, for people: the first ten."""
    return ", ".join(f"{name:.60}" for name in list(names)[:10]) or "none"
