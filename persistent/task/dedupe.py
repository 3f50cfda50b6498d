"""Deduplication drops the copies of a record that its sender sends again: each number of an origin, or each id, counts
once.

A record is a *copy* if a record of the same origin, epoch and sequence, or of the same id, was seen before. The seen
records are state of the checkpoint, in panes of event time: it is committed together with the state and the positions,
and expires by the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from persistent.errors import InvalidPipeline
from persistent.time.clock import Duration, duration_ms

_PANES = 4
_NOTHING = "nothing"
_KINDS: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "integers": (pa.types.is_integer,),
    "text": (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    "bytes": (
        pa.types.is_binary,
        pa.types.is_large_binary,
        pa.types.is_binary_view,
        pa.types.is_fixed_size_binary,
    ),
    "booleans": (pa.types.is_boolean,),
    _NOTHING: (pa.types.is_null,),
}


@dataclass(frozen=True)
class Dedupe:
    """Which source columns identify a record, and how long a copy can be recognised.

    ``origin``: the sender; several columns if a sender has lanes that count separately. ``sequence``: the number of the
    record, an integer that no other record of the origin has; None if the origin is an id (see ``by_id``). ``epoch``:
    the life of the sender, if its numbers begin again after a restart. ``within``: how far a record can be behind the
    clock (event time); older ones cannot be judged, and are late. ``restamped``: copies have timestamps of their own.
    By default a copy has the timestamp of the original: a record whose number was seen, but which is younger than all
    records of its origin, is another record with a reused number, and a dead letter.

    InvalidPipeline for names that are not texts, or a ``within`` below 1 ms.

    >>> Dedupe(origin="sender", sequence="number", within="1 h").within_ms
    3600000
    """

    origin: str | Sequence[str]
    sequence: str | None
    epoch: str | None = None
    within: Duration = "15 min"
    restamped: bool = False

    def __post_init__(self) -> None:
        if not self.origins or not all(isinstance(name, str) and name for name in self.names):
            raise InvalidPipeline(f'{self!r}: name columns of the source, Dedupe(origin="sender", sequence="number")')
        if len(set(self.names)) != len(self.names):
            raise InvalidPipeline(f"{self!r}: origin, sequence and epoch are different columns")
        if self.by_ids and self.epoch is not None:
            raise InvalidPipeline(f"{self!r}: an id is unique in all lives of its sender; omit epoch=")
        try:
            within_ms = duration_ms(self.within, "within")
        except (TypeError, ValueError) as error:
            raise InvalidPipeline(f"Dedupe: {error}") from error
        if within_ms < 1:
            raise InvalidPipeline(f'{self!r}: within is at least 1 ms; give for example "15 min"')
        if not isinstance(self.restamped, bool):
            raise InvalidPipeline(f"{self!r}: restamped is True or False")

    @classmethod
    def by_id(cls, id: str | Sequence[str], *, within: Duration = "15 min", restamped: bool = True) -> Dedupe:
        """Recognise copies by an id that no other record has: a UUID, the message id of a broker. ``id``: its column,
        or the columns that are unique together. Whole ids are compared, never their hashes. ``restamped=False``: a
        record whose id was seen, but which is younger, is another record with a reused id, and a dead letter.

        >>> print(Dedupe.by_id("message_id", within="1 h").said())  # doctest: +NORMALIZE_WHITESPACE
        copies of a record by (message_id) count once, within 1 h of event time; records without message_id count
        nowhere (dead letters), and older ones are late
        """
        return cls(id, None, within=within, restamped=restamped)

    @property
    def by_ids(self) -> bool:
        """Whether each record has an id, and no number."""
        return self.sequence is None

    @property
    def names(self) -> tuple[str, ...]:
        """All columns that identify a record."""
        return (*self.keys, *(() if self.sequence is None else (self.sequence,)))

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
        """The panes of a new checkpoint: seen records expire in steps of this many milliseconds."""
        return max(1, self.within_ms // _PANES)

    def columns(self) -> dict[str, Any]:
        """The columns as recorded in a checkpoint."""
        return {"origin": self.origins, "sequence": self.sequence, "epoch": self.epoch}

    def said(self) -> str:
        """Its promise, in a clause.

        >>> print(Dedupe(origin="sender", sequence="number").said())  # doctest: +NORMALIZE_WHITESPACE
        copies of a record by (sender, number) count once, within 15 min of event time; records without sender, number
        count nowhere (dead letters), and older ones are late
        """
        within = self.within if isinstance(self.within, str) else f"{self.within} ms"
        named = ", ".join(self.names)
        return (
            f"copies of a record by ({named}) count once, within {within} of event time; records without {named} count "
            "nowhere (dead letters), and older ones are late"
        )


def checked(dedupe: Any, sources: Collection[str]) -> dict[str, Dedupe]:
    """The option ``dedupe`` of a pipeline with sources of these names, by source. InvalidPipeline for a source that it
    does not have, and for anything else.

    >>> by_id, sources = Dedupe.by_id("id"), ["orders", "visits"]
    >>> sorted(checked(by_id, sources)), sorted(checked({"orders": by_id}, sources))
    (['orders', 'visits'], ['orders'])
    """
    if dedupe is None or isinstance(dedupe, Dedupe):
        return {} if dedupe is None else dict.fromkeys(sources, dedupe)
    if not isinstance(dedupe, Mapping) or not all(isinstance(rule, Dedupe) for rule in dedupe.values()):
        raise InvalidPipeline(
            f'dedupe={dedupe!r}: give Dedupe(origin="sender", sequence="number"), a mapping of sources to '
            "Dedupe, or None"
        )
    for name in dedupe:
        if name not in sources:
            raise InvalidPipeline(f"dedupe: no source is named {name!r}; the sources are {', '.join(sources)}")
    return dict(dedupe)


def said(dedupe: Mapping[str, Dedupe], sources: Collection[str]) -> list[str]:
    """The promise for copies in each source, in clauses."""
    if len(sources) == 1:
        return [rule.said() for rule in dedupe.values()]
    return [f"of {name}, {rule.said()}" for name, rule in sorted(dedupe.items())]


def check_columns(dedupe: Dedupe, schema: pa.Schema, guessed: Collection[str] = ()) -> None:
    """InvalidPipeline unless the source has these columns, with integers or text for the sender of a record, and
    integers for its sequence. ``guessed``: columns of text whose types are inferred: there 7 and 007 would be one
    name."""
    for name in dedupe.names:
        if name not in schema.names:
            raise InvalidPipeline(
                f"dedupe: the source has no column {name!r}; its columns are {', '.join(schema.names)}. Name "
                "those that the sender sets in each record"
            )
        type_ = schema.field(name).type
        if name in guessed and name in dedupe.keys and _kind(type_) not in ("text", _NOTHING):
            raise InvalidPipeline(
                f"dedupe: the column {name!r} was inferred as {type_} from text, where 7, 007 and 0x7, or true and "
                "True, are one value: different records would count as copies. Say what it holds with schema= of the "
                f'source, which names every column to read: {{..., "{name}": "string"}} tells all texts apart; '
                f'{{..., "{name}": "int64"}} compares numbers, as a checkpoint does that began with them'
            )
        check_type(dedupe, name, type_)


def kinds_of(dedupe: Dedupe, schema: pa.Schema) -> dict[str, str]:
    """The kind of the values of each column of the origin and epoch. Equal values of one kind are the same name,
    whatever their type; values of two kinds never are. A column without values is omitted.

    >>> found = pa.schema([("till", pa.int32()), ("life", pa.large_string()), ("n", pa.int64())])
    >>> kinds_of(Dedupe(origin="till", sequence="n", epoch="life"), found)
    {'till': 'integers', 'life': 'text'}
    """
    kinds = {name: _kind(schema.field(name).type) for name in dedupe.keys}
    return {name: kind for name, kind in kinds.items() if kind not in ("", _NOTHING)}


def _kind(type_: pa.DataType) -> str:
    """The kind of values of this type; "" if they cannot identify a record."""
    value_type = type_.value_type if pa.types.is_dictionary(type_) else type_
    value_type = value_type.storage_type if isinstance(value_type, pa.UuidType) else value_type
    return next((kind for kind, tests in _KINDS.items() if any(is_such(value_type) for is_such in tests)), "")


def check_type(dedupe: Dedupe, name: str, type_: pa.DataType) -> None:
    """InvalidPipeline unless values of this type can be in this column."""
    kind = _kind(type_)
    if kind in ("integers", _NOTHING):
        return
    if name == dedupe.sequence or not kind:
        wanted = "integers" if name == dedupe.sequence else "integers, text or bytes"
        raise InvalidPipeline(f"dedupe: the column {name!r} holds {type_}, but must hold {wanted}")
