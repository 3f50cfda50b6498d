"""The section "log": a writer of a segmented log dies at every operation of a simulated disk, by kill or by loss of
power, is overtaken, or finds bits flipped; what was acknowledged is there, at its place, once.

A story is a drawn sequence of what writers do. A calm run of it keeps a copy of the disk before each of its operations;
each case goes on from such a copy: a reader looks, another writer takes over and writes, and both are held against what
had been told to the first. Some of those are killed as well. Crowds of writers take over from one another.

    python -m tests.proof --only log [--seed s] [--scale x]
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from persistent.errors import CorruptLog, Fenced, InvalidPipeline, PersistentError, Refused, RetentionGap
from persistent.log import BEGINNING, LogPosition, LogWriter, SegmentedLog
from persistent.messaging.log.cursor import Cursor
from persistent.storage import LocalStorage
from tests.proof.disk import CHANGES, File, SimulatedDisk, SimulatedFiles, append
from tests.proof.log_crowd import Crowd
from tests.proof.result import Result

CASES = 20_000
_FAILURES_MAX = 20
_SURVIVORS_MAX = 6
_STEPS = 14
_CALM = 20
_CROWDS = 10
_POLICIES: tuple[str | int, ...] = ("always", "always", "always", 3, "never")
_LOG = "/log"


@dataclass(frozen=True)
class Told:
    """What writers were told: records by their positions, in order. ``durable``: how many of these a loss of power may
    not take. ``asked``: entries that a writer was adding: each is there whole, or not at all. ``cut``: up to where
    records may be gone; ``cut_told``: and where they are. ``seen``: what a reader was shown."""

    entries: tuple[tuple[LogPosition, tuple[bytes, ...]], ...] = ()
    durable: int = 0
    asked: tuple[tuple[bytes, ...], ...] = ()
    cut: LogPosition = BEGINNING
    cut_told: LogPosition = BEGINNING
    ended: bool | None = False
    seen: tuple[tuple[LogPosition, bytes], ...] = ()


@dataclass(frozen=True)
class Instant:
    """The disk before an operation, and what had been told by then."""

    verb: str
    path: str
    data: bytes
    disk: SimulatedDisk
    told: Told


Files = Callable[[SimulatedDisk], SimulatedFiles]


@dataclass
class World:
    """One process on the disk, which notes every operation."""

    disk: SimulatedDisk
    policy: str | int
    told: Told = field(default_factory=Told)
    files: Files = SimulatedFiles
    instants: list[Instant] | None = None
    before: Callable[[str, str, bytes], None] | None = None

    def __post_init__(self) -> None:
        self._calls = self.files(self.disk)
        self._calls.before = self._noted
        storage = LocalStorage(_LOG, disk=self._calls)
        self.log = SegmentedLog(storage, segment_bytes=1_024, sync=self.policy)
        self._cursor, self._following_from = Cursor(self.log._folder, BEGINNING), BEGINNING

    def _noted(self, verb: str, path: str, data: bytes) -> None:
        if self.before is not None:
            self.before(verb, path, data)
        if self.instants is not None and verb in CHANGES:
            self.instants.append(Instant(verb, path, data, self.disk.copy(), self.told))

    def follow(self) -> None:
        """A follower goes on: it is given every record once, in order, up to the last that was acknowledged, but for
        those that were cut off before."""
        cursor = self._cursor
        try:
            found = [(batch.first, batch.records.to_pylist()) for batch in cursor.take()]
        except RetentionGap:
            assert self._following_from < self.told.cut, "a follower was told of a gap, and nothing was cut off"
            self._cursor = Cursor(self.log._folder, self.told.cut_told)
            self._following_from = self.told.cut_told
            return
        expected = [
            (max(position, self._following_from), entry)
            for position, entry in self.told.entries
            if position[:2] >= self._following_from[:2]
        ]
        wanted = [(position, list(entry[position.slot :])) for position, entry in expected if entry[position.slot :]]
        assert found == wanted, f"a follower was given {found} instead of {wanted}"
        self._following_from = cursor.position

    def append(self, writer: LogWriter, records: Sequence[bytes]) -> None:
        """Add an entry, and note what is told of it."""
        told = self.told
        self.told = Told(**{**told.__dict__, "asked": (*told.asked, tuple(records))})
        position = writer.append_many(records)
        entries = (*self.told.entries, (position, tuple(records)))
        asked = tuple(one for one in self.told.asked if one != tuple(records))
        durable = len(entries) if self.policy == "always" else self.told.durable
        self.told = Told(**{**self.told.__dict__, "entries": entries, "asked": asked, "durable": durable})

    def synced(self) -> None:
        """A sync, a close or a takeover has made all durable."""
        self.told = Told(**{**self.told.__dict__, "durable": len(self.told.entries)})

    def truncate(self, before: LogPosition) -> None:
        self.told = Told(**{**self.told.__dict__, "cut": max(before, self.told.cut)})
        first = self.log.truncate(before)
        self.told = Told(**{**self.told.__dict__, "cut_told": max(first, self.told.cut_told)})

    def end(self, writer: LogWriter) -> None:
        self.told = Told(**{**self.told.__dict__, "ended": None})
        writer.end()
        self.told = Told(**{**self.told.__dict__, "ended": True, "durable": len(self.told.entries)})


def story(world: World, drawn: random.Random, names: Iterator[int]) -> None:
    """Writers come, add, cut off and go; a reader looks on."""
    writer: LogWriter | None = None
    for step in range(_STEPS):
        if writer is None:
            writer = world.log.writer()
        what = drawn.random()
        if what < 0.55:
            world.append(writer, [b"%d" % next(names) * drawn.choice((1, 9, 90)) for _ in range(drawn.choice((1, 3)))])
        elif what < 0.65:
            writer.sync()
            world.synced()
        elif what < 0.75:
            writer.close()
            world.synced()
            writer = None
        elif what < 0.82:
            # The one before never closes, as if it had been killed.
            writer = world.log.writer()
        elif what < 0.9 and world.told.entries:
            world.truncate(drawn.choice(world.told.entries)[0])
        elif what < 0.97:
            check(world)
            world.follow()
        elif step > _STEPS // 2:
            world.end(writer)
            break
    world.follow()
    world.follow()
    assert world.told.ended is not True or world._cursor.ended, "a follower does not come to the end"


def check(world: World, *, power_lost: bool = False, left: bool = False) -> list[tuple[LogPosition, bytes]]:
    """What a reader sees, after holding it against what was told: AssertionError. ``left``: the writer was killed, and
    no other has come: then what it had added last may wait for the next one, if the power was lost."""
    told = world.told
    try:
        found = [
            (batch.first._replace(slot=batch.first.slot + slot), batch.number + slot, record)
            for batch in world.log.read()
            for slot, record in enumerate(batch.records.to_pylist())
        ]
    except RetentionGap:
        raise AssertionError("a reader that begins at the first position met a gap") from None
    numbers = [number for _, number, _ in found]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True, f"numbers {numbers}"
    records = [(position, record) for position, _, record in found]
    assert [position for position, _ in records] == sorted({position for position, _ in records}), "out of order"
    expected = [
        (position._replace(slot=slot), record) for position, entry in told.entries for slot, record in enumerate(entry)
    ]
    must = told.durable if power_lost else len(told.entries)
    durable = sum(len(entry) for _, entry in told.entries[:must])
    safe = [one for one in expected[:durable] if one[0] >= told.cut]
    if power_lost and left:
        safe = [one for one in safe if records and one[0] <= records[-1][0]]
    there = dict(records)
    for position, record in safe:
        assert there.get(position) == record, (
            f"{position} was acknowledged with {record[:9]!r}: {there.get(position)!r}"
        )
    gone = [position for position, _ in records if position < told.cut_told]
    assert not gone, f"{gone[0]} was cut off before {told.cut_told}"
    more = [one for one in records if one not in expected]
    whole = [record for _, record in more]
    asked = [record for entry in told.asked for record in entry]
    assert not [one for one in whole if one not in asked], f"nobody wrote {whole}"
    for entry in told.asked:
        mine = [record for record in whole if record in entry]
        assert mine in ([], list(entry)), f"of the entry {entry} only {mine} is there"
    assert len(set(whole)) == len(whole), "an entry is there twice"
    return records


@dataclass
class Sweep:
    """The cases of some stories, counted."""

    seed: object = 0
    cases_max: int = 300
    until: float = float("inf")
    failures_max: int = _FAILURES_MAX
    files: Files = SimulatedFiles
    cases: int = 0
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.drawn = random.Random(f"log {self.seed}")
        self._names = iter(range(10**9))

    @property
    def is_over(self) -> bool:
        return self.cases >= self.cases_max or len(self.failures) >= self.failures_max or time.monotonic() > self.until

    def run(self) -> Sweep:
        number = 0
        while not self.is_over:
            self._story(number)
            number += 1
        return self

    def _story(self, number: int) -> None:
        policy = self.drawn.choice(_POLICIES)
        calm = World(SimulatedDisk(), policy, files=self.files, instants=[])
        name = f"seed {self.seed}, story {number}, sync={policy!r}"
        if not self._holds(f"{name}: calm", lambda: story(calm, self.drawn, self._names)):
            return
        assert calm.instants is not None
        for more in range(_CALM):
            self._calm(f"{name}, calm {more}", policy)
        for instant in self.drawn.sample(calm.instants, min(len(calm.instants), 40)):
            told = self._looked_at(instant, policy)
            for what, disk, lost in self.crashes(instant):
                self._recover(f"{name}: {what}", disk, told, policy, power_lost=lost, again=True)
        for instant in self.drawn.sample(calm.instants, min(len(calm.instants), 6)):
            self._overtaken(name, instant, policy)
        for at in random.Random(name).sample(range(1, 60), 8):
            self._woken(name, policy, at)
        self._flipped(name, calm, policy)
        for more in range(_CROWDS):
            crowd = Crowd(f"{name}, crowd {more}", self._names, self.files)
            if not self.is_over:
                self._holds(str(crowd.seed), crowd.run)

    def crashes(self, instant: Instant) -> Iterator[tuple[str, SimulatedDisk, bool]]:
        """What a death just before an operation, or within it, may leave; and whether the power was lost."""
        where = f"{instant.verb} {instant.path}"
        yield f"killed before {where}", instant.disk.copy(), False
        if instant.verb == "write":
            for share in (2, 3):
                torn = instant.disk.copy()
                inode = torn.inode(instant.path)
                torn.inodes[inode] = append(torn.inodes[inode], instant.data[: len(instant.data) // share])
                yield f"killed within {where}", torn, False
        for survivor in instant.disk.survivors(self.drawn, _SURVIVORS_MAX):
            yield f"power lost before {where}", survivor, True

    def _looked_at(self, instant: Instant, policy: str | int) -> Told:
        """What had been told, with what a reader sees just before; where each entry is synced, a crash takes none of
        it."""
        if policy != "always" or self.drawn.random() < 0.5:
            return instant.told
        records = check(World(instant.disk.copy(), policy, instant.told, self.files))
        return Told(**{**instant.told.__dict__, "seen": tuple(records)})

    def _recover(
        self, what: str, disk: SimulatedDisk, told: Told, policy: str | int, *, power_lost: bool, again: bool
    ) -> None:
        """A reader looks, a writer takes over and adds, a reader looks again; some of these are killed too."""
        if self.is_over:
            return
        world = World(disk, policy, told, self.files, instants=[] if again else None)
        if not self._holds(what, lambda: self._goes_on(world, power_lost)) or not world.instants:
            return
        second = self.drawn.choice(world.instants)
        how, left, lost = self.drawn.choice(list(self.crashes(second)))
        self._recover(f"{what}; {how}", left, second.told, policy, power_lost=power_lost or lost, again=False)

    def _goes_on(self, world: World, power_lost: bool) -> None:
        before = check(world, power_lost=power_lost, left=True)
        ended = world.told.ended
        try:
            writer = world.log.writer()
        except Refused:
            assert ended is not False, "the log has ended, and nobody ended it"
            return
        assert ended is not True, "the log goes on behind its end"
        after = check(world, power_lost=power_lost)
        assert after[: len(before)] == before, "what a reader saw before the takeover is gone after it"
        gone = [one for one in world.told.seen if one[0] >= world.told.cut and one not in after]
        assert not gone, f"a reader saw {gone[0]} before the crash"
        # From here on it is there for good, whatever of it had been told.
        entries: dict[tuple[int, int], list[tuple[LogPosition, bytes]]] = {}
        for position, record in after:
            entries.setdefault(position[:2], []).append((position, record))
        found = tuple((rows[0][0], tuple(record for _, record in rows)) for rows in entries.values())
        world.told = Told(found, len(found), (), world.told.cut, world.told.cut_told, False)
        world.append(writer, [b"after %d" % next(self._names)])
        writer.close()
        world.synced()
        check(world)

    def _calm(self, name: str, policy: str | int) -> None:
        """A story in which nobody dies."""
        world = World(SimulatedDisk(), policy, files=self.files)
        if not self.is_over:
            self._holds(name, lambda: story(world, random.Random(name), self._names))

    def _woken(self, name: str, policy: str | int, at: int) -> None:
        """The writer before goes on at an operation of the one that takes over: what a reader sees of it stays."""
        if self.is_over:
            return
        disk = SimulatedDisk()
        first, second = World(disk, policy, files=self.files), World(disk, policy, files=self.files)
        reader = World(disk, policy, files=self.files)
        seen: dict[LogPosition, bytes] = {}
        left = [at]

        def looks(verb: str, path: str, data: bytes) -> None:
            for batch in reader.log.read():
                seen.update(
                    (batch.first._replace(slot=slot), one) for slot, one in enumerate(batch.records.to_pylist())
                )

        def wakes(verb: str, path: str, data: bytes) -> None:
            left[0] -= 1
            if left[0] == 0:
                first.before = looks
                with suppress(Fenced):
                    first.append(writer, [b"woken %d" % next(self._names)])
                second.told = first.told

        writer = first.log.writer()
        first.append(writer, [b"first %d" % next(self._names)])
        second.told, second.before = first.told, wakes

        def both() -> None:
            second.append(second.log.writer(), [b"second %d" % next(self._names)])
            there = dict(check(second))
            gone = [one for one in seen.items() if there.get(one[0]) != one[1]]
            assert not gone, f"a reader saw {gone[0]}, and it is gone"

        self._holds(f"{name}: woken at operation {at} of the next", both)

    def _overtaken(self, name: str, instant: Instant, policy: str | int) -> None:
        """Another writer takes over at an operation of the first, which then goes on."""
        if self.is_over:
            return
        disk, at = SimulatedDisk(), self.drawn.randrange(1, 60)
        first, second = World(disk, policy, files=self.files), World(disk, policy, files=self.files)
        left = [at]

        def before(verb: str, path: str, data: bytes) -> None:
            left[0] -= 1
            if left[0] == 0:
                second.told = first.told
                with suppress(Refused):
                    writer = second.log.writer()
                    second.append(writer, [b"second %d" % next(self._names)])
                    first.told = second.told

        first.before = before

        def both() -> None:
            with suppress(Fenced, Refused):
                self._write_on(first)
            check(first)

        self._holds(f"{name}: overtaken at operation {at}", both)

    def _write_on(self, world: World) -> None:
        with world.log.writer() as writer:
            for _ in range(8):
                world.append(writer, [b"first %d" % next(self._names) * self.drawn.choice((1, 40))])

    def _flipped(self, name: str, calm: World, policy: str | int) -> None:
        """A bit of what was acknowledged flips: a reader or the next writer says so, or nothing is missing."""
        paths = [path for path in calm.disk.files_below(_LOG) if path[5] in "so"]
        for path in self.drawn.sample(paths, min(len(paths), 4)):
            if self.is_over or policy != "always":
                return
            disk = calm.disk.copy()
            inode = disk.inodes[disk.inode(path)]
            assert isinstance(inode, File)
            if not inode.data:
                continue
            at = self.drawn.randrange(len(inode.data))
            flipped = inode.data[:at] + bytes([inode.data[at] ^ 1 << self.drawn.randrange(8)]) + inode.data[at + 1 :]
            disk.inodes[disk.inode(path)] = File(flipped, flipped)
            world = World(disk, policy, Told(**{**calm.told.__dict__, "asked": ()}), self.files)
            self._holds(f"{name}: bit flipped in {path} at {at}", lambda world=world: _seen_or_whole(world))  # type: ignore[misc]

    def _holds(self, what: str, run: Callable[[], Any]) -> bool:
        self.cases += 1
        try:
            run()
        except Exception as error:
            self.failures.append(f"{what}: {type(error).__name__}: {error}"[:500])
            return False
        return True


def _seen_or_whole(world: World) -> None:
    for look in (lambda: check(world, power_lost=True, left=True), lambda: world.log.writer().close()):
        try:
            look()
        except (CorruptLog, InvalidPipeline):
            return
        except Refused:
            continue
    check(world)


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """20,000 cases at scale 1, and every mutant."""
    from tests.proof.log_mutants import MUTANTS, failure_of

    began = time.monotonic()
    wanted = round(CASES * scale)
    sweep = Sweep(seed, wanted, began + (seconds_max or float("inf"))).run()
    found = [mutant.name for mutant in MUTANTS if failure_of(mutant, seed)]
    failures = [*sweep.failures, *(f"mutant not found: {one.name}" for one in MUTANTS if one.name not in found)]
    note = "" if sweep.cases >= wanted or failures else f"stopped by time, {wanted:,} were planned"
    mutants = (len(found), len(MUTANTS))
    return Result("log", sweep.cases, tuple(failures), mutants, time.monotonic() - began, note)


__all__ = ["CASES", "PersistentError", "Sweep", "prove"]
