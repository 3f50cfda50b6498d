"""A position codec writes and reads the positions of a source in a document, and orders records by them.

Positions of one codec are ordered by ``<``. Each part of a manifest or plan that holds positions names their codec,
with its version. To add one: a class here, and its name in ``CODECS``. A release refuses a codec that it does not know,
and never guesses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from persistent.codec.shapes import Misfit, Shape, items, whole
from persistent.errors import InvalidPipeline
from persistent.sources.protocol import Position, Positions, Source


class PositionCodec(Protocol):
    """``name``: with its version, "ordinal-offset/1". ``first``: the position at the beginning of a partition.
    ``shape``: of a position in a document."""

    name: str
    first: Position

    def shape(self, value: Any) -> None:
        """Raise Misfit unless this is a position."""

    def to_json(self, position: Position) -> Any:
        """Its form in a document."""

    def from_json(self, value: Any) -> Position:
        """The inverse of ``to_json``, for a value of the shape."""

    def of(self, ordinal: int, offset: int) -> Position:
        """The position at which the record with this ordinal and offset is read next."""

    def stop(self, position: Position, ordinal: int) -> int | None:
        """The first offset of this ordinal that is not before the position; None if all are."""

    def text(self, position: Position) -> str:
        """The position for people."""


class OrdinalOffset:
    """Two whole numbers: the input of the partition, and the place in it to read next."""

    name = "ordinal-offset/1"
    first: Position = (0, 0)
    _shape: Shape = staticmethod(items(whole(0), whole(0)))

    def shape(self, value: Any) -> None:
        self._shape(value)

    def to_json(self, position: Position) -> list[int]:
        return list(position)

    def from_json(self, value: Any) -> Position:
        return value[0], value[1]

    def of(self, ordinal: int, offset: int) -> Position:
        return ordinal, offset

    def stop(self, position: Position, ordinal: int) -> int | None:
        return None if ordinal < position[0] else position[1] if ordinal == position[0] else 0

    def text(self, position: Position) -> str:
        return f"{position[0]}, offset {position[1]}"


class Offset:
    """A whole number: the offset of the next record. Every record has the ordinal 0."""

    name = "offset/1"
    first: Position = 0
    _shape: Shape = staticmethod(whole(0))

    def shape(self, value: Any) -> None:
        self._shape(value)

    def to_json(self, position: Position) -> int:
        return int(position)

    def from_json(self, value: Any) -> Position:
        return value

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
    name = getattr(source, "codec", ORDINAL_OFFSET.name)
    if name not in CODECS:
        raise InvalidPipeline(f"{source!r} has positions of the codec {name!r}; choose one of {', '.join(CODECS)}")
    return CODECS[name]


def position(value: Any) -> None:
    """Any value: its codec decides what a position is."""


def agree(part: Any, names: tuple[str, ...]) -> None:
    """Raise Misfit unless the positions under these names in a part of a document fit its codec. Positions of an
    unknown codec are not checked."""
    codec = CODECS.get(part["codec"])
    if codec is None:
        return
    for name in names:
        for partition, value in part[name].items():
            try:
                codec.shape(value)
            except Misfit as misfit:
                raise misfit.below(f"{partition:.60}").below(name) from misfit.__cause__


def positions_to_json(codec: str, positions: Positions) -> dict[str, Any]:
    return {partition: CODECS[codec].to_json(position) for partition, position in positions.items()}


def positions_from_json(codec: str, values: Mapping[str, Any]) -> dict[str, Position]:
    return {partition: CODECS[codec].from_json(value) for partition, value in values.items()}
