"""A reading is the way in which records of a source became columns: options that may change, such as ``schema=``.

What was read before a change counts as it was read then. So the checkpoint keeps, beside the present reading, those
before it, each with the positions at which it ended; ``verify --source`` reads every record the way it was counted.
Of more than 16 readings the oldest are forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from persistent.checkpoint.parts import ReadBefore, SourcePart
from persistent.checkpoint.positions import CODECS
from persistent.codec.documents import canonical_json
from persistent.sources.protocol import Position

_CHANGING: Final = ("schema", "reader")
"""What is recorded of columns, and may change."""
_KEPT_MAX: Final = 16


@dataclass(frozen=True)
class Reading:
    """How the records ``low <= position < high`` of a partition were read: ``recorded`` says what was recorded then in
    place of what is recorded now; None if that is forgotten. ``high`` None: the present reading."""

    low: Position
    high: Position | None
    recorded: Mapping[str, Any] | None


def readings_after(source: SourcePart, recorded: Mapping[str, Any]) -> tuple[ReadBefore, ...]:
    """The readings of ``source`` before the present one, after a step that records this."""
    before, after, kept = _changing(source.recorded), _changing(recorded), list(source.readings)
    # Equal values are spelled alike; a list that was read back and a tuple are, too.
    if before and before != after and canonical_json(before) != canonical_json(after):
        read = {one: end for one, end in source.positions.items() if readings_of(source, one)[-1].low < end}
        if read:
            kept.append(ReadBefore(read, before))
    while len(kept) > _KEPT_MAX:
        kept[:2] = [ReadBefore({**kept[0].until, **kept[1].until}, {})]
    return tuple(kept)


def readings_of(source: SourcePart, partition: str) -> list[Reading]:
    """How a partition was read, from its beginning on; the last is how it is read now."""
    low, found = CODECS[source.codec].first, []
    for one in source.readings:
        if partition in one.until:
            found.append(Reading(low, one.until[partition], one.recorded or None))
            low = one.until[partition]
    return [*found, Reading(low, None, _changing(source.recorded))]


def _changing(recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {name: recorded[name] for name in _CHANGING if name in recorded}
