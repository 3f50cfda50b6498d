"""A partly late record counts in some states or windows, and is too late for others. No account counts such records:
only the files of late rows list them. So the page reads these files, each once, the newest first, for a moment at a
time, and counts the records by state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.set_aside import aside_names
from persistent.codec.sealed import decode_table
from persistent.names import LATE, published_id, published_name
from persistent.storage.protocol import Storage
from persistent.time.clock import monotonic_s
from persistent.verify.runs import UNREADABLE
from persistent.worker.judge_records import PARTLY_LATE

_BUDGET_S = 0.05
_IN = f"{PARTLY_LATE} in "

Counts = Mapping[str, int]
"""Partly late records by their states, such as "hourly" or "hourly, daily"; "" of a task with one state."""


@dataclass(frozen=True)
class Partly:
    """The partly late records of a job, by the id of the checkpoint that found them. ``unread``: how many files of late
    rows are not counted yet. ``damaged``: how many cannot be read."""

    by_id: tuple[tuple[int, Counts], ...] = ()
    unread: int = 0
    damaged: int = 0
    inherited: bool = False
    """Whether the job continues another job, and does not have the files of late rows of that job."""

    def records(self, after: int = -1) -> int:
        """How many there are, since that checkpoint."""
        return sum(sum(counts.values()) for id, counts in self.by_id if id > after)

    def missing(self, after: int = -1) -> dict[str, int]:
        """How many are missing in each state, since that checkpoint; "": in some windows of the only one.

        >>> Partly(((1, {"hourly, daily": 2}), (2, {"hourly": 3}))).missing()
        {'hourly': 5, 'daily': 2}
        """
        missing: Counter[str] = Counter()
        for states, count in ((key, count) for id, counts in self.by_id if id > after for key, count in counts.items()):
            missing.update(dict.fromkeys(states.split(", "), count))
        return dict(missing)


@dataclass
class PartlyLate:
    """Counts the partly late records of a job as it goes on."""

    storage: Storage
    _looked: str = ""
    _names: tuple[str, ...] = ()
    _read: dict[str, Counts | None] = field(default_factory=dict)
    """The counts of each file that was read; None for a damaged file."""

    def count(self, newest: Manifest) -> Partly:
        """The partly late records up to the checkpoint ``newest``, as far as their files are read. A call reads files
        for a moment only; the next call reads on."""
        if not _possible(newest):
            return Partly()
        if self._looked != newest.nonce:
            self._looked, self._names = newest.nonce, self._published(newest)
            self._read = {name: self._read[name] for name in self._names if name in self._read}
        until = monotonic_s() + _BUDGET_S
        for name in reversed(self._names):
            if name not in self._read:
                self._read_file(name, newest)
                if monotonic_s() > until:
                    break
        known = [(published_id(name), self._read[name]) for name in self._names if name in self._read]
        counted = tuple((id, counts) for id, counts in known if counts is not None)
        inherited = newest.origin is not None or newest.kind == "savepoint"
        return Partly(counted, len(self._names) - len(known), len(known) - len(counted), inherited)

    def _published(self, newest: Manifest) -> tuple[str, ...]:
        """The names of the files that count: those published and not taken back, and those that the newest checkpoint
        has yet to publish."""
        first, stop = newest.retract or (0, 0)
        names = {*aside_names(self.storage, LATE), *_owed(newest)}
        ids = {name: published_id(name) for name in names}
        return tuple(sorted(name for name, id in ids.items() if 0 <= id <= newest.id and not first <= id < stop))

    def _read_file(self, name: str, newest: Manifest) -> None:
        published = f"{LATE}/{name}"
        try:
            try:
                data = self.storage.read(published)
            except FileNotFoundError:
                data = self.storage.read(_owed(newest).get(name, published))
            self._read[name] = _counts(decode_table(data, None, published).column("reason").to_pylist())
        except FileNotFoundError:
            # It was taken back, or published, since it was listed: the next look knows.
            self._looked = ""
        except UNREADABLE:
            self._read[name] = None


def _counts(reasons: list[str]) -> Counts:
    """
    >>> _counts(["late", "partly-late", "partly-late in hourly"])
    {'': 1, 'hourly': 1}
    """
    partly = (reason for reason in reasons if reason.startswith(PARTLY_LATE))
    return dict(Counter(reason.removeprefix(_IN if reason.startswith(_IN) else PARTLY_LATE) for reason in partly))


def _owed(newest: Manifest) -> dict[str, str]:
    """The files of late rows that may still be staged, by the name that they are published under."""
    return {published_name(batch.id, staged.name): staged.name for batch in newest.aside for staged in batch.late}


def _possible(newest: Manifest) -> bool:
    """Whether any record can be partly late: there are windows, or several states."""
    return len(newest.nodes) > 1 or any(node.has_windows for node in newest.nodes.values())


NOTHING = Partly()
