"""A part of a document is a frozen value: each of its fields states its type and its bounds once, in its class.

    class Batch(Part, frozen=True):
        id: Natural
        before: Natural | None = None        left out where it is None
        limit: Annotated[Natural, Since(5)] = 0

A field exists since format 4, unless ``Since`` names the format that brought it, or some of its words. Defaults never
change, fields are never renamed or removed, and bounds only widen.

A key column has one of a few types, which all parts of a state agree on, and manifests name.

A position codec says what the positions of a source are; ``<`` orders them. Each part that holds positions names their
codec, with its version. To add one: a class here, its name in ``Codec`` with the format that brought it, and an
instance in ``CODECS``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Protocol, get_args

import msgspec
import pyarrow as pa
from msgspec import Meta

from persistent.errors import InvalidPipeline

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
PATH_LENGTH_MAX: Final = 1_000
MANY: Final = 1_000_000
PARTS_MAX: Final = 1_000


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value in a document. A field with its default is not written; ``__post_init__`` holds the laws of its own."""


@dataclass(frozen=True)
class Since:
    """The format that brought a field; with ``words``, the format that brought these words of an older field."""

    format: int
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Free:
    """Marks free facts: the classes require no more of them than ``check_value`` of ``documents``."""


Whole = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
ShortText = Annotated[str, Meta(max_length=200)]
LongText = Annotated[str, Meta(max_length=10_000)]
Name = Annotated[str, Meta(max_length=200, pattern=r"\A[A-Za-z0-9][A-Za-z0-9._=@+-]*\Z")]
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Partition = Annotated[str, Meta(max_length=1_000)]
Partitions = Annotated[tuple[Partition, ...], Meta(max_length=MANY)]
Position = Any
"""Where in a partition to read next: an ordered value of the source, as its codec defines ("ordinal-offset/1": the
ordinal of a file and an offset in it; "offset/1": an offset)."""
Positions = Mapping[str, Position]
AnyPosition = Annotated[tuple[Natural, ...], Meta(min_length=2, max_length=2)] | Natural
"""The position of a source, in each form that a codec has."""
AnyPositions = Annotated[Mapping[Partition, AnyPosition], Meta(max_length=MANY)]
Times = Annotated[Mapping[Partition, Whole], Meta(max_length=MANY)]
FreeFacts = Annotated[Mapping[str, Any], Free()]
"""Null, flags, whole numbers, text, lists, and mappings of text: what a source or a monoid states of itself."""


KEY_GROUPS = 1024
_Size = Annotated[int, Meta(ge=0, le=1 << 62)]
_Group = Annotated[int, Meta(ge=0, le=KEY_GROUPS)]
_Path = Annotated[str, Meta(max_length=PATH_LENGTH_MAX, pattern=r"\Ad(/[A-Za-z0-9][A-Za-z0-9._=@+-]{0,199})+\Z")]
"""A file in or below the folder d of the job, with names from our alphabet, so it never leaves the folder."""


class Run(Part, frozen=True):
    """A run as a manifest describes it.

    ``start``, ``high``: the key groups that were written to it (``start <= group < high``); those from ``low`` on
    still count. ``pane_min``, ``pane_max``: the panes of its rows. ``first``, ``last``: the ids of the checkpoints
    whose deltas it sums. ``wide``: whether some of its element columns have wider types than the monoid's schema,
    because totals outgrew it.
    """

    name: _Path
    rows: _Size
    bytes: _Size
    sha256: Sha256
    start: _Group
    low: _Group
    high: _Group
    pane_min: Whole
    pane_max: Whole
    first: _Size
    last: _Size
    wide: bool = False

    def __post_init__(self) -> None:
        if not self.start <= self.low < self.high:
            raise ValueError(f"run {self.name}: key groups {self.low} to {self.high}")
        if self.pane_min > self.pane_max or self.first > self.last:
            raise ValueError(f"run {self.name}: its panes or checkpoints end before they begin")

    @property
    def rows_left(self) -> int:
        """The approximate number of its rows that still count."""
        return self.rows * (self.high - self.low) // (self.high - self.start)


_KEY_TYPES = {
    str(type_): type_
    for type_ in (
        pa.null(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.timestamp("us", "UTC"),
    )
}
_DECIMAL = re.compile(r"decimal128\(([1-9][0-9]?), (-?[0-9]{1,2})\)")


def common_key_types(tuples: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The key types that all parts agree on, by their names in manifests. TypeError if they do not agree."""
    known = list(dict.fromkeys([tuple(types) for types in tuples if types]))
    if not known:
        return ()
    if len(known) == 1:
        return tuple([str(type_of(name)) for name in known[0]])
    return tuple(str(type_) for type_ in agreed_types([[type_of(name) for name in types] for types in known]))


def agreed_types(tuples: Sequence[Sequence[pa.DataType]]) -> tuple[pa.DataType, ...]:
    """For each key column, the one type that all parts agree on; null agrees with any. TypeError if they disagree."""
    agreed = list(tuples[0])
    for types in tuples[1:]:
        for column, type_ in enumerate(types):
            if type_ == agreed[column]:
                continue
            if pa.types.is_null(agreed[column]):
                agreed[column] = type_
            elif pa.types.is_decimal(type_) and pa.types.is_decimal(agreed[column]):
                agreed[column] = _common_decimal(agreed[column], type_)
            elif not pa.types.is_null(type_):
                raise TypeError(f"key column {column} holds both {agreed[column]} and {type_}: give it one type")
    return tuple(agreed)


def _common_decimal(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """The decimal type that holds the values of both. Equal values are equal keys, whatever their scale."""
    scale = max(a.scale, b.scale)
    whole = max(a.precision - a.scale, b.precision - b.scale)
    if whole + scale > 38:
        raise TypeError(f"a key column holds both {a} and {b}, more than 38 digits together: give it one type")
    return pa.decimal128(whole + scale, scale)


def type_of(name: str) -> pa.DataType:
    """The Arrow type of a key column from its name in a manifest. ValueError for any other name.

    >>> type_of("decimal128(10, 2)")
    Decimal128Type(decimal128(10, 2))
    """
    decimal = _DECIMAL.fullmatch(name)
    if decimal:
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    if name not in _KEY_TYPES:
        raise ValueError(f"{name!r:.60} is not a key type: use one of {', '.join(_KEY_TYPES)}, or decimal128")
    return _KEY_TYPES[name]


Codec = Literal["ordinal-offset/1", "offset/1"]


class PositionCodec(Protocol):
    """``name``: with its version, "ordinal-offset/1". ``first``: the position at the beginning of a partition."""

    name: Codec
    first: Position

    def has(self, position: Position) -> bool:
        """Whether this is a position of this codec."""

    def of(self, ordinal: int, offset: int) -> Position:
        """The position at which the record with this ordinal and offset is read next."""

    def stop(self, position: Position, ordinal: int) -> int | None:
        """The first offset of this ordinal that is not before the position; None if all are."""

    def text(self, position: Position) -> str:
        """The position for people."""


class OrdinalOffset:
    """Two whole numbers: the input of the partition, and the place in it to read next."""

    name: Codec = get_args(Codec)[0]
    first: Position = (0, 0)

    def has(self, position: Position) -> bool:
        return isinstance(position, tuple)

    def of(self, ordinal: int, offset: int) -> Position:
        return ordinal, offset

    def stop(self, position: Position, ordinal: int) -> int | None:
        return None if ordinal < position[0] else position[1] if ordinal == position[0] else 0

    def text(self, position: Position) -> str:
        return f"{position[0]}, offset {position[1]}"


class Offset:
    """A whole number: the offset of the next record. Every record has the ordinal 0."""

    name: Codec = get_args(Codec)[1]
    first: Position = 0

    def has(self, position: Position) -> bool:
        return isinstance(position, int)

    def of(self, ordinal: int, offset: int) -> Position:
        return offset

    def stop(self, position: Position, ordinal: int) -> int | None:
        return int(position)

    def text(self, position: Position) -> str:
        return f"offset {position}"


ORDINAL_OFFSET = OrdinalOffset()
OFFSET = Offset()
CODECS: Mapping[str, PositionCodec] = {codec.name: codec for codec in (ORDINAL_OFFSET, OFFSET)}
"""The codecs of this release, by name."""


def codec_of(source: Any) -> PositionCodec:
    """The codec of the positions of a source. InvalidPipeline if it names an unknown one."""
    name = source.codec
    if name not in CODECS:
        raise InvalidPipeline(f"{source!r} has positions of the codec {name!r}; choose one of {', '.join(CODECS)}")
    return CODECS[name]
