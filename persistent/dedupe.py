"""Deduplication drops the copies of a record that its sender sends again: each number of an origin counts once.

A record is a *copy* if a record of the same origin, epoch and sequence was seen before. What was seen is state of the
checkpoint, in panes of event time: it moves with the state and the positions, in one commit, and expires by the clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from persistent.clock import Duration, duration_ms
from persistent.errors import InvalidPipeline

_PANES = 4


@dataclass(frozen=True)
class Dedupe:
    """Which columns of the source name a record, and how long a copy can be recognised.

    ``origin``: who sent it; several columns if a sender has lanes that count on their own. ``sequence``: its number,
    an integer that no other record of the origin has. ``epoch``: which life of the sender it is, if numbers begin again
    after a restart. ``within``: how far behind the clock (event time) a record may be; older ones cannot be judged, and
    are late. ``restamped``: copies have timestamps of their own. By default a copy has the timestamp of the original:
    a number that returns in a record younger than all of its origin was given to another record, a dead letter.
    InvalidPipeline for names that are no text, or a ``within`` below 1 ms.

    >>> Dedupe(origin="sender", sequence="number", within="1 h").within_ms
    3600000
    """

    origin: str | Sequence[str]
    sequence: str
    epoch: str | None = None
    within: Duration = "15 min"
    restamped: bool = False

    def __post_init__(self) -> None:
        names = (*self.origins, self.sequence, *(() if self.epoch is None else (self.epoch,)))
        if not self.origins or not all(isinstance(name, str) and name for name in names):
            raise InvalidPipeline(f'{self!r}: name columns of the source, Dedupe(origin="sender", sequence="number")')
        if len(set(names)) != len(names):
            raise InvalidPipeline(f"{self!r}: origin, sequence and epoch are different columns")
        try:
            within_ms = duration_ms(self.within, "within")
        except (TypeError, ValueError) as error:
            raise InvalidPipeline(f"Dedupe: {error}") from error
        if within_ms < 1:
            raise InvalidPipeline(f'{self!r}: within is at least 1 ms; write "15 min"')
        if not isinstance(self.restamped, bool):
            raise InvalidPipeline(f"{self!r}: restamped is True or False")

    @property
    def origins(self) -> tuple[str, ...]:
        """The columns of the origin."""
        return (self.origin,) if isinstance(self.origin, str) else tuple(self.origin)

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns within which a number occurs once: those of the origin, and the epoch."""
        return (*self.origins, *(() if self.epoch is None else (self.epoch,)))

    @property
    def within_ms(self) -> int:
        return duration_ms(self.within, "within")

    @property
    def pane_ms(self) -> int:
        """The panes of a new checkpoint: what was seen expires in steps of this many milliseconds."""
        return max(1, self.within_ms // _PANES)

    def columns(self) -> dict[str, Any]:
        """The columns as a checkpoint records them."""
        return {"origin": list(self.origins), "sequence": self.sequence, "epoch": self.epoch}

    def said(self) -> str:
        """What it promises, in a clause.

        >>> Dedupe(origin="sender", sequence="number").said()
        'copies of a record by (sender, number) count once, within 15 min of event time; older records are late'
        """
        within = self.within if isinstance(self.within, str) else f"{self.within} ms"
        named = ", ".join((*self.keys, self.sequence))
        return f"copies of a record by ({named}) count once, within {within} of event time; older records are late"


def checked(dedupe: Any, sources: Collection[str]) -> Dedupe | None:
    """What a pipeline with sources of these names was given as ``dedupe``. InvalidPipeline if it cannot serve them."""
    if dedupe is not None and not isinstance(dedupe, Dedupe):
        raise InvalidPipeline(f'dedupe={dedupe!r}: give Dedupe(origin="sender", sequence="number"), or None')
    if dedupe is not None and len(sources) > 1:
        raise InvalidPipeline(
            f"dedupe= recognises copies within one source, and this pipeline reads {', '.join(sources)}: leave it out, "
            "or give each source a pipeline of its own"
        )
    return dedupe


def check_columns(dedupe: Dedupe, schema: pa.Schema) -> None:
    """InvalidPipeline unless the source has these columns, with whole numbers or text for who sent a record, and whole
    numbers for its sequence."""
    for name in (*dedupe.keys, dedupe.sequence):
        if name not in schema.names:
            raise InvalidPipeline(
                f"dedupe: the source has no column {name!r}; its columns are {', '.join(schema.names)}. Name "
                "those that the sender gives to each record"
            )
        check_type(dedupe, name, schema.field(name).type)


def check_type(dedupe: Dedupe, name: str, type_: pa.DataType) -> None:
    """InvalidPipeline unless values of this type can be in that column."""
    held = type_.value_type if pa.types.is_dictionary(type_) else type_
    if pa.types.is_integer(held) or pa.types.is_null(held):
        return
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    binaries = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    if name == dedupe.sequence or not any(is_kind(held) for is_kind in (*texts, *binaries, pa.types.is_boolean)):
        wanted = "integers" if name == dedupe.sequence else "integers, text or bytes"
        raise InvalidPipeline(f"dedupe: the column {name!r} holds {type_}, and must hold {wanted}")
