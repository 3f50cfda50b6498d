"""A world is one random history of a job, through its public interface, with the plain computation beside it.

kill         the driver dies at an operation
retract      a rollback that takes outputs back
leave        a rollback that leaves them: outputs="again"
restart      the state as of a clock, and a source that has changed from there on
correct      records put in after the fact
join         a new sink
heir         a new job from a savepoint, with the same sinks or new ones
merge        the sum of this job and another one
evolve       a new field
"""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from persistent import MemorySource, PersistentTask, Pipeline, Retention
from persistent.checkpoint.log import Log
from persistent.driver.evolution import Evolution
from persistent.engines.embedded import Embedded
from persistent.errors import PersistentError
from persistent.operations import merge, restart, rollback, savepoint
from persistent.storage import LocalStorage, MemoryStorage
from tests.faults import DEATHS, FaultyStorage, Killed, Operations
from tests.proof.law_readers import Reader
from tests.proof.law_views import Facts, Folding, Moment, View, drawn_state, facts

EVENTS = ("kill", "retract", "leave", "restart", "correct", "join", "heir", "merge", "evolve")
"""What may happen in a history besides steps."""
_KEPT_LAST = 8
_KEYS = ("a", "b", "c")
_MANY_STEPS = 10_000
_CLOCKS = 6


class Enough(Exception):
    """As many steps were made as were asked for."""


class Visits(PersistentTask):
    """Count and total by page in each state. ``more``: whether an evolution has added a field."""

    key = "page"

    def __init__(self, emissions: Mapping[str, Folding], more: bool = False) -> None:
        self.emissions, self.more = emissions, more

    def persistent_state(self) -> Any:
        return {name: self._state(emission) for name, emission in self.emissions.items()}

    def _state(self, emission: Folding) -> Any:
        return emission.evolved().state() if self.more else emission.state()

    def process_message(self, state: Any, message: Any) -> None:
        for name, emission in self.emissions.items():
            state[name].update(message.timestamp, emission.values(message.value["n"]))


class Second(MemorySource):
    """The input of another job, which is known to be another one."""

    kind = "Second"


class World:
    """``name``: of its source. ``engine``: what runs its steps; without one, this process."""

    def __init__(
        self,
        seed: int,
        events: tuple[str, ...] = EVENTS,
        engine: Any = None,
        name: str = "a",
        emissions: Mapping[str, Folding] | None = None,
    ) -> None:
        drawn = self.drawn = random.Random(f"law {seed} {name}")
        self.seed, self.events, self.engine = seed, events, engine
        self.source = name
        self.story: list[str] = []
        self.happened: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self.emissions = emissions or {f"s{number}": drawn_state(drawn) for number in range(drawn.choice((1, 1, 2, 3)))}
        self.tell(f"states {self.emissions}")
        self.is_raising = any(emission.folds == "raising" for emission in self.emissions.values())
        self.records: dict[str, list[dict[str, Any]]] = {name: []}
        self.names = 0
        self.more = False
        self.start_from: str | None = None
        self.stores: list[MemoryStorage] = []
        self.in_tables = drawn.random() < 0.3
        signed = all(emission.has_signs for emission in self.emissions.values())
        self.in_logs = signed and not self.in_tables and random.Random(f"log {seed} {name}").random() < 0.5
        self.folder = tempfile.mkdtemp(prefix="law-")
        self.checkpoint = self.storage()
        self.sinks = {state: {f"{state}-0": self.reader()} for state in self.emissions}
        self.moments = {0: Moment(views={state: View() for state in self.emissions})}
        self.seen = -1

    # -- what happens ------------------------------------------------------------------------------------------------

    def go(self, moves: int) -> None:
        self.append()
        self.run()
        for _ in range(moves):
            self.append()
            event = self.drawn.choice((*self.events, "run", "run"))
            with_kill = "kill" in self.events and self.engine is None
            if event in ("run", "kill"):
                self.run(with_kill and self.drawn.random() < 0.4)
            else:
                getattr(self, event)()
                self.run(with_kill and self.drawn.random() < 0.2)

    def append(self) -> None:
        for records in self.records.values():
            latest = max((row["ts"] for row in records), default=8)
            for _ in range(self.drawn.randint(1, 9)):
                later = self.drawn.choice((0, 1, 2, 3, 5, -1, -3, -8, -20, 15))
                ts = max(latest + later, 0)
                latest = max(latest, ts)
                records.append({"ts": ts, "page": self.drawn.choice(_KEYS), "n": self.drawn.randint(0, 9)})

    def run(self, kills: bool = False) -> None:
        steps, step_rows, ends = self.drawn.randint(1, 4), self.drawn.randint(1, 5), self.drawn.random() < 0.25
        death = (self.drawn.randint(0, 60), self.drawn.choice(DEATHS)) if kills else None
        self.tell(f"run steps={steps} step_rows={step_rows} ends={ends} death={death}")
        if death is not None:
            self.count("kill")
            with suppress(Killed):
                self._run(Operations(*death), steps, step_rows, ends)
            self.follow()
        self._run(Operations(), steps, step_rows, ends)
        self.follow()
        self.check()

    def drain(self) -> None:
        """Run to the end of the input."""
        self.tell("run to the end")
        self._run(Operations(), _MANY_STEPS, 5, True)
        self.follow()
        self.check()

    def _run(self, operations: Operations, steps: int, step_rows: int, ends: bool) -> None:
        made = 0

        def enough(_: object) -> None:
            nonlocal made
            made += 1
            self.follow()
            if made == steps:
                raise Enough

        with suppress(Enough):
            self.pipeline(operations, step_rows).run(engine=self.driver(), end_of_input=ends, on_step=enough)

    def retract(self) -> None:
        self._back("retract")

    def leave(self) -> None:
        self._back("again")

    def _back(self, outputs: str) -> None:
        kept = [id for id in Log(self.checkpoint).newest().manifest.bases if id in self.moments]  # type: ignore[union-attr]
        target = self.drawn.choice(kept)
        self.tell(f"rollback to {target} outputs={outputs}")
        if self.refuses(lambda: rollback(self.checkpoint, target, outputs=outputs, take_over=True)):
            return
        self.count(f"rollback {outputs}")
        self._left(outputs)
        for state, reader in self.readers():
            emission = self.emissions[state]
            if outputs == "again" and (emission.has_sessions or emission.has_lives) and emission.of_changes:
                view = self.moments[target].views[state]
                for shown in (view, replace(view, counted=view.published[0])):
                    reader.may_differ("never had", shown.places(emission))
        self.follow()

    def restart(self) -> None:
        outputs = self.drawn.choice(("retract", "again"))
        watermarks = {moment.watermark for moment in self.moments.values()}
        clocks = self.drawn.sample(sorted({*watermarks, *(clock // 5 * 5 for clock in watermarks)}), k=1)
        clocks += self.drawn.sample(range(max(watermarks) + 1), k=min(_CLOCKS, max(watermarks)))
        for clock in clocks:
            self.tell(f"restart at {clock} outputs={outputs}")
            job = self.pipeline(Operations(), 3)
            if not self.refuses(partial(restart, job, clock, outputs=outputs, take_over=True)):
                break
        else:
            return
        self.count(f"restart {outputs}")
        self._left(outputs)
        for state, reader in self.readers():
            reader.may_differ("restart", reader.places(self.emissions[state]))
        self.follow(clock=clock)
        for records in self.records.values():
            records[:] = [self._changed(row) if row["ts"] >= clock else row for row in records]

    def _changed(self, row: dict[str, Any]) -> dict[str, Any]:
        """The record as a source has it that was written anew."""
        return {**row, "page": self.drawn.choice(_KEYS)} if self.drawn.random() < 0.2 else row

    def _left(self, outputs: str) -> None:
        for state, reader in self.readers():
            if outputs == "again":
                reader.may_differ("left", reader.places(self.emissions[state]))

    def correct(self) -> None:
        newest = self.moments[self.seen]
        ts = max(0, newest.watermark + self.drawn.randint(-20, 5))
        pages = self.drawn.sample(_KEYS, 2)
        rows = [{"ts": ts, "page": page, "n": self.drawn.randint(0, 9)} for page in pages]
        name = self.name("ticket")
        self.tell(f"correct {name}: {rows}")
        add = MemorySource(rows, timestamp="ts")
        job = self.pipeline(Operations(), 3)
        if self.refuses(lambda: job.correct(name=name, add=add, engine=self.driver(), take_over=True)):
            return
        self.count("correction")
        self.follow(added=rows)

    def join(self) -> None:
        state = self.drawn.choice(list(self.emissions))
        name = f"{state}-{self.name('x')}"
        self.tell(f"join {name}")
        self.count("sink joins")
        self.sinks[state][name] = self.reader(state)

    def heir(self) -> None:
        at = self.seen
        name = self.name("savepoint")
        self.tell(f"savepoint of {at}")
        if self.refuses(lambda: setattr(self, "start_from", savepoint(self.checkpoint, name, at=None))):
            return
        new = not (self.in_tables or self.in_logs) or self.drawn.random() < 0.3
        self.tell(f"heir with {'new sinks' if new else 'the same sinks'}")
        self.count("heir, new sinks" if new else "heir, same sinks")
        if new:
            self._new_sinks()
        self.checkpoint = self.storage()
        self.moments, self.seen = {0: self.moments[at]}, -1
        for _, reader in self.readers():
            reader.since = -1

    def merge(self) -> None:
        if len(self.records) > 1 or self.more or self.start_from:
            return
        self.tell("merge")
        other = World(self.seed, (), self.engine, "b", self.emissions)
        other.append()
        self.drain()
        other.drain()
        into = self.storage()
        is_refused = self.refuses(lambda: merge(self.checkpoint, other.checkpoint, into))
        other.clear()
        if is_refused:
            return
        self.count("merge")
        self.records |= other.records
        self.checkpoint = into
        log = Log(into)
        self.seen = max(log.ids())
        found = facts(log, self.seen, self.emissions)
        moment = self.moments[max(self.moments)].added(other.moments[other.seen], found)
        self.moments = dict.fromkeys(log.ids(), moment)
        self._new_sinks()

    def _new_sinks(self) -> None:
        for state, each in self.sinks.items():
            each |= {sink: self.reader(state) for sink in each}

    def evolve(self) -> None:
        if self.more or any(emission.joins for emission in self.emissions.values()):
            return
        self.tell("evolve")
        self.count("evolution")
        self.more = True
        for state, reader in self.readers():
            reader.evolve("more")
            reader.may_differ("evolution", reader.places(self.emissions[state]))
            if self.emissions[state].folds == "raising":
                reader.may_differ("raising after an evolution", reader.places(self.emissions[state]))

    def refuses(self, operation: Any) -> bool:
        """Whether the operation says that it cannot."""
        try:
            operation()
        except PersistentError as error:
            self.tell(f"  refused: {error}")
            return True
        return False

    # -- the job -------------------------------------------------------------------------------------------------

    def pipeline(self, operations: Operations, step_rows: int) -> Pipeline:
        faulty = operations if self.engine is None else None
        sinks = {
            state: {name: reader.sink(faulty) for name, reader in each.items()} for state, each in self.sinks.items()
        }
        return Pipeline(
            source={name: _source(name, records) for name, records in self.records.items()},
            task=Visits(self.emissions, self.more),
            sink=sinks,
            checkpoint=FaultyStorage(self.checkpoint, faulty) if faulty else self.checkpoint,
            # Of a sum that may raise one value a step: two of one step are added up where they are read.
            step_rows=1 if self.is_raising else step_rows,
            retention=Retention(last=_KEPT_LAST),
            start_from=self.start_from,
            evolve={state: Evolution() for state in self.emissions} if self.more else None,
            on_error="dead-letter",
        )

    def driver(self) -> Any:
        return Embedded(threads=1) if self.engine is None else self.engine

    # -- the plain computation -------------------------------------------------------------------------------------

    def follow(self, added: list[dict[str, Any]] | None = None, clock: int | None = None) -> None:
        """Compute what each new checkpoint holds. ``added``: by a correction; ``clock``: of a restart."""
        log = Log(self.checkpoint)
        for id in log.ids():
            if id <= self.seen:
                continue
            found = facts(log, id, self.emissions)
            before = self.moments[max(self.seen, 0)]
            if id == 0 or found.kind == "savepoint":
                self.moments[id] = self.moments[0]
            elif found.kind == "rollback":
                target = self.moments[found.target]
                moment = self.moments[id] = target if clock is None else self._as_of(target, found, clock)
                for state, reader in self.readers():
                    reader.go_back(found.target, id, moment.views[state], self.emissions[state])
                    reader.lags = reader.lags and log.read(id).manifest.retract is not None
            elif found.kind in ("checkpoint", "correction"):
                self.moments[id] = self._after(before, found, added)
                for state, reader in self.readers():
                    emission = self.emissions[state]
                    closes = emission.has_windows and not emission.of_changes and found.kind == "checkpoint"
                    reader.lags = reader.lags and not (closes or found.is_published[state])
            else:
                self.moments[id] = before.evolved(found) if found.kind == "migration" else before
            self.seen = id

    def _as_of(self, target: Moment, found: Facts, clock: int) -> Moment:
        views = {
            state: view.before(clock, min(view.closed, clock), found.final[state])
            for state, view in target.views.items()
        }
        return Moment(found.read, clock, views, {name: clock for name, read in target.read.items() if read})

    def _after(self, base: Moment, found: Facts, added: list[dict[str, Any]] | None) -> Moment:
        is_step = found.kind == "checkpoint"
        new = list(self._read(base, found)) if is_step else added or []
        views = {}
        for state, emission in self.emissions.items():
            before = base.views[state]
            judged = emission.judged(before.final, base.watermark) if is_step else before.final
            taken = [
                ((row["page"], start), row["n"], row["ts"])
                for row in new
                for start in emission.taking(row["ts"], judged) or (not is_step and before.lasting(emission, row)) or ()
            ]
            counted, closed = (*before.counted, *taken), found.closed[state]
            published = (counted, closed) if found.is_published[state] else before.published
            views[state] = View(counted, closed, emission.final(judged, closed), published)
        return replace(base, read=found.read, watermark=found.watermark, views=views)

    def _read(self, base: Moment, found: Facts) -> Iterator[dict[str, Any]]:
        for name, read in found.read.items():
            for row in self.records[name][base.read.get(name, 0) : read]:
                if row["ts"] >= base.since.get(name, 0):
                    yield row

    # -- the readers -------------------------------------------------------------------------------------------------

    def readers(self) -> Iterator[tuple[str, Reader]]:
        for state, each in self.sinks.items():
            for reader in each.values():
                yield state, reader

    def check(self) -> None:
        for state, reader in self.readers():
            self.known += reader.check(self.emissions[state], self.moments[self.seen].views[state])

    # -- how -----------------------------------------------------------------------------------------------------

    def name(self, what: str) -> str:
        self.names += 1
        return f"law{self.seed}-{self.source}-{what}{self.names}"

    def tell(self, line: str) -> None:
        self.story.append(line)

    def count(self, what: str) -> None:
        self.happened[what] += 1

    def storage(self, *, private: bool = True) -> Any:
        """A new storage: in memory, or where the workers of an engine can reach it."""
        if self.engine is not None:
            return LocalStorage(f"{self.folder}/{self.name('d')}", private=private)
        self.stores.append(memory := MemoryStorage(self.name("m")))
        return memory

    def reader(self, state: str | None = None) -> Reader:
        """A new sink; ``state``: one that has begun."""
        storage = self.storage(private=False)
        table = f"{self.folder}/{self.name('t')}.db" if self.in_tables else None
        reader = Reader(storage, table, self.in_logs)
        if state is not None:
            reader.join(self.seen, self.moments[self.seen].views[state], self.emissions[state])
        return reader

    def clear(self) -> None:
        shutil.rmtree(self.folder)
        for storage in self.stores:
            storage.clear()


def _source(name: str, records: list[dict[str, Any]]) -> MemorySource:
    return (MemorySource if name == "a" else Second)(records, timestamp="ts", ordered=True)


def case(
    seed: int, events: tuple[str, ...] = EVENTS, moves: int = 6, engine: Any = None
) -> tuple[World, BaseException | None]:
    """One history, and what went wrong."""
    from tests.proof.simulation_small import small

    logging.getLogger("persistent").setLevel(logging.ERROR)
    with small(seed):
        world = World(seed, events, engine)
        try:
            world.go(moves)
        except Exception as error:
            return world, error
        finally:
            world.clear()
    return world, None
