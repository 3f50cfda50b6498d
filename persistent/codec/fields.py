"""A part of a document is a frozen value: each of its fields states its type and its bounds once, in its class.

    class Batch(Part, frozen=True):
        id: Natural
        before: Natural | None = None        left out where it is None
        limit: Annotated[Natural, Since(5)] = 0

A field exists since format 4, unless ``Since`` names the format that brought it, or some of its words. Defaults never
change, fields are never renamed or removed, and bounds only widen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
PATH_LENGTH_MAX: Final = 1_000
MANY: Final = 1_000_000
PARTS_MAX: Final = 1_000

FACTS_DEPTH_MAX: Final = 90
"""The nesting limit of lists and mappings in free facts: far deeper than records of records need."""
FACT_DIGITS_MAX: Final = 1_000
"""Parsing a number takes time quadratic in its digits."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A value in a document. A field with its default is not written; ``__post_init__`` holds the laws of its own."""


@dataclass(frozen=True)
class Since:
    """The format that brought a field; with ``words``, the format that brought these words of an older field."""

    format: int
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Free:
    """Marks free facts: the classes require no more of them than ``check_facts``."""


Whole = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
Natural = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT64_MAX)]
ShortText = Annotated[str, Meta(max_length=200)]
LongText = Annotated[str, Meta(max_length=10_000)]
Name = Annotated[str, Meta(max_length=200, pattern=r"\A[A-Za-z0-9][A-Za-z0-9._=@+-]*\Z")]
Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Partition = Annotated[str, Meta(max_length=1_000)]
Partitions = Annotated[tuple[Partition, ...], Meta(max_length=MANY)]
AnyPosition = Annotated[tuple[Natural, ...], Meta(min_length=2, max_length=2)] | Natural
"""The position of a source, in each form that a codec has."""
AnyPositions = Annotated[Mapping[Partition, AnyPosition], Meta(max_length=MANY)]
Times = Annotated[Mapping[Partition, Whole], Meta(max_length=MANY)]
FreeFacts = Annotated[Mapping[str, Any], Free()]
"""Null, flags, whole numbers, text, lists, and mappings of text: what a source or a monoid states of itself."""


def check_facts(facts: Any) -> None:
    """ValueError for a value that could not be read back as it is."""
    unchecked: list[tuple[Any, int]] = [(facts, 0)]
    while unchecked:
        value, depth = unchecked.pop()
        if isinstance(value, str):
            if not value.isascii():
                value.encode()  # UnicodeEncodeError, which is a ValueError, for a lone surrogate.
        elif value is None or isinstance(value, bool):
            continue
        elif isinstance(value, int):
            if abs(value) >= _INTEGER_LIMIT:
                raise ValueError(
                    f"an integer of more than {FACT_DIGITS_MAX} digits, which a checkpoint cannot hold: write it as "
                    "text"
                )
        elif isinstance(value, dict | list | tuple):
            if depth >= FACTS_DEPTH_MAX:
                raise ValueError(f"a value is nested deeper than {FACTS_DEPTH_MAX}, which a checkpoint cannot hold")
            unchecked += zip(value, repeat(depth + 1))
            if isinstance(value, dict):
                for name in value:
                    if not isinstance(name, str):
                        raise ValueError(f"the name {name!r} is not text")
                unchecked += zip(value.values(), repeat(depth + 1))
        elif isinstance(value, float):
            raise ValueError(f"{value!r} is a float, which a checkpoint cannot hold: write it as an integer or as text")
        else:
            raise ValueError(f"{value!r:.60} is a {type(value).__name__}, which a checkpoint cannot hold")


_INTEGER_LIMIT = 10**FACT_DIGITS_MAX
