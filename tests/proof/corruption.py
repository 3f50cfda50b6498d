"""Corruption is a file of a checkpoint that is not what was written: it must be told, and the way back must work.

Every bit and every truncation of the newest manifest and of a pending plan; runs at every border of a batch, the bytes
beside it, and at places drawn; files deleted, and taken for one another; the newest manifests lost, one and more. Of
each case: the state is not given, unless it is the right one; the error is ``CorruptCheckpoint`` and names the command
that goes back; and of some the command is done, and the job goes on to the result of a run that nothing happened to.
Where the newest manifests are lost, a run comes to that result, or tells.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from monoids import Count, Max, record
from persistent import (
    CorruptCheckpoint,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.names import manifest_name, plan_name
from persistent.operations import rollback
from persistent.sinks import FileSink
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.proof.result import Result

Files = dict[str, bytes]
ROWS = [{"ts": 2 * number, "page": f"page {number % 5}", "n": number * 7 % 11} for number in range(40)]
PLACES = 2_000
_WAY_BACK_EVERY = 400


class Visits(PersistentTask):
    """Visits and the largest number by page, in windows or for ever."""

    key = "page"

    def __init__(self, *, windows: bool) -> None:
        self.windows = windows

    def persistent_state(self) -> Any:
        monoid = record(visits=Count(), largest=Max())
        return WindowState(monoid, tumbling(20)) if self.windows else NonWindowState(monoid)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "largest": message.value["n"]})


class _CutOff(Exception):
    """A run that ends where a plan is put and nothing of its step is done."""


@dataclass(frozen=True)
class Victim:
    """A job of which checkpoints are damaged: ``files`` as after its last step, ``planned`` with one step planned,
    ``ended`` at the end of its input."""

    windows: bool
    files: Files = field(default_factory=dict)
    planned: Files = field(default_factory=dict)
    ended: Files = field(default_factory=dict)

    def storage(self, files: Files, place: str = "checkpoint") -> MemoryStorage:
        """A copy of those of these files that are of the checkpoint, or of the sink."""
        storage = MemoryStorage(uuid.uuid4().hex)
        of = f"{place}:"
        storage._files.update({n[len(of) :]: pa.py_buffer(data) for n, data in files.items() if n.startswith(of)})
        return storage

    def pipeline(self, files: Files, rows: int = len(ROWS)) -> Pipeline:
        """The job over a copy of these files."""
        storage, outputs = self.storage(files), self.storage(files, "sink")
        source = MemorySource(ROWS[:rows], timestamp="ts", ordered=True)
        task = Visits(windows=self.windows)
        return Pipeline(source=source, task=task, sink=FileSink(outputs), checkpoint=storage, step_rows=5)

    @cached_property
    def calm(self) -> Any:
        """What comes out where nothing is damaged."""
        pipeline = self.pipeline({})
        pipeline.run(engine="embedded", end_of_input=True)
        return _outcome(pipeline)

    @cached_property
    def state(self) -> Any:
        return self.pipeline(self.files).state().to_pylist()


def victim(*, windows: bool) -> Victim:
    """A job stopped in the middle of its input."""
    empty = Victim(windows)
    pipeline = empty.pipeline({}, rows=30)
    pipeline.run(engine="embedded")
    files = _files(pipeline)
    pipeline = empty.pipeline(files)
    before = _cut_off_after_planning(pipeline)
    assert before in _files(pipeline)
    planned = _files(pipeline)
    pipeline = empty.pipeline(files)
    pipeline.run(engine="embedded", end_of_input=True)
    return Victim(windows, files, planned, _files(pipeline))


def _cut_off_after_planning(pipeline: Pipeline) -> str:
    class Cutting:
        name, parallelism, in_process = "embedded", 1, True

        def map(self, function: Any, items: Any) -> Any:
            raise _CutOff

        def stop(self) -> None:
            pass

    newest = Log(pipeline.storage).newest()
    assert newest is not None
    try:
        pipeline.run(engine=Cutting())  # type: ignore[arg-type]
    except _CutOff:
        return f"checkpoint:{plan_name(newest.manifest.base, 0)}"
    raise AssertionError("nothing was planned")


def _files(pipeline: Pipeline) -> Files:
    sink: Any = pipeline.sink
    stores = {"checkpoint": pipeline.storage, "sink": sink.storage}
    return {f"{place}:{name}": bytes(data) for place, store in stores.items() for name, data in store._files.items()}


def _outcome(pipeline: Pipeline) -> Any:
    sink: Any = pipeline.sink
    names = [name for name in sink.storage.list("") if name.endswith(".parquet")]
    tables = [pq.read_table(pa.BufferReader(sink.storage.read(name))) for name in names]
    rows = [row for table in tables for row in table.to_pylist()]
    for row in rows:
        # The id of the checkpoint that published it: another, after going back.
        row.pop("revision", None)
    return sorted(map(str, rows)), sorted(map(str, pipeline.state().to_pylist()))


# -- damages ---------------------------------------------------------------------------------------------------------

Damage = tuple[str, Callable[[Files], Files]]


def flipped(name: str, bit: int) -> Damage:
    def damage(files: Files) -> Files:
        data = bytearray(files[name])
        data[bit // 8] ^= 1 << bit % 8
        return {**files, name: bytes(data)}

    return f"{name} bit {bit}", damage


def cut(name: str, size: int) -> Damage:
    return f"{name} cut to {size} bytes", lambda files: {**files, name: files[name][:size]}


def gone(*names: str) -> Damage:
    return f"{', '.join(names)} deleted", lambda files: {n: data for n, data in files.items() if n not in names}


def swapped(one: str, other: str) -> Damage:
    return f"{one} and {other} swapped", lambda files: {**files, one: files[other], other: files[one]}


def doubled(one: str, other: str) -> Damage:
    return f"{one} in place of {other}", lambda files: {**files, other: files[one]}


def bits_and_cuts(name: str, data: bytes) -> Iterator[Damage]:
    """Every bit and every truncation."""
    for bit in range(8 * len(data)):
        yield flipped(name, bit)
    for size in range(len(data)):
        yield cut(name, size)


def batch_borders(data: bytes) -> set[int]:
    """The bytes where a batch of a run begins, and those beside them."""
    reader = pa.BufferReader(data)
    borders = {0, len(data)}
    stream = pa.ipc.open_stream(reader)
    borders.add(reader.tell())
    while True:
        try:
            stream.read_next_batch()
        except StopIteration:
            break
        borders.add(reader.tell())
    return {place for border in borders for place in (border - 1, border, border + 1) if 0 <= place < len(data)}


# -- what must be told -----------------------------------------------------------------------------------------------


@dataclass
class Trial:
    """Damages of one victim, tried one after the other."""

    victim: Victim
    failures: list[str]
    cases: int = 0
    told: int = 0

    def manifest(self, damage: Damage) -> None:
        """Damage to the newest manifest: nothing of the job is read by it."""
        story, change = damage
        files = change(self.victim.files)
        self._told(story, lambda: Log(self.victim.storage(files)).newest(), "persistent rollback")
        if self.cases % _WAY_BACK_EVERY == 0:
            self.goes_back(story, self.victim.pipeline(files))

    def plan(self, damage: Damage) -> None:
        """Damage to a plan that waits to be done."""
        story, change = damage
        files, base = change(self.victim.planned), self.planned_base
        self._told(story, lambda: Log(self.victim.storage(files)).plan(base, 0), "delete the file and run again")
        if self.cases % _WAY_BACK_EVERY == 0:
            pipeline = self.victim.pipeline(files)
            pipeline.storage.delete(plan_name(base, 0))
            self._goes_on(story, pipeline)

    @cached_property
    def planned_base(self) -> int:
        newest = Log(self.victim.storage(self.victim.planned)).newest()
        assert newest is not None
        return newest.manifest.base

    def run(self, damage: Damage) -> None:
        """Damage to a run of the newest state: it is not summed up."""
        story, change = damage
        pipeline = self.victim.pipeline(change(self.victim.files))
        self._told(story, pipeline.state, "persistent verify")
        if self.cases % _WAY_BACK_EVERY == 0:
            self.goes_back(story, pipeline)

    def _told(self, story: str, look: Callable[[], object], remedy: str) -> None:
        self.cases += 1
        try:
            look()
        except CorruptCheckpoint as error:
            if remedy not in str(error):
                self.failures.append(f"{story}: no way back is told: {error}")
        except Exception as error:
            self.failures.append(f"{story}: {type(error).__name__}: {error}")
        else:
            self.failures.append(f"{story}: nothing was told")

    def goes_back(self, story: str, pipeline: Pipeline) -> None:
        """Do what ``verify`` says, and go on."""
        good = verify(pipeline.storage).newest_good
        if good is None:
            self.failures.append(f"{story}: verify knows no good checkpoint")
            return
        rollback(pipeline.storage, good, outputs="retract")
        self._goes_on(story, pipeline)

    def _goes_on(self, story: str, pipeline: Pipeline) -> None:
        pipeline.run(engine="embedded", end_of_input=True)
        if _outcome(pipeline) != self.victim.calm:
            self.failures.append(f"{story}: after going back, another result than without damage")
        found, newest = verify(pipeline.storage), Log(pipeline.storage).newest()
        # What was left behind stays damaged until it is collected.
        if newest is None or found.newest_good != newest.manifest.base:
            self.failures.append(f"{story}: after going back: {found.findings}")

    def files(self, damage: Damage) -> None:
        """Files lost or taken for one another: told, or without any effect on the result."""
        story, change = damage
        self.cases += 1
        pipeline = self.victim.pipeline(change(self.victim.files))
        try:
            if story == gone(newest_manifest(self.victim))[0]:
                self._runs_on(story, pipeline)
            elif pipeline.state().to_pylist() != self.victim.state:
                self.failures.append(f"{story}: silently another state")
        except CorruptCheckpoint:
            if not story.startswith("checkpoint:FORMAT"):
                self.goes_back(story, pipeline)

    def lost(self, files: Files) -> None:
        """The newest manifests are gone, whatever else there is."""
        names = sorted(name for name in files if name.startswith("checkpoint:m/"))
        for at in range(1, len(names)):
            self.cases += 1
            story, change = gone(*names[at:])
            self._runs_on(story, self.victim.pipeline(change(files)))

    def _runs_on(self, story: str, pipeline: Pipeline) -> None:
        """A run tells what is lost, or comes to the result of one from which nothing was."""
        try:
            try:
                self._goes_on(story, pipeline)
            except CorruptCheckpoint as error:
                self.told += 1
                if "persistent rollback" not in str(error):
                    self.failures.append(f"{story}: no way back is told: {error}")
                self.goes_back(story, pipeline)
        except Exception as error:
            self.failures.append(f"{story}: {type(error).__name__}: {error}")


def newest_manifest(victim: Victim) -> str:
    newest = Log(victim.storage(victim.files)).newest()
    assert newest is not None
    return f"checkpoint:{manifest_name(newest.manifest.id)}"


def prove(seconds_max: float | None, seed: int = 0, scale: float = 1.0) -> Result:
    """Every damage of both jobs, or of each kind a part, drawn."""
    began, drawn = time.monotonic(), random.Random(seed)
    failures: list[str] = []
    cases = skipped = 0
    for windows in (True, False):
        trial = Trial(victim(windows=windows), failures)
        for attempt, damages in _damages(trial, scale, drawn):
            for damage in damages:
                if seconds_max is not None and time.monotonic() - began > seconds_max:
                    skipped += 1
                    continue
                attempt(damage)
        for lost in (trial.victim.files, trial.victim.planned, trial.victim.ended):
            trial.lost(lost)
        cases += trial.cases
    note = f"{skipped:,} not tried: out of time" if skipped else ""
    return Result("corruption", cases, tuple(failures), None, time.monotonic() - began, note)


def _damages(
    trial: Trial, scale: float, drawn: random.Random
) -> Iterator[tuple[Callable[[Damage], None], list[Damage]]]:
    files, planned = trial.victim.files, trial.victim.planned
    newest = Log(trial.victim.storage(files)).newest()
    assert newest is not None
    manifest = newest_manifest(trial.victim)
    plan = next(name for name in planned if name.startswith("checkpoint:p/") and name not in files)
    runs = [f"checkpoint:{name}" for name in sorted(newest.manifest.files())]
    held = [(name, place) for name in runs for place in batch_borders(files[name])]
    held += [(name, drawn.randrange(len(files[name]))) for name in drawn.choices(runs, k=PLACES // 2)]
    damages = [flipped(name, 8 * place + drawn.randrange(8)) for name, place in held]
    damages += [cut(name, place) for name, place in held]
    yield trial.manifest, _part(list(bits_and_cuts(manifest, files[manifest])), scale, drawn)
    yield trial.plan, _part(list(bits_and_cuts(plan, planned[plan])), scale, drawn)
    yield trial.run, _part(damages, scale, drawn)
    mine = [name for name in sorted(files) if name.startswith("checkpoint:") and ":late" not in name]
    losses = [gone(name) for name in mine]
    for one, other in [pair for pair in pairwise(mine) if pair[0][:13] == pair[1][:13]]:
        losses += [swapped(one, other), doubled(one, other), doubled(other, one)]
    yield trial.files, _part(losses, scale, drawn)


def _part(damages: list[Damage], scale: float, drawn: random.Random) -> list[Damage]:
    """All of them, or so large a part."""
    return damages if scale >= 1 else drawn.sample(damages, max(1, int(len(damages) * scale)))
