"""Several writers at one log at once: a scheduler drawn from a seed hands over before any operation of the disk.

Each opens the log, adds, seals, closes or ends it, and is fenced again and again, so that takeovers sleep and wake up
behind one another. In the end a reader must find every acknowledged entry at its place, once.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from persistent.errors import Fenced, Refused
from persistent.log import LogPosition, LogWriter, SegmentedLog
from persistent.storage import LocalStorage
from tests.proof.disk import SimulatedDisk, SimulatedFiles

WRITERS = 3
_ROUNDS = 3
_HAND_OVER = 0.25
_LOG = "/log"


class _Turns:
    """One of several threads runs at a time; before an operation another may be drawn."""

    def __init__(self, drawn: random.Random, names: range) -> None:
        self._drawn = drawn
        self._changed = threading.Condition()
        self._runnable = list(names)
        self._turn = drawn.choice(self._runnable)

    def begin(self, name: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == name)

    def may_hand_over(self, name: int) -> None:
        with self._changed:
            if self._drawn.random() < _HAND_OVER:
                self._turn = self._drawn.choice(self._runnable)
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._turn == name)

    def end(self, name: int) -> None:
        with self._changed:
            self._runnable.remove(name)
            if self._runnable:
                self._turn = self._drawn.choice(self._runnable)
            self._changed.notify_all()


@dataclass
class Crowd:
    """``acknowledged``: entries by their positions. ``tried``: entries that a writer was adding when it was refused."""

    seed: object
    names: Iterator[int]
    files: Callable[[SimulatedDisk], SimulatedFiles] = SimulatedFiles
    acknowledged: dict[LogPosition, tuple[bytes, ...]] = field(default_factory=dict)
    tried: set[bytes] = field(default_factory=set)
    errors: list[BaseException] = field(default_factory=list)

    def run(self) -> None:
        """AssertionError if an acknowledged entry is lost, moved or there twice, or an entry that nobody added is."""
        drawn, disk = random.Random(f"crowd {self.seed}"), SimulatedDisk()
        policy = drawn.choice(("always", "always", 2, "never"))
        turns = _Turns(drawn, range(WRITERS))
        # Nothing comes behind the end of a log, so not every crowd has one early.
        acts = drawn.choice(("aaaaaasc", "aaaaaasce", "ae", "ac"))
        plans = [[drawn.choices(acts, k=drawn.randint(1, 5)) for _ in range(_ROUNDS)] for _ in range(WRITERS)]
        threads = [
            threading.Thread(target=self._writer, args=(name, turns, disk, policy, plans[name]), daemon=True)
            for name in range(WRITERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a writer waits for ever"
        if self.errors:
            raise self.errors[0]
        self._check(SegmentedLog(LocalStorage(_LOG, disk=self.files(disk)), segment_bytes=1_024, sync=policy))

    def _writer(
        self, name: int, turns: _Turns, disk: SimulatedDisk, policy: str | int, rounds: list[list[str]]
    ) -> None:
        calls = self.files(disk)
        calls.before = lambda verb, path, data: turns.may_hand_over(name)
        log = SegmentedLog(LocalStorage(_LOG, disk=calls), segment_bytes=1_024, sync=policy)
        turns.begin(name)
        try:
            for acts in rounds:
                with suppress(Fenced, Refused):
                    self._act(log.writer(), acts)
        except BaseException as error:
            self.errors.append(error)
        finally:
            calls.before = lambda verb, path, data: None
            turns.end(name)

    def _act(self, writer: LogWriter, acts: list[str]) -> None:
        for act in acts:
            if act == "a":
                entry = (b"%d" % next(self.names) * 40,) * 2
                self.tried.add(entry[0])
                position = writer.append_many(entry)
                assert position not in self.acknowledged, f"{position} was given twice"
                self.acknowledged[position] = entry
            elif act == "s":
                writer.sync()
            elif act == "c":
                writer.close()
                return
            else:
                writer.end()
                return

    def _check(self, log: SegmentedLog) -> None:
        found = {batch.first: tuple(batch.records.to_pylist()) for batch in log.read(whole=True)}
        for position, entry in self.acknowledged.items():
            there = found.get(position, ())
            assert there == entry, f"{position} was acknowledged with {entry[0][:6]!r}, and holds {there[:1]}"
        numbers = [batch.number for batch in log.read(whole=True)]
        assert numbers == [2 * at for at in range(len(numbers))], f"numbers {numbers}"
        records = [entry[0] for entry in found.values()]
        assert len(set(records)) == len(records), "an entry is there twice"
        assert set(records) <= self.tried, "nobody has written this"
        with suppress(Refused):
            log.writer().close()
        assert {batch.first: tuple(batch.records.to_pylist()) for batch in log.read()}.items() >= (
            self.acknowledged.items()
        ), "the next writer does not find what was acknowledged"
