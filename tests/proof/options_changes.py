"""What the section "options" tries of each option: a job, one value and another, and what must be said if refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from monoids import Count, Max, Sum, record
from persistent import Dedupe, Evolution
from persistent.driver.changes import OPTIONS, OnChange
from persistent.engines.embedded import Embedded
from tests.proof.options_job import ROWS, Setting, World, live

_PIPELINE = {
    "Pipeline.checkpoint": "checkpoint",
    "Pipeline.step_rows": 3,
    "Pipeline.on_error": "dead-letter",
    "Pipeline.max_future": "1 day",
    "Pipeline.run.end_of_input": True,
    "Retention.last": 1_000,
    "FileSink.url": "sink",
    "FileSink.format": "jsonl",
}
_WINDOWS = {"WindowState.monoid": Sum(), "tumbling.size": 10}
_MEMORY = {"Pipeline.source": "MemorySource", "MemorySource.rows": list(ROWS), "MemorySource.ordered": True}
_FILES = {
    "Pipeline.source": "FileSource",
    "FileSource.path": "json/*.jsonl",
    "FileSource.timestamp": "ts",
    "FileSource.timestamp_unit": "ms",
    "FileSource.ordered": True,
}
WINDOWS: Setting = {**_PIPELINE, **_WINDOWS, **_MEMORY}
FILES: Setting = {**_PIPELINE, **_WINDOWS, **_FILES}
CSV: Setting = {**FILES, "FileSource.path": "csv/*.csv", "FileSource.format": "csv"}
TOTALS: Setting = {**_PIPELINE, **_MEMORY, "NonWindowState.monoid": Sum(), "NonWindowState.interval_ms": 10}
HISTORY: Setting = {
    **TOTALS,
    "NonWindowState.history": 1,
    "Pipeline.step_rows": 1,
    "MemorySource.max_out_of_orderness": 20,
    "Retention.last": 1,
}
"""Nothing comes when its time is over, and no older checkpoint knows what the newest has folded."""
WITHOUT = "without"
"""Stands for an option that is not given."""


@dataclass(frozen=True)
class Change:
    """``values``: of the options that change, before and after. ``effect``: that of the table, unless this pair has
    another. ``told``: what the refusal must name. ``both``: the way back is a change of the same sort. ``twin``:
    the twin knows the option. ``loose``: what was staged and not shown may be lost."""

    option: str
    job: Setting
    values: Mapping[str, tuple[Any, Any]]
    effect: OnChange
    told: tuple[str, ...] = ()
    both: bool = True
    twin: bool = False
    loose: bool = False
    prepare: Callable[[World], None] | None = None

    def __str__(self) -> str:
        pairs = "; ".join(f"{a!r:.40} -> {b!r:.40}" for a, b in self.values.values())
        return f"{self.option} {pairs}"

    def settings(self, *, back: bool = False) -> tuple[Setting, Setting]:
        """All options before and after."""
        first, second = (_with(self.job, {name: pair[side] for name, pair in self.values.items()}) for side in (0, 1))
        return (second, first) if back else (first, second)


def _with(job: Setting, values: Setting) -> Setting:
    both = {**job, **values}
    return {name: value for name, value in both.items() if value is not WITHOUT}


_EFFECTS = {f"{one.of}.{one.name}": one.effect for one in OPTIONS}


def _change(option: str, job: Setting, a: Any, b: Any, **more: Any) -> Change:
    values = {option: (a, b), **more.pop("values", {})}
    return Change(option, job, values, more.pop("effect", _EFFECTS.get(option, OnChange.NONE)), **more)


def _other_job(world: World) -> None:
    live(world, {**WINDOWS, "Pipeline.checkpoint": "checkpoint-2", "FileSink.url": "sink-2"})


def _record(*names: str) -> Any:
    return record(**{name: Sum() for name in names})


_SCHEMA = {"ts": "int64", "page": "string", "n": "int64"}
_STATE = {"told": ("Restore", "evolve=")}

CHANGES: tuple[Change, ...] = (
    # -- pipeline
    _change(
        "Pipeline.source",
        WINDOWS,
        "MemorySource",
        "FileSource",
        values={name: (WITHOUT, value) for name, value in _FILES.items() if name.startswith("FileSource")},
        told=("source", "MemorySource", "FileSource", "Give"),
    ),
    _change(
        "Pipeline.task", WINDOWS, WITHOUT, WITHOUT, values={"Task.key": ("page", "id")}, told=("key: ", "page", "id")
    ),
    _change(
        "Pipeline.checkpoint",
        WINDOWS,
        "checkpoint",
        "checkpoint-2",
        told=("holds the results of job", "folder"),
        both=False,
    ),
    _change("Pipeline.sink", WINDOWS, True, False, values={"Pipeline.discard_closed": (False, True)}, loose=True),
    _change("Pipeline.discard_closed", WINDOWS, True, False, values={"Pipeline.sink": (False, True)}, both=False),
    _change("Pipeline.step_rows", WINDOWS, 3, 5, twin=True),
    _change("Pipeline.step_rows", FILES, 2, 4),
    _change("Pipeline.on_error", WINDOWS, "stop", "dead-letter"),
    _change("Pipeline.max_future", WINDOWS, "1 day", "10 days", twin=True),
    _change("Pipeline.max_future", FILES, "1 day", "10 days"),
    _change("Pipeline.require", WINDOWS, None, "at-least-once"),
    _change("Pipeline.name", WINDOWS, None, "visits"),
    _change("Pipeline.retention", WINDOWS, WITHOUT, WITHOUT, values={"Retention.last": (1_000, 1)}),
    _change("Pipeline.unsafe_single_driver", WINDOWS, False, True),
    _change(
        "Pipeline.start_from",
        WINDOWS,
        None,
        "checkpoint-2",
        both=False,
        prepare=_other_job,
        told=("start_from", "Omit", "began"),
    ),
    _change(
        "Pipeline.evolve",
        WINDOWS,
        None,
        Evolution(renamed={"a": "b"}),
        values={"WindowState.monoid": (_record("a"), _record("b"))},
        both=False,
    ),
    _change(
        "Pipeline.dedupe",
        WINDOWS,
        Dedupe(origin="page", sequence="id"),
        None,
        both=False,
        told=("dedupe=", "Restore", "allow_dropped"),
    ),
    _change(
        "Pipeline.dedupe",
        WINDOWS,
        Dedupe(origin="page", sequence="id"),
        Dedupe(origin="page", sequence="more"),
        told=("by (page, id)", "by (page, more)", "Restore"),
    ),
    _change("Pipeline.allow_dropped", WINDOWS, (), ["Totals"], values={"Task.name": ("Totals", "Sums")}, both=False),
    # -- a run
    _change("Pipeline.run.engine", WINDOWS, Embedded(threads=1), Embedded(threads=2)),
    _change("Pipeline.run.on_step", WINDOWS, WITHOUT, None),
    _change("Pipeline.run.on_idle", WINDOWS, WITHOUT, None),
    _change("Pipeline.run.progress", WINDOWS, WITHOUT, False),
    _change("Pipeline.run.metrics", WINDOWS, WITHOUT, None),
    _change("Pipeline.run.end_of_input", WINDOWS, True, False, twin=True),
    _change("Pipeline.run.end_of_input", TOTALS, True, False),
    # -- files
    _change("FileSource.path", FILES, "json/*.jsonl", "csv/*.csv", told=("path=", "moved_from=")),
    _change("FileSource.path", FILES, "json/a*.jsonl", "json/*.jsonl", effect=OnChange.PLAN),
    _change("FileSource.timestamp", FILES, "ts", "other", told=("timestamp=", "'ts'", "'other'", "Give")),
    _change("FileSource.timestamp_unit", FILES, "ms", "s", told=("timestamp_unit=", "'ms'", "'s'", "Give")),
    _change("FileSource.format", CSV, "csv", "json", told=("format=", "'csv'", "'json'", "Give"), both=False),
    _change("FileSource.multiline", CSV, False, True, told=("multiline=", "True", "False", "Give")),
    _change("FileSource.delimiter", CSV, ",", ";", told=("delimiter=", "','", "';'", "Give"), both=False),
    _change("FileSource.encoding", CSV, "utf-8", "cp1252", told=("encoding=", "'utf-8'", "'cp1252'", "Give")),
    _change("FileSource.schema", FILES, _SCHEMA, {**_SCHEMA, "more": "int64"}),
    _change("FileSource.ordered", FILES, True, False),
    _change("FileSource.max_out_of_orderness", FILES, 0, 15),
    _change("FileSource.moved_from", FILES, None, "moved"),
    _change("FileSource.on_bad_file", {**FILES, "FileSource.path": "bad/*"}, "raise", "dead-letter"),
    _change("FileSource.shared_mount", FILES, False, True),
    # -- rows
    _change("MemorySource.rows", WINDOWS, list(ROWS), pa.Table.from_pylist(list(ROWS))),
    _change("MemorySource.timestamp", WINDOWS, "ts", "other", told=("timestamp=", "'ts'", "'other'", "Give")),
    _change("MemorySource.timestamp_unit", WINDOWS, "ms", "s", told=("timestamp_unit=", "'ms'", "'s'", "Give")),
    _change("MemorySource.max_out_of_orderness", WINDOWS, 0, 15, twin=True),
    _change("MemorySource.ordered", WINDOWS, True, False, twin=True),
    # -- sink
    _change("FileSink.url", WINDOWS, "sink", "sink-2", told=("FileSink", "sink", "none of the outputs", "Give")),
    _change("FileSink.format", WINDOWS, "jsonl", "parquet"),
    # -- states and windows
    _change("NonWindowState.monoid", TOTALS, Sum(), Max(), told=("Sum", "Max", "evolve=")),
    _change("NonWindowState.interval_ms", TOTALS, 10, 20, effect=OnChange.NONE),
    _change("NonWindowState.interval_ms", HISTORY, 10, 20, told=("10", "20", "Restore")),
    _change("NonWindowState.history", HISTORY, 1, 40),
    _change("NonWindowState.history", TOTALS, None, 20, effect=OnChange.RECORDED, told=("Restore",)),
    _change("NonWindowState.ttl", TOTALS, 20, 40, told=("Restore",)),
    _change("NonWindowState.ttl", TOTALS, None, 20, told=("Restore",)),
    _change("WindowState.monoid", WINDOWS, Sum(), Count(), told=("Sum", "Count", "evolve=")),
    _change(
        "WindowState.window",
        WINDOWS,
        WITHOUT,
        WITHOUT,
        values={"tumbling.size": (10, WITHOUT), "sliding.size": (WITHOUT, 10), "sliding.every": (WITHOUT, 5)},
        told=("tumbling", "sliding", "Restore"),
    ),
    _change("WindowState.interval_ms", WINDOWS, None, 5, told=("5", "Restore")),
    _change("WindowState.allowed_lateness", {**WINDOWS, "WindowState.late": "accumulate"}, 0, 20),
    _change("WindowState.emit", {**WINDOWS, "WindowState.allowed_lateness": 20}, "close", "final"),
    _change("tumbling.size", WINDOWS, 10, 20, told=("10 ms", "20 ms", "Restore")),
    _change("tumbling.offset", WINDOWS, 0, 4, told=('"4 ms"', "Restore")),
    *(
        _change(
            f"sliding.{name}",
            {**WINDOWS, "sliding.size": 20, "sliding.every": 10},
            a,
            b,
            values={"tumbling.size": (WITHOUT, WITHOUT)},
            told=(f"{a} ms", f"{b} ms", "Restore"),
        )
        for name, a, b in (("size", 20, 30), ("every", 10, 5), ("offset", 1, 2))
    ),
    # -- retention, evolution
    _change("Retention.last", WINDOWS, 1_000, 2),
    _change("Retention.hourly", WINDOWS, 0, 3, values={"Retention.last": (1, 1)}),
    _change("Retention.daily", WINDOWS, 0, 3, values={"Retention.last": (1, 1)}),
    *(
        _change(
            f"Evolution.{name}",
            WINDOWS,
            WITHOUT,
            WITHOUT,
            values={"Pipeline.evolve": (None, evolution), "WindowState.monoid": monoids},
            effect=OnChange.STEP,
            both=False,
        )
        for name, evolution, monoids in (
            ("renamed", Evolution(renamed={"a": "b"}), (_record("a"), _record("b"))),
            ("removed", Evolution(removed=["a"]), (_record("a", "b"), _record("b"))),
            ("before", Evolution(before=Sum(), change=lambda total: (total,)), (Sum(), _record("total"))),
            ("change", Evolution(before=Sum(), change=lambda total: (2 * total,)), (Sum(), _record("total"))),
        )
    ),
)

_CONNECTORS = (
    "Avro",
    "FunctionSink",
    "KafkaSink",
    "KafkaSource",
    "LogSink",
    "LogSource",
    "PostgresSink",
    "RabbitQueueSink",
    "RabbitQueueSource",
    "RabbitStreamSink",
    "RabbitStreamSource",
    "SqliteSink",
    "TopicSource",
)
NOT_RUN = {
    "Pipeline.quiet_after": "counts in a run that follows: a plan found again in tests/driver/test_workbench_quiet.py",
    "Pipeline.late_sink": "comes, goes and is refused like a second sink: tests/driver/test_commit_next_sinks.py",
    "Pipeline.max_drift": "one source has one partition; several: tests/driver/test_next_step_drift.py",
    "Pipeline.run.spark": "needs a Spark; the engines come to one result in tests/test_spark_equality.py",
    "WindowState.changes": "is refused once a sink has rows: tests/driver/test_publish_after_of_changes.py",
    "NonWindowState.emit": "switches freely between two ways: tests/driver/test_publish_after_of_changes.py",
    "NonWindowState.changes": "is refused once a sink has rows: tests/driver/test_publish_after_of_changes.py",
    "session.gap": "is another window, which is refused: tests/time/test_session_window.py",
    "session.cut": "is another window, which is refused: tests/time/test_session_window.py",
    "calendar.unit": "is another window, which is refused: tests/test_pipeline_of_calendar_windows.py",
    "calendar.tz": "is another window, which is refused: tests/test_pipeline_of_calendar_windows.py",
    "calendar.offset": "is another window, which is refused: tests/test_pipeline_of_calendar_windows.py",
    "assigned.assigner": "is another window, which is refused: tests/test_pipeline_of_assigned_windows.py",
    "WindowState.early": "needs a clock that goes on between steps: tests/time/test_lateness_of_early_results.py",
    "NonWindowState.early": "needs a clock that goes on between steps: tests/time/test_lateness_of_early_totals.py",
    "WindowState.late": "is refused while a published window can be corrected: tests/time/test_lateness_over_runs.py",
    "Pipeline.run.follow": "never ends by itself; a run that follows is one in tests/driver/test_open_job_loop.py",
    **{
        f"then.{name}": "a job of two sources; tried in tests/connect/test_then_and_halves.py"
        for name in ("files", "live", "at", "max_skew")
    },
    **{
        f"{one.of}.{one.name}": "needs a server; what is recorded is tried in its own tests"
        for one in OPTIONS
        if one.of in _CONNECTORS
    },
}
