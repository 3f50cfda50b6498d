"""The job of the section "options": made from one dictionary of all its options, in a world of its own."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import persistent
from persistent import FileSink, FileSource, MemorySource, PersistentTask, Pipeline, Retention
from persistent.checkpoint.log import Log
from persistent.engines.embedded import Embedded
from persistent.errors import NoCheckpoint, UnknownCheckpoint
from persistent.storage import MemoryStorage
from persistent.testing.faults import FaultyStorage, Operations
from persistent.testing.outcome import Outcome, outcome_of
from persistent.testing.running import START_MS

Setting = Mapping[str, Any]
"""Of every option that is given, "Pipeline.step_rows" and the like, the value."""

_DAY_MS = 86_400_000
ROWS = tuple(
    {"id": number, "ts": ts, "other": ts + 1, "page": page, "n": n, "more": 100 * number}
    for number, (ts, page, n) in enumerate(
        (
            (3, "a", 1),
            (14, "b", 2),
            (12, "a", 3),
            (21, "c", 4),
            (8, "a", 5),
            (22, "b", -1),  # the task raises
            (36, "a", 6),
            (29, "b", 7),
            (33, "c", 8),
            (47, "a", 9),
            (41, "b", 1),
            (28, "a", 2),
            (START_MS + 2 * _DAY_MS, "c", 3),
            (55, "a", 4),
            (52, "b", 5),
            (61, "c", 6),
            (START_MS + 30 * 3_600_000, "b", 1),
        )
    )
)
_numbers = itertools.count()


class Totals(PersistentTask):
    """Sums of "n", and of "more" where it is read."""

    def __init__(self, state: Any, name: str = "Totals", key: str = "page") -> None:
        self.state, self.name, self.key = state, name, key

    def persistent_state(self) -> Any:
        return self.state

    def process_message(self, state: Any, message: Any) -> None:
        value = message.value
        if value["n"] < 0:
            raise ValueError("negative")
        amount = value["n"] + (value["more"] if "more" in value and "id" not in value else 0)
        fields = getattr(self.state.monoid, "fields", None)
        state.update(message.timestamp, amount if fields is None else dict.fromkeys(fields, amount))


class Enough(Exception):
    """As many steps were made as were asked for."""


class World:
    """Storages that only this job knows, and its input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._name = f"options-{next(_numbers)}"

    def storage(self, name: str, operations: Operations | None = None) -> Any:
        inner = MemoryStorage(f"{self._name}-{name}")
        return inner if operations is None else FaultyStorage(inner, operations)

    def files(self) -> dict[str, bytes]:
        """All that is stored, of every name that the jobs of this section use."""
        places = ("checkpoint", "checkpoint-2", "sink", "sink-2")
        return {f"{one}/{name}": bytes(data) for one in places for name, data in self.storage(one)._files.items()}

    def clear(self) -> None:
        for name in ("checkpoint", "checkpoint-2", "sink", "sink-2"):
            self.storage(name).clear()


@contextmanager
def inputs() -> Iterator[Path]:
    """A folder with the rows as JSON lines and as CSV; one more file of each that cannot be read."""
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as name:
        folder = Path(name)
        for kind in ("json", "csv"):
            (folder / kind).mkdir()
        for file, first in enumerate(range(0, len(ROWS), 5)):
            rows = ROWS[first : first + 5]
            (folder / "json" / f"{'abcd'[file]}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
            lines = ["id,ts,other,page,n,more", *(",".join(map(str, row.values())) for row in rows)]
            (folder / "csv" / f"{'abcd'[file]}.csv").write_text("\n".join(lines) + "\n")
        shutil.copytree(folder / "json", folder / "moved")
        shutil.copytree(folder / "json", folder / "bad")
        (folder / "bad" / "bb.jsonl.gz").write_bytes(b"no gzip")
        yield folder


def grouped(setting: Setting) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for name, value in setting.items():
        of, _, option = name.rpartition(".")
        found.setdefault(of, {})[option] = value
    return found


def pipeline(world: World, setting: Setting, operations: Operations | None = None) -> Pipeline:
    """The pipeline as one process makes it."""
    given = grouped(setting)
    options = dict(given["Pipeline"])
    for name in ("checkpoint", "start_from"):
        if options.get(name) is not None:
            options[name] = world.storage(options[name], operations)
    sink = dict(given.get("FileSink", {}))
    if options.pop("sink", True):
        options["sink"] = FileSink(world.storage(sink.pop("url"), operations), **sink)
    if "Retention" in given:
        options["retention"] = Retention(**given["Retention"])
    task = Totals(state_of(given), **given.get("Task", {}))
    return Pipeline(source=source_of(world, given, options.pop("source")), task=task, **options)


def source_of(world: World, given: Mapping[str, Any], kind: str) -> Any:
    options = dict(given[kind])
    if kind == "MemorySource":
        return MemorySource(options.pop("rows"), **options)
    for name in ("path", "moved_from"):
        if options.get(name) is not None:
            options[name] = world.folder / options[name]
    return FileSource(options.pop("path"), **options)


def state_of(given: Mapping[str, Any]) -> Any:
    if "NonWindowState" in given:
        return persistent.NonWindowState(**given["NonWindowState"])
    make = "sliding" if "sliding" in given else "tumbling"
    return persistent.WindowState(**given["WindowState"], window=getattr(persistent, make)(**given[make]))


def live(world: World, setting: Setting, operations: Operations | None = None, steps: int | None = None) -> None:
    """One life; to the end, or (``steps``) until so many steps are made."""
    made = 0

    def enough(_: object) -> None:
        nonlocal made
        made += 1
        if made == steps:
            raise Enough

    run = {"engine": Embedded(threads=1), "on_step": enough, **grouped(setting).get("Pipeline.run", {})}
    try:
        pipeline(world, setting, operations).run(**run)
    except Enough:
        return


def steps_done(world: World, setting: Setting) -> tuple[int, int]:
    """How many steps are committed; and how many are committed or planned."""
    log = Log(pipeline(world, setting).storage)
    newest = log.newest()
    if newest is None:
        return 0, 0
    kept = log.kept(newest.manifest).values()
    committed = sum(one.kind == "checkpoint" and one.id > 0 for one in kept)
    planned = log.plan(newest.manifest.base, newest.manifest.replan) is not None
    return committed, committed + planned


def outcome(world: World, setting: Setting) -> Outcome:
    """All that there is to see."""
    return outcome_of(pipeline(world, setting), published(world), positions=True)


def published(world: World) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for place in ("sink", "sink-2"):
        sink = FileSink(world.storage(place))
        for name in sink.published():
            data = sink.storage.read(name)
            if name.endswith(".parquet"):
                rows += pq.read_table(data).to_pylist()
            else:
                rows += [json.loads(line) for line in bytes(data).splitlines()]
    return rows


def as_of_faults(world: World, setting: Setting) -> list[str]:
    """Clocks at which the state is said to be known, and is not what the rows before them make."""
    made = pipeline(world, setting)
    faults = []
    dead = {row["offset"] for row in made.dead_letters().to_pylist()}
    for clock in range(0, 80, 10):
        try:
            found = {row["page"]: row["value"] for row in made.state(as_of=clock).to_pylist()}
        except (UnknownCheckpoint, NoCheckpoint):
            continue
        wanted: dict[str, int] = {}
        for row in ROWS:
            if row["id"] not in dead and row["ts"] < clock:
                wanted[row["page"]] = wanted.get(row["page"], 0) + row["n"]
        faults += [f"as of {clock}: {found}, not {wanted}"] if found != wanted else []
    return faults
