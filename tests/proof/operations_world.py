"""A world of operations is a checkpoint, a sink and the sources of one job, which processes and commands come to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from msgspec import structs

from persistent import FileSink, MemorySource, PersistentTask, Pipeline, Retention
from persistent.checkpoint.log import Log
from persistent.connect.formats.schemas import to_json
from persistent.connect.source import Budget, Records, Source, SourcePlan, SourceState, Split
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage, Storage
from tests.faults import FaultyStorage, Operations
from tests.proof.emission import Emission, Place, Sums
from tests.proof.operations_model import GRID, HISTORY_MS, Lists, Model, Shown

KEPT_LAST = 4
_MEMORY = "memory"
_SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("page", pa.string()), ("n", pa.int64())])
_RECORDED = {"format": "memory", "schema": to_json(_SCHEMA)}


@dataclass
class Named(Source):
    """Several lists, each a partition of its own name; of each of them a step reads as many rows."""

    rows: Lists
    kind: str = "Named"

    def partitions(self) -> tuple[str, ...]:
        return tuple(self.rows)

    def plan(self, state: SourceState, budget: Budget, *, follow: bool = False) -> SourcePlan:
        splits: list[Split] = []
        end = dict(state.positions)
        for name, rows in self.rows.items():
            here = SourceState({_MEMORY: state.positions.get(name, (0, 0))}, _RECORDED)
            own = replace(budget, ahead=frozenset([_MEMORY] if name in budget.ahead else []))
            planned = MemorySource(rows, ordered=True).plan(here, own, follow=True)
            splits += [structs.replace(split, partition=name) for split in planned.splits]
            end[name] = planned.end[_MEMORY]
        return SourcePlan(tuple(splits), end, dict.fromkeys(self.rows), _RECORDED)

    def schema(self, recorded: Mapping[str, Any]) -> pa.Schema:
        return _SCHEMA

    def read(self, split: Split, recorded: Mapping[str, Any]) -> Iterator[Records]:
        yield from MemorySource(self.rows[split.partition]).read(split, recorded)


class Visits(PersistentTask):
    """Count and total by page, in windows or for ever; raises on a negative number. ``states``: the names of several
    that are the same."""

    key = "page"

    def __init__(self, emission: Emission, states: Sequence[str] = ()) -> None:
        self.emission, self.states = emission, states

    def persistent_state(self) -> Any:
        return {name: self._state() for name in self.states} if self.states else self._state()

    def _state(self) -> Any:
        grid = {} if self.emission.has_sessions else {"interval_ms": GRID * self.emission.tick_ms}
        return self.emission.state(**grid, **({"history": HISTORY_MS} if self.emission.window is None else {}))

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["n"] < 0:
            raise ValueError("negative")
        for one in state.values() if self.states else (state,):
            one.update(message.timestamp, self.emission.values(message.value["n"]))


class Enough(Exception):
    """As many steps were made as were asked for."""


@dataclass
class World:
    """``sources``: the one it began with, and another for each restart as of a clock. ``start_from``: the savepoint it
    began with. ``drift``: how far a partition can be ahead of the slowest, in ms; None: as far as it is. ``twins``: the
    task has two states that are the same, each with a sink of its own. ``apart``: late rows have one too."""

    name: str
    emission: Emission
    sources: list[dict[str, list[dict[str, Any]]]]
    start_from: str | None = None
    drift: int | None = None
    twins: bool = False
    apart: bool = False
    model: Model = field(default_factory=lambda: Model(KEPT_LAST))

    def __post_init__(self) -> None:
        self.checkpoint, self.sink = MemoryStorage(f"{self.name}-c"), MemoryStorage(f"{self.name}-s")
        self.twin, self.late = MemoryStorage(f"{self.name}-t"), MemoryStorage(f"{self.name}-l")

    @property
    def read(self) -> str | None:
        """The name of the state to read."""
        return "twin" if self.twins else None

    @property
    def source(self) -> int:
        """The number of the source that the newest checkpoint is of."""
        return self.model.now.source if self.model.held else len(self.sources) - 1

    def pipeline(
        self,
        operations: Operations | None = None,
        *,
        step_rows: int = 3,
        source: int | None = None,
        checkpoint: Storage | None = None,
    ) -> Pipeline:
        """The job as one process sees it; over another ``checkpoint``, to read that."""
        counted = operations or Operations()
        sink: Any = FileSink(FaultyStorage(self.sink, counted), format="jsonl")
        if self.twins:
            sink = {"state": {"file": sink}, "twin": FileSink(FaultyStorage(self.twin, counted), format="jsonl")}
        return Pipeline(
            source=Named(self.sources[self.source if source is None else source]),
            task=Visits(self.emission, ("state", "twin") if self.twins else ()),
            sink=sink,
            late_sink=FileSink(FaultyStorage(self.late, counted), format="jsonl") if self.apart else None,
            checkpoint=checkpoint or FaultyStorage(self.checkpoint, counted),
            step_rows=step_rows,
            on_error="dead-letter",
            retention=Retention(last=KEPT_LAST),
            start_from=self.start_from,
            max_drift=None if self.drift is None else f"{self.drift} ms",
        )

    def run(self, operations: Operations, *, steps: int, step_rows: int, ends: bool, threads: int) -> None:
        """One process: some steps, or until there is nothing more to do, or to its death."""
        made = 0

        def enough(_: object) -> None:
            nonlocal made
            made += 1
            if made == steps:
                raise Enough

        engine = Embedded(threads=threads)
        try:
            self.pipeline(operations, step_rows=step_rows).run(engine=engine, end_of_input=ends, on_step=enough)
        except Enough:
            pass
        finally:
            engine.stop()

    def files(self) -> dict[str, Any]:
        """All there is."""
        sinks = {"sink": self.sink, "twin": self.twin, "late": self.late}
        shown = {f"{where}/{name}": data for where, one in sinks.items() for name, data in one._files.items()}
        return {**self.checkpoint._files, **shown}

    def shown(self) -> dict[int, Shown]:
        """What a reader sees, by the id of the checkpoint that published it."""
        found = self._shown_in(self.sink)
        twin = self._shown_in(self.twin)
        assert not self.twins or twin == found, f"the twin has {twin}, not {found}"
        pipeline = self.pipeline()
        for table, aside in ((pipeline.late(), "late"), (pipeline.dead_letters(), "dead")):
            for row in table.to_pylist():
                numbers: Counter[int] = getattr(found.setdefault(row["checkpoint"], Shown()), aside)
                numbers[row["value"]["id"]] += 1
        for name in self.late.list(""):
            for line in self.late.read(name).to_pybytes().decode().splitlines():
                found.setdefault(int(name[:20]), Shown()).apart[json.loads(json.loads(line)["value"])["id"]] += 1
        return found

    def _shown_in(self, sink: MemoryStorage) -> dict[int, Shown]:
        """The rows in one sink."""
        found: dict[int, Shown] = {}
        since = Log(self.checkpoint).newest().manifest.revision_base  # type: ignore[union-attr]
        for name in sink.list(""):
            id, values = int(name[:20]), found.setdefault(int(name[:20]), Shown()).values
            for line in sink.read(name).to_pybytes().decode().splitlines():
                row = json.loads(line)
                assert row.get("revision", since + id) == since + id
                values[self.emission.row(row)] += 1
        return found


def values(rows: Sequence[Mapping[str, Any]], emission: Emission) -> dict[Place, Sums]:
    """Count and total by place, of the rows of a state."""
    found = {emission.place(row): (row["visits"], row["total"]) for row in rows}
    assert len(found) == len(rows), f"a key stands there twice: {rows}"
    return found
