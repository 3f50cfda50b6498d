"""A cell of the matrix is a source or sink, and what happens to it; a round is one run of a job in which that happens.

The input is written in parts, each read to its end; in each part a checkpoint is drawn at which it happens. What is
published in the end is compared, number for number, with a plain computation over everything that was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KILLED = "we are killed -9"
SERVER = "the server is killed -9, and started again"
CUT = "the connection is cut"
SLOW = "the server is slow"
FAULTS = (KILLED, SERVER, CUT, SLOW)

_NO_SERVER = "a folder of this machine has no server and no connection"
_LIBRARY = "SQLite is a library in the process of the job"
_FUNCTION = "the function runs in the process of the job"
_IN_SENDER = "a killed sender loses what it had not sent: a dead letter (`make marathon`)"
_IN_MEMORY = "the S3 of the tests holds its objects in memory: killed, it would be empty"


@dataclass(frozen=True)
class Part:
    """A source or sink as the matrix names it. ``source``, ``sink``: those of the job; ``server``: which one it has,
    ``format``: of its input files; ``excluded``: what cannot happen to it, and why."""

    name: str
    source: str
    sink: str
    server: str = ""
    format: str = "jsonl"
    excluded: str = ""

    @property
    def faults(self) -> tuple[str, ...]:
        """What can happen to it."""
        if not self.server:
            return (KILLED,)
        return tuple(fault for fault in FAULTS if not (self.server in ("s3", "topic") and fault == SERVER))


PARTS = (
    Part("FileSource, JSON lines", "file", "file", excluded=_NO_SERVER),
    Part("FileSource, CSV", "file", "file", format="csv", excluded=_NO_SERVER),
    Part("FileSource, Parquet", "file", "file", format="parquet", excluded=_NO_SERVER),
    Part("FileSource, on HDFS", "remote", "file", "hdfs", "parquet"),
    Part("FileSource, on S3", "remote", "file", "s3", "parquet", excluded=_IN_MEMORY),
    Part("KafkaSource", "kafka", "file", "kafka"),
    Part("RabbitStreamSource", "rabbit stream", "file", "rabbit stream"),
    Part("LogSource", "log", "file", excluded=_NO_SERVER),
    Part("TopicSource", "topic", "file", "topic", excluded=_IN_SENDER),
    Part("RabbitQueueSource, classic, dedupe", "queue classic", "file", "rabbit"),
    Part("RabbitQueueSource, quorum, dedupe", "queue quorum", "file", "rabbit"),
    Part("FileSink", "file", "file", excluded=_NO_SERVER),
    Part("FileSink, on HDFS", "file", "remote", "hdfs"),
    Part("FileSink, on S3", "file", "remote", "s3", excluded=_IN_MEMORY),
    Part("KafkaSink", "file", "kafka", "kafka"),
    Part("RabbitStreamSink", "file", "rabbit stream", "rabbit stream"),
    Part("PostgresSink, append", "file", "postgres append", "postgres"),
    Part("PostgresSink, upsert", "file", "postgres upsert", "postgres"),
    Part("SqliteSink, append", "file", "sqlite append", excluded=_LIBRARY),
    Part("SqliteSink, upsert", "file", "sqlite upsert", excluded=_LIBRARY),
    Part("LogSink", "file", "log", excluded=_NO_SERVER),
    Part("FunctionSink, at-least-once", "file", "function", excluded=_FUNCTION),
)
CELLS = tuple((part, fault) for part in PARTS for fault in part.faults)
REPEATS = frozenset({"function"})
"""Sinks that may repeat rows, and say so."""


@dataclass(frozen=True)
class Tally:
    """What a round came to. ``strikes``: how often it happened; ``restarts``: how often a run was begun again."""

    strikes: int = 0
    restarts: int = 0
    duplicates: int = 0
    lost: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.strikes + other.strikes,
            self.restarts + other.restarts,
            self.duplicates + other.duplicates,
            self.lost + other.lost,
        )


Results = Mapping[tuple[str, str], tuple[int, Tally]]
"""By part and fault: how many rounds, and what they came to."""


def page(results: Results, seed: int) -> str:
    """The matrix as a page of the docs."""
    lines = [
        "# The fault matrix",
        "",
        "<!-- Written by `make matrix`. -->",
        "",
        "Each source and sink runs beside its server: Kafka, RabbitMQ, PostgreSQL, HDFS, S3. The job or the server",
        "is killed, or a proxy cuts or slows their connection. In a round a job reads its input in parts, and in",
        "each part the fault happens once (to a server once a round) at a random checkpoint. Then the published",
        "numbers are compared with the written ones. A cell counts the faults; **nothing was lost and nothing",
        "published twice**, unless it says so.",
        "",
        f"| | {' | '.join(FAULTS)} |",
        f"|---|{'---|' * len(FAULTS)}",
    ]
    for part in PARTS:
        cells = [_cell(part, results.get((part.name, fault))) for fault in FAULTS]
        lines.append(f"| {part.name} | {' | '.join(cells)} |")
    reasons = {part.excluded for part in PARTS if part.excluded}
    rounds = sorted({count for count, _ in results.values()})
    lines += [
        "",
        f"Rounds in each cell: {' to '.join(str(count) for count in {rounds[0]: 0, rounds[-1]: 0})}. "
        f"Seed {seed}: `make matrix SEED={seed}` draws the same checkpoints and moments.",
        "",
        "## Cells that cannot exist",
        "",
    ]
    for reason in sorted(reasons):
        names = "; ".join(part.name for part in PARTS if part.excluded == reason)
        lines.append(f"- {names}: {reason}.")
    lines += [
        "- HDFS: the connection to the NameNode is cut or slow; clients find a DataNode past any proxy.",
        "- Files with `.gz` and `.zst`: the same reader reads them as those without.",
        "",
        "Next: [what the trials found](trials.md).",
    ]
    return "\n".join(lines) + "\n"


def _cell(part: Part, found: tuple[int, Tally] | None) -> str:
    if found is None:
        return "–"
    _, tally = found
    wrong = (f"{tally.duplicates} twice" if tally.duplicates else "", f"{tally.lost} lost" if tally.lost else "")
    return ", ".join((str(tally.strikes), *filter(None, wrong)))
