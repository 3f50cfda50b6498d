"""Three readers look at a sink, and a table says where today's sinks are known to differ from the law.

replace      the row of the largest revision of each place counts; none, if it is retracted
both signs   a retracted row takes an equal row away, any other adds one
once         rows never change: every row counts
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from persistent import FileSink, LogSink, SegmentedLog
from persistent.sinks import SqliteSink
from tests.faults import FaultyStorage, Operations
from tests.proof.emission import TAKEN_BACK, Place, Sums
from tests.proof.law_views import Folding, Published, View, differing, kind_of

Rows = list[tuple[Any, ...]]
"""Rows of an ``Emission``: page, start of the window, sums, and ``TAKEN_BACK`` at the end of a retracted one."""

KNOWN: dict[str, frozenset[str]] = {
    # After a rollback with outputs="again" a sink is taken back sessions of the target that are published as they
    # change, and keys that expire, whether it had them or not.
    "never had": frozenset({"both signs lacks"}),
    # Rows that a rollback or a restart with outputs="again" has left stay, and are published a second time.
    "left": frozenset({"replace stale", "both signs lacks", "both signs repeats", "once repeats"}),
    # The rows that were published after the clock of a restart stay, until they are published a second time.
    "restart": frozenset({"replace stale", "both signs lacks", "both signs repeats", "once repeats"}),
    # All rows are published a second time after an evolution.
    "evolution": frozenset({"both signs repeats"}),
    # A value that raises in the step that does so takes nothing back: no run says what was published.
    "raising after an evolution": frozenset({"both signs repeats", "replace stale"}),
}
"""Where today's sinks differ from the law: by name, the readers that may see it, and how. "Lacks" is a row that is not
there; "repeats" one that is there too often; "stale" another row of the same place, or one where the view has none.
``Reader.may_differ`` is told at which places. A line is struck, with what tells of it, when sinks no longer differ."""


class Broken(AssertionError):
    """What a reader holds is not the view. ``kind``: of which reader and state."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


@dataclass
class Reader:
    """A sink. ``since``: the checkpoint at which it joined. ``lacks``: the places that were settled by then.
    ``joined``: what had been published last by then: until the next publication it holds nothing. ``known``: the places
    where it may differ, by the name of the known difference. ``in_log``: it can only append. ``lags``: a rollback has
    taken back what replaces, so until the next publication places are missing."""

    storage: Any
    path: str | None = None
    in_log: bool = False
    lags: bool = False
    since: int = -1
    lacks: set[Place] = field(default_factory=set)
    joined: Published | None = None
    known: dict[str, set[Place]] = field(default_factory=dict)

    def join(self, id: int, view: View, emission: Folding) -> None:
        """Stand at nothing at a checkpoint of this view."""
        self.since, self.lacks, self.joined = id, view.settled(emission), view.published

    def go_back(self, target: int, id: int, view: View, emission: Folding) -> None:
        """Checkpoint ``id`` has the view of an earlier one: a sink that joined later stands at nothing."""
        if target <= self.since:
            self.join(id, view, emission)
        self.lags = self.in_log and emission.late != "retract" and emission.changes != "retract" and not emission.grows

    def sink(self, operations: Operations | None) -> Any:
        if self.path is not None:
            return SqliteSink(self.path, "rows")
        storage = FaultyStorage(self.storage, operations) if operations else self.storage
        return LogSink(storage) if self.in_log else FileSink(storage, format="jsonl")

    def batches(self, emission: Folding) -> list[Rows]:
        """The rows of each checkpoint, in order."""
        found: dict[int, Rows] = {}
        for id, row in self._rows():
            found.setdefault(row.get("revision", id), []).append(emission.row(row))
        return [found[id] for id in sorted(found)]

    def places(self, emission: Folding) -> set[Place]:
        """The places that it has ever had rows of."""
        return {row[:2] for rows in self.batches(emission) for row in rows}

    def may_differ(self, name: str, places: Iterable[Place]) -> None:
        """From now on, as the known difference of that name says."""
        if name in KNOWN:
            self.known.setdefault(name, set()).update(places)

    def check(self, emission: Folding, view: View) -> Counter[str]:
        """How often each known difference was found. Broken if there is another."""
        expected = {place: sums for place, sums in view.rows(emission).items() if place not in self.lacks}
        batches = self.batches(emission)
        if not batches and self.joined is view.published:
            return Counter()
        held = {"replace": Counter(replaced(batches).items())}
        if "retract" in (emission.late, emission.changes) or emission.grows:
            held["both signs"] = signed(batches)
        elif not emission.allowed and not emission.of_changes and emission.has_windows:
            held["once"] = Counter((row[:2], row[2:]) for rows in batches for row in rows)
        found: Counter[str] = Counter()
        for reader, rows in held.items():
            found += self._compared(reader, emission, rows, expected)
        return found

    def _compared(
        self, reader: str, emission: Folding, held: Counter[tuple[Place, Sums]], expected: Mapping[Place, Sums]
    ) -> Counter[str]:
        found: Counter[str] = Counter()
        unknown = []
        filled = {place for (place, _), times in held.items() if times}
        for place, sums, times in differing(held, expected):
            more = "stale" if reader == "replace" else "repeats"
            how = more if times > 0 or (reader == "replace" and place in filled) else "lacks"
            names = [
                name for name, places in self.known.items() if place in places and f"{reader} {how}" in KNOWN[name]
            ]
            if names:
                found[names[0]] += 1
            elif not (self.lags and how == "lacks"):
                unknown.append(f"{times:+} of {place} {sums}")
        if unknown:
            raise Broken(f"{reader} {kind_of(emission)}", ", ".join(sorted(unknown)))
        return found

    def evolve(self, column: str) -> None:
        """Let a table have another column, as its owner must."""
        if self.path is not None:
            with closing(sqlite3.connect(self.path)) as database, suppress(sqlite3.OperationalError):
                database.execute(f"ALTER TABLE rows ADD COLUMN {column} INTEGER")
                database.commit()

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if self.in_log:
            for batch in SegmentedLog(self.storage).read():
                for text in batch.records.to_pylist():
                    row = json.loads(text)
                    yield row["revision"], row
            return
        if self.path is None:
            for name in self.storage.list(""):
                if not name.endswith(".jsonl"):
                    continue
                for line in self.storage.read(name).to_pybytes().decode().splitlines():
                    yield int(name[:20]), json.loads(line)
            return
        with closing(sqlite3.connect(self.path)) as database:
            database.row_factory = sqlite3.Row
            with suppress(sqlite3.OperationalError):
                for row in database.execute("SELECT * FROM rows"):
                    yield row["revision"], dict(row)


def replaced(batches: list[Rows]) -> dict[Place, Sums]:
    """What the reader holds that lets the last row of a place count."""
    held: dict[Place, Sums] = {}
    for rows in batches:
        for row in sorted(rows, key=lambda row: row[-1] != TAKEN_BACK):
            place, sums = row[:2], row[2:]
            if sums[-1] == TAKEN_BACK:
                held.pop(place, None)
            else:
                held[place] = sums
    return held


def signed(batches: list[Rows]) -> Counter[tuple[Place, Sums]]:
    """What the reader holds that adds and subtracts rows."""
    held: Counter[tuple[Place, Sums]] = Counter()
    for rows in batches:
        for row in rows:
            if row[-1] == TAKEN_BACK:
                held[row[:2], row[2:-1]] -= 1
            else:
                held[row[:2], row[2:]] += 1
    return held
