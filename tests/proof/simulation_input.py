"""The input of a simulated job: rows that come bit by bit, in a list or in files; or a history, and then a live source.

Of the halves each holds some rows of the other's side, and the live one may hold some that none of them counts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from persistent import FileSource, MemorySource, then
from persistent.checkpoint.plan import SourceStep
from persistent.time.clock import duration_ms

Row = dict[str, Any]


@dataclass(frozen=True)
class Border:
    """``at``: where the live source begins to count; ``skew_ms``: how much earlier it is read."""

    at: int
    skew_ms: int


def drawn_border(drawn: random.Random, rows: Sequence[Row], tick_ms: int) -> Border | None:
    """Where the job of a seed goes on with a live source; None for most jobs."""
    if drawn.random() > 0.15:
        return None
    times = sorted(row["ts"] for row in rows if row["ts"] > 0)
    if len(times) < 8:
        return None
    return Border(times[len(times) // 2], drawn.choice((0, 5 * tick_ms, duration_ms("300 days"))))


@dataclass
class Input:
    """``files``: rows stand in JSON files of ``folder``; of halves, those of the history. ``rows``: those that have
    come; ``coming``: the others."""

    folder: Path
    coming: list[Row]
    files: bool
    ordered: bool
    lag_ms: int
    border: Border | None = None
    rows: list[Row] = field(default_factory=list)
    history: list[Row] = field(default_factory=list)
    borders: list[list[int]] = field(default_factory=list)

    def split(self, drawn: random.Random) -> None:
        """Give each half its rows, and some of the other side, under ids of their own."""
        assert self.border is not None
        at, all_ = self.border.at, self.coming
        live: list[Row] = []
        # One in three times the history ends before the border: what lies between counts in no half.
        ends = at - drawn.choice((0, 0, 4))
        for row in all_:
            copy = {**row, "id": row["id"] + 1_000}
            ours, other = (self.history, live) if row["ts"] < ends else (live, self.history)
            ours.append(row)
            if row["ts"] >= 0 and drawn.random() < 0.3 and not (other is self.history and row["ts"] < at):
                other.append(copy)
        self.history = [{**row, "half": "history", "at": at} for row in self.history]
        self.coming = [{**row, "half": "live", "at": at} for row in live]
        if self.files:
            self._write(self.history)

    def come(self, count: int) -> int:
        """More rows are there; how many."""
        new, self.coming = self.coming[:count], self.coming[count:]
        self.rows += new
        if self.files and self.border is None and new:
            self._write(new)
        return len(new)

    def _write(self, rows: Sequence[Row]) -> None:
        lines = [json.dumps(row) + "\n" for row in rows]
        ends = [0]
        for line in lines:
            ends.append(ends[-1] + len(line.encode()))
        (self.folder / f"{len(self.borders):04d}.jsonl").write_text("".join(lines))
        self.borders.append(ends[:-1])

    def source(self) -> Any:
        """The source, as a new process makes it."""
        options = {"timestamp": "ts", "timestamp_unit": "ms", "max_out_of_orderness": self.lag_ms}
        files: Any = None
        if self.files:
            files = FileSource(str(self.folder / "*.jsonl"), ordered=self.ordered, **options)
        if self.border is None:
            return files or MemorySource(self.rows, ordered=self.ordered, **options)
        history = files or MemorySource(self.history, ordered=self.ordered, **options)
        live = MemorySource(self.rows, ordered=self.ordered, **options)
        return then(history, live, at=self.border.at, max_skew=self.border.skew_ms)

    def rows_of(self, read: SourceStep) -> dict[str, list[Row]]:
        """The rows that a plan reads, by partition."""
        found = {}
        for name, end in read.end.items():
            start = read.start.get(name, self._begins(name, read.recorded))
            first, last = (self._before(name, position) for position in (start, end))
            found[name] = self._list(name)[first:last]
        return found

    def count(self, recorded: Mapping[str, Any]) -> int:
        """How many rows are read in all, once everything is."""
        begins = self._before("live/memory", self._begins("live/memory", recorded)) if self.border else 0
        return len(self.history) + len(self.rows) - begins

    def _list(self, name: str) -> list[Row]:
        return self.history if name.startswith("history/") else self.rows

    def _begins(self, name: str, recorded: Mapping[str, Any]) -> tuple[int, int]:
        """Where a partition begins that joins. No row of the live side is before that."""
        if not name.startswith("live/"):
            return 0, 0
        assert self.border is not None
        ordinal, offset = recorded["seam"]["begins"][name]
        skipped = [row["ts"] for row in self.rows[:offset]]
        since = self.border.at - self.border.skew_ms
        assert all(ts < since for ts in skipped), f"the live source begins at {offset}, after rows from {since} on"
        return ordinal, offset

    def _before(self, name: str, position: Any) -> int:
        """How many rows of a partition lie before a position."""
        ordinal, offset = position
        if not name.endswith("files"):
            return int(offset)
        before = sum(len(starts) for starts in self.borders[:ordinal])
        here = self.borders[ordinal] if ordinal < len(self.borders) else []
        return before + sum(start < offset for start in here)
