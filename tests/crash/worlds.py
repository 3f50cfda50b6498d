"""A world is what survives the death of a process: a checkpoint, a sink and the input of one tiny job."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from monoids import Count, Max, Sum, record
from persistent import (
    Dedupe,
    FileSink,
    FileSource,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    session,
    sliding,
    then,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.parts import Account
from persistent.checkpoint.successor import Entry, check_follows
from persistent.driver.report import RunReport
from persistent.engines.embedded import Embedded
from persistent.names import STATE
from persistent.storage import LocalStorage, MemoryStorage, Storage
from persistent.task.task import named_states, node_name
from tests.connect.ledger import Ledger, LedgerSink
from tests.crash.pauses import AskingStorage, Before
from tests.faults import FaultyStorage, Operations

Row = Mapping[str, Any]


class Visits(PersistentTask):
    """Visits by page and ten milliseconds. Raises on a negative number, which becomes a dead letter."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), total=Sum()), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["n"] < 0:
            raise ValueError("negative")
        state.update(message.timestamp, {"visits": 1, "total": message.value["n"]})


class Corrected(Visits):
    """Windows that take late records, and are then taken back and published anew."""

    def persistent_state(self) -> WindowState:
        monoid = record(visits=Count(), total=Sum())
        return WindowState(monoid, tumbling(10), allowed_lateness=20, late="retract")


class Sessions(Visits):
    """Sums by session."""

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), total=Sum()), session(10, cut=40))


class Joining(Visits):
    """Sessions that late records join, which are then taken back."""

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), total=Sum()), session(10, cut=40), allowed_lateness=30)


class Growing(Visits):
    """Sessions that are published in each step that changes them."""

    def persistent_state(self) -> WindowState:
        monoid = record(visits=Count(), total=Sum())
        return WindowState(monoid, session(10, cut=40), allowed_lateness=30, emit="change")


class GrowingEarly(Visits):
    """Sessions that are published now and then, and when they close."""

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), total=Sum()), session(10, cut=40), allowed_lateness=30, early=25)


class States(Visits):
    """Several at once: late records are refused by one, correct another, and count in the third."""

    def persistent_state(self) -> Any:
        monoid = record(visits=Count(), total=Sum())
        return {
            "short": WindowState(monoid, tumbling(10)),
            "corrected": WindowState(monoid, tumbling(10), allowed_lateness=20, late="retract"),
            "total": NonWindowState(monoid),
        }

    def process_message(self, state: Any, message: Any) -> None:
        for one in state.values():
            super().process_message(one, message)


class LivesBeside(States):
    """Keys that expire in one state, and are taken back in its sink, beside windows, and totals that take all."""

    def persistent_state(self) -> Any:
        monoid = record(visits=Count(), total=Sum())
        return {
            "lives": NonWindowState(monoid, ttl="10 ms", emit="change", changes="retract"),
            "corrected": WindowState(monoid, tumbling(10), allowed_lateness=20, late="retract"),
            "kept": NonWindowState(monoid, ttl="25 ms"),
        }


class Beside(States):
    """A state that is published, and totals beside it that are not."""

    taken = ("short",)

    def persistent_state(self) -> Any:
        monoid = record(visits=Count(), total=Sum())
        return {"short": WindowState(monoid, tumbling(10)), "total": NonWindowState(monoid)}


class Lives(Visits):
    """Sums by page, as long as it lives, published as they change."""

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(visits=Count(), total=Sum()), ttl="10 ms", emit="change", changes="retract")


class Peaks(PersistentTask):
    """The largest number in each ten milliseconds, every four: windows that overlap, of a monoid without inverse."""

    def persistent_state(self) -> WindowState:
        return WindowState(Max(), sliding(10, every=4))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


class Totals(PersistentTask):
    """A running sum by page, published at the end of the input."""

    key = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Sum())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


class InTurn(Embedded):
    """A step has that many splits, which run one after the other: so operations have an order, and can be counted."""

    def __init__(self, splits: int) -> None:
        super().__init__(threads=1)
        self.parallelism = splits

    def map(self, function: Any, items: Any) -> Any:
        self.parallelism, splits = 1, self.parallelism
        try:
            return super().map(function, items)
        finally:
            self.parallelism = splits


@dataclass(frozen=True)
class CrashJob:
    """A task over rows, some of which are late or dead when ``ordered``. ``files``: rows stand in that many
    JSON files. ``several``: every other row comes from a second source, in files, and all windows go to a second sink
    too, and to a ledger. ``late_sink``: late records go to a "folder", or to a "ledger". ``history``: rows in files
    that are read before the others, with a border between both."""

    name: str
    task: type[PersistentTask]
    rows: tuple[Any, ...]
    step_rows: int
    ordered: bool = True
    files: int = 0
    local: bool = False
    format: str = "jsonl"
    end_of_input: bool = True
    several: bool = False
    late_sink: str = ""
    dedupe: Dedupe | None = None
    splits: int = 1
    history: tuple[Any, ...] = ()


ROWS: tuple[Any, ...] = (
    {"ts": 3, "page": "a", "n": 1},
    {"ts": 14, "page": "b", "n": 2},
    {"ts": 12, "page": "a", "n": 3},
    {"ts": 21, "page": None, "n": 4},
    {"ts": 4, "page": "a", "n": 5},  # late, where the clock is that of the rows before
    {"ts": -7, "page": "a", "n": 6},  # dead: before 1970
    {"ts": 22, "page": "b", "n": -1},  # dead in Visits, which raises on it
    {"ts": 36, "page": "é", "n": 8},
    {"ts": 13, "page": "b", "n": 9},
    {"ts": 37, "page": "a", "n": 10},
)

COPIES: tuple[Any, ...] = (
    {"ts": 3, "page": "a", "i": 1, "n": 1},
    {"ts": 4, "page": "a", "i": 2, "n": 1},
    {"ts": 3, "page": "a", "i": 1, "n": 1},  # a copy, in the other split of the step
    {"ts": 14, "page": "b", "i": 1, "n": 2},
    {"ts": 14, "page": "b", "i": 1, "n": 2},  # a copy, in the next step
    {"ts": 12, "page": "a", "i": 3, "n": 3},
    {"ts": 21, "page": None, "i": 4, "n": 4},  # dead: nobody sent it
    {"ts": 22, "page": "b", "i": 2, "n": -1},  # dead in Visits, which raises on it
    {"ts": 22, "page": "b", "i": 2, "n": -1},  # a copy of a dead letter
    {"ts": 36, "page": "é", "i": 1, "n": 8},
    {"ts": 37, "page": "a", "i": 4, "n": 10},
    {"ts": 32, "page": "b", "i": 8, "n": 10},
    {"ts": 23, "page": "b", "i": 9, "n": 9},  # late: its window is over
    {"ts": 3, "page": "a", "i": 1, "n": 1},  # late: too old to know that it is a copy
    {"ts": 38, "page": "a", "i": 4, "n": 10},  # dead: its number was used before
    {"ts": 39, "page": "a", "i": 5, "n": 1},
    {"ts": 36, "page": "é", "i": 1, "n": 8},  # a copy of what a kept checkpoint has seen
)

BORDER = 20
HISTORY: tuple[Any, ...] = (
    {"ts": 3, "page": "a", "n": 1},
    {"ts": 14, "page": "b", "n": 2},
    {"ts": 21, "page": "b", "n": 9},  # counts in the live source
    {"ts": 4, "page": "a", "n": 5},  # late
    {"ts": -7, "page": "a", "n": 6},  # dead: before 1970
    {"ts": 16, "page": "a", "n": 6},
)
LIVE: tuple[Any, ...] = (
    {"ts": 3, "page": "a", "n": 1},  # before the position of the border
    {"ts": 16, "page": "a", "n": 6},  # has counted in the history
    {"ts": 21, "page": "b", "n": 9},
    {"ts": 14, "page": "b", "n": 2},  # has counted in the history
    {"ts": 22, "page": "b", "n": -1},  # dead in Visits, which raises on it
    {"ts": 36, "page": "é", "n": 8},
    {"ts": 23, "page": "a", "n": 3},
    {"ts": 37, "page": "a", "n": 10},
)

JOBS = (
    CrashJob("visits", Visits, ROWS, 4),
    CrashJob("peaks", Peaks, ROWS[:5] + ROWS[7:], 3, ordered=False),
    CrashJob("totals", Totals, ROWS[:5] + ROWS[7:], 4),
    CrashJob("open", Visits, ROWS, 3, end_of_input=False),
    CrashJob("files", Visits, ROWS, 4, files=5),
    CrashJob("parquet", Visits, ROWS, 5, format="parquet"),
    CrashJob("disk", Visits, ROWS, 5, local=True),
    CrashJob("seam", Visits, LIVE, 3, files=2, history=HISTORY),
    CrashJob("states", States, ROWS, 4),
    CrashJob("copies", Visits, COPIES, 4, dedupe=Dedupe(origin="page", sequence="i", within=16), splits=2),
)

LONG = CrashJob("long", Visits, tuple({"ts": 4 * i, "page": "ab"[i % 2], "n": i} for i in range(13)), 1)
"""So many steps that the first checkpoints are deleted before the last is made."""


@dataclass(frozen=True)
class Outcome:
    """All that a run has done to the world, without the names and ids that a crash may change. Lists, so that
    what stands twice counts twice."""

    published: list[str]
    state: list[str]
    late: list[str]
    dead: list[str]
    ledger: Mapping[str, Account]


@dataclass
class World:
    """``checkpoint`` and ``sink`` live on; each ``run`` is a process of its own."""

    job: CrashJob
    folder: Path
    checkpoint: Storage = field(init=False)
    sink: Storage = field(init=False)
    second: MemoryStorage = field(init=False)
    ledger: Ledger = field(init=False)

    def __post_init__(self) -> None:
        self.name = uuid.uuid4().hex
        self.second, self.ledger = MemoryStorage(f"{self.name}-s2"), Ledger(self.name)
        if self.job.local:
            place = self.folder / self.name
            self.checkpoint, self.sink = LocalStorage(place / "checkpoint"), LocalStorage(place / "sink")
        else:
            self.checkpoint, self.sink = MemoryStorage(f"{self.name}-c"), MemoryStorage(f"{self.name}-s")

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states of its task."""
        return tuple(named_states(self.job.task().persistent_state()))

    def pipeline(self, operations: Operations | None = None, before: Before | None = None) -> Pipeline:
        """The job as one process sees it: its storage operations are counted, or ``before`` is asked."""
        counted = operations or Operations()

        def seen(storage: Storage) -> Storage:
            return AskingStorage(storage, before) if before else FaultyStorage(storage, counted)

        return Pipeline(
            source=self._source(),
            task=self.job.task(),
            sink=self._sinks(seen),
            late_sink=self._late_sink(seen),
            checkpoint=seen(self.checkpoint),
            step_rows=self.job.step_rows,
            on_error="dead-letter",
            dedupe=self.job.dedupe,
        )

    def run(self, operations: Operations | None = None, before: Before | None = None) -> RunReport:
        """One process, to its end or its death."""
        return self.pipeline(operations, before).run(engine=InTurn(self.job.splits), end_of_input=self.job.end_of_input)

    def outcome(self) -> Outcome:
        """What there is to see."""
        pipeline = self.pipeline()
        newest = Log(self.checkpoint).newest()
        assert newest is not None
        return Outcome(
            published=_shown(self.published(), "revision"),
            state=[row for name in self.states for row in _shown(pipeline.state(name=name).to_pylist())],
            late=_shown(pipeline.late().to_pylist(), "checkpoint"),
            dead=_shown(pipeline.dead_letters().to_pylist(), "checkpoint"),
            ledger=newest.manifest.accounts,
        )

    def published(self) -> list[dict[str, Any]]:
        """The rows that a reader of the sink sees."""
        rows = self._rows_in(self.sink)
        if (self.job.several or self.states != (STATE,)) and not self.job.late_sink:
            rows += [{**row, "sink": 2} for row in self._rows_in(self.second)]
            rows += [{**row, "sink": "ledger"} for row in self.ledger.rows()]
        if self.job.late_sink:
            rows += [{"late": row["value"], "reason": row["reason"]} for row in self.late_rows()]
        return rows

    def late_rows(self) -> list[dict[str, Any]]:
        """The rows that a reader of the late sink sees."""
        return self._rows_in(self.second) + self.ledger.rows()

    def _rows_in(self, sink: Storage) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for name in sink.list(""):
            data = sink.read(name)
            if self.job.format == "parquet":
                rows += pq.read_table(pa.BufferReader(data)).to_pylist()
            else:
                rows += [json.loads(line) for line in data.to_pybytes().decode().splitlines()]
        return rows

    def entries(self) -> list[Entry]:
        """The kept manifests, oldest first. What stands below them was deleted, or put by a driver that did
        not know."""
        log = Log(self.checkpoint)
        entries = [log.read(id) for id in log.ids()]
        return [entry for entry in entries if entry.manifest.id >= entries[-1].manifest.oldest]

    def leftovers(self) -> list[str]:
        """Files that are there though nothing names them."""
        manifests = [entry.manifest for entry in self.entries()]
        named = {name for manifest in manifests for name in manifest.files()}
        found = [name for name in self.runs() if name not in named]
        found += [f"_staged/{name}" for sink in (self.sink, self.second) for name in sink.list("_staged")]
        found += [name for name in self.checkpoint.list("") if name != "FORMAT"]
        bases = {manifest.base for manifest in manifests}
        return found + [f"p/{name}" for name in self.checkpoint.list("p") if int(name[:20]) not in bases]

    def runs(self) -> list[str]:
        """The files under ``d``."""
        tasks = {node_name(self.job.task(), name) for name in (STATE, *self.states)}
        folders = ["d/MemorySource", "d/FileSource", "d/ThenSource", *(f"d/{name}" for name in sorted(tasks))]
        return [f"{folder}/{name}" for folder in folders for name in self.checkpoint.list(folder)]

    def close(self) -> None:
        """Forget all of it."""
        Ledger.places.pop(self.name, None)
        for storage in (self.checkpoint, self.sink, self.second):
            if isinstance(storage, MemoryStorage):
                storage.clear()

    def _sinks(self, seen: Callable[[Storage], Storage]) -> Any:
        one = FileSink(seen(self.sink), format=self.job.format)
        if self.states != (STATE,):
            others = {"two": FileSink(seen(self.second), format=self.job.format)}, {"z": LedgerSink(self.ledger)}
            return dict(zip(getattr(self.job.task, "taken", self.states), (one, *others)))
        if not self.job.several:
            return one
        return {"one": one, "two": FileSink(seen(self.second), format=self.job.format), "z": LedgerSink(self.ledger)}

    def _late_sink(self, seen: Callable[[Storage], Storage]) -> Any:
        if self.job.late_sink == "folder":
            return FileSink(seen(self.second), format=self.job.format)
        return LedgerSink(self.ledger) if self.job.late_sink else None

    def _source(self) -> Any:
        job = self.job
        if job.several:
            parts = (replace(job, several=False, rows=job.rows[part::2], name=f"{job.name}-{part}") for part in (0, 1))
            one, other = (replace(self, job=part)._source() for part in parts)
            return {"one": one, "other": other}
        if job.history:
            files = replace(self, job=replace(job, history=(), rows=job.history))._source()
            return then(files, MemorySource(list(job.rows), ordered=True), at=BORDER, max_skew="5 ms")
        if not job.files:
            return MemorySource(list(job.rows), timestamp="ts", ordered=job.ordered)
        folder = self.folder / job.name
        if not folder.exists():
            write_files(folder, job.rows, job.files)
        return FileSource(os.fspath(folder / "*.jsonl"), timestamp="ts", timestamp_unit="ms", ordered=job.ordered)


def write_files(folder: Path, rows: tuple[Any, ...], files: int) -> None:
    """The rows as JSON lines, in that many files."""
    folder.mkdir(parents=True)
    for number in range(files):
        part = rows[len(rows) * number // files : len(rows) * (number + 1) // files]
        lines = "".join(json.dumps(row) + "\n" for row in part)
        (folder / f"{number:03d}.jsonl").write_text(lines)


def check_invariants(world: World) -> None:
    """What holds of a checkpoint whatever happened: one chain of parents, and I2, I5, I6 and I9 along it."""
    entries = world.entries()
    for before, after in pairwise(entries):
        check_follows(after.manifest, before.manifest)
        assert after.manifest.parent == (before.manifest.id, before.sha256)
        assert after.manifest.job == before.manifest.job
        is_checkpoint = after.manifest.kind in ("checkpoint", "correction")
        assert after.manifest.base == (after.manifest.id if is_checkpoint else before.manifest.base)
    missing = {name for entry in entries for name in entry.manifest.files()} - set(world.runs())
    assert not missing, f"named, but not there: {missing}"
    if entries[0].manifest.id > 0:
        return
    named = {
        f"{batch.id:020d}-{staged.name.partition('.')[0].rpartition('-')[2]}"
        for entry in entries
        for sink in entry.manifest.sinks.values()
        for batch in sink.unpublished
        for staged in batch.staged
    }
    shown = {name.partition(".")[0] for sink in (world.sink, world.second) for name in sink.list("")}
    assert shown <= named, "shown, though no manifest names it"


def _shown(rows: Iterable[Mapping[str, Any]], *without: str) -> list[str]:
    kept = [{name: value for name, value in row.items() if name not in without} for row in rows]
    return sorted(repr(sorted(row.items())) for row in kept)
