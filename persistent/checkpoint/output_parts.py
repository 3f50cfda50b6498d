"""The output parts of a manifest describe what it published: the batches of each sink, and what was set aside. Beside
them are its corrections.

A correction puts records into a state, or takes some out, after the fact. Its account stands beside the accounts of
the sources, because its records come from no source.

A manifest keeps the account of every correction under its name, so that none is applied twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import replace

from persistent.checkpoint.parts import NodeName
from persistent.codec.fields import MANY, PARTS_MAX, Name, Natural, Part, Sha256, ShortText, Whole
from persistent.errors import Refused, UnknownCheckpoint
from persistent.names import Staged, state_name
from persistent.text.figures import utc_text

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


class Correction(Part, frozen=True):
    """The account of a correction. ``checkpoint``: the one that it made. ``added``, ``removed``: its records, each of
    which was processed. ``panes``: the first and the last that it touched. ``sha256``: of its records, by which the
    same records are recognised. ``refused``: the names of the states that refused a record, or a part of it, which
    another state took."""

    checkpoint: Natural
    added: Natural
    removed: Natural
    panes: tuple[Whole, Whole]
    sha256: Sha256
    refused: Annotated[tuple[Name, ...], Meta(max_length=PARTS_MAX)] = ()

    def __str__(self) -> str:
        partly = f", partly refused by {', '.join(self.refused)}" if self.refused else ""
        return f"{self.added:,} added, {self.removed:,} removed{partly}"


Corrections = Annotated[Mapping[Name, Correction], Meta(max_length=MANY)]
"""By name."""


def correction_laws(id: int, kind: str, before: Corrections, after: Corrections) -> Iterator[tuple[str, bool]]:
    """The laws of a correction and the manifest before it, each with whether it holds."""
    if kind != "correction":
        return
    new = after.keys() - before.keys()
    kept = all(after.get(name) == correction for name, correction in before.items())
    is_own = [after[name].checkpoint for name in new] == [id]
    yield "a correction adds its own account, and changes no other", kept and is_own


def corrections_before(corrections: Corrections, clock: int, url: str) -> dict[str, Correction]:
    """The corrections that the state as of a clock holds. A correction that changed only panes from the clock on is
    undone, and its name is free again. Refused if a correction changed panes on both sides: half of it would remain."""
    kept = {}
    for name, correction in corrections.items():
        first, last = correction.panes
        if first < clock <= last:
            raise Refused(
                f"{url}: the correction {name!r} has changed the state before {utc_text(clock)} and after it, and the "
                f"state as of that clock has only a part of it. Choose a clock up to {utc_text(max(first, 0))}, or "
                f"after {utc_text(last)}. Nothing was changed"
            )
        if last < clock:
            kept[name] = correction
    return kept


def check_holds(corrections: Corrections, newest: Corrections, clock: int, id: int, url: str) -> None:
    """Refused if checkpoint ``id``, whose ``corrections`` are these, lacks one of the ``newest`` corrections that has
    changed the state before the clock: the state as of the clock would be without it."""
    for name, correction in newest.items():
        if corrections.get(name) != correction and correction.panes[0] < clock:
            raise Refused(
                f"{url}: checkpoint {id} is the newest that knows the state as of {utc_text(clock)}, and it lacks the "
                f"correction {name!r}, which has changed the state before that clock, in checkpoint "
                f"{correction.checkpoint}. Choose a later clock; or roll back to before the correction, which undoes "
                "it, and apply it again after the restart. Nothing was changed"
            )


def check_read_with(corrections: Corrections, newest: Corrections, clock: int, id: int, url: str) -> None:
    """UnknownCheckpoint if the state as of the clock, read from checkpoint ``id``, would lack a correction."""
    for name, correction in newest.items():
        if corrections.get(name) != correction and correction.panes[0] < clock:
            raise UnknownCheckpoint(
                f"{url}: no kept checkpoint holds the state as of {utc_text(clock)} with the correction {name!r}, "
                f"which has changed it in checkpoint {correction.checkpoint}: the newest that separates what is before "
                f"that clock, {id}, lacks it. Choose a later clock; or read that checkpoint as it was: at={id}, "
                f"or '--at {id}'"
            )


def all_corrections(first: Corrections, second: Corrections) -> dict[str, Correction]:
    """The corrections of two jobs that become one. If both have a name, the correction of the second job gets a number.

    >>> a, b = Correction(3, 1, 0, (0, 0), "a"), Correction(5, 2, 0, (0, 0), "b")
    >>> sorted(all_corrections({"x": a}, {"x": b, "y": b}))
    ['x', 'x-2', 'y']
    """
    corrections = dict(first)
    for name, correction in second.items():
        number, free = 2, name
        while free in corrections or (free != name and free in second):
            free, number = f"{name}-{number}", number + 1
        corrections[free] = correction
    return corrections
