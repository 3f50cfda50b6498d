"""A correction puts records into a state, or takes some out, after the fact. Its account stands beside the accounts of
the sources, because its records come from no source.

A manifest keeps the account of every correction under its name, so that none is applied twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta

from persistent.codec.fields import MANY, PARTS_MAX, Name, Natural, Part, Sha256, Whole
from persistent.errors import Refused, UnknownCheckpoint
from persistent.text.figures import utc_text


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
