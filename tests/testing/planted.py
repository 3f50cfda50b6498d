"""Tasks with one mistake each, as users make them, and beside each its honest twin."""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from monoids import Count, Last, Max, Monoid, Sum, record
from persistent import Batch, NonWindowState, PersistentTask, WindowState, tumbling

Row = dict[str, Any]

ROWS: list[Row] = [
    {"ts": 7 * number % 50, "page": f"page {number % 3}", "n": None if number % 5 == 4 else number, "tags": ["x"]}
    for number in range(14)
]


class Visits(PersistentTask):
    """Visits by page: nothing wrong with it."""

    key = "page"

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class VisitsByMinute(Visits):
    """The same by ten milliseconds: windows."""

    def persistent_state(self) -> Any:
        return WindowState(record(visits=Count(), largest=Max()), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "largest": message.value["n"]})


class Totals(Visits):
    """The sum of ``n`` by page, by message and by batch."""

    def persistent_state(self) -> Any:
        return WindowState(record(rows=Count(), total=Sum()), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"rows": 1, "total": message.value["n"]})

    def process_batch(self, state: Any, batch: Batch) -> None:
        state.update_batch(batch.timestamps, {"rows": 1, "total": batch["n"]})


class StateOnSelf(Visits):
    """Numbers the messages, on ``self``."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def persistent_state(self) -> Any:
        return NonWindowState(Sum())

    def process_message(self, state: Any, message: Any) -> None:
        self.seen[message.key] += 1
        state.update(message.timestamp, self.seen[message.key])


class StateInTheClass(Visits):
    """Tells first visits, in a set that all instances share."""

    known: set[str] = set()

    def process_message(self, state: Any, message: Any) -> None:
        if message.key not in self.known:
            self.known.add(message.key)
            state.update(message.timestamp, 1)


class Latest(Monoid[Any]):
    """The value that was read last. It says that it commutes, which it does not."""

    identity = None
    commutative = True

    def combine(self, a: Any, b: Any) -> Any:
        return a if b is None else b


class FalseCommutativity(Visits):
    """The latest ``n`` is that of the message read last."""

    def persistent_state(self) -> Any:
        return NonWindowState(Latest())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


class OrderOfReading(Visits):
    """The same, of a monoid."""

    def persistent_state(self) -> Any:
        return NonWindowState(Last())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, ((0, message.partition, message.position), message.value["n"]))


class OrderOfTime(Visits):
    """The latest ``n`` is that of the latest message."""

    def persistent_state(self) -> Any:
        return NonWindowState(Last())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, (message.order, message.value["n"]))


class OrderWithinAKey(Visits):
    """All ``n`` in the order of reading, and says so."""

    def persistent_state(self) -> Any:
        return NonWindowState(Joined())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, f"{message.value['n']} ")


class Joined(Monoid[str]):
    """Texts, one after the other."""

    identity = ""

    def combine(self, a: str, b: str) -> str:
        return a + b


class WallClock(Visits):
    """How old messages are, by the time of day."""

    def persistent_state(self) -> Any:
        return NonWindowState(Max())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, int(time.time()) // 3_600)


class Today(WallClock):
    """The same, by the date."""

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, datetime.now().toordinal())


class Random(WallClock):
    """A sample of a few."""

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, random.getrandbits(40))


class ByHash(WallClock):
    """A sample that the message decides."""

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, zlib.crc32(repr(sorted(message.value.items())).encode()))


class ChangesTheMessage(Visits):
    """Puts a tag into what it was given."""

    def process_message(self, state: Any, message: Any) -> None:
        tags = message.value["tags"]
        tags.append("seen")
        state.update(message.timestamp, len(tags))


class CopiesTheMessage(Visits):
    """Puts a tag into a list of its own."""

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, len([*message.value["tags"], "seen"]))


class ChangesTheBatch(Totals):
    """Rounds the timestamps where they are."""

    def process_batch(self, state: Any, batch: Batch) -> None:
        batch.timestamps[:] = batch.timestamps // 2 * 2
        state.update_batch(batch.timestamps, {"rows": 1, "total": batch["n"]})


class BatchDropsNulls(Totals):
    """Counts the rows that have an ``n``, but only by batch."""

    def process_batch(self, state: Any, batch: Batch) -> None:
        kept = batch.filter(pc.is_valid(batch["n"]))
        state.update_batch(kept.timestamps, {"rows": 1, "total": kept["n"]})


class Smallest(Monoid[int]):
    """The smallest of some numbers; of none 0, which is no identity."""

    identity = 0
    commutative = True

    def combine(self, a: int, b: int) -> int:
        return min(a, b)


class BrokenIdentity(Visits):
    """The smallest timestamp by page."""

    def persistent_state(self) -> Any:
        return NonWindowState(Smallest())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.timestamp + 1)


class SmallestOrNone(Smallest):
    """The smallest of some numbers, None of none."""

    identity = None  # type: ignore[assignment]

    def combine(self, a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else min(a, b)


class SoundIdentity(BrokenIdentity):
    """The same, of a monoid."""

    def persistent_state(self) -> Any:
        return NonWindowState(SmallestOrNone())


class KeyByHash(Visits):
    """One of a thousand parts, by ``hash``."""

    key = {"part": lambda message: hash(message.value["page"]) % 1_000}


class KeyByChecksum(Visits):
    """One of a thousand parts, by a checksum."""

    key = {"part": lambda message: zlib.crc32(message.value["page"].encode()) % 1_000}


class OrderOfASet(WallClock):
    """The first of a set of texts."""

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, len(next(iter({message.key, "a", "bb", "ccc", "dddd", "eeeee", "ffffff"}))))


class StepBorders(Totals):
    """Counts the batches."""

    process_message = PersistentTask.process_message

    def process_batch(self, state: Any, batch: Batch) -> None:
        state.update(int(batch.timestamps[0]), {"rows": 1, "total": len(batch)}, key=batch["page"][0].as_py())


class OtherTimes(Visits):
    """Counts a visit in the window before its own too, which may be closed by then."""

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(max(message.timestamp - 30, 0), 1)


@dataclass(frozen=True)
class Mistake:
    """A task with a mistake, the way of running that shows it, and its twin."""

    wrong: type[PersistentTask]
    way: str
    right: type[PersistentTask]
    rows: Sequence[Row] = tuple(ROWS)
    shown: int | None = None

    def __repr__(self) -> str:
        return self.wrong.__name__


MISTAKES = (
    Mistake(StateOnSelf, "reborn", Visits, shown=2),
    Mistake(StateInTheClass, "once more", Visits),
    Mistake(FalseCommutativity, "laws", OrderOfTime),
    Mistake(OrderOfReading, "shuffled", OrderOfTime, shown=2),
    Mistake(WallClock, "at another time of day", Visits, shown=1),
    Mistake(Today, "at another time of day", ByHash, shown=1),
    Mistake(Random, "once more", ByHash, shown=1),
    Mistake(ChangesTheMessage, "watched", CopiesTheMessage, shown=1),
    Mistake(BatchDropsNulls, "by process_message", Totals, shown=1),
    Mistake(BrokenIdentity, "laws", SoundIdentity),
    Mistake(KeyByHash, "in another process", KeyByChecksum, shown=1),
    Mistake(StepBorders, "one by one", Totals, shown=2),
    Mistake(OtherTimes, "one by one", VisitsByMinute, shown=2),
)

Make = Callable[[], PersistentTask]
