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
    """What a plan says: the rows to read, of each partition, and the windows to close. ``caps``: of the partitions that
    the clock waits for. ``quiet_ms``: for how long nothing has come."""

    rows: Mapping[str, Sequence[Mapping[str, Any]]]
    close_at: int
    ends: bool
    caps: Mapping[str, int | None]
    quiet_ms: int = 0


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint must hold: the ``sums`` of the windows that are not final, and all that ever ``counted``.
    ``changed``: without windows, or with early results, the places of which something is not published. ``published``:
    of keys that expire, what readers hold; of early results, what was last published of each place, and ``passed``,
    where their clock stood; ``shows``: whether any step has published since. ``began``: whether there was a step, and
    ``marked``: whether a rollback came after one; then early results are not held back until some are published.
    ``seen``: the panes of the rows seen, by name. ``largest``: the largest time of each partition. ``quiet_ms``: for
    how long no row had come. ``outputs``, ``late``, ``dead``: what its own step stages; rows by their "id", also those
    that are late in some of their windows only, which the account does not count as late."""

    sums: Mapping[Place, Sums] = field(default_factory=dict)
    changed: frozenset[Place] = frozenset()
    published: Mapping[Place, Sums] = field(default_factory=dict)
    passed: int | None = None
    shows: bool = False
    began: bool = False
    marked: bool = False
    counted: tuple[tuple[Place, int], ...] = ()
    read: int = 0
    late_count: int = 0
    dead_count: int = 0
    duplicates: int = 0
    seen: Mapping[Any, int] = field(default_factory=dict)
    watermark: int = 0
    closed: int = 0
    final: int = 0
    largest: Mapping[str, int] = field(default_factory=dict)
    quiet_ms: int = 0
    ended: bool = False
    outputs: tuple[tuple[Any, ...], ...] = ()
    late: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()

    def after(self, step: Step, emission: Emission, lag_ms: int, copies: Copies | None = None) -> Snapshot:
        """The checkpoint that this step makes of it."""
        seen, horizon = copies.live(self.seen, self.watermark) if copies else ({}, 0)
        judged = emission.judged(self.final, self.watermark)
        counted: list[tuple[Place, int]] = []
        late, dead, late_count, duplicates, largest = [], [], 0, 0, dict(self.largest)
        rows = [(name, row) for name, some in step.rows.items() for row in some]
        for name, row in rows:
            time, fate = row["ts"], self._fate(row)
            if copies and time >= 0:
                fate = copies.fate(row, seen, horizon)
            starts = [] if time < 0 else list(emission.starts(time))
            open_ = [] if time < 0 else emission.taking(time, judged)
            if time < 0 or fate == "dead":
                dead.append(row["id"])
            elif fate == "duplicate":
                duplicates += 1
            elif fate == "late" or not open_:
                late.append(row["id"])
                late_count += 1
            else:
                if row["n"] < 0:
                    dead.append(row["id"])
                    continue
                # Of those that have failed no window is missed: they count nowhere.
                late += [row["id"]] if len(open_) < len(starts) else []
                counted += [((row["page"], start), row["n"]) for start in open_]
                largest[name] = max(time, largest.get(name, time))
        sums, own = dict(self.sums), []
        for place, n in counted:
            own.append(emission.count(sums, place, n))
        final = emission.final(judged, step.close_at)
        return replace(
            self._published(step, emission, sums, own, judged),
            sums={place: one for place, one in sums.items() if emission.left(place[1]) > final},
            counted=(*self.counted, *counted),
            read=self.read + len(rows),
            late_count=self.late_count + late_count,
            dead_count=self.dead_count + len(dead),
            duplicates=self.duplicates + duplicates,
            seen=seen,
            watermark=self._watermark(step, largest, lag_ms),
            closed=max(self.closed, step.close_at),
            final=final,
            largest=largest,
            quiet_ms=0 if rows else max(self.quiet_ms, step.quiet_ms),
            ended=step.ends or (self.ended and not rows),
            began=True,
            late=tuple(sorted(late)),
            dead=tuple(sorted(dead)),
        )

    def gone_back(self, newest: Snapshot) -> Snapshot:
        """What a rollback from the newest to it makes: the sinks of a job that had begun may have been given something,
        also where it goes back to before its first step."""
        return replace(self, marked=newest.began or newest.marked)

    def _fate(self, row: Mapping[str, Any]) -> str:
        """Of a row of one half of a source made of two; the border, "at", stands in such a row."""
        if "at" not in row:
            return "new"
        if row["half"] == "history":
            return "new" if row["ts"] < row["at"] else "duplicate"
        # What is after all that the history has, it cannot hold.
        reached = max((time for name, time in self.largest.items() if name.startswith("history/")), default=-1)
        return "new" if row["ts"] >= row["at"] else "duplicate" if row["ts"] <= reached else "dead"

    def _published(
        self, step: Step, emission: Emission, sums: Mapping[Place, Sums], own: Sequence[Place], judged: int
    ) -> Snapshot:
        """The same, with what the step publishes, which has counted in its ``own`` places."""
        if emission.has_lives:
            return self._published_lives(step, emission, sums, own)
        if emission.early is not None:
            return self._published_early(step, emission, sums, own, judged)
        if emission.has_windows:
            due = [place for place in sums if self.closed < emission.end(place[1]) <= step.close_at]
        else:
            due = list(self.changed) if step.ends else []
        outputs = emission.outputs(self.sums, sums, dict.fromkeys(own), due, self.closed)
        changed = frozenset() if step.ends else self.changed.union(own)
        return replace(self, changed=changed, outputs=tuple(sorted(outputs, key=repr)))

    def _published_lives(
        self, step: Step, emission: Emission, sums: Mapping[Place, Sums], own: Sequence[Place]
    ) -> Snapshot:
        """By the clock at which the step begins: what it reads moves it for the next."""
        changed, passed = self.changed.union((page, None) for page, _ in own), self.passed
        publishes = step.ends or emission.of_changes
        if emission.early is not None:
            passed, passes = emission.early_clock(self.passed, self.watermark)
            publishes = step.ends or passes or (self.marked and not self.shows and bool(self.counted))
        if not publishes:
            return replace(self, changed=changed, passed=passed, outputs=())
        living = emission.living(sums, step.close_at)
        outputs = tuple(sorted(emission.outputs(self.published, living, changed, (), self.closed), key=repr))
        shown = replace(self, changed=frozenset(), published=living, passed=passed, outputs=outputs)
        return replace(shown, shows=True)

    def _published_early(
        self, step: Step, emission: Emission, sums: Mapping[Place, Sums], own: Sequence[Place], judged: int
    ) -> Snapshot:
        passed, publishes = emission.early_clock(self.passed, self.watermark)
        lacks = self.marked and not self.shows and bool(self.sums)
        fresh = self.changed
        if emission.has_sessions:
            fresh, own = frozenset(emission.unpublished(self.published, sums)), ()
        must = step.ends or lacks or emission.must_publish(fresh, own, self.final, judged, step.close_at)
        changed = fresh.union(own)
        if not (publishes or must):
            return replace(self, passed=passed, changed=changed, outputs=())
        outputs = tuple(sorted(emission.outputs(self.published, sums, changed, (), self.closed), key=repr))
        published = sums if emission.has_sessions else {**self.published, **{place: sums[place] for place in changed}}
        shown = replace(self, passed=passed, changed=frozenset(), published=published, outputs=outputs)
        return replace(shown, shows=True)

    def _watermark(self, step: Step, largest: Mapping[str, int], lag_ms: int) -> int:
        """The slowest of the partitions that the clock waits for; one without a record is at the beginning."""
        bounds = []
        for name, cap in step.caps.items():
            reached = largest[name] - lag_ms if name in largest else 0
            bounds.append(reached if cap is None or name not in largest else min(reached, cap))
        reached = min(bounds, default=0)
        if step.quiet_ms:
            reached = (reached or self.watermark - self.quiet_ms) + step.quiet_ms
        return max(self.watermark, reached, step.close_at)
