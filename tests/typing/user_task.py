"""A user's tasks, fully annotated: ``mypy --strict`` accepts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.compute as pc

from monoids import Count, Group, Max, Mean, Min, Monoid, SetUnion, Sum, mapping, record
from persistent import (
    Batch,
    FileSink,
    FileSource,
    MemorySink,
    MemorySource,
    Message,
    NonWindowState,
    PersistentTask,
    Pipeline,
    RunReport,
    State,
    StepReport,
    WindowState,
    sliding,
    tumbling,
)


class Longest(Monoid[str]):
    identity = ""
    commutative = idempotent = True

    def lift(self, value: Any) -> str:
        return str(value or "")

    def combine(self, a: str, b: str) -> str:
        return max(a, b, key=lambda text: (len(text), text))


class Balance(Group[int]):
    identity = 0
    commutative = True

    def combine(self, a: int, b: int) -> int:
        return a + b

    def inverse(self, a: int) -> int:
        return -a


class Several(PersistentTask):
    key = "page"

    def persistent_state(self) -> dict[str, WindowState | NonWindowState]:
        return {"hourly": WindowState(Count(), tumbling("1 h")), "total": NonWindowState(Sum())}

    def process_message(self, state: Mapping[str, State], message: Message) -> None:
        state["hourly"].update(message.timestamp, 1)
        for one in state.values():
            one.update(message.timestamp, message.value["bytes"])

    def process_batch(self, state: Mapping[str, State], batch: Batch) -> None:
        state["total"].update_batch(batch.timestamps, batch["bytes"])


class Visits(PersistentTask):
    key = ("page", "country")

    def persistent_state(self) -> WindowState:
        fields = record(visits=Count(), bytes=Sum(), slowest=Max(float), longest=Longest(), mean=Mean())
        return WindowState(fields, tumbling("1 min"))

    def process_message(self, state: State, message: Message) -> None:
        view = message.value
        state.update(message.timestamp, {"visits": 1, "bytes": view["bytes"], "slowest": view["seconds"]})

    def process_batch(self, state: State, batch: Batch) -> None:
        views = batch.filter(pc.equal(batch["kind"], "view"))
        state.update_batch(views.timestamps, {"visits": 1, "bytes": views["bytes"], "slowest": views["seconds"]})


class Words(PersistentTask):
    key = {"word": None}

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: State, message: Message) -> None:
        for word in message.value["line"].split():
            state.update(message.timestamp, 1, key=word)


class Campaigns(PersistentTask):
    key = {"campaign": lambda message: message.value["ad"] // 10}

    def persistent_state(self) -> WindowState:
        return WindowState(mapping(SetUnion(str)), sliding("1 h", every="1 min"))

    def process_message(self, state: State, message: Message) -> None:
        state.update(message.timestamp, {message.value["kind"]: message.value["user"]})


class Lowest(PersistentTask):
    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Min(float))

    def process_message(self, state: State, message: Message) -> None:
        state.update(message.timestamp, message.value["price"])


def told(step: StepReport) -> None:
    print(step.rows_per_second, step.clock_ms)


def run() -> RunReport:
    source = FileSource("views/*.parquet", timestamp="ts", max_out_of_orderness="5 s")
    pipeline = Pipeline(source=source, task=Visits(), sink=FileSink("visits"), checkpoint="checkpoint")
    report = pipeline.run(engine="embedded", on_step=told)
    rows: list[dict[str, Any]] = [{"ts": 1, "line": "a b"}]
    words = Pipeline(
        source=MemorySource(rows, timestamp="ts"), task=Words(), sink=MemorySink(), checkpoint="memory://words"
    )
    words.run(end_of_input=True)
    print(words.state().to_pylist(), pipeline.late().num_rows, pipeline.dead_letters().num_rows, pipeline.guarantee())
    return report
