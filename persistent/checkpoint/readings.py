"""A reading is the way in which records of a source became columns, by options that can change, such as ``schema=``.

Records that were read before a change stay counted as they were read. So the checkpoint keeps, in addition to the
present reading, the earlier ones, each with the positions at which it ended; ``verify --source`` reads every record the
way it was counted. Of more than 16 readings the oldest are forgotten.
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
"""The recorded facts about columns that can change."""
_KEPT_MAX: Final = 16


@dataclass(frozen=True)
class Reading:
    """How the records ``low <= position < high`` of a partition were read: ``recorded`` replaces what is recorded now;
    None if that is forgotten. ``high`` None: the present reading."""

    low: Position
    high: Position | None
    recorded: Mapping[str, Any] | None


def readings_after(source: SourcePart, recorded: Mapping[str, Any]) -> tuple[ReadBefore, ...]:
    """The readings of ``source`` before the present one, after a step that records this."""
    before, after, kept = _changing(source.recorded), _changing(recorded), list(source.readings)
    # Equal values have equal spellings; so have a list that was read back and a tuple.
    if before and before != after and canonical_json(before) != canonical_json(after):
        read = {one: end for one, end in source.positions.items() if readings_of(source, one)[-1].low < end}
        if read:
            kept.append(ReadBefore(read, before))
    while len(kept) > _KEPT_MAX:
        kept[:2] = [ReadBefore({**kept[0].until, **kept[1].until}, {})]
    return tuple(kept)


def readings_of(source: SourcePart, partition: str) -> list[Reading]:
    """How a partition was read, from its beginning; the last reading is the present one."""
    low, found = CODECS[source.codec].first, []
    for one in source.readings:
        if partition in one.until:
            found.append(Reading(low, one.until[partition], one.recorded or None))
            low = one.until[partition]
    return [*found, Reading(low, None, _changing(source.recorded))]


def _changing(recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {name: recorded[name] for name in _CHANGING if name in recorded}
