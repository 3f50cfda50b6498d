"""The dictionary model of a job under operations: what every checkpoint that was ever committed must hold.

It knows collections, and of this package nothing but the options of a state. Checkpoints are known by the ids that
were seen committed; what each of them holds, which are kept, and what the sink shows follows from the operations alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.proof.borders import Gap
from tests.proof.emission import Emission, Place, Sums

GRID, HISTORY_MS = 5, 40
"""Of clocks at which the state is known, in ticks; and for how long it is, without windows."""
FENCES_A_BLOCK = 16
"""Of ids: a fence that no checkpoint stands on is kept as long as the newest is of the same block."""

Lists = Mapping[str, Sequence[Mapping[str, Any]]]
"""The rows of each partition of a source, in the order in which they are read."""


@dataclass(frozen=True)
class Held:
    """A row that counts in the state. ``fresh``: nothing has been published of it."""

    page: Any
    ts: int
    n: int
    fresh: bool = True


@dataclass(frozen=True)
class Plan:
    """What a step reads up to, and which windows it closes."""

    stop: Mapping[str, int]
    close_at: int
    ends: bool


@dataclass(frozen=True)
class Shown:
    """What one checkpoint publishes: values of windows or keys, and the numbers of rows late and dead. ``apart``: of
    the late rows in a sink of their own."""

    values: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    late: Counter[int] = field(default_factory=Counter)
    dead: Counter[int] = field(default_factory=Counter)
    apart: Counter[int] = field(default_factory=Counter)

    def __bool__(self) -> bool:
        return bool(self.values or self.late or self.dead or self.apart)

    def __le__(self, other: Shown) -> bool:
        aside = self.late <= other.late and self.dead <= other.dead and self.apart <= other.apart
        return self.values <= other.values and aside


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds. ``source``: which of the sources of the world its ``positions`` are of. ``accounts``:
    by partition, read, processed, late, dead and duplicate. ``known_from``: of a state without windows, the clock
    before which its past has been summed up. ``unlisted``: whether no sink of the job is known yet. ``passed``: where
    the clock of early results stood; ``shows``: whether any step has published some since.
    ``marked``: whether a rollback has come; then they are not held back until some are published. Of keys that expire,
    ``shown``: what readers hold, as they were told at the clock ``told``. ``anew``: whether all is published anew, to
    readers who may hold it; of keys that expire, and of sessions, of which ``shown`` is then what they may hold.
    ``lacks``: whether readers were given nothing of windows that could be corrected, and are with the next step."""

    emission: Emission
    source: int
    positions: Mapping[str, int]
    accounts: Mapping[str, Counter[str]]
    rows: tuple[Held, ...] = ()
    largest: Mapping[str, int] = field(default_factory=dict)
    watermark: int = 0
    closed: int = 0
    final: int = 0
    ended: bool = False
    since: int | None = None
    known_from: int = 0
    unlisted: bool = False
    passed: int | None = None
    shows: bool = False
    marked: bool = False
    shown: Mapping[Place, Sums] = field(default_factory=dict)
    told: int | None = None
    anew: bool = False
    lacks: bool = False

    @staticmethod
    def empty(emission: Emission, source: int, partitions: Sequence[str]) -> Snapshot:
        accounts = {name: Counter[str]() for name in partitions}
        return Snapshot(emission, source, dict.fromkeys(partitions, 0), accounts, unlisted=True)

    # -- what it shows -------------------------------------------------------------------------------------------

    def state(self, as_of: int | None = None) -> dict[Place, Sums]:
        """Count and total of each key, and of each window that is not closed; of what was before a clock."""
        closed = self.closed if as_of is None else as_of
        folded = self._folded(row for row in self.rows if as_of is None or row.ts < as_of)
        if self.emission.has_lives:
            return self.emission.living(folded, self.watermark)
        return {place: sums for place, sums in folded.items() if self.emission.end(place[1]) > closed}

    def knows(self, clock: int, *, unpublished: bool = False) -> bool:
        """Whether what was before that clock can be told from what came after. ``unpublished``: no window that was
        open then has been published."""
        emission = self.emission
        grid = emission.window.cut if isinstance(emission.window, Gap) else GRID * emission.tick_ms
        if emission.has_lives or clock % grid or not 0 <= clock <= self.watermark:
            return False
        if emission.has_sessions:
            # None is open at a border of cells, and those that were then are gone from the cell behind.
            return self.closed <= clock if unpublished else self.final // grid <= clock // grid
        if emission.has_windows:
            gone = self.closed if unpublished else self.final
            return next(emission.starts(gone)) <= next(emission.starts(clock))  # type: ignore[operator]
        return max(self.known_from, _summed_up(self.watermark)) <= clock

    def placed(self, rows: Iterable[Held]) -> list[tuple[Held, Place]]:
        """Each row with its place; of sessions, and of lives, it follows from all of them."""
        alone = [(row, (row.page, next(self.emission.starts(row.ts)))) for row in rows]
        if not self.emission.joins:
            return alone
        sessions = self.emission.summed((place, row.n) for row, place in alone)
        held = {(page, ms): (page, borders) for page, borders in sessions for ms in range(*borders)}
        return [(row, held[row.page, row.ts]) for row, _ in alone]

    def open(self, rows: Iterable[Held], clock: int) -> list[Held]:
        """Those of the rows whose windows end after a clock; or whose lives something can still join."""
        return [row for row, place in self.placed(rows) if self.emission.left(place[1]) > clock]

    # -- what becomes of it --------------------------------------------------------------------------------------

    def plan(self, lists: Lists, step_rows: int, ends: bool, drift: int | None = None) -> Plan | None:
        """The next step; None if there is nothing to do. ``drift``: how far a partition may be ahead of the slowest."""
        waits = self._ahead(lists, drift)
        stop = {
            name: self.positions[name] if name in waits else min(len(rows), self.positions[name] + step_rows)
            for name, rows in lists.items()
        }
        if stop != self.positions:
            return Plan(stop, self._close_at, False)
        is_told = not (self._lacks_totals() or self._has_corrected_totals() or self._has_untold())
        ends = ends and not (self.ended and is_told)
        ending = [self.emission.end(place[1]) for _, place in self.placed(self.rows) if self.emission.has_windows]
        is_open = [end for end in ending if end > self.closed]
        close_at = max([self._close_at, *(is_open if ends else [])])
        if self.emission.has_lives:
            is_open = [self.emission.end(borders) for _, borders in self._folded(self.rows)]
            is_open = [end for end in is_open if end > self.closed]
        moves = self._reached(self.largest) > self.watermark
        if not (ends or moves or any(end <= close_at for end in is_open) or self._lacks_changes()):
            return None
        return Plan(stop, close_at, ends)

    def idle(self) -> Plan:
        """A step in which nothing happens: a life may have ended, by the times of a part of it."""
        return Plan(self.positions, self._close_at, False)

    def after(self, plan: Plan, lists: Lists) -> tuple[Snapshot, Shown]:
        """The checkpoint that a step makes of it, and what the step publishes."""
        late, dead = Counter[int](), Counter[int]()
        accounts = {name: Counter(account) for name, account in self.accounts.items()}
        own, largest = list[Held](), dict(self.largest)
        judged = self.emission.judged(self.final, self.watermark)
        for name in self.positions:
            for row in lists[name][self.positions[name] : plan.stop[name]]:
                fate = self._fate(row, judged)
                accounts[name].update(["read", fate])
                if fate == "processed":
                    own.append(Held(row["page"], row["ts"], row["n"]))
                    largest[name] = max(row["ts"], largest.get(name, 0))
                late.update([row["id"]] if fate == "late" else [])
                dead.update([row["id"]] if fate == "dead" else [])
        rows: Iterable[Held] = (*self.rows, *own)
        publishes = self.emission.of_changes and self._publishes(plan, own, judged)
        told: dict[str, Any] = {}
        if plan.ends or publishes:
            if self.emission.has_lives:
                told = {"shown": self.emission.living(self._folded(rows), plan.close_at), "told": plan.close_at}
            rows = [replace(row, fresh=False) for row in rows]
        final, reads = self.emission.final(judged, plan.close_at), plan.stop != self.positions
        joins = self.unlisted and not self.emission.has_windows
        after = replace(
            self,
            positions=dict(plan.stop),
            accounts=accounts,
            rows=tuple(self.open(rows, final)),
            largest=largest,
            watermark=max(self.watermark, self._reached(largest), plan.close_at),
            closed=max(self.closed, plan.close_at),
            final=final,
            ended=plan.ends or (self.ended and not reads and not joins),
            known_from=max(self.known_from, _summed_up(self.watermark)),
            unlisted=False,
            lacks=False,
            passed=None if self.emission.early is None else self._early_clock()[0],
            shows=self.shows or publishes,
            **({**told, "anew": False} if told or self.emission.has_sessions else {}),
        )
        return after, Shown(self._published(plan, own, judged), late, dead)

    def takes(self, ts: int) -> bool:
        """Whether a record of that time can still be put in, after the fact."""
        return ts >= 0 and bool(self.emission.taking(ts, self.final))

    def corrected(self, own: Sequence[Held]) -> tuple[Snapshot, Shown]:
        """The checkpoint that rows make which are put in after the fact, and what it publishes."""
        rows, unlisted = (*self.rows, *own), self.unlisted
        if self.emission.emit == "change":
            rows, unlisted = tuple(replace(row, fresh=False) for row in rows), False
        shown = Shown(self._published(Plan(self.positions, self.closed, False), own, self.final))
        known_from = max(self.known_from, _summed_up(self.watermark))
        ends = [self.emission.end(place[1]) for _, place in self.placed(rows) if self.emission.has_windows]
        ended = self.ended and not any(end > self.closed for end in ends)
        anew = self.anew and not (self.emission.has_sessions and self.emission.of_changes)
        return replace(self, rows=rows, known_from=known_from, unlisted=unlisted, ended=ended, anew=anew), shown

    def restarted(self, clock: int, source: int, newest: Snapshot) -> Snapshot:
        """The state as of a clock, over a source of which nothing has been read; put after ``newest``."""
        empty, closed = Snapshot.empty(self.emission, source, list(self.positions)), min(self.closed, clock)
        rows = tuple(replace(row, fresh=True) for row in self.rows if row.ts < clock)
        # A source of which nothing was read is read whole.
        was_read = self.since is not None or any(account["read"] for account in self.accounts.values())
        after = replace(empty, rows=rows, watermark=clock, closed=closed, final=closed, known_from=self.known_from)
        passed = self.passed
        if passed is not None:
            passed = min(passed, clock)
        after = replace(after, since=clock if was_read else None, passed=passed)
        return replace(after, unlisted=newest.unlisted, marked=not newest.unlisted)

    def merged(self, other: Snapshot, source: int) -> Snapshot:
        """The sum of two jobs that have both come to their end."""
        closed = (max if self.emission.has_windows else min)(self.closed, other.closed)
        return Snapshot(
            self.emission,
            source,
            {**self.positions, **other.positions},
            {**self.accounts, **other.accounts},
            tuple(replace(row, fresh=True) for row in (*self.rows, *other.rows)),
            {**self.largest, **other.largest},
            max(min(self.watermark, other.watermark), closed),
            closed,
            closed,
            self.ended and other.ended,
            self.since,
            max(self.known_from, other.known_from),
            unlisted=True,
            passed=self.passed,
        )

    def begun(self) -> Snapshot:
        """The first content of another job: nothing of it is published yet."""
        anew = self.emission.has_lives or self.anew or not self.unlisted
        begun = replace(self, source=0, rows=self._all_fresh(), unlisted=True, shows=False, marked=False, anew=anew)
        begun = replace(begun, lacks=self.emission.late is not None)
        if not self.emission.has_sessions or (self.anew and self.unlisted):
            return begun
        return replace(begun, shown=self._folded(row for row in self.rows if not row.fresh))

    def gone_back(self, newest: Snapshot, *, again: bool) -> Snapshot:
        """What a rollback to it makes: a sink that came since lacks the totals, even if the input had ended; and
        changes are published ``again`` as a whole."""
        changes = self.emission.of_changes
        if again and self.lacks and not newest.unlisted:
            return replace(self, lacks=False).gone_back(newest, again=again)
        if again and self.emission.has_lives and not newest.unlisted:
            told = self.closed if self.told is None else self.told
            rows = self._all_fresh()
            return replace(self, ended=False, rows=rows, unlisted=False, marked=True, shows=False, told=told, anew=True)
        lacks = self._lacks_totals() or (self.unlisted and changes and bool(self.rows)) or self._has_told_no_totals()
        if (lacks and not newest.unlisted) or (changes and again and self.rows):
            rows = self._all_fresh() if changes else self.rows
            anew = replace(self, ended=False, rows=rows, shows=False, anew=again or self.anew)
            if again and self.emission.has_sessions:
                anew = replace(anew, shown=self._folded(self.rows))
            return replace(anew, unlisted=newest.unlisted, marked=not newest.unlisted)
        return replace(self, unlisted=newest.unlisted, marked=not newest.unlisted)

    def _all_fresh(self) -> tuple[Held, ...]:
        return tuple(replace(row, fresh=True) for row in self.rows)

    @property
    def _close_at(self) -> int:
        return self.emission.close_at(self.closed, self.watermark)

    def _lacks_totals(self) -> bool:
        return not self.emission.has_windows and bool(self.rows) and self.unlisted

    def _has_told_no_totals(self) -> bool:
        """Whether all that it holds was put in after the fact since the input had ended, and no sink was given any."""
        is_fresh = bool(self.rows) and all(row.fresh for row in self.rows)
        return self.ended and is_fresh and not (self.emission.has_windows or self.emission.of_changes or self.marked)

    def _has_untold(self) -> bool:
        """Whether readers hold a key that has expired."""
        living = self.emission.living(self._folded(self.rows), self.closed) if self.emission.has_lives else {}
        return self.emission.has_lives and any(place not in living for place in self._held_by_readers(self.rows))

    def _held_by_readers(self, rows: Iterable[Held]) -> Mapping[Place, Sums]:
        """What was published of keys that expire. If all is published anew, of what there is now: some may hold it."""
        if not self.anew:
            return self.shown
        return {} if self.told is None else self.emission.living(self._folded(rows), self.told)

    def _has_corrected_totals(self) -> bool:
        """Whether some were put in after the fact since the input had ended, which the sink has not."""
        return not self.emission.has_windows and any(row.fresh for row in self.rows)

    def _lacks_changes(self) -> bool:
        if not self.emission.of_changes:
            return False
        passes = self.emission.early is None or self._early_clock()[1]
        lacks = self.unlisted or (self.marked and not self.shows and self.emission.early is not None)
        return any((row.fresh and passes) or lacks for row in self.rows)

    def _early_clock(self) -> tuple[int, bool]:
        return self.emission.early_clock(self.passed, self.watermark)

    def _publishes(self, plan: Plan, own: Sequence[Held], judged: int) -> bool:
        """Whether a step publishes what has changed."""
        lacks = (self.unlisted or (self.marked and not self.shows)) and bool(self.rows)
        if self.emission.early is None or plan.ends or lacks or self._early_clock()[1]:
            return True
        if self.emission.has_lives:
            # What a reader has of a key stays on disk until it is taken back.
            return False
        if self.emission.has_sessions:
            fresh = {place for row, place in self.placed((*self.rows, *own)) if row.fresh}
            return self.emission.must_publish(fresh, (), self.final, judged, plan.close_at)
        fresh, new = {place for row, place in self.placed(self.rows) if row.fresh}, dict(self.placed(own)).values()
        return self.emission.must_publish(fresh, new, self.final, judged, plan.close_at)

    def _ahead(self, lists: Lists, drift: int | None) -> set[str]:
        """The partitions that wait for the slowest."""
        unread = [name for name, rows in lists.items() if self.positions[name] < len(rows)]
        if drift is None or not unread:
            return set()
        at = {name: max(self.largest.get(name, 0), self.watermark) for name in unread}
        return {name for name in unread if at[name] > min(at.values()) + drift}

    def _fate(self, row: Mapping[str, Any], judged: int) -> str:
        ts = row["ts"]
        if ts < 0:
            return "dead"
        if self.since is not None and ts < self.since:
            return "duplicate"
        if not self.emission.taking(ts, judged):
            return "late"
        return "dead" if row["n"] < 0 else "processed"

    def _reached(self, largest: Mapping[str, int]) -> int:
        return min(largest.get(name, 0) for name in self.positions)

    def _published(self, plan: Plan, own: Sequence[Held], judged: int) -> Counter[tuple[Any, ...]]:
        """What a step publishes that has counted its ``own`` rows."""
        rows, emission = (*self.rows, *own), self.emission
        before, changed = ((), self.open(rows, self.final)) if self.lacks else (self.rows, own)
        if emission.has_lives:
            publishes = plan.ends or (emission.of_changes and self._publishes(plan, own, judged))
            return self._published_lives(plan, rows) if publishes else Counter()
        if emission.of_changes:
            if not self._publishes(plan, own, judged):
                return Counter()
            changed = self.open((row for row in rows if row.fresh or self.unlisted), self.final)
            before = tuple(row for row in self.rows if not (row.fresh or self.unlisted))
        if emission.has_windows:
            due = {place for _, place in self.placed(rows) if self.closed < emission.end(place[1]) <= plan.close_at}
        else:
            due = {place for row, place in self.placed(self.rows) if plan.ends and row.fresh}
        if emission.of_changes and emission.has_sessions:
            # What is published anew takes back nothing but what is gone.
            now, was = self._folded(rows), self.shown if self.anew else self._folded(before)
            was = {place: sums for place, sums in was.items() if place not in now or not self.anew}
            now = {place: sums for place, sums in now.items() if emission.end(place[1]) > self.final}
            return Counter(emission.outputs(was, now, (), (), self.closed))
        places = {place for _, place in self.placed(changed)}
        return Counter(emission.outputs(self._folded(before), self._folded(rows), places, due, self.closed))

    def _published_lives(self, plan: Plan, rows: Sequence[Held]) -> Counter[tuple[Any, ...]]:
        """What a step publishes of keys that expire, which then has these rows."""
        old, living = self._held_by_readers(rows), self.emission.living(self._folded(rows), plan.close_at)
        if self.anew or self.unlisted:
            # What is published anew takes back nothing but what is gone.
            old = {place: sums for place, sums in old.items() if place not in living}
        changed = {(row.page, None) for row in rows if row.fresh or self.unlisted}
        return Counter(self.emission.outputs(old, living, changed, (), self.closed))

    def _folded(self, rows: Iterable[Held]) -> dict[Place, Sums]:
        emission = self.emission
        return emission.summed(((row.page, next(emission.starts(row.ts))), row.n) for row in rows)


def _summed_up(clock: int) -> int:
    """Before which clock work sums up the past that begins at that one."""
    return max(0, (clock - HISTORY_MS) // GRID * GRID)


@dataclass
class Model:
    """What the whole checkpoint must be.

    ``held``: of every id ever seen, kept or not. ``bases``: the ids that are kept, with ``pins`` among them, and all
    from ``oldest`` on. ``targets``: where each rollback went back to. ``gone``: ranges of ids whose outputs were to be
    taken back; ``doubtful``: those where another rollback came before they were. ``retract``: the one that still may
    have to be. ``shown``: what each id has published; of those in ``partly`` perhaps only a part. ``owed``: the id
    whose outputs the newest manifest lists. ``plans``: those put and not yet committed, by base.
    """

    last: int
    held: dict[int, Snapshot] = field(default_factory=dict)
    newest: int = -1
    base: int = 0
    oldest: int = 0
    bases: set[int] = field(default_factory=set)
    pins: set[int] = field(default_factory=set)
    targets: dict[int, int] = field(default_factory=dict)
    gone: list[tuple[int, int]] = field(default_factory=list)
    doubtful: list[tuple[int, int]] = field(default_factory=list)
    retract: tuple[int, int] | None = None
    shown: dict[int, Shown] = field(default_factory=dict)
    partly: set[int] = field(default_factory=set)
    owed: int | None = None
    plans: dict[int, Plan] = field(default_factory=dict)

    @property
    def now(self) -> Snapshot:
        """What the newest checkpoint holds."""
        return self.held[self.newest]

    def keeps(self, id: int, newest: int | None = None) -> bool:
        """Whether it is kept, or will be once ``newest`` fences. Of those that only carry the state on, few are: they
        say what the newest says."""
        newest = self.newest if newest is None else newest
        if not self.oldest <= id <= newest:
            return id in self.bases
        is_recent = id // FENCES_A_BLOCK == newest // FENCES_A_BLOCK or id == newest - 1
        return is_recent or id in self.bases or id + 1 in self.bases

    def kept(self) -> list[int]:
        return [id for id in self.held if self.keeps(id)]

    # -- what is committed ---------------------------------------------------------------------------------------

    def fence(self, id: int) -> None:
        self._put(id, self.now)

    def checkpoint(self, id: int, snapshot: Snapshot, shown: Shown) -> None:
        """A step: whoever commits one has taken back and published all that was to be before."""
        self.settle()
        self.retract = None
        self.plans.pop(self.base, None)
        self._put(id, snapshot)
        self._name(id)
        self.oldest = max(self.oldest, sorted(self.bases)[-self.last :][0])
        self.bases = {one for one in self.bases if one >= self.oldest or one in self.pins}
        # Of a branch that holds no checkpoint any more only fences are left, and they stand on one before it.
        self.gone = [(first, stop) for first, stop in self.gone if any(first <= one < stop for one in self.bases)]
        self.owed = id if shown else None
        if shown:
            self.shown[id] = shown
            self.partly.add(id)

    def compaction(self, id: int) -> None:
        base, now = self.base, self.now
        rows = tuple(now.open(now.rows, now.final))
        self._put(id, replace(now, rows=rows, known_from=max(now.known_from, _summed_up(now.closed))))
        self._name(id)
        self.base = base

    def rollback(self, id: int, target: int, snapshot: Snapshot, *, take_back: bool) -> None:
        first = target + 1
        if self.retract is not None and not any(one <= target < stop for one, stop in self.gone):
            first = min(first, self.retract[0])
        if take_back:
            # What is taken back besides, the checkpoint gone back to has not counted as published.
            self.gone.append((target + 1, id))
        elif self._taken_back() and self.retract is not None:
            self.doubtful.append(self.retract)
        self.retract = (first, id) if take_back else None
        self._put(id, snapshot)
        self._name(id)
        self.targets[id] = target
        if take_back and self.owed is not None and self.owed > target:
            self.owed = None

    def begun(self, id: int, snapshot: Snapshot) -> None:
        """The first content of a job, that began empty, as a copy or as a sum; what was put before may be gone."""
        self.held[id], self.newest = snapshot, id
        self.base, self.oldest, self.bases = id, id, {id}

    def _put(self, id: int, snapshot: Snapshot) -> None:
        assert id == self.newest + 1, f"{id} was put after {self.newest}"
        self.held[id], self.newest = snapshot, id

    def _name(self, id: int) -> None:
        self.bases.add(id)
        self.base = id

    # -- what is published ---------------------------------------------------------------------------------------

    def settling(self) -> None:
        """A driver has taken over: what it takes back may be gone in part."""
        self.partly |= set(self._taken_back())

    def settle(self) -> None:
        """All that was to be taken back and to be published is."""
        for id in self._taken_back():
            del self.shown[id]
            self.partly.discard(id)
        if self.owed is not None:
            self.partly.discard(self.owed)

    def _taken_back(self) -> list[int]:
        first, stop = self.retract or (0, 0)
        return [id for id in self.shown if first <= id < stop]

    # -- what may be asked ---------------------------------------------------------------------------------------

    def line(self) -> list[int]:
        """The kept checkpoints that the newest has come from, oldest first; not those that a rollback has left."""
        found, id = [], self.newest
        while id >= 0:
            if id in self.bases or id == self.newest:
                found.append(id)
            id = self.targets.get(id, id - 1)
        return found[::-1]

    def as_of(self, clock: int, *, unpublished: bool = False) -> int | None:
        """The newest of them that knows the state as of a clock, and of which no later restart reads a part anew."""
        line = self.line()
        known = [id for id in line if self.held[id].knows(clock, unpublished=unpublished)]
        return next((id for id in reversed(known) if not self._is_read_anew(id, line, clock)), None)

    def _is_read_anew(self, id: int, line: Sequence[int], clock: int) -> bool:
        """Whether a restart since has its source read again what this checkpoint has counted before that clock."""
        later = (self.held[one].since for one in line if one > id)
        return any(since is not None and since != self.held[id].since and since < clock for since in later)

    def is_taken_back(self, id: int) -> bool:
        """Whether windows that this checkpoint counts as published are not to be seen any more."""
        return any(first <= id < stop for first, stop in self.gone)

    def is_doubtful(self, id: int) -> bool:
        """Whether nobody can tell so: another rollback came before all was taken back, or that one is kept no more."""
        forgotten = [one for one in self.gone if not self.keeps(one[1])]
        return any(first <= id < stop for first, stop in (*self.doubtful, *forgotten))
