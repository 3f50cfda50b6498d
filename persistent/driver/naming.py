"""The sources and sinks of a pipeline have names, by which a checkpoint knows them.

A mapping gives the names. The name of a single source or sink without a mapping is its kind: "file" of a FileSource,
"kafka" of a KafkaSink.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from inspect import get_annotations
from typing import Any

from persistent.checkpoint.manifest import check_name
from persistent.checkpoint.parts import default_name
from persistent.errors import InvalidPipeline
from persistent.sinks.protocol import AnySink, BatchSink, Sink
from persistent.sources.protocol import Source, parts_of


def named_sources(declared: Source | Mapping[str, Source]) -> dict[str, Source]:
    """The sources by name. InvalidPipeline for a bad name, for none, or for one that is given twice.

    >>> from persistent import MemorySource
    >>> list(named_sources(MemorySource([{"ts": 1}])))
    ['memory']
    """
    sources: dict[str, Source] = _named(declared, "source", lambda source: str(getattr(source, "kind", "")))
    if not sources:
        raise InvalidPipeline(f"source={declared!r} contains no source")
    for source in sources.values():
        _check_part("source", source, Source, "FileSource({}, timestamp=...)", "FileSource(...) or MemorySource(...)")
    _check_apart(sources, "source", "records that both read would count twice")
    return sources


def named_sinks(declared: AnySink | Mapping[str, AnySink] | None) -> dict[str, AnySink]:
    """The sinks by name; empty for None. InvalidPipeline as above.

    >>> from persistent import MemorySink
    >>> list(named_sinks({"table": MemorySink()})), list(named_sinks(MemorySink())), list(named_sinks(None))
    (['table'], ['memory'], [])
    """
    if declared is None:
        return {}
    sinks: dict[str, AnySink] = _named(declared, "sink", lambda sink: type(sink).__name__)
    if not sinks:
        raise InvalidPipeline(f"sink={declared!r} contains no sink: for none give sink=None")
    for sink in sinks.values():
        kind = BatchSink if hasattr(sink, "deliver") else Sink
        _check_part("sink", sink, kind, "FileSink({})", "FileSink(...), MemorySink() or None")
    _check_apart(sinks, "sink", "it has one set of rows, and one mark")
    return sinks


def checked_job_name(name: str | None) -> str | None:
    """The name of a pipeline, if it has one. InvalidPipeline if it is none."""
    try:
        return None if name is None else check_name(name, "name=")
    except (TypeError, ValueError) as error:
        raise InvalidPipeline(f"{error}, or None") from error


def checked_late_sink(late_sink: AnySink | None, sinks: Mapping[str, AnySink]) -> AnySink | None:
    """The sink of late records. InvalidPipeline if it is none, or is one of the ``sinks`` of results.

    >>> from persistent import MemorySink
    >>> checked_late_sink(MemorySink(), {}), checked_late_sink(None, {})
    (MemorySink(), None)
    """
    if late_sink is None:
        return None
    kind = BatchSink if hasattr(late_sink, "deliver") else Sink
    _check_part("late_sink", late_sink, kind, "FileSink({})", "one sink, such as FileSink(...), or None")
    _check_apart({**sinks, "late_sink": late_sink}, "sink", "late records are no results, and have other columns")
    return late_sink


def sinks_by_state(declared: Any, states: Mapping[str, Any]) -> tuple[dict[str, AnySink], dict[str, str]]:
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
    sinks: dict[str, AnySink] = {}
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


def _check_part(name: str, part: Any, kind: type, of_path: str, others: str) -> None:
    """InvalidPipeline unless ``part`` is a ``kind``; ``of_path``: how to make one from a path."""
    if isinstance(part, type):
        raise InvalidPipeline(f"{name}={part.__name__} is a class: give an instance, {part.__name__}(...)")
    if not isinstance(part, kind):
        use = of_path.format(repr(os.fspath(part))) if isinstance(part, str | os.PathLike) else others
        members = [member for member in {**get_annotations(kind), **vars(kind)} if not member.startswith("_")]
        missing = [member for member in members if not hasattr(part, member)]
        lacks = "" if len(missing) == len(members) else f"it has no {', '.join(missing)}; add them, or "
        raise InvalidPipeline(f"{name}={part!r} is not a {name}: {lacks}use {use}")


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
        halves = parts_of(endpoint)
        for same in (("object", id(endpoint)), *(("object", id(half)) for half in halves), *map(_place, halves)):
            before = seen.setdefault(same, name)
            if before != name:
                raise InvalidPipeline(f"{part}: {before!r} and {name!r} are the same, {endpoint!r}: {why}. Omit one")


def _place(part: Any) -> Any:
    """What identifies the place of a part: its address; without one, the part is a place of its own."""
    address = getattr(part, "address", None)
    return ("object", id(part)) if address is None else ("address", address)
