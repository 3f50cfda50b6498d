"""The sources and sinks of a job: their names, by which a checkpoint knows them, and what they promise together.

A mapping gives the names. The name of a single source or sink without a mapping is its kind: "file" of a FileSource,
"kafka" of a KafkaSink.

A result needs a destination: closed windows leave the state, and a sink must be able to hold revised results.

What a job promises is the weakest promise of its sources, its checkpoint and its sinks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence, Set
from itertools import product
from typing import Any

from persistent.checkpoint.manifest import check_name
from persistent.checkpoint.output_parts import LATE_SINK
from persistent.checkpoint.parts import default_name
from persistent.connect.promises import Guarantee, guarantee_of, promise_of_checkpoint
from persistent.connect.sink import Sink
from persistent.connect.source import Source, parts_of
from persistent.engines.protocol import Engine
from persistent.errors import InvalidPipeline
from persistent.names import driver_name, manifest_name, plan_name, savepoint_name
from persistent.state.state import PersistentState
from persistent.storage.protocol import Storage
from persistent.task import dedupe as copies
from persistent.task.task import key_names
from persistent.time.lateness import ACCUMULATE, CHANGE
from persistent.time.session_window import SessionWindow
from persistent.worker.job import Job
from persistent.worker.output_tables import check_names, output_names


def named_sources(declared: Source | Mapping[str, Source]) -> dict[str, Source]:
    """The sources by name. InvalidPipeline for a bad name, for none, or for one that is given twice.

    >>> from persistent import MemorySource
    >>> list(named_sources(MemorySource([{"ts": 1}])))
    ['memory']
    """
    sources: dict[str, Source] = _named(
        declared, "source", lambda source: source.kind if isinstance(source, Source) else ""
    )
    if not sources:
        raise InvalidPipeline(f"source={declared!r} contains no source")
    for source in sources.values():
        _check_part("source", source, Source, "FileSource({}, timestamp=...)", "FileSource(...) or MemorySource(...)")
    _check_apart(sources, "source", "records that both read would count twice")
    return sources


def named_sinks(declared: Sink | Mapping[str, Sink] | None) -> dict[str, Sink]:
    """The sinks by name; empty for None. InvalidPipeline as above.

    >>> from persistent import MemorySink
    >>> list(named_sinks({"table": MemorySink()})), list(named_sinks(MemorySink())), list(named_sinks(None))
    (['table'], ['memory'], [])
    """
    if declared is None:
        return {}
    sinks: dict[str, Sink] = _named(declared, "sink", lambda sink: type(sink).__name__)
    if not sinks:
        raise InvalidPipeline(f"sink={declared!r} contains no sink: for none give sink=None")
    for sink in sinks.values():
        _check_part("sink", sink, Sink, "FileSink({})", "FileSink(...), MemorySink() or None")
    _check_apart(sinks, "sink", "it has one set of rows, and one mark")
    return sinks


def checked_job_name(name: str | None) -> str | None:
    """The name of a pipeline, if it has one. InvalidPipeline if it is none."""
    try:
        return None if name is None else check_name(name, "name=")
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(f"{error}, or None") from error


def checked_late_sink(late_sink: Sink | None, sinks: Mapping[str, Sink]) -> Sink | None:
    """The sink of late records. InvalidPipeline if it is none, or is one of the ``sinks`` of results.

    >>> from persistent import MemorySink
    >>> checked_late_sink(MemorySink(), {}), checked_late_sink(None, {})
    (MemorySink(), None)
    """
    if late_sink is None:
        return None
    _check_part("late_sink", late_sink, Sink, "FileSink({})", "one sink, such as FileSink(...), or None")
    _check_apart({**sinks, "late_sink": late_sink}, "sink", "late records are no results, and have other columns")
    return late_sink


def sinks_by_state(declared: Any, states: Mapping[str, Any]) -> tuple[dict[str, Sink], dict[str, str]]:
    """The sinks of a task whose states have names, by name, and the state that each takes. The only sink of a state has
    the name of the state. InvalidPipeline as above, and for a sink that is given without a state."""
    first, *_ = states
    if declared is None:
        return {}, {}
    if not isinstance(declared, Mapping) or not declared or declared.keys() - states.keys():
        others = sorted(declared.keys() - states.keys(), key=repr) if isinstance(declared, Mapping) else ()
        fault = f"{others[0]!r} is no state" if others else "it says of no sink which state it takes"
        raise InvalidPipeline(
            f"sink={declared!r}: {fault}. The task has the states {', '.join(states)}: give the sinks by state, "
            f"sink={{{first!r}: ...}}"
        )
    sinks: dict[str, Sink] = {}
    takes: dict[str, str] = {}
    for state, state_sinks in declared.items():
        is_one = state_sinks is not None and not isinstance(state_sinks, Mapping | list | tuple)
        for name, sink in named_sinks({state: state_sinks} if is_one else state_sinks).items():
            if name in sinks:
                raise InvalidPipeline(
                    f"sink: the states {takes[name]!r} and {state!r} each have a sink of the name {name!r}: give them "
                    f"names, sink={{{state!r}: {{'another': ...}}}}"
                )
            sinks[name], takes[name] = sink, state
    _check_apart(sinks, "sink", "rows of two states would be in one place")
    return sinks, takes


def _check_part(name: str, part: Any, kind: type[Source | Sink], of_path: str, others: str) -> None:
    """InvalidPipeline unless ``part`` is a ``kind``; ``of_path``: how to make one from a path."""
    if isinstance(part, type):
        raise InvalidPipeline(f"{name}={part.__name__} is a class: give an instance, {part.__name__}(...)")
    if not isinstance(part, kind):
        use = of_path.format(repr(os.fspath(part))) if isinstance(part, str | os.PathLike) else others
        is_plain = part is None or isinstance(part, str | bytes | os.PathLike | int | float)
        own = "" if is_plain else f"one of your own is a subclass of {kind.__name__}; or "
        raise InvalidPipeline(f"{name}={part!r} is not a {name}: {own}use {use}")
    for half in parts_of(part) if isinstance(part, Source) else (part,):
        _check_declared(name, half)


def _check_declared(name: str, part: Source | Sink) -> None:
    """InvalidPipeline unless what the part declares is what it has written."""
    if isinstance(part, Sink) and not isinstance(part.abilities, Set):
        raise InvalidPipeline(
            f"{name}={part!r}: abilities={part.abilities!r} is no set: write abilities = frozenset({{...}})"
        )
    for ability, (is_declared, is_written) in part.declared().items():
        if is_declared != is_written:
            fault = "is declared, but its method is not written" if is_declared else "is written, but not declared"
            raise InvalidPipeline(
                f"{name}={part!r}: the ability {ability!r} {fault}. Drivers decide by what the class "
                f"{type(part).__name__} declares: declare it and write it, or neither"
            )


def _named(declared: Any, part: str, kind: Callable[[Any], str]) -> dict[str, Any]:
    if isinstance(declared, list | tuple):
        raise InvalidPipeline(
            f"{part}={declared!r} is a list, and a checkpoint knows each {part} by its name: give the names, "
            f"{part}={{'one': ..., 'another': ...}}"
        )
    if not isinstance(declared, Mapping):
        return {default_name(kind(declared), part): declared}
    for name in declared:
        _check(name, part)
    return dict(declared)


def _check(name: Any, part: str) -> None:
    try:
        check_name(name, f"the name of the {part}")
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(f"{part}={{{name!r}: ...}}: {error}") from error


def _check_apart(parts: Mapping[str, Any], part: str, why: str) -> None:
    """InvalidPipeline if two of them are one object, or at one place."""
    seen: dict[Any, str] = {}
    for name, endpoint in parts.items():
        halves = parts_of(endpoint) if isinstance(endpoint, Source) else (endpoint,)
        for same in (("object", id(endpoint)), *(("object", id(half)) for half in halves), *map(_place, halves)):
            before = seen.setdefault(same, name)
            if before != name:
                raise InvalidPipeline(f"{part}: {before!r} and {name!r} are the same, {endpoint!r}: {why}. Omit one")


def _place(part: Any) -> Any:
    """What identifies the place of a part: its address; without one, the part is a place of its own."""
    return ("object", id(part)) if part.address is None else ("address", part.address)


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
    state: PersistentState, names: Sequence[str], sinks: Mapping[str, Sink], discard_closed: Any
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
        if sink.replaces:
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
    if sink.replaces:
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
        sink.check_names(output_names(job.node_of(name).state, key_names(job.task)))


def check_not_read_back(sources: Mapping[str, Source], sinks: Mapping[str, Sink], storage: Storage) -> None:
    """InvalidPipeline if a source would read what a sink writes, or list files of the checkpoint or a sink. Skipping
    them is not enough: if either moved later, its old files would become input."""
    read = parts_of(*sources.values())
    for source, sink in product(read, sinks.values()):
        if source.address is not None and source.address == sink.address:
            raise InvalidPipeline(
                f"{sink!r} writes where {source!r} reads: the results would be counted as input. Give the sink a "
                "place of its own"
            )
    places: list[tuple[str, str, tuple[str, ...]]] = [("checkpoint", storage.url, CHECKPOINT_NAMES)]
    for sink in sinks.values():
        if sink.storage is not None:
            _check_places_apart(sink.storage, storage)
            places.append(("sink", sink.storage.url, sink.names()))
    for source, (part, url, names) in product(read, places):
        if source.would_read(url, names):
            raise InvalidPipeline(
                f"the {part} {url} is inside the source {source!r}, which would read the files written there. "
                "Narrow the path of the source to a folder, or a pattern, of its input alone, such as "
                f"'events/*.jsonl'; or give the {part} another folder, and if it has begun move all its files there"
            )


def check_reach(engine: Engine, sources: Mapping[str, Source], sinks: Mapping[str, Sink], storage: Storage) -> None:
    """InvalidPipeline if workers in other processes cannot reach a part."""
    hidden: list[Storage | Sink] = [] if storage.shared else [storage]
    for part in (*hidden, *(sink for sink in sinks.values() if not sink.shared)):
        raise InvalidPipeline(
            f"{part!r} is in the memory of this process, out of reach of the workers of {engine.name}: "
            'use a folder, or engine="embedded"'
        )
    check = getattr(engine, "check", None)
    if check is not None:
        check(
            [storage, *(sink.storage for sink in sinks.values() if sink.storage is not None)],
            *parts_of(*sources.values()),
        )


def _check_places_apart(folder: Storage, storage: Storage) -> None:
    """InvalidPipeline if results would lie among the files of the checkpoint. Another folder in its own is fine."""
    ours = {name.partition("/")[0] for name in (*CHECKPOINT_NAMES, savepoint_name("name"))}
    url, checkpoint = f"{folder.url.rstrip('/')}/", f"{storage.url.rstrip('/')}/"
    below = url.removeprefix(checkpoint)
    if not url.startswith(checkpoint) or (below and below.partition("/")[0] not in ours):
        return
    what = "a folder that the checkpoint itself has" if below else "the folder of the checkpoint"
    raise InvalidPipeline(
        f"the sink {folder.url} is {what}: readers of the results would find its files, and 'persistent verify' those "
        "of the results. Give the sink a folder of its own; if it has begun, move its results there, with its folders "
        "_published, _staged and _retracted"
    )


def guarantee_of_job(job: Job, *, proved: bool) -> Guarantee:
    """The guarantee of a job, and why. ``proved``: whether its store is proved to create files atomically."""
    parts = {}
    for name, source in job.sources.items():
        promise = source.guarantee_deduplicated() if name in job.dedupe else source.guarantee()
        parts[_part("source", name, job.sources)] = promise
    parts["checkpoint"] = promise_of_checkpoint(job.storage, proved=proved)
    for name, sink in job.sinks.items():
        parts[_part("sink", name, job.sinks)] = sink.guarantee()
    if job.late_sink is not None:
        parts["late_sink"] = job.late_sink.guarantee()
    drops = job.discard_closed and any(node.state.window is not None and not node.sinks for node in job.nodes.values())
    limits = ["for the open windows only: those that close are discarded"] if drops else []
    limits += copies.said(job.dedupe, job.sources)
    return guarantee_of(parts, "; ".join(limits))


def _part(what: str, name: str, among: Mapping[str, Any]) -> str:
    return what if len(among) == 1 else f"{what} {name}"
