"""What stands in a document is of the type, the range and the alphabet that its reader relies on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from persistent.codec import fields
from persistent.codec.fields import INT64_MAX, INT64_MIN


def read(kind: Any, value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


AT: dict[str, list[Any]] = {
    "Whole": [INT64_MIN, INT64_MAX],
    "Natural": [0, INT64_MAX],
    "Positive": [1, INT64_MAX],
    "ShortText": ["", "t" * 200],
    "LongText": ["t" * 10_000],
    "Partition": ["p" * 1_000, "é/\n"],
    "Name": ["a" * 200, "A9._=@+-"],
    "Sha256": ["0" * 64, "0f" * 32],
    "AnyPositions": [{"a": 0, "b": (0, 0)}, {"a": (2, INT64_MAX)}, {"p" * 1_000: INT64_MAX}],
    "Times": [{"a": INT64_MIN}],
}
BEYOND: dict[str, list[Any]] = {
    "Whole": [INT64_MIN - 1, INT64_MAX + 1, True, 1.0, "1", None],
    "Natural": [-1, INT64_MAX + 1, True, 1.5],
    "Positive": [0],
    "ShortText": ["t" * 201, 7, None],
    "LongText": ["t" * 10_001],
    "Partition": ["p" * 1_001],
    "Name": ["", "..", "a/b", "a b", ".a", "-a", "é", "a" * 201, "a\n", 7],
    "Sha256": ["0" * 63, "0" * 65, "Z" * 64, "0" * 64 + "\n", 0],
    "AnyPositions": [
        {"a": -1},
        {"a": []},
        {"a": [0]},
        {"a": [0, 0, 0]},
        {"a": [0, -1]},
        {"a": [0, True]},
        {"a": "0,0"},
    ],
    "Times": [{"a": None}, {"p" * 1_001: 1}],
}


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in AT.items() for value in values])
def test_a_bound_may_be_reached(kind: str, value: Any) -> None:
    """It has been committed: a bound that is too narrow makes its checkpoint unreadable."""
    assert read(getattr(fields, kind), value) == value


@pytest.mark.parametrize(("kind", "value"), [(kind, value) for kind, values in BEYOND.items() for value in values])
def test_a_bound_is_not_passed(kind: str, value: Any) -> None:
    """Taken as it is, it fails far from here, or writes to a file of someone else's."""
    with pytest.raises(msgspec.ValidationError):
        read(getattr(fields, kind), value)
