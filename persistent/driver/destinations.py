"""A result needs a destination: closed windows leave the state, and a sink must be able to hold revised results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from persistent.checkpoint.names import driver_name, manifest_name, plan_name, savepoint_name
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.engines.protocol import Engine
from persistent.errors import InvalidPipeline
from persistent.lateness import ACCUMULATE, CHANGE
from persistent.session_window import SessionWindow
from persistent.sinks.column_limits import check_distinct
from persistent.sinks.file import FileSink
from persistent.sinks.protocol import AnySink, BatchSink, Sink, replaces
from persistent.sinks.sqlite import SqliteSink
from persistent.sources.file import FileSource
from persistent.sources.protocol import Source, parts_of
from persistent.state import PersistentState
from persistent.storage import Storage
from persistent.task import key_names
from persistent.worker.job import Job
from persistent.worker.output_tables import check_names, output_names

CHECKPOINT_NAMES = (
    "FORMAT",
    manifest_name(0),
    plan_name(0, 0),
    driver_name(0, "0"),
    "d/task/run.arrow",
    "late/rows.arrow",
    "dead/rows.arrow",
    "staged/rows.arrow",
)
"""Sample names of the files in a checkpoint."""


def check_every_destination(job: Job) -> None:
    """``check_destinations`` for each state of a job; with several, it names the one at fault. The sink of late records
    is checked too."""
    discards, keys, each = job.discard_closed, key_names(job.task), job.nodes.values()
    if len(each) > 1 and discards is True and all(node.sinks or node.state.window is None for node in each):
        raise InvalidPipeline(
            "discard_closed=True drops closed windows, and each state with windows has a sink: omit it"
        )
    for node in each:
        # Of several states, those without a sink discard.
        discard_closed = False if discards is True and len(each) > 1 and node.sinks else discards
        try:
            check_destinations(node.state, keys, node.sinks, discard_closed)
        except InvalidPipeline as error:
            if len(each) == 1:
                raise
            raise InvalidPipeline(
                f"the state {node.name!r}: {error}. Sinks are given by state, sink={{{node.name!r}: ...}}"
            ) from error
    _check_late_sink(job)


def check_destinations(
    state: PersistentState, names: Sequence[str], sinks: Mapping[str, AnySink], discard_closed: Any
) -> None:
    """InvalidPipeline if two columns of the results would share a name, if closed windows would be lost and the user
    has not declared it, or if a sink cannot hold their corrections."""
    check_names(state, names)
    if not isinstance(discard_closed, bool):
        raise InvalidPipeline(f"discard_closed={discard_closed!r}: give True or False")
    if sinks and discard_closed:
        raise InvalidPipeline("sink= publishes closed windows, discard_closed=True drops them: omit one of them")
    if not sinks and state.window is not None and not discard_closed:
        raise InvalidPipeline(
            "a WindowState without sink=: a closed window leaves the state, and its result would be lost. Give it a "
            "destination: sink=FileSink(...) or MemorySink(); or discard_closed=True, if only open windows matter"
        )
    if discard_closed and state.lateness.allowed_ms and state.lateness.emit == "close":
        raise InvalidPipeline(
            "allowed_lateness= corrects what is published when a window closes, and discard_closed=True publishes "
            "nothing: omit one of them"
        )
    option, remedy = f"late={state.lateness.answer!r}", 'late="accumulate"'
    if state.lateness.emit == CHANGE:
        option, remedy = 'changes="retract"', 'changes="update"'
    # A session is taken back with its own borders, so the newest row of its key and borders says what it is.
    counts_together = state.lateness.answer not in (None, ACCUMULATE) and not isinstance(state.window, SessionWindow)
    for sink in sinks.values() if counts_together else ():
        if replaces(sink):
            raise InvalidPipeline(
                f"{sink!r} keeps one row of a key and window, the newest, and {option} publishes rows that count "
                f'together: use {remedy}, whose new value replaces the old one; or mode="append", which keeps all rows'
            )


def _check_late_sink(job: Job) -> None:
    """InvalidPipeline if late records cannot go to their sink, or if there are none."""
    sink = job.late_sink
    if sink is None:
        return
    if LATE_SINK in job.sinks:
        raise InvalidPipeline(
            f"sink={{{LATE_SINK!r}: ...}} has the name that the sink of late records has in the checkpoint: give the "
            "one of results another"
        )
    if replaces(sink):
        raise InvalidPipeline(
            f"late_sink={sink!r} keeps one row of a key, the newest, and late records are added, each once: use "
            'mode="append", which keeps all rows'
        )
    # Beside a state that takes every record, those that another refuses are partly late.
    takes_all = (node.state.window is None and node.state.time_to_live is None for node in job.nodes.values())
    if all(takes_all) and not job.dedupe:
        raise InvalidPipeline(
            f"late_sink={sink!r}, but nothing is ever late in a state whose windows do not close: omit it"
        )


def check_columns(job: Job) -> None:
    """InvalidPipeline if a sink cannot hold the columns of the results by their names. A sink says so too, once it is
    claimed."""
    for name, sink in job.sinks.items():
        if isinstance(sink, SqliteSink):
            check_distinct(output_names(job.node_of(name).state, key_names(job.task)), repr(sink))


def check_not_read_back(sources: Mapping[str, Source], sinks: Mapping[str, AnySink], storage: Storage) -> None:
    """InvalidPipeline if a source would read what a sink writes, or list files of the checkpoint or a sink. Skipping
    them is not enough: if either moved later, its old files would become input."""
    read = parts_of(*sources.values())
    for source, sink in product(read, sinks.values()):
        if getattr(source, "address", None) == getattr(sink, "address", "") != "":
            raise InvalidPipeline(
                f"{sink!r} writes where {source!r} reads: the results would be counted as input. Give the sink a "
                "place of its own"
            )
    for sink in (sink for sink in sinks.values() if isinstance(sink, FileSink)):
        _check_apart(sink, storage)
    places: list[tuple[str, str, tuple[str, ...]]] = [("checkpoint", storage.url, CHECKPOINT_NAMES)]
    places += [("sink", sink.url, sink.names()) for sink in sinks.values() if isinstance(sink, FileSink)]
    for source, (part, url, names) in product((source for source in read if isinstance(source, FileSource)), places):
        if source.would_read(url, names):
            raise InvalidPipeline(
                f"the {part} {url} is inside the source {source!r}, which would read the files written there. "
                "Narrow the path of the source to a folder, or a pattern, of its input alone, such as "
                f"'events/*.jsonl'; or give the {part} another folder, and if it has begun move all its files there"
            )


def check_reach(engine: Engine, sources: Mapping[str, Source], sinks: Mapping[str, AnySink], storage: Storage) -> None:
    """InvalidPipeline if workers in other processes cannot reach a part."""
    parts: list[Storage | Sink] = [storage, *(sink for sink in sinks.values() if not isinstance(sink, BatchSink))]
    for part in parts:
        if not part.shared:
            raise InvalidPipeline(
                f"{part!r} is in the memory of this process, out of reach of the workers of {engine.name}: "
                'use a folder, or engine="embedded"'
            )
    check = getattr(engine, "check", None)
    if check is not None:
        check(
            [storage, *(sink.storage for sink in sinks.values() if isinstance(sink, FileSink))],
            *parts_of(*sources.values()),
        )


def _check_apart(sink: FileSink, storage: Storage) -> None:
    """InvalidPipeline if results would lie among the files of the checkpoint. Another folder in its own is fine."""
    ours = {name.partition("/")[0] for name in (*CHECKPOINT_NAMES, savepoint_name("name"))}
    url, checkpoint = f"{sink.url.rstrip('/')}/", f"{storage.url.rstrip('/')}/"
    below = url.removeprefix(checkpoint)
    if not url.startswith(checkpoint) or (below and below.partition("/")[0] not in ours):
        return
    what = "a folder that the checkpoint itself has" if below else "the folder of the checkpoint"
    raise InvalidPipeline(
        f"the sink {sink.url} is {what}: readers of the results would find its files, and 'persistent verify' those of "
        "the results. Give the sink a folder of its own; if it has begun, move its results there, with its folders "
        "_published, _staged and _retracted"
    )
