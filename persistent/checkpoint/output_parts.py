"""The output parts of a manifest describe what it published: the batches of each sink, and what was set aside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import replace

from persistent.checkpoint.parts import NodeName
from persistent.codec.fields import MANY, Name, Natural, Part, ShortText
from persistent.names import Staged
from persistent.task.task import state_name

LATE_SINK: Final = "late"
"""The name of the sink of late records."""

_AllStaged = Annotated[tuple[Staged, ...], Meta(max_length=MANY)]


class SinkBatch(Part, frozen=True):
    """The files that a checkpoint staged for one sink, to be published under its id. ``before``: the id of this sink's
    previous batch (a checkpoint without outputs has none); None for the first."""

    id: Natural
    before: Natural | None = None
    staged: _AllStaged = ()

    def __post_init__(self) -> None:
        if self.before is not None and self.before >= self.id:
            raise ValueError(f"the preceding batch {self.before} is not below its id {self.id}")


class SinkPart(Part, frozen=True):
    """The batches of a sink. ``does``: its optional methods. ``last``: the id of its newest batch, or of the rollback
    since. ``unpublished``: the batches that may still be unpublished, oldest first; without files if a run without a
    sink has discarded them. ``node``: the node that it takes, which may have been dropped since; None for the sink of
    late records. ``emptied``: whether a rollback takes back all that it was given, so it lacks every key."""

    does: Annotated[tuple[Name, ...], Meta(max_length=100)] = ()
    last: Natural | None = None
    unpublished: Annotated[tuple[SinkBatch, ...], Meta(max_length=MANY)] = ()
    node: NodeName | None = None
    emptied: bool = False

    @property
    def late(self) -> bool:
        """Whether it receives late records, instead of results."""
        return self.node is None

    @property
    def is_undone_by_rows(self) -> bool:
        """Whether a rollback takes back its outputs by further rows, as it can only append."""
        return "undo" in self.does and "retract" not in self.does

    @property
    def owed(self) -> tuple[SinkBatch, ...]:
        """The batches with outputs that may still be unpublished."""
        return tuple(batch for batch in self.unpublished if batch.staged)


def undoable(sinks: Mapping[str, SinkPart]) -> set[str]:
    """The names of the outputs that stay in the checkpoint as long as a manifest with these sinks is kept, to be taken
    back by rows."""
    batches = (batch for sink in sinks.values() if sink.is_undone_by_rows for batch in sink.owed)
    return {staged.name for batch in batches for staged in batch.staged}


def named_after(sinks: Mapping[str, SinkPart], nodes: Collection[str]) -> dict[str, SinkPart]:
    """The sinks, each with a node among these: if the task was renamed, the node of the state with the same name. A
    sink keeps its old node if no state has that name."""
    names = {state_name(node): node for node in nodes}
    return {
        name: sink
        if sink.node is None or sink.node in nodes
        else replace(sink, node=names.get(state_name(sink.node), sink.node))
        for name, sink in sinks.items()
    }


class Inheritance(Part, frozen=True):
    """The place in a sink that a job takes over from the job whose savepoint it started from: the ``number`` of the
    newest batch there, and the ``jobs`` that may hold the place. ``node``: the node that the sink took in that job,
    whose task may have had another name; None for the sink of late records. ``here``: the number in the sink's mark
    when this job took it over, 0 in a new place; None before the job has, and for a sink without a mark. ``empty``: a
    rollback had emptied it."""

    jobs: Annotated[tuple[ShortText, ...], Meta(max_length=1_000)]
    number: Natural
    node: NodeName | None = None
    here: Natural | None = None
    empty: bool = False

    @property
    def continues(self) -> bool:
        """Whether the sink has what was published in that place."""
        return self.here == self.number > 0 and not self.empty


class Aside(Part, frozen=True):
    """The late rows and dead letters that a checkpoint staged, to be published under its id."""

    id: Natural
    late: _AllStaged = ()
    dead: _AllStaged = ()

    def __bool__(self) -> bool:
        return bool(self.late or self.dead)
