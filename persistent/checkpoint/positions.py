"""A position codec says what the positions of a source are, and orders records by them.

Positions of one codec are ordered by ``<``. Each part of a manifest or plan that holds positions names their codec,
with its version. To add one: a class here, its name in ``Codec`` with the format that brought it, and an instance in
``CODECS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol, get_args

from persistent.connect.source import Position, Source
from persistent.errors import InvalidPipeline

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


def codec_of(source: Source) -> PositionCodec:
    """The codec of the positions of a source. InvalidPipeline if it names an unknown one."""
    name = source.codec
    if name not in CODECS:
        raise InvalidPipeline(f"{source!r} has positions of the codec {name!r}; choose one of {', '.join(CODECS)}")
    return CODECS[name]
