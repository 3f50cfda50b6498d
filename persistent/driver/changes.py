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


class OnChange(Enum):
    """What another value does to a job that has begun."""

    NONE = "no effect on results"
    PLAN = "from the next plan"
    STEP = "from the next step"
    RECORDED = "recorded"


@dataclass(frozen=True)
class OptionChange:
    """``of``: what takes it. ``says``: what exactly changes; where it is recorded, what to do."""

    of: str
    name: str
    effect: OnChange
    says: str


_OTHER_STATE = "put it back, say how the state becomes the new one with `evolve=`, or take a new checkpoint and sink"
_OTHER_PANES = "put it back, or read the source again into a new checkpoint and sink"
_OTHER_TIME = "say the one it was, or read the source again into a new checkpoint and sink"
_CLOCK = "when the clock moves, and so what is late"

OPTIONS = tuple(
    OptionChange(of, name, effect, says)
    for of, rows in {
        "Pipeline": (
            ("source", OnChange.RECORDED, "another sort of source is refused; its options are below"),
            (
                "task",
                OnChange.RECORDED,
                f"name, key and state: {_OTHER_STATE}. Its code is used from the next step on. While nothing has been "
                "committed any task is taken",
            ),
            ("checkpoint", OnChange.RECORDED, "another one is another job: a `FileSink` of the first refuses it"),
            (
                "sink",
                OnChange.STEP,
                "where windows that close from then on go; the report says that it is new or was taken away. Another "
                "folder: see `FileSink`",
            ),
            ("discard_closed", OnChange.STEP, "whether windows that close go nowhere"),
            (
                "step_rows",
                OnChange.PLAN,
                "where steps end, and so what is late: a step judges by the clock it begins with",
            ),
            ("on_error", OnChange.STEP, "whether a message that cannot be processed stops the run or is put aside"),
            ("max_future", OnChange.PLAN, "which timestamps are too far ahead"),
            ("require", OnChange.NONE, "a pipeline that promises less is not made"),
            ("retention", OnChange.NONE, "which checkpoints are kept after the next one"),
            ("unsafe_single_driver", OnChange.NONE, "which stores are taken for a checkpoint"),
            (
                "start_from",
                OnChange.RECORDED,
                "a checkpoint that has begun goes on with the one it began with, or without; another is refused: leave "
                "it out, or take a new checkpoint and sink",
            ),
            (
                "evolve",
                OnChange.STEP,
                "done by the next run, before its first step, and once; then it may stay or go",
            ),
            ("allow_dropped", OnChange.STEP, "done by the next run, before its first step, and once"),
        ),
        "Pipeline.run": (
            ("spark", OnChange.NONE, "where the work is done"),
            ("engine", OnChange.NONE, "where the work is done"),
            ("follow", OnChange.NONE, "whether the run waits for more input"),
            ("end_of_input", OnChange.PLAN, "whether all windows are closed once everything is read"),
            ("on_step", OnChange.NONE, "who is told of steps"),
            ("on_idle", OnChange.NONE, "who is told that a run waits"),
        ),
        "FileSource": (
            (
                "path",
                OnChange.RECORDED,
                "the folder: where it does not stand for what was read, give the path as it was, or `moved_from=`. A "
                "pattern in the same folder: which files are listed by the next plan on",
            ),
            ("timestamp", OnChange.RECORDED, _OTHER_TIME),
            ("timestamp_unit", OnChange.RECORDED, _OTHER_TIME),
            ("format", OnChange.RECORDED, _OTHER_TIME),
            ("schema", OnChange.PLAN, "which columns are read, of files that were listed before too"),
            ("ordered", OnChange.PLAN, _CLOCK),
            ("max_out_of_orderness", OnChange.PLAN, f"{_CLOCK}; the clock never goes back"),
            ("multiline", OnChange.RECORDED, _OTHER_TIME),
            ("csv_empty", OnChange.RECORDED, _OTHER_TIME),
            (
                "moved_from",
                OnChange.NONE,
                "where what was read elsewhere is found; until a run has read something new",
            ),
            (
                "on_bad_file",
                OnChange.STEP,
                "whether a file that cannot be read stops the run or is one dead letter",
            ),
            ("shared_mount", OnChange.NONE, "whether a cluster takes a path of this machine"),
        ),
        "MemorySource": (
            ("rows", OnChange.NONE, "a list or a table; rows may be added, those that were read must stay"),
            ("timestamp", OnChange.RECORDED, _OTHER_TIME),
            ("timestamp_unit", OnChange.RECORDED, _OTHER_TIME),
            ("max_out_of_orderness", OnChange.PLAN, f"{_CLOCK}; the clock never goes back"),
            ("ordered", OnChange.PLAN, _CLOCK),
        ),
        "FileSink": (
            (
                "url",
                OnChange.RECORDED,
                "a folder without what the job has published is refused: give the one it had, move it there whole, or "
                "copy its `_published` there, to have only what comes from then on",
            ),
            ("format", OnChange.STEP, "of the files that are written from then on"),
        ),
        "NonWindowState": (
            ("monoid", OnChange.RECORDED, _OTHER_STATE),
            ("interval_ms", OnChange.RECORDED, f"with `history`: {_OTHER_PANES}. Without, no effect on results"),
            (
                "history",
                OnChange.NONE,
                "how far back `as_of=` reaches, of what comes from then on. From none to some, or back, is refused: "
                f"{_OTHER_PANES}",
            ),
        ),
        "WindowState": (
            ("monoid", OnChange.RECORDED, _OTHER_STATE),
            ("window", OnChange.RECORDED, _OTHER_PANES),
            ("interval_ms", OnChange.RECORDED, _OTHER_PANES),
        ),
        "tumbling": (("size", OnChange.RECORDED, _OTHER_PANES),),
        "sliding": (("size", OnChange.RECORDED, _OTHER_PANES), ("every", OnChange.RECORDED, _OTHER_PANES)),
        "Retention": (
            ("last", OnChange.NONE, "which checkpoints are kept after the next one"),
            ("hourly", OnChange.NONE, "which checkpoints are kept after the next one"),
            ("daily", OnChange.NONE, "which checkpoints are kept after the next one"),
        ),
        "Evolution": (
            ("renamed", OnChange.STEP, "used where the record of fields is another, and once"),
            ("removed", OnChange.STEP, "used where the record of fields is another, and once"),
            ("before", OnChange.STEP, "used where the monoid is another, and once"),
            ("change", OnChange.STEP, "used where the monoid is another, and once"),
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
