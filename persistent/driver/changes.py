"""A change is an option with another value than in the previous run; this table states its consequences.

 NONE        no effect on results
 PLAN        from the next plan on: it decides which records a step reads; a planned step reads what was planned
 STEP        from the next step on, even a planned one: how its records are read and judged, whether a run stops or
             continues, or where and how results are published
 RECORDED    the checkpoint holds the value of a committed step: a run with another is refused before it writes anything

``docs/options.md`` contains this table; a test compares it with the signatures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from persistent.connect.options import CLOCK, SHARED, OnChange


@dataclass(frozen=True)
class OptionChange:
    """``of``: the class or function with the option. ``says``: what changes; if it is recorded, the remedy. Empty if
    the effect says it all, or the remedy is the usual one."""

    of: str
    name: str
    effect: OnChange
    says: str


_OTHER_STATE = "restore it, migrate the state with `evolve=`, or use a new checkpoint and sink"
_READ_AGAIN = "restore it, or read the source again into a new checkpoint and sink"
_USUAL = ""
"""The usual remedy, which the page states once: restore it, or read the source again."""
_OTHER_ROWS = (
    "refused once a sink has rows: restore it, or use a new checkpoint, with `start_from=` this one, and new sinks"
)
_OTHER_PLACE = (
    "a {0} without the job's earlier outputs is refused: give the old {0}, or start a new checkpoint from this one"
)
_OTHER_TOPIC = _OTHER_PLACE.format("topic")
_OTHER_LOG = _OTHER_PLACE.format("log")
_OTHER_TABLE = _OTHER_PLACE.format("table")
_OTHER_JOURNAL = (
    "give the journal that was read; it may have moved. A lost journal is replaced if messages were acknowledged by "
    '"checkpoint"'
)

_CONNECTING = ("connect_timeout", "server_away", "client")
_TIMES = ("timestamp", "timestamp_unit")


def _row(row: str | tuple[str, OnChange, str]) -> tuple[str, OnChange, str]:
    """A row of the table; a name alone is that of a shared option."""
    return row if isinstance(row, tuple) else (row, SHARED[row].effect, SHARED[row].says)


_ROWS: Mapping[str, Iterable[str | tuple[str, OnChange, str]]] = {
    "Pipeline": (
        (
            "source",
            OnChange.RECORDED,
            "another kind of source, a renamed source or a job without one of its sources is refused; more "
            "sources may join. Their options are below",
        ),
        (
            "task",
            OnChange.RECORDED,
            f"name, key and state: {_OTHER_STATE}. A task with several states may get more: each begins empty. New "
            "code runs from the next step",
        ),
        (
            "checkpoint",
            OnChange.RECORDED,
            "another checkpoint is another job: the `FileSink` of the first job refuses it",
        ),
        (
            "sink",
            OnChange.STEP,
            "where windows that close later are published; the report names a sink that is new or left out. More "
            "sinks may join. A sink with nothing left to publish or take back may be left out or replaced. "
            "Refused: a sink that was left out and returns, that has another name, or that takes another state. "
            "Another folder: see `FileSink`",
        ),
        (
            "late_sink",
            OnChange.STEP,
            "where later late records go. Another place, leaving out and returning: as for `sink`",
        ),
        ("discard_closed", OnChange.STEP, "whether windows that close are discarded"),
        (
            "step_rows",
            OnChange.PLAN,
            "where steps end, and so which records are late: a step judges lateness by the clock at its start",
        ),
        (
            "on_error",
            OnChange.STEP,
            "whether a message that cannot be processed stops the run or becomes a dead letter",
        ),
        ("max_future", OnChange.STEP, "which timestamps are too far ahead"),
        ("quiet_after", OnChange.PLAN, CLOCK),
        ("max_drift", OnChange.PLAN, "which partitions a step reads, and so which records are late"),
        ("require", OnChange.NONE, "a pipeline that guarantees less is refused"),
        ("retention", OnChange.NONE, "which checkpoints are kept after the next one"),
        ("unsafe_single_driver", OnChange.NONE, ""),
        (
            "start_from",
            OnChange.RECORDED,
            "a started checkpoint accepts the value it began with, or none; else omit it, or use a new checkpoint "
            "and sink",
        ),
        (
            "evolve",
            OnChange.STEP,
            "the next run applies it once, before its first step; later it has no effect",
        ),
        ("allow_dropped", OnChange.STEP, "the next run applies it once; `task/state` names one of several states"),
        (
            "dedupe",
            OnChange.RECORDED,
            'its columns. To remove it: `allow_dropped=["dedupe"]` forgets the seen records. Added later, it does '
            "not know the records read before. `within` and `restamped` apply from the next step",
        ),
        ("name", OnChange.NONE, ""),
    ),
    "Pipeline.run": (
        *((name, OnChange.NONE, "") for name in ("spark", "engine")),
        ("follow", OnChange.NONE, ""),
        ("end_of_input", OnChange.PLAN, "whether all windows close once everything is read"),
        *((name, OnChange.NONE, "") for name in ("on_step", "on_idle")),
        *((name, OnChange.NONE, "") for name in ("progress", "metrics")),
    ),
    "FileSource": (
        (
            "path",
            OnChange.RECORDED,
            "the folder: give the old path, or `moved_from=`. A pattern in the same folder selects the files from "
            "the next plan on",
        ),
        *_TIMES,
        "format",
        ("schema", OnChange.STEP, "which columns are read, also from files that were listed before"),
        ("ordered", OnChange.STEP, CLOCK),
        "max_out_of_orderness",
        *((name, OnChange.RECORDED, _USUAL) for name in ("multiline", "delimiter", "encoding")),
        (
            "moved_from",
            OnChange.NONE,
            "the old path of the files, until a run has read new records",
        ),
        (
            "on_bad_file",
            OnChange.STEP,
            "whether a file that cannot be read stops the run or becomes one dead letter",
        ),
        ("shared_mount", OnChange.NONE, ""),
    ),
    "then": (
        ("files", OnChange.RECORDED, "another kind of source is refused; its options are in its own rows"),
        ("live", OnChange.RECORDED, "another kind of source is refused; its options are in its own rows"),
        (
            "at",
            OnChange.RECORDED,
            "records between the two borders were counted in the other half: give the old border, or read both "
            "halves again into a new checkpoint and sink",
        ),
        ("max_skew", OnChange.NONE, "where the live source begins, in a new checkpoint"),
    ),
    "KafkaSource": (
        "servers",
        (
            "topic",
            OnChange.RECORDED,
            "give the old topic, continue from a clock with `persistent restart`, or use a new checkpoint and sink",
        ),
        "format",
        "schema",
        ("metadata", OnChange.STEP, "which columns are added to the fields of a value"),
        *_TIMES,
        "start",
        "on_gap",
        "idle_timeout",
        "max_out_of_orderness",
        "max_skew",
        *_CONNECTING,
    ),
    "RabbitStreamSource": (
        "servers",
        (
            "stream",
            OnChange.RECORDED,
            "streams may be added, and none omitted; to replace streams, use a new checkpoint and sink",
        ),
        "encoding",
        "format",
        "schema",
        *_TIMES,
        "start",
        "on_gap",
        "idle_timeout",
        "max_out_of_orderness",
        "max_skew",
        *_CONNECTING,
    ),
    "Avro": (
        ("registry", OnChange.NONE, ""),
        ("subject", OnChange.NONE, "which schema a new checkpoint uses as the reader's"),
        ("reader", OnChange.STEP, "which fields of a value are read"),
        (
            "on_unknown_id",
            OnChange.STEP,
            "whether a value whose schema the registry lacks stops the run or becomes a dead letter",
        ),
        "client",
    ),
    "MemorySource": (
        ("rows", OnChange.NONE, "rows may be added; rows that were read must stay"),
        *_TIMES,
        "max_out_of_orderness",
        ("ordered", OnChange.STEP, CLOCK),
    ),
    "FileSink": (
        (
            "url",
            OnChange.RECORDED,
            "a folder without the job's earlier outputs is refused: give the old folder, move it there whole, or "
            "copy its `_published` there to publish only later outputs",
        ),
        ("format", OnChange.STEP, "the format of files written from then on"),
    ),
    "KafkaSink": (
        "servers",
        ("topic", OnChange.RECORDED, _OTHER_TOPIC),
        ("key", OnChange.STEP, "the key of a message, and so its partition, from then on"),
        *_CONNECTING,
    ),
    "RabbitStreamSink": (
        "servers",
        ("stream", OnChange.RECORDED, _OTHER_TOPIC),
        *_CONNECTING,
    ),
    "FunctionSink": (("function", OnChange.STEP, "the function called with later outputs"),),
    "PostgresSink": (
        ("dsn", OnChange.RECORDED, _OTHER_TABLE),
        ("table", OnChange.RECORDED, _OTHER_TABLE),
        ("mode", OnChange.STEP, "whether rows are added or replaced; earlier rows are no longer taken back"),
        "connect_timeout",
        ("call_timeout", OnChange.NONE, ""),
        "server_away",
    ),
    "LogSource": (
        (
            "url",
            OnChange.RECORDED,
            "give the log that was read, continue from a clock with `persistent restart`, or use a new checkpoint "
            "and sink. The log may have moved",
        ),
        "format",
        ("schema", OnChange.STEP, "which fields of a record are read"),
        *_TIMES,
        "start",
        "on_gap",
        "max_out_of_orderness",
        "max_skew",
    ),
    "TopicSource": (
        ("address", OnChange.NONE, ""),
        ("topic", OnChange.PLAN, "the journal of another topic is refused"),
        ("journal", OnChange.RECORDED, "give the journal that was read; it may have moved"),
        ("join", OnChange.NONE, ""),
        "format",
        ("schema", OnChange.STEP, "which fields of a message are read"),
        *_TIMES,
        "max_out_of_orderness",
    ),
    "RabbitQueueSource": (
        ("url", OnChange.NONE, "the virtual host belongs to the queue"),
        (
            "queue",
            OnChange.RECORDED,
            "a journal belongs to one queue: give the old queue, or call `release_journal()` once it is done with",
        ),
        ("journal", OnChange.RECORDED, _OTHER_JOURNAL),
        ("acknowledge", OnChange.PLAN, "when a message is acknowledged, and so the guarantee from then on"),
        ("topology", OnChange.PLAN, "the declarations on connecting"),
        ("prefetch", OnChange.PLAN, "how many messages can be unacknowledged"),
        "format",
        ("schema", OnChange.STEP, "which fields of a body are read"),
        ("headers", OnChange.STEP, "which headers are columns"),
        *_TIMES,
        "max_out_of_orderness",
        "connect_timeout",
        "server_away",
        "recovery_interval",
        ("consumer_timeout", OnChange.NONE, ""),
        ("on_oversized", OnChange.PLAN, "whether a message over 16 MiB stops the run or is a dead letter"),
        ("on_event", OnChange.NONE, ""),
    ),
    "RabbitQueueSink": (
        ("url", OnChange.STEP, "where messages go from then on"),
        ("routing_key", OnChange.STEP, "where messages go from then on"),
        ("exchange", OnChange.STEP, "where messages go from then on"),
        ("topology", OnChange.STEP, "the declarations before messages are sent"),
        ("confirm_timeout", OnChange.NONE, ""),
        "connect_timeout",
        "server_away",
        "recovery_interval",
        ("max_message_bytes", OnChange.NONE, ""),
    ),
    "LogSink": (("url", OnChange.RECORDED, _OTHER_LOG),),
    "SqliteSink": (
        ("path", OnChange.RECORDED, _OTHER_TABLE),
        ("table", OnChange.RECORDED, _OTHER_TABLE),
        ("mode", OnChange.STEP, "whether rows are added or replaced; earlier rows are no longer taken back"),
        ("lock_timeout", OnChange.NONE, ""),
    ),
    "NonWindowState": (
        ("monoid", OnChange.RECORDED, _OTHER_STATE),
        ("interval_ms", OnChange.RECORDED, "with `history`. Without, no effect on results"),
        (
            "history",
            OnChange.NONE,
            f"how far back `as_of=` reaches, for later records. Adding or removing it is refused: {_READ_AGAIN}",
        ),
        ("emit", OnChange.STEP, "when totals are published; unpublished totals follow at the next occasion"),
        ("changes", OnChange.RECORDED, _OTHER_ROWS),
        ("early", OnChange.STEP, "when totals are published; unpublished totals follow at the next occasion"),
        ("ttl", OnChange.RECORDED, _USUAL),
    ),
    "WindowState": (
        ("monoid", OnChange.RECORDED, _OTHER_STATE),
        ("window", OnChange.RECORDED, _USUAL),
        ("interval_ms", OnChange.RECORDED, _USUAL),
        (
            "allowed_lateness",
            OnChange.STEP,
            "when a closed window is final; a final window stays final",
        ),
        (
            "late",
            OnChange.RECORDED,
            "while a published window can still be corrected. To change it, first run a step with records with "
            "`allowed_lateness=0` and the old value, which makes all windows final",
        ),
        (
            "emit",
            OnChange.STEP,
            'when results are published. With "final", windows that were published are final. From or to "change": '
            "as for `changes`",
        ),
        ("changes", OnChange.RECORDED, _OTHER_ROWS),
        ("early", OnChange.STEP, "when open windows are published. To add or remove it: as for `changes`"),
    ),
    "tumbling": (("size", OnChange.RECORDED, _USUAL), ("offset", OnChange.RECORDED, _USUAL)),
    "sliding": tuple((name, OnChange.RECORDED, _USUAL) for name in ("size", "every", "offset")),
    "session": (("gap", OnChange.RECORDED, _USUAL), ("cut", OnChange.RECORDED, _USUAL)),
    "calendar": (
        ("unit", OnChange.RECORDED, _USUAL),
        (
            "tz",
            OnChange.RECORDED,
            "the name of the zone. If the zone data of the machine change, windows that have begun keep their "
            "start, later windows follow the new data, and the report says so",
        ),
        ("offset", OnChange.RECORDED, _USUAL),
    ),
    "assigned": (("assigner", OnChange.RECORDED, "its class, by name, and its `fingerprint()`"),),
    "Retention": tuple(
        (name, OnChange.NONE, "which checkpoints are kept after the next one") for name in ("last", "hourly", "daily")
    ),
    "Evolution": (
        ("renamed", OnChange.STEP, "applied once, if the fields of the record differ"),
        ("removed", OnChange.STEP, "applied once, if the fields of the record differ"),
        *((name, OnChange.STEP, "applied once, if the monoid differs") for name in ("before", "change")),
    ),
}
OPTIONS = tuple(OptionChange(of, *_row(row)) for of, rows in _ROWS.items() for row in rows)


def options_text() -> str:
    """The table as Markdown. Options of a class with the same consequences share a row.

    >>> print(options_text().splitlines()[2][:52])
    | `Pipeline` | `source` | recorded | another kind of
    """
    names: dict[tuple[str, OnChange, str], list[str]] = {}
    for option in OPTIONS:
        names.setdefault((option.of, option.effect, option.says), []).append(f"`{option.name}`")
    lines = ["| | option | another value | |", "|---|---|---|---|"]
    lines += [
        f"| `{of}` | {', '.join(named)} | {effect.value} | {says} |" for (of, effect, says), named in names.items()
    ]
    return "\n".join(lines) + "\n"
