"""The sinks of the next manifest, each with the batch that its step has staged.

All earlier batches are published before that manifest is put.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from persistent.checkpoint.names import Staged
from persistent.checkpoint.output_parts import LATE_SINK, SinkBatch, SinkPart
from persistent.sinks.outlet import abilities
from persistent.sinks.protocol import AnySink


def next_sinks(
    before: Mapping[str, SinkPart],
    id: int,
    sinks: Mapping[str, AnySink],
    staged: Callable[[str], tuple[Staged, ...]],
    *,
    whole: bool,
) -> dict[str, SinkPart]:
    """The sinks of results at checkpoint ``id``. ``before``: all sinks before it. ``staged``: the outputs for the sink
    of a name. ``whole``: a sink that a rollback has emptied gets all that it lacks. Without a sink, the facts about
    previous ones are kept, with empty batches, because a mark must find each batch after its predecessor."""
    if not sinks:
        return {name: replace(part, unpublished=_emptied(part)) for name, part in before.items() if not part.late}
    parts = {name: _next_sink(before, name, id, sink, staged(name)) for name, sink in sinks.items()}
    emptied = {name for name, part in before.items() if part.emptied and not whole}
    return {name: replace(part, emptied=name in emptied and part.last != id) for name, part in parts.items()}


def next_late_sink(
    before: Mapping[str, SinkPart], id: int, sink: AnySink | None, staged: tuple[Staged, ...]
) -> dict[str, SinkPart]:
    """Likewise the sink of late records, under its name, if there is one."""
    if sink is None:
        return {}
    return {LATE_SINK: replace(_next_sink(before, LATE_SINK, id, sink, staged), late=True)}


def _next_sink(
    before: Mapping[str, SinkPart], name: str, id: int, sink: AnySink, staged: tuple[Staged, ...]
) -> SinkPart:
    last = before.get(name, SinkPart()).last
    batches = (SinkBatch(id, last, staged),) if staged else ()
    return SinkPart(abilities(sink), id if staged else last, batches)


def _emptied(part: SinkPart) -> tuple[SinkBatch, ...]:
    return tuple(replace(batch, staged=()) for batch in part.unpublished)
