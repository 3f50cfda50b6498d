"""What stands in a document is of the type, the range and the alphabet that its reader relies on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from persistent.codec import fields
from persistent.codec.fields import FACT_DIGITS_MAX, FACTS_DEPTH_MAX, INT64_MAX, INT64_MIN, check_facts


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


def nested(depth: int) -> Any:
    value: Any = 1
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


@pytest.mark.parametrize(
    "value",
    [None, True, -5, "é", [1, ("a", None)], {"a": {"b": [False]}}, 10**FACT_DIGITS_MAX - 1, nested(FACTS_DEPTH_MAX)],
    ids=lambda value: repr(value)[:20],
)
def test_facts_are_flags_numbers_text_lists_and_mappings(value: Any) -> None:
    """A source that records its schema must not be refused."""
    check_facts(value)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1.5, "1.5 is a float, which a checkpoint cannot hold: write it as an integer or as text"),
        ({"a": [float("nan")]}, "nan is a float"),
        ({1: "a"}, "the name 1 is not text"),
        ({"a": {"b": b"c"}}, "is a bytes, which a checkpoint cannot hold"),
        ([10**FACT_DIGITS_MAX], "more than 1000 digits, which a checkpoint cannot hold: write it as text"),
        (-(10**FACT_DIGITS_MAX), "more than 1000 digits"),
        ("\ud800", "surrogates not allowed"),
        ({"\ud800": 1}, "surrogates not allowed"),
        (nested(FACTS_DEPTH_MAX + 1), f"nested deeper than {FACTS_DEPTH_MAX}"),
        ({1, 2}, "is a set"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_facts_that_could_not_be_read_back_are_refused(value: Any, says: str) -> None:
    """JSON would write NaN as null, and a float as fewer digits: another schema than that which was read."""
    with pytest.raises(ValueError, match=says):
        check_facts(value)
