"""The parts of a manifest describe each source, task, state and input, all of them by name.

Each part knows its form in a document of the newest format. Those of its outputs are in
``persistent.checkpoint.output_parts``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from persistent.checkpoint.positions import ORDINAL_OFFSET, positions_from_json, positions_to_json
from persistent.clock import Clock
from persistent.codec import Run
from persistent.lateness import set_back
from persistent.sources.protocol import Positions
from persistent.zone import Zone

_OPTIONAL = ("zone", "final", "late", "emit", "passed", "added", "shown_at")
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


@dataclass(frozen=True)
class Account:
    """The fate of the records read from one partition, each counted once.

    ``mix``: the sum modulo 2**64 of the hashes of (partition, ordinal, offset, timestamp) of every record read.
    ``skipped``: positions that were skipped because the source no longer had them; none of them was read.
    """

    read: int = 0
    processed: int = 0
    late: int = 0
    dead: int = 0
    duplicate: int = 0
    mix: int = 0
    skipped: int = 0

    def __add__(self, other: Account) -> Account:
        sums = {name: value + getattr(other, name) for name, value in self.__dict__.items()}
        return Account(**{**sums, "mix": sums["mix"] % _MODULUS})

    @property
    def balances(self) -> bool:
        return self.read == self.processed + self.late + self.dead + self.duplicate

    def to_json(self) -> dict[str, int]:
        """Its form in a manifest. Without skipped positions, that of an older release, which does not know them."""
        return {name: value for name, value in self.__dict__.items() if value or name != "skipped"}


Accounts = Mapping[str, Account]
"""By partition."""


@dataclass(frozen=True)
class SeenPart:
    """The seen records of a source, by which copies are recognised. ``columns``: those that identify a record.
    ``pane_ms``: the panes of its ``runs``. ``expired``: panes before that time (ms) are gone. ``kinds``: of the values
    of its key columns; empty while unknown."""

    columns: Mapping[str, Any]
    pane_ms: int
    expired: int = 0
    runs: tuple[Run, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)

    def horizon(self, watermark: int, within_ms: int) -> int:
        """The first pane that counts at this watermark. It never goes back."""
        return max(self.expired, (watermark - within_ms) // self.pane_ms * self.pane_ms)

    def to_json(self) -> dict[str, Any]:
        kinds = {"kinds": dict(self.kinds)} if self.kinds else {}
        others = {name: value for name, value in self.__dict__.items() if name != "kinds"}
        return {**others, "runs": [run.to_json() for run in self.runs], **kinds}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SeenPart:
        return SeenPart(**{**body, "runs": runs_from_json(body["runs"])})


@dataclass(frozen=True)
class ReadBefore:
    """How records before the positions ``until`` were read: with these ``recorded`` options; empty if forgotten. A
    partition that it does not name was not read in this way."""

    until: Positions
    recorded: Mapping[str, Any]

    def to_json(self, codec: str) -> dict[str, Any]:
        return {"until": positions_to_json(codec, self.until), "recorded": dict(self.recorded)}

    @staticmethod
    def from_json(codec: str, body: Mapping[str, Any]) -> ReadBefore:
        return ReadBefore(positions_from_json(codec, body["until"]), body["recorded"])


@dataclass(frozen=True)
class SourcePart:
    """The positions of a source, and its record. ``partitions``: in the order in which they joined. ``largest``: the
    largest timestamp processed of each partition; ``idle``: the partitions that the clock does not wait for. ``since``:
    records of an earlier time (ms) were counted in an earlier reading, at positions that are gone. ``seen``: with
    deduplication, its seen records. ``readings``: how records were read before that changed, oldest first."""

    kind: str
    partitions: tuple[str, ...]
    positions: Positions
    recorded: Mapping[str, Any] = field(default_factory=dict)
    index: tuple[Run, ...] = ()
    since: int | None = None
    largest: Mapping[str, int] = field(default_factory=dict)
    idle: tuple[str, ...] = ()
    codec: str = ORDINAL_OFFSET.name
    seen: SeenPart | None = None
    readings: tuple[ReadBefore, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """``seen`` and ``readings`` are written only if they are not empty, so that releases without them can read all
        other documents."""
        return {
            "kind": self.kind,
            "codec": self.codec,
            "partitions": list(self.partitions),
            "positions": positions_to_json(self.codec, self.positions),
            "largest": dict(self.largest),
            "idle": list(self.idle),
            "recorded": self.recorded,
            "index": [run.to_json() for run in self.index],
            "since": self.since,
            **({} if self.seen is None else {"seen": self.seen.to_json()}),
            **({"readings": [one.to_json(self.codec) for one in self.readings]} if self.readings else {}),
        }

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of its index, and of its seen records."""
        return (*self.index, *(() if self.seen is None else self.seen.runs))

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> SourcePart:
        return SourcePart(
            body["kind"],
            tuple(body["partitions"]),
            positions_from_json(body["codec"], body["positions"]),
            body["recorded"],
            runs_from_json(body["index"]),
            body["since"],
            dict(body["largest"]),
            tuple(body["idle"]),
            body["codec"],
            SeenPart.from_json(body["seen"]) if "seen" in body else None,
            tuple(ReadBefore.from_json(body["codec"], one) for one in body.get("readings", ())),
        )


@dataclass(frozen=True)
class TaskClock:
    """The clock of a task. ``closed``: every window with ``end <= closed`` has been staged. ``ended``: its input was
    declared complete, and no record has arrived since. ``quiet_ms``: for how long every partition had been at its end
    when the clock last moved on by that; 0 once something was read."""

    watermark: int = 0
    closed: int = 0
    ended: bool = False
    quiet_ms: int = 0

    @staticmethod
    def of(clock: Clock) -> TaskClock:
        """A clock without the timestamps of its sources."""
        return TaskClock(clock.watermark, clock.closed, clock.end_of_input)

    def quiet_from(self, reached: int) -> int:
        """Where it stood when its sources went quiet: at what they ``reached``; at itself, if none has a record."""
        return reached or self.watermark - self.quiet_ms

    def to_json(self) -> dict[str, Any]:
        """Its form in a manifest. Unless it has moved on while nothing was read, that of an older release."""
        return {name: value for name, value in self.__dict__.items() if value or name != "quiet_ms"}


@dataclass(frozen=True)
class StateRuns:
    """One state of a task: its fingerprint, and the runs whose sum it is, oldest first.

    ``published``: the id of the checkpoint that last published a state without windows, or one that is published as it
    changes: only what is in later runs is not published yet. ``lowest``: the smallest pane that an open window still
    needs, None if the state is empty. ``known_from``: with ``history=``, the clock from which its panes are kept apart,
    however long they were kept before; None without, or if an older release has not recorded it. ``zone``: the rules of
    the time zone by which its windows have their borders; None without a calendar. ``final``: every window that ends at
    or before it is final, and its panes are gone; None if all closed ones are. ``late``: how late records, or changes,
    revise what is published; None if the rows carry no revision. ``emit``: ``CHANGE`` if each step publishes what it
    has changed, ``EARLY`` if some do. ``passed``: the clock of early results, by name, where it stood at the last step.
    ``added``: the clock at which it was added to a job that had begun: it lacks all that the job had read; None if it
    lacks nothing. ``shown_at``: with a time to live, the clock by which keys had expired when it was published; None
    before.
    """

    fingerprint: Mapping[str, Any]
    runs: tuple[Run, ...] = ()
    lowest: int | None = None
    published: int = 0
    known_from: int | None = None
    zone: Zone | None = None
    final: int | None = None
    late: str | None = None
    emit: str | None = None
    passed: Mapping[str, int] | None = None
    added: int | None = None
    shown_at: int | None = None

    def fresh(self) -> tuple[Run, ...]:
        """The runs of which nothing is published."""
        return tuple(run for run in self.runs if run.first > self.published)

    def passed_by(self, clock: int) -> Mapping[str, int] | None:
        """Where the clock of early results stands in the state as of a clock."""
        return set_back(self.passed, clock)

    @property
    def has_windows(self) -> bool:
        """Whether the clock closes windows of it."""
        window = self.fingerprint.get("window")
        return window is not None and "everything" not in window

    @property
    def has_sessions(self) -> bool:
        """Whether its windows are sessions, which a record can make longer, or join."""
        return "gap_ms" in (self.fingerprint.get("window") or {})

    @property
    def has_time_to_live(self) -> bool:
        return "ttl_ms" in self.fingerprint

    def final_at(self, closed: int) -> int:
        """The clock up to which its windows are final, where they are closed up to ``closed``."""
        return closed if self.final is None else self.final

    def shown_to(self, runs: Sequence[Run]) -> int | None:
        """The clock up to which the sinks know which keys of these of its runs have expired; None if no sink has any of
        them."""
        return self.shown_at if not self.published or any(run.first <= self.published for run in runs) else None

    def shown_after(self, closed: int, *, publishes: bool) -> int | None:
        """``shown_at`` after a step that closes up to ``closed``. ``publishes``: it publishes all that has changed."""
        return closed if publishes and self.has_time_to_live else self.shown_at

    def unpublished(self) -> StateRuns:
        """The same state, of which every key is to be published. A job that started from a savepoint may have a run
        number 0, which would count as published."""
        runs = (replace(run, first=max(run.first, 1), last=max(run.last, 1)) for run in self.runs)
        return replace(self, runs=tuple(runs), published=0)

    def to_json(self) -> dict[str, Any]:
        """Those of ``_OPTIONAL`` are written only if they are set: releases without them can read all other
        documents."""
        body = {name: value for name, value in self.__dict__.items() if name not in _OPTIONAL or value is not None}
        zone = {} if self.zone is None else {"zone": self.zone.to_json()}
        return {**body, "runs": [run.to_json() for run in self.runs], **zone}

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> StateRuns:
        zone = Zone.from_json(body["zone"]) if "zone" in body else None
        return StateRuns(**{**body, "runs": runs_from_json(body["runs"]), "zone": zone})


@dataclass(frozen=True)
class OperatorState:
    """The state of a task: the columns of its key, and its states by name. ``inputs``: the names of its sources."""

    inputs: tuple[str, ...]
    key_names: tuple[str, ...]
    key_types: tuple[str, ...]
    states: Mapping[str, StateRuns]

    @property
    def state(self) -> StateRuns:
        """The only state of a task of this release."""
        (state,) = self.states.values()
        return state

    def with_state(self, **changes: Any) -> OperatorState:
        """The same task with these changes to its only state."""
        ((name, state),) = self.states.items()
        return replace(self, states={name: replace(state, **changes)})

    def unpublished(self) -> OperatorState:
        """The same task, of whose states every key is to be published."""
        return replace(self, states={name: state.unpublished() for name, state in self.states.items()})

    def shown_since(self, closed: int) -> OperatorState:
        """The same task, whose sinks keep later outputs: with a time to live they may know keys that expire after
        ``closed``, and none that had expired before, unless they knew it before."""
        state = self.state
        begins = state.shown_at is None and state.has_time_to_live
        return self.with_state(shown_at=closed) if begins else self

    def described(self) -> dict[str, Any]:
        """The fingerprint of its only state with its key, for the text of a change."""
        return {**self.state.fingerprint, "key": list(self.key_names)}

    def to_json(self) -> dict[str, Any]:
        return {
            "inputs": list(self.inputs),
            "key_names": list(self.key_names),
            "key_types": list(self.key_types),
            "states": {name: state.to_json() for name, state in self.states.items()},
        }

    @staticmethod
    def from_json(body: Mapping[str, Any]) -> OperatorState:
        return OperatorState(
            tuple(body["inputs"]),
            tuple(body["key_names"]),
            tuple(body["key_types"]),
            {name: StateRuns.from_json(state) for name, state in body["states"].items()},
        )


def runs_from_json(entries: Sequence[dict[str, Any]]) -> tuple[Run, ...]:
    return tuple(Run.from_json(entry) for entry in entries)
