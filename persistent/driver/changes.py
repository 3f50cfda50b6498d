"""A change is an option given otherwise than in the run before; this table says of every option what becomes of it.

    NONE        no effect on results
    PLAN        from the next plan on: a step that a run has planned and not committed is run as it was planned
    STEP        from the next step on, also one that is planned: it says whether a run stops or goes on, what is done
                with records from there on, or where and how results are shown
    RECORDED    the checkpoint knows the value: another one is refused, before anything is written

``docs/options.md`` is this table; a test compares it with the signatures.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """What another value does to a job that has begun."""

    NONE = "no effect on results"
    PLAN = "from the next plan"
    STEP = "from the next step"
    RECORDED = "recorded"


@dataclass(frozen=True)
class Option:
    """``of``: what takes it. ``says``: what exactly changes; where it is recorded, what to do."""

    of: str
    name: str
    effect: Effect
    says: str


_OTHER_STATE = "put it back, say how the state becomes the new one with `evolve=`, or take a new checkpoint and sink"
_OTHER_PANES = "put it back, or read the source again into a new checkpoint and sink"
_OTHER_TIME = "say the one it was, or read the source again into a new checkpoint and sink"
_CLOCK = "when the clock moves, and so what is late"

OPTIONS = tuple(
    Option(of, name, effect, says)
    for of, rows in {
        "Pipeline": (
            ("source", Effect.RECORDED, "another sort of source is refused; its options are below"),
            (
                "task",
                Effect.RECORDED,
                f"name, key and state: {_OTHER_STATE}. Its code is used from the next step on. While nothing has been "
                "committed any task is taken",
            ),
            ("checkpoint", Effect.RECORDED, "another one is another job: a `FileSink` of the first refuses it"),
            (
                "sink",
                Effect.STEP,
                "where windows that close from then on go; the report says that it is new or was taken away. Another "
                "folder: see `FileSink`",
            ),
            ("discard_closed", Effect.STEP, "whether windows that close go nowhere"),
            (
                "step_rows",
                Effect.PLAN,
                "where steps end, and so what is late: a step judges by the clock it begins with",
            ),
            ("on_error", Effect.STEP, "whether a message that cannot be processed stops the run or is put aside"),
            ("max_future", Effect.PLAN, "which timestamps are too far ahead"),
            ("require", Effect.NONE, "a pipeline that promises less is not made"),
            ("retention", Effect.NONE, "which checkpoints are kept after the next one"),
            ("unsafe_single_driver", Effect.NONE, "which stores are taken for a checkpoint"),
            (
                "start_from",
                Effect.RECORDED,
                "a checkpoint that has begun goes on with the one it began with, or without; another is refused: leave "
                "it out, or take a new checkpoint and sink",
            ),
            ("evolve", Effect.STEP, "done by the next run, before its first step, and once; then it may stay or go"),
            ("allow_dropped", Effect.STEP, "done by the next run, before its first step, and once"),
        ),
        "Pipeline.run": (
            ("spark", Effect.NONE, "where the work is done"),
            ("engine", Effect.NONE, "where the work is done"),
            ("follow", Effect.NONE, "whether the run waits for more input"),
            ("end_of_input", Effect.PLAN, "whether all windows are closed once everything is read"),
            ("on_step", Effect.NONE, "who is told of steps"),
            ("on_idle", Effect.NONE, "who is told that a run waits"),
        ),
        "FileSource": (
            (
                "path",
                Effect.RECORDED,
                "the folder: where it does not stand for what was read, give the path as it was, or `moved_from=`. A "
                "pattern in the same folder: which files are listed by the next plan on",
            ),
            ("timestamp", Effect.RECORDED, _OTHER_TIME),
            ("timestamp_unit", Effect.RECORDED, _OTHER_TIME),
            ("format", Effect.RECORDED, _OTHER_TIME),
            ("schema", Effect.PLAN, "which columns are read, of files that were listed before too"),
            ("ordered", Effect.PLAN, _CLOCK),
            ("max_out_of_orderness", Effect.PLAN, f"{_CLOCK}; the clock never goes back"),
            ("multiline", Effect.RECORDED, _OTHER_TIME),
            ("csv_empty", Effect.RECORDED, _OTHER_TIME),
            ("moved_from", Effect.NONE, "where what was read elsewhere is found; until a run has read something new"),
            ("on_bad_file", Effect.STEP, "whether a file that cannot be read stops the run or is one dead letter"),
            ("shared_mount", Effect.NONE, "whether a cluster takes a path of this machine"),
        ),
        "MemorySource": (
            ("rows", Effect.NONE, "a list or a table; rows may be added, those that were read must stay"),
            ("timestamp", Effect.RECORDED, _OTHER_TIME),
            ("timestamp_unit", Effect.RECORDED, _OTHER_TIME),
            ("max_out_of_orderness", Effect.PLAN, f"{_CLOCK}; the clock never goes back"),
            ("ordered", Effect.PLAN, _CLOCK),
        ),
        "FileSink": (
            (
                "url",
                Effect.RECORDED,
                "a folder without what the job has published is refused: give the one it had, move it there whole, or "
                "copy its `_published` there, to have only what comes from then on",
            ),
            ("format", Effect.STEP, "of the files that are written from then on"),
        ),
        "NonWindowState": (
            ("monoid", Effect.RECORDED, _OTHER_STATE),
            ("interval_ms", Effect.RECORDED, f"with `history`: {_OTHER_PANES}. Without, no effect on results"),
            (
                "history",
                Effect.NONE,
                "how far back `as_of=` reaches, of what comes from then on. From none to some, or back, is refused: "
                f"{_OTHER_PANES}",
            ),
        ),
        "WindowState": (
            ("monoid", Effect.RECORDED, _OTHER_STATE),
            ("window", Effect.RECORDED, _OTHER_PANES),
            ("interval_ms", Effect.RECORDED, _OTHER_PANES),
        ),
        "tumbling": (("size", Effect.RECORDED, _OTHER_PANES),),
        "sliding": (("size", Effect.RECORDED, _OTHER_PANES), ("every", Effect.RECORDED, _OTHER_PANES)),
        "Retention": (
            ("last", Effect.NONE, "which checkpoints are kept after the next one"),
            ("hourly", Effect.NONE, "which checkpoints are kept after the next one"),
            ("daily", Effect.NONE, "which checkpoints are kept after the next one"),
        ),
        "Evolution": (
            ("renamed", Effect.STEP, "used where the record of fields is another, and once"),
            ("removed", Effect.STEP, "used where the record of fields is another, and once"),
            ("before", Effect.STEP, "used where the monoid is another, and once"),
            ("change", Effect.STEP, "used where the monoid is another, and once"),
        ),
    }.items()
    for name, effect, says in rows
)


def options_text() -> str:
    """The table as Markdown.

    >>> print(options_text().splitlines()[2])
    | `Pipeline` | `source` | recorded | another sort of source is refused; its options are below |
    """
    lines = ["| | option | another value | |", "|---|---|---|---|"]
    lines += [f"| `{one.of}` | `{one.name}` | {one.effect.value} | {one.says} |" for one in OPTIONS]
    return "\n".join(lines) + "\n"
