"""A simulated job is a task over rows, with its twin: the same job in plain Python, one planned step after the other.

The twin takes the plan that was committed (which rows, what to close) and nothing else from the production code; so
what it says of a checkpoint is what the calm run over the same plans would have come to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from monoids import Count, Max, Sum, record
from persistent import Dedupe, NonWindowState, PersistentTask, WindowState, sliding, tumbling

Key = tuple[Any, int | None]
"""A page, and the start of its window; None of a state without windows."""

Sums = tuple[int, int, int]
"""Visits, total and largest number."""


Span = tuple[int, int, int]
"""Of windows: their size, how often one starts, and the offset of all."""


@dataclass(frozen=True)
class Copies:
    """How the job recognises copies, and a step's rows judged one by one: a mapping of name to pane is all it takes."""

    dedupe: Dedupe

    def name(self, row: Mapping[str, Any]) -> Any:
        """What names a row; None if something is missing."""
        values = tuple(row[column] for column in self.dedupe.names)
        return None if None in values else values

    def live(self, seen: Mapping[Any, int], watermark: int) -> tuple[dict[Any, int], int]:
        """What is still remembered in the step after this watermark, and from which time on."""
        pane = self.dedupe.pane_ms
        horizon = max(0, (watermark - self.dedupe.within_ms) // pane * pane)
        return {name: start for name, start in seen.items() if start >= horizon}, horizon

    def fate(self, row: Mapping[str, Any], seen: dict[Any, int], horizon: int) -> str:
        """ "dead", "duplicate", "late" or "new"; what is new is seen."""
        name, time = self.name(row), row["ts"]
        if name is None:
            return "dead"
        if name in seen:
            return "duplicate"
        if time < horizon:
            return "late"
        seen[name] = time // self.dedupe.pane_ms * self.dedupe.pane_ms
        return "new"


class Counts(PersistentTask):
    """Visits, their total and their largest number, by page and window. Raises on a negative number."""

    key = "page"

    def __init__(self, window: Span | None) -> None:
        self.window = window

    def persistent_state(self) -> Any:
        monoid = record(visits=Count(), total=Sum(), top=Max())
        if self.window is None:
            return NonWindowState(monoid)
        size, every, offset = self.window
        window = tumbling(size, offset=offset) if size == every else sliding(size, every=every, offset=offset)
        return WindowState(monoid, window)

    def process_message(self, state: Any, message: Any) -> None:
        n = message.value["n"]
        if n < 0:
            raise ValueError("negative")
        state.update(message.timestamp, {"visits": 1, "total": n, "top": n})


@dataclass(frozen=True)
class Step:
    """What a plan says: the rows to read, and the windows to close."""

    rows: Sequence[Mapping[str, Any]]
    close_at: int
    ends: bool
    cap: int | None


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint must hold. ``seen``: the panes of the rows seen, by name. ``outputs``, ``late``, ``dead``: what
    its own step stages; rows by their "id". ``partly``: late in some of their windows only, which the account does not
    count as late."""

    sums: Mapping[Key, Sums] = field(default_factory=dict)
    changed: frozenset[Any] = frozenset()
    read: int = 0
    late_count: int = 0
    dead_count: int = 0
    duplicates: int = 0
    seen: Mapping[Any, int] = field(default_factory=dict)
    watermark: int = 0
    closed: int = 0
    largest: int | None = None
    ended: bool = False
    outputs: tuple[tuple[Any, ...], ...] = ()
    late: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()

    def after(self, step: Step, window: Span | None, lag_ms: int, copies: Copies | None = None) -> Snapshot:
        """The checkpoint that this step makes of it."""
        seen, horizon = copies.live(self.seen, self.watermark) if copies else ({}, 0)
        fates = {
            row["id"]: copies.fate(row, seen, horizon) if copies and row["ts"] >= 0 else "new" for row in step.rows
        }
        outputs = self._outputs(step, window)
        sums, changed = dict(self.sums), set(self.changed)
        if window is None and step.ends:
            changed.clear()
        late, dead, late_count, largest = [], [], 0, self.largest
        for row in step.rows:
            time = row["ts"]
            starts = None if window is None or time < 0 else list(_starts(time, window))
            open_ = [start for start in starts or () if start + window[0] > self.watermark]  # type: ignore[index]
            if time < 0 or fates.get(row["id"]) == "dead":
                dead.append(row["id"])
            elif fates.get(row["id"]) == "duplicate":
                continue
            elif fates.get(row["id"]) == "late" or (starts and not open_):
                late.append(row["id"])
                late_count += 1
            elif row["n"] < 0:
                # What is late is decided before the task sees it.
                late += [row["id"]] if starts is not None and len(open_) < len(starts) else []
                dead.append(row["id"])
            else:
                late += [row["id"]] if starts is not None and len(open_) < len(starts) else []
                for start in [None] if starts is None else open_:
                    sums[row["page"], start] = _added(sums.get((row["page"], start)), row["n"])
                changed.add(row["page"])
                largest = time if largest is None else max(largest, time)
        watermark = self._watermark(step, largest, lag_ms)
        closed = max(self.closed, step.close_at)
        if window is not None:
            sums = {key: value for key, value in sums.items() if key[1] + window[0] > closed}  # type: ignore[operator]
        return replace(
            self,
            sums=sums,
            changed=frozenset(changed),
            read=self.read + len(step.rows),
            late_count=self.late_count + late_count,
            dead_count=self.dead_count + len(dead),
            duplicates=self.duplicates + list(fates.values()).count("duplicate"),
            seen=seen,
            watermark=watermark,
            closed=closed,
            largest=largest,
            ended=step.ends or (self.ended and not step.rows),
            outputs=tuple(sorted(outputs, key=repr)),
            late=tuple(sorted(late)),
            dead=tuple(sorted(dead)),
        )

    def _outputs(self, step: Step, window: Span | None) -> list[tuple[Any, ...]]:
        """What was there before the step's own rows, of what it closes."""
        if window is None:
            return [(page, None, *self.sums[page, None]) for page in self.changed] if step.ends else []
        ends = {key: key[1] + window[0] for key in self.sums}  # type: ignore[operator]
        return [(*key, *self.sums[key]) for key, end in ends.items() if self.closed < end <= step.close_at]

    def _watermark(self, step: Step, largest: int | None, lag_ms: int) -> int:
        reached = 0 if largest is None else largest - lag_ms
        if largest is not None and step.cap is not None:
            reached = min(reached, step.cap)
        return max(self.watermark, reached, step.close_at)


def _starts(time: int, window: Span) -> Iterator[int]:
    """The starts of the windows that hold a time."""
    size, every, offset = window
    start = (time - offset) // every * every + offset
    while start + size > time:
        yield start
        start -= every


def _added(sums: Sums | None, n: int) -> Sums:
    visits, total, top = sums or (0, 0, n)
    return visits + 1, total + n, max(top, n)
