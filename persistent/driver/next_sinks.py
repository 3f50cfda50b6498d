"""The sinks of the next manifest, each with the batch that its step has staged.

All earlier batches are published before that manifest is put.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from persistent.checkpoint.names import Staged
from persistent.checkpoint.output_parts import LATE_SINK, SinkBatch, SinkPart
from persistent.driver.results import NodeResults
from persistent.driver.step import NodeStep
from persistent.sinks.outlet import abilities
from persistent.sinks.protocol import AnySink
from persistent.task import STATE
from persistent.worker.job import Node


def next_sinks(node: Node, step: NodeStep, results: NodeResults) -> dict[str, SinkPart]:
    """The sinks of a node after a step. Where all that has changed is published, a sink that a rollback has emptied
    gets all that it lacks. Without a sink, the facts about previous ones are kept, with empty batches, because a mark
    must find each batch after its predecessor."""
    before, id = step.last.manifest.sinks_of(node.id), step.attempt.id
    if not node.sinks:
        return {name: replace(part, unpublished=_emptied(part)) for name, part in before.items()}
    whole = results.changes or (step.task.ends and node.state.window is None)
    state = None if node.name == STATE else node.name
    parts = {
        name: replace(_next_sink(before, name, id, sink, results.staged(name)), state=state)
        for name, sink in node.sinks.items()
    }
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
