"""A simulated job is a task over rows, with its twin: the same job in plain Python, one planned step after the other.

The twin takes the plan that was committed (which rows, what to close) and nothing else from the production code; so
what it says of a checkpoint is what the calm run over the same plans would have come to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from persistent import Dedupe, PersistentTask
from tests.proof.emission import Emission, Place, Sums


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
    """Visits, their total and mostly their largest number, by page and window. Raises on a negative number.
    ``states``: the names of several that are the same; none: one without a name."""

    key = "page"

    def __init__(self, emission: Emission, states: Sequence[str] = ()) -> None:
        self.emission, self.states = emission, states

    def persistent_state(self) -> Any:
        return {name: self.emission.state() for name in self.states} if self.states else self.emission.state()

    def process_message(self, state: Any, message: Any) -> None:
        n = message.value["n"]
        if n < 0:
            raise ValueError("negative")
        for one in state.values() if self.states else (state,):
            one.update(message.timestamp, self.emission.values(n))


@dataclass(frozen=True)
class Step:
    """What a plan says: the rows to read, and the windows to close."""

    rows: Sequence[Mapping[str, Any]]
    close_at: int
    ends: bool
    cap: int | None


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint must hold: the ``sums`` of the windows that are not final, and all that ever ``counted``.
    ``changed``: without windows, the places of which something is not published. ``seen``: the panes of the rows seen,
    by name. ``outputs``, ``late``, ``dead``: what its own step stages; rows by their "id", also those that are late in
    some of their windows only, which the account does not count as late."""

    sums: Mapping[Place, Sums] = field(default_factory=dict)
    changed: frozenset[Place] = frozenset()
    counted: tuple[tuple[Place, int], ...] = ()
    read: int = 0
    late_count: int = 0
    dead_count: int = 0
    duplicates: int = 0
    seen: Mapping[Any, int] = field(default_factory=dict)
    watermark: int = 0
    closed: int = 0
    final: int = 0
    largest: int | None = None
    ended: bool = False
    outputs: tuple[tuple[Any, ...], ...] = ()
    late: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()

    def after(self, step: Step, emission: Emission, lag_ms: int, copies: Copies | None = None) -> Snapshot:
        """The checkpoint that this step makes of it."""
        seen, horizon = copies.live(self.seen, self.watermark) if copies else ({}, 0)
        fates = {
            row["id"]: copies.fate(row, seen, horizon) if copies and row["ts"] >= 0 else "new" for row in step.rows
        }
        judged = emission.judged(self.final, self.watermark)
        counted: list[tuple[Place, int]] = []
        late, dead, late_count, largest = [], [], 0, self.largest
        for row in step.rows:
            time = row["ts"]
            starts = [] if time < 0 else list(emission.starts(time))
            open_ = [start for start in starts if emission.end(start) > judged]
            if time < 0 or fates.get(row["id"]) == "dead":
                dead.append(row["id"])
            elif fates.get(row["id"]) == "duplicate":
                continue
            elif fates.get(row["id"]) == "late" or not open_:
                late.append(row["id"])
                late_count += 1
            else:
                # What is late is decided before the task sees it.
                late += [row["id"]] if len(open_) < len(starts) else []
                if row["n"] < 0:
                    dead.append(row["id"])
                    continue
                counted += [((row["page"], start), row["n"]) for start in open_]
                largest = time if largest is None else max(largest, time)
        sums, outputs = self._published(step, emission, counted)
        final = emission.final(judged, step.close_at)
        return replace(
            self,
            sums={place: one for place, one in sums.items() if emission.end(place[1]) > final},
            changed=frozenset() if step.ends else self.changed.union(place for place, _ in counted),
            counted=(*self.counted, *counted),
            read=self.read + len(step.rows),
            late_count=self.late_count + late_count,
            dead_count=self.dead_count + len(dead),
            duplicates=self.duplicates + list(fates.values()).count("duplicate"),
            seen=seen,
            watermark=self._watermark(step, largest, lag_ms),
            closed=max(self.closed, step.close_at),
            final=final,
            largest=largest,
            ended=step.ends or (self.ended and not step.rows),
            outputs=tuple(sorted(outputs, key=repr)),
            late=tuple(sorted(late)),
            dead=tuple(sorted(dead)),
        )

    def _published(
        self, step: Step, emission: Emission, counted: Sequence[tuple[Place, int]]
    ) -> tuple[dict[Place, Sums], list[tuple[Any, ...]]]:
        """The sums with what the step has counted, and what it publishes."""
        sums = dict(self.sums)
        for place, n in counted:
            sums[place] = emission.added(sums.get(place), n)
        if emission.has_windows:
            due = [place for place in sums if self.closed < emission.end(place[1]) <= step.close_at]
        else:
            due = list(self.changed) if step.ends else []
        return sums, emission.outputs(self.sums, sums, dict(counted), due, self.closed)

    def _watermark(self, step: Step, largest: int | None, lag_ms: int) -> int:
        reached = 0 if largest is None else largest - lag_ms
        if largest is not None and step.cap is not None:
            reached = min(reached, step.cap)
        return max(self.watermark, reached, step.close_at)
