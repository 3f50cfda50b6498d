"""A change is an option with another value than in the previous run; this table states its consequences.

 NONE        no effect on results
 PLAN        from the next plan on: it decides which records a step reads; a planned step reads what was planned
 STEP        from the next step on, even a planned one: how its records are read and judged, whether a run stops or
             continues, or where and how results are published
 RECORDED    the checkpoint holds the value of a committed step: a run with another is refused before it writes anything

``docs/options.md`` contains this table; a test compares it with the signatures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class OnChange(Enum):
    """The consequence of another value for a job that has begun."""

    NONE = "no effect on results"
    PLAN = "from the next plan"
    STEP = "from the next step"
    RECORDED = "recorded"


@dataclass(frozen=True)
class OptionChange:
    """``of``: the class or function with the option. ``says``: what exactly changes; if it is recorded, what to do."""

    of: str
    name: str
    effect: OnChange
    says: str


_OTHER_STATE = "restore it, migrate the state with `evolve=`, or use a new checkpoint and sink"
_OTHER_PANES = "restore it, or read the source again into a new checkpoint and sink"
_OTHER_ROWS = (
    "refused once a sink has rows: restore it, or use a new checkpoint, with `start_from=` this one, and new sinks"
)
_OTHER_TIME = _OTHER_PANES
_OTHER_PLACE = (
    "a {} without the job's earlier outputs is refused: give the old one, or start a new checkpoint from this one"
)
_OTHER_TOPIC = _OTHER_PLACE.format("topic")
_OTHER_LOG = _OTHER_PLACE.format("log")
_OTHER_TABLE = _OTHER_PLACE.format("table")
_OTHER_JOURNAL = (
    "the journal: give the one that was read. It may have moved; a lost one is replaced if messages were acknowledged "
    'by "checkpoint"'
)
_CLOCK = "when the clock moves, and so which records are late"

_TIMES = tuple((name, OnChange.RECORDED, _OTHER_TIME) for name in ("timestamp", "timestamp_unit"))

OPTIONS = tuple(
    OptionChange(of, name, effect, says)
    for of, rows in {
        "Pipeline": (
            (
                "source",
                OnChange.RECORDED,
                "another kind of source is refused, and so is a job without one of its sources, or with one renamed; "
                "others may join. Options of sources are below",
            ),
            (
                "task",
                OnChange.RECORDED,
                f"name, key and state: {_OTHER_STATE}. Of several states, others may be added, and are empty. New code "
                "runs from the next step on. Before the first commit any task is accepted",
            ),
            ("checkpoint", OnChange.RECORDED, "another one is another job: the `FileSink` of the first refuses it"),
            (
                "sink",
                OnChange.STEP,
                "where windows that close from then on are published; the report says that it is new or was taken "
                "away. Another folder: see `FileSink`. One more may join. One may be left out, or another take its "
                "place, when it has nothing left to publish or take back; it is refused when it returns, under another "
                "name, and if it would take another state",
            ),
            (
                "late_sink",
                OnChange.STEP,
                "where late records go from then on: one that joins receives what is late from its first step. What "
                "`sink` says of another place, of leaving out and of coming back",
            ),
            ("discard_closed", OnChange.STEP, "whether windows that close are discarded"),
            (
                "step_rows",
                OnChange.PLAN,
                "where steps end, and so which records are late: a step judges lateness by its first clock",
            ),
            (
                "on_error",
                OnChange.STEP,
                "whether a message that cannot be processed stops the run or becomes a dead letter",
            ),
            ("max_future", OnChange.STEP, "which timestamps are too far ahead"),
            ("quiet_after", OnChange.PLAN, f"{_CLOCK}; the clock never goes back"),
            ("max_drift", OnChange.PLAN, "which partitions a step reads, and so which records are late"),
            ("require", OnChange.NONE, "a pipeline that guarantees less is refused"),
            ("retention", OnChange.NONE, "which checkpoints are kept after the next one"),
            ("unsafe_single_driver", OnChange.NONE, "which stores are accepted for a checkpoint"),
            (
                "start_from",
                OnChange.RECORDED,
                "a checkpoint that has begun accepts the one it began with, or none; another is refused: omit it, or "
                "use a new checkpoint and sink",
            ),
            (
                "evolve",
                OnChange.STEP,
                "the next run applies it once, before its first step; then it can stay or be removed",
            ),
            ("allow_dropped", OnChange.STEP, "the next run applies it once; `task/state` is one of several states"),
            (
                "dedupe",
                OnChange.RECORDED,
                "its columns: restore them, or read the source again into a new checkpoint and sink. Without it: "
                'restore it, or `allow_dropped=["dedupe"]` forgets the seen records. A job that adds it later does '
                "not know the records it read before. `within` and `restamped` apply from the next step",
            ),
            ("name", OnChange.NONE, "what the page, metrics, logs and reports call the job"),
        ),
        "Pipeline.run": (
            *((name, OnChange.NONE, "where the work is done") for name in ("spark", "engine")),
            ("follow", OnChange.NONE, "whether the run waits for more input"),
            ("end_of_input", OnChange.PLAN, "whether all windows close once everything is read"),
            *((name, OnChange.NONE, "the function called with its report") for name in ("on_step", "on_idle")),
            *((name, OnChange.NONE, "where figures are shown while it runs") for name in ("progress", "metrics")),
        ),
        "FileSource": (
            (
                "path",
                OnChange.RECORDED,
                "the folder: if it is not the one that was read, give the old path, or `moved_from=`. A pattern in the "
                "same folder: which files are listed from the next plan on",
            ),
            *_TIMES,
            ("format", OnChange.RECORDED, _OTHER_TIME),
            ("schema", OnChange.STEP, "which columns are read, also from files that were listed before"),
            ("ordered", OnChange.STEP, _CLOCK),
            ("max_out_of_orderness", OnChange.STEP, f"{_CLOCK}; the clock never goes back"),
            *((name, OnChange.RECORDED, _OTHER_TIME) for name in ("multiline", "delimiter", "encoding")),
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
            ("shared_mount", OnChange.NONE, "whether a cluster accepts a path of this machine"),
        ),
        "then": (
            ("files", OnChange.RECORDED, "another kind of source is refused; see the options of the source"),
            ("live", OnChange.RECORDED, "another kind of source is refused; see the options of the source"),
            (
                "at",
                OnChange.RECORDED,
                "the records between the two borders were counted in the other half: give the old one, or read both "
                "halves again into a new checkpoint and sink",
            ),
            ("max_skew", OnChange.NONE, "where the live source begins, in a new checkpoint"),
        ),
        "KafkaSource": (
            ("servers", OnChange.NONE, "where the brokers are found"),
            (
                "topic",
                OnChange.RECORDED,
                "give the old one, continue from a clock with 'persistent restart', or use a new checkpoint and sink",
            ),
            ("format", OnChange.RECORDED, _OTHER_TIME),
            ("schema", OnChange.STEP, "which fields of a value are read"),
            ("metadata", OnChange.STEP, "which columns are added to the fields of a value"),
            *_TIMES,
            ("start", OnChange.NONE, "where a new checkpoint begins"),
            ("on_gap", OnChange.PLAN, "whether a gap stops the run or is skipped and counted"),
            ("idle_timeout", OnChange.PLAN, _CLOCK),
            ("max_out_of_orderness", OnChange.STEP, f"{_CLOCK}; the clock never goes back"),
            ("max_skew", OnChange.NONE, "how far a restart from a clock looks back"),
            ("connect_timeout", OnChange.NONE, "how long a run waits for a broker at its start"),
            ("server_away", OnChange.NONE, "how long a run waits for a broker later"),
            ("client", OnChange.NONE, "how the brokers are reached"),
        ),
        "RabbitStreamSource": (
            ("servers", OnChange.NONE, "where the brokers are found"),
            (
                "stream",
                OnChange.RECORDED,
                "omit none that was read, and add new ones freely; to replace streams, use a new checkpoint and sink",
            ),
            ("encoding", OnChange.RECORDED, _OTHER_TIME),
            ("format", OnChange.RECORDED, _OTHER_TIME),
            ("schema", OnChange.STEP, "which fields of a value are read"),
            *_TIMES,
            ("start", OnChange.NONE, "where a new checkpoint begins"),
            ("on_gap", OnChange.PLAN, "whether a gap stops the run or is skipped and counted"),
            ("idle_timeout", OnChange.PLAN, _CLOCK),
            ("max_out_of_orderness", OnChange.STEP, f"{_CLOCK}; the clock never goes back"),
            ("max_skew", OnChange.NONE, "how far a restart from a clock looks back"),
            ("connect_timeout", OnChange.NONE, "how long a run waits for a broker at its start"),
            ("server_away", OnChange.NONE, "how long a run waits for a broker later"),
            ("client", OnChange.NONE, "how the brokers are reached"),
        ),
        "Avro": (
            ("registry", OnChange.NONE, "where the registry is found"),
            ("subject", OnChange.NONE, "which schema a new checkpoint uses as the reader's"),
            ("reader", OnChange.STEP, "which fields of a value are read"),
            (
                "on_unknown_id",
                OnChange.STEP,
                "whether a value whose schema the registry does not have stops the run or becomes a dead letter",
            ),
            ("client", OnChange.NONE, "how the registry is reached"),
        ),
        "MemorySource": (
            ("rows", OnChange.NONE, "a list or a table; rows may be added, rows that were read must stay"),
            *_TIMES,
            ("max_out_of_orderness", OnChange.STEP, f"{_CLOCK}; the clock never goes back"),
            ("ordered", OnChange.STEP, _CLOCK),
        ),
        "FileSink": (
            (
                "url",
                OnChange.RECORDED,
                "a folder without the job's earlier outputs is refused: give the old one, move it there whole, or "
                "copy its `_published` there, to publish only later outputs",
            ),
            ("format", OnChange.STEP, "the format of files written from then on"),
        ),
        "KafkaSink": (
            ("servers", OnChange.NONE, "where the brokers are found"),
            ("topic", OnChange.RECORDED, _OTHER_TOPIC),
            ("key", OnChange.STEP, "the key of a message, and so its partition, from then on"),
            ("connect_timeout", OnChange.NONE, "how long a run waits for a broker at its start"),
            ("server_away", OnChange.NONE, "how long a run waits for a broker later"),
            ("client", OnChange.NONE, "how the brokers are reached"),
        ),
        "RabbitStreamSink": (
            ("servers", OnChange.NONE, "where the brokers are found"),
            ("stream", OnChange.RECORDED, _OTHER_TOPIC),
            ("connect_timeout", OnChange.NONE, "how long a run waits for a broker at its start"),
            ("server_away", OnChange.NONE, "how long a run waits for a broker later"),
            ("client", OnChange.NONE, "how the brokers are reached"),
        ),
        "FunctionSink": (("function", OnChange.STEP, "the function called with later outputs"),),
        "PostgresSink": (
            ("dsn", OnChange.RECORDED, _OTHER_TABLE),
            ("table", OnChange.RECORDED, _OTHER_TABLE),
            ("mode", OnChange.STEP, "whether rows are added or replaced; earlier rows are no longer taken back"),
            ("connect_timeout", OnChange.NONE, "how long to wait for the server at the start of a run"),
            ("call_timeout", OnChange.NONE, "how long one statement may take"),
            ("server_away", OnChange.NONE, "how long to wait for the server once it has answered"),
        ),
        "LogSource": (
            (
                "url",
                OnChange.RECORDED,
                "the log: give the one that was read, continue from a clock with 'persistent restart', or use a new "
                "checkpoint and sink. It may have moved",
            ),
            ("format", OnChange.RECORDED, _OTHER_TIME),
            ("schema", OnChange.STEP, "which fields of a record are read"),
            *_TIMES,
            ("start", OnChange.NONE, "where a new checkpoint begins"),
            ("on_gap", OnChange.PLAN, "whether a gap stops the run or is skipped and counted"),
            ("max_out_of_orderness", OnChange.STEP, f"{_CLOCK}; the clock never goes back"),
            ("max_skew", OnChange.NONE, "how far a restart from a clock looks back"),
        ),
        "TopicSource": (
            ("address", OnChange.NONE, "where the sender is found"),
            ("topic", OnChange.PLAN, "the journal of another topic is refused"),
            ("journal", OnChange.RECORDED, "the journal: give the one that was read. It may have moved"),
            ("join", OnChange.NONE, "how a topic is joined, and how missing messages are recovered"),
            ("format", OnChange.RECORDED, _OTHER_TIME),
            ("schema", OnChange.STEP, "which fields of a message are read"),
            *_TIMES,
            ("max_out_of_orderness", OnChange.STEP, f"{_CLOCK}; the clock never goes back"),
        ),
        "RabbitQueueSource": (
            ("url", OnChange.NONE, "where the broker is found; its virtual host belongs to the queue"),
            (
                "queue",
                OnChange.RECORDED,
                "a journal belongs to one queue: give the old one; or, once that is done with, call release_journal()",
            ),
            ("journal", OnChange.RECORDED, _OTHER_JOURNAL),
            ("acknowledge", OnChange.PLAN, "when a message is acknowledged, and so the guarantee from then on"),
            ("topology", OnChange.PLAN, "the declarations on connecting"),
            ("prefetch", OnChange.PLAN, "how many messages can be unacknowledged"),
            ("format", OnChange.RECORDED, _OTHER_TIME),
            ("schema", OnChange.STEP, "which fields of a body are read"),
            ("headers", OnChange.STEP, "which headers are columns"),
            *_TIMES,
            ("max_out_of_orderness", OnChange.STEP, f"{_CLOCK}; the clock never goes back"),
            ("connect_timeout", OnChange.NONE, "how long a run waits for a broker at its start"),
            ("server_away", OnChange.NONE, "how long a run waits for a broker later"),
            ("recovery_interval", OnChange.NONE, "how often a lost connection is made again"),
            ("consumer_timeout", OnChange.NONE, "when the report warns"),
            ("on_oversized", OnChange.PLAN, "whether a message over 16 MiB stops the run or is a dead letter"),
            ("on_event", OnChange.NONE, "the function called when the connection changes"),
        ),
        "RabbitQueueSink": (
            ("url", OnChange.STEP, "where messages go from then on"),
            ("routing_key", OnChange.STEP, "where messages go from then on"),
            ("exchange", OnChange.STEP, "where messages go from then on"),
            ("topology", OnChange.STEP, "the declarations before messages are sent"),
            ("confirm_timeout", OnChange.NONE, "how long to wait for a confirmation"),
            ("connect_timeout", OnChange.NONE, "how long a run waits for a broker at its start"),
            ("server_away", OnChange.NONE, "how long a run waits for a broker later"),
            ("recovery_interval", OnChange.NONE, "how often a lost connection is made again"),
            ("max_message_bytes", OnChange.NONE, "which rows are refused"),
        ),
        "LogSink": (("url", OnChange.RECORDED, _OTHER_LOG),),
        "SqliteSink": (
            ("path", OnChange.RECORDED, _OTHER_TABLE),
            ("table", OnChange.RECORDED, _OTHER_TABLE),
            ("mode", OnChange.STEP, "whether rows are added or replaced; earlier rows are no longer taken back"),
            ("lock_timeout", OnChange.NONE, "how long to wait while another program writes to the file"),
        ),
        "NonWindowState": (
            ("monoid", OnChange.RECORDED, _OTHER_STATE),
            ("interval_ms", OnChange.RECORDED, f"with `history`: {_OTHER_PANES}. Without, no effect on results"),
            (
                "history",
                OnChange.NONE,
                f"how far back `as_of=` reaches, for later records. To add it or remove it is refused: {_OTHER_PANES}",
            ),
            ("emit", OnChange.STEP, "when totals are published. What is not published yet is, at the next occasion"),
            ("changes", OnChange.RECORDED, _OTHER_ROWS),
            ("early", OnChange.STEP, "when totals are published. What is not published yet is, at the next occasion"),
            ("ttl", OnChange.RECORDED, _OTHER_PANES),
        ),
        "WindowState": (
            ("monoid", OnChange.RECORDED, _OTHER_STATE),
            ("window", OnChange.RECORDED, _OTHER_PANES),
            ("interval_ms", OnChange.RECORDED, _OTHER_PANES),
            (
                "allowed_lateness",
                OnChange.STEP,
                "when a closed window is final. Less of it makes windows final earlier; more brings none back that is",
            ),
            (
                "late",
                OnChange.RECORDED,
                "while a published window can still be corrected. With `allowed_lateness=0` and the old value, the "
                "next step with records makes all of them final; then it can change",
            ),
            (
                "emit",
                OnChange.STEP,
                'when results are published. With "final", windows that were published before are final. From or to '
                f'"change": {_OTHER_ROWS}',
            ),
            ("changes", OnChange.RECORDED, _OTHER_ROWS),
            ("early", OnChange.STEP, f"when open windows are published. To add it or remove it: {_OTHER_ROWS}"),
        ),
        "tumbling": (("size", OnChange.RECORDED, _OTHER_PANES), ("offset", OnChange.RECORDED, _OTHER_PANES)),
        "sliding": tuple((name, OnChange.RECORDED, _OTHER_PANES) for name in ("size", "every", "offset")),
        "session": (("gap", OnChange.RECORDED, _OTHER_PANES), ("cut", OnChange.RECORDED, _OTHER_PANES)),
        "calendar": (
            ("unit", OnChange.RECORDED, _OTHER_PANES),
            (
                "tz",
                OnChange.RECORDED,
                f"the name of the zone: {_OTHER_PANES}. Where the zone data of the machine change, windows that have "
                "begun keep their start, later ones follow, and the report says so",
            ),
            ("offset", OnChange.RECORDED, _OTHER_PANES),
        ),
        "assigned": (("assigner", OnChange.RECORDED, f"its class, by name, and its `fingerprint()`: {_OTHER_PANES}"),),
        "Retention": tuple(
            (name, OnChange.NONE, "which checkpoints are kept after the next one")
            for name in ("last", "hourly", "daily")
        ),
        "Evolution": (
            ("renamed", OnChange.STEP, "applied once, if the fields of the record differ"),
            ("removed", OnChange.STEP, "applied once, if the fields of the record differ"),
            *((name, OnChange.STEP, "applied once, if the monoid differs") for name in ("before", "change")),
        ),
    }.items()
    for name, effect, says in rows
)


def options_text() -> str:
    """The table as Markdown.

    >>> print(options_text().splitlines()[2][:52])
    | `Pipeline` | `source` | recorded | another kind of
    """
    lines = ["| | option | another value | |", "|---|---|---|---|"]
    lines += [f"| `{option.of}` | `{option.name}` | {option.effect.value} | {option.says} |" for option in OPTIONS]
    return "\n".join(lines) + "\n"
