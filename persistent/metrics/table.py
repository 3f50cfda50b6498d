"""The table of metrics: what each is called, what it counts, and where its figure comes from.

Prometheus, OpenTelemetry, the page of the documentation and the check of the dashboard read it, so that no name is
written twice.

A *total* comes from the account in the checkpoint: it survives every restart, and counts each record exactly once. It
goes back only where the checkpoint does, at a rollback. A *counter* counts what this process has done, from zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TOTAL: Final = "total"
COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

CHECKPOINT: Final = "checkpoint"
PROCESS: Final = "process"
SOURCE: Final = "source"
"""Where a figure comes from: the newest checkpoint, what this process has seen, or what a source says."""

SECONDS: Final = "s"
BYTES: Final = "By"
ONE: Final = "1"
_SUFFIXES: Final = {SECONDS: "_seconds", BYTES: "_bytes"}
_KINDS: Final = {TOTAL: COUNTER}

BOUNDS_SECONDS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The upper bounds of the buckets of a histogram of seconds."""

PIPELINE: Final = ("pipeline",)
OF_STATE: Final = ("pipeline", "task", "state")
OF_SOURCE: Final = ("pipeline", "source")
OF_PARTITION: Final = ("pipeline", "source", "partition")


@dataclass(frozen=True)
class Metric:
    """``name``: its words, joined by dots. ``unit``: as in OpenTelemetry. ``labels``: the names of its labels; the
    number of their values is bounded by what the pipeline declares. ``help``: what it says. ``origin``: where its
    figure comes from."""

    name: str
    kind: str
    unit: str
    labels: tuple[str, ...]
    help: str
    origin: str = CHECKPOINT

    @property
    def prometheus(self) -> str:
        """The name in Prometheus. A histogram has three series: this name with ``_bucket``, ``_sum`` and ``_count``.

        >>> BY_NAME["records"].prometheus, BY_NAME["step.duration"].prometheus
        ('persistent_records_total', 'persistent_step_duration_seconds')
        """
        counts = "_total" if self.kind in (TOTAL, COUNTER) else ""
        return f"persistent_{self.name.replace('.', '_')}{_SUFFIXES.get(self.unit, '')}{counts}"

    @property
    def otel(self) -> str:
        """Its name in OpenTelemetry."""
        return f"persistent.{self.name}"

    @property
    def prometheus_kind(self) -> str:
        """Its type in Prometheus."""
        return _KINDS.get(self.kind, self.kind)


METRICS: Final = (
    Metric(
        "run.info", GAUGE, ONE, ("pipeline", "job", "engine", "version"), "Always 1; its labels say what runs.", PROCESS
    ),
    Metric("run.active", GAUGE, ONE, PIPELINE, "1 while a run lasts in this process, otherwise 0.", PROCESS),
    Metric("checkpoint.id", GAUGE, ONE, PIPELINE, "The id of the newest checkpoint."),
    Metric("checkpoint.epoch", GAUGE, ONE, PIPELINE, "The generation of the driver: each that takes over adds one."),
    Metric("checkpoint.timestamp", GAUGE, SECONDS, PIPELINE, "When the newest checkpoint was planned, since 1970."),
    Metric("rollback.id", GAUGE, ONE, PIPELINE, "The id of the last rollback; 0 if none is listed."),
    Metric(
        "records",
        TOTAL,
        "{record}",
        ("pipeline", "source", "fate"),
        "Records by their fate: processed, late, dead or duplicate. Their sum is what was read.",
    ),
    Metric("skipped.positions", TOTAL, "{position}", OF_SOURCE, "Positions skipped, as the source had lost them."),
    Metric("clock.timestamp", GAUGE, SECONDS, OF_STATE, "The clock, in event time since 1970."),
    Metric("clock.lag", GAUGE, SECONDS, OF_STATE, "Time of day minus clock, when it is read."),
    Metric("closed.timestamp", GAUGE, SECONDS, OF_STATE, "Windows that end up to here are closed, since 1970."),
    Metric("partition.timestamp", GAUGE, SECONDS, OF_PARTITION, "The largest event time of a partition, since 1970."),
    Metric("partition.lag", GAUGE, SECONDS, OF_PARTITION, "Time of day minus that time, when it is read."),
    Metric("unread", GAUGE, BYTES, PIPELINE, "Bytes that are listed and not read yet.", SOURCE),
    Metric("unread.rows", GAUGE, "{row}", PIPELINE, "Rows that are known and not read yet.", SOURCE),
    Metric("state.rows", GAUGE, "{row}", OF_STATE, "Rows in the runs of the state: at least its keys and panes."),
    Metric("state.size", GAUGE, BYTES, OF_STATE, "Bytes of the runs of the state."),
    Metric("state.runs", GAUGE, "{run}", OF_STATE, "Runs that the state is the sum of."),
    Metric(
        "sink.owed.batches",
        GAUGE,
        "{batch}",
        ("pipeline", "sink"),
        "1 if the newest checkpoint has outputs for the sink: published once it is committed, or by the next run.",
    ),
    Metric("step.duration", HISTOGRAM, SECONDS, PIPELINE, "The duration of a step, from plan to garbage.", PROCESS),
    Metric("commit.duration", HISTOGRAM, SECONDS, PIPELINE, "From the end of a step's work to its commit.", PROCESS),
    Metric(
        "published.rows",
        COUNTER,
        "{row}",
        PIPELINE,
        "Results that steps published, without late records and what a restart publishes first.",
        PROCESS,
    ),
    Metric(
        "corrected.results",
        COUNTER,
        "{result}",
        PIPELINE,
        "Results of closed windows that late records changed.",
        PROCESS,
    ),
    Metric("discarded.windows", COUNTER, "{window}", PIPELINE, "Windows that closed without a sink.", PROCESS),
    Metric("set.aside.results", COUNTER, "{result}", PIPELINE, "Results that are dead letters.", PROCESS),
    Metric("expired.keys", COUNTER, "{key}", PIPELINE, "Lives of keys that have ended.", PROCESS),
    Metric(
        "checkpoint.written", COUNTER, BYTES, PIPELINE, "Bytes written for checkpoints: runs and manifests.", PROCESS
    ),
    Metric("compaction.written", COUNTER, BYTES, PIPELINE, "Of these, by folding runs.", PROCESS),
    Metric(
        "retries", COUNTER, "{retry}", PIPELINE, "How often a step of the driver waited before it asked again.", PROCESS
    ),
)
BY_NAME: Final = {metric.name: metric for metric in METRICS}


def table_text() -> str:
    """The table in Markdown.

    >>> table_text().splitlines()[0]
    '| Prometheus | OpenTelemetry | type | unit | labels | from | what it says |'
    """
    lines = [
        "| Prometheus | OpenTelemetry | type | unit | labels | from | what it says |",
        "|---|---|---|---|---|---|---|",
    ]
    for entry in METRICS:
        labels = ", ".join(f"`{label}`" for label in entry.labels)
        kind = entry.kind if entry.prometheus_kind == entry.kind else f"{entry.prometheus_kind} ({entry.kind})"
        cells = (f"`{entry.prometheus}`", f"`{entry.otel}`", kind, f"`{entry.unit}`", labels, entry.origin, entry.help)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
