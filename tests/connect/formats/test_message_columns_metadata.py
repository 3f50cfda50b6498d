"""Keys, headers and timestamps of messages are columns, and count for the size of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from persistent import InvalidPipeline
from persistent.connect.formats.message_columns import (
    METADATA,
    Gathered,
    MessageColumns,
    checked_metadata,
    metadata_fields,
)
from persistent.connect.formats.values import JsonValues


@dataclass
class Sent:
    """A message as a client of Kafka gives it."""

    at: int
    body: bytes | None = b"12345"
    name: bytes | None = None
    more: list[tuple[str, bytes | None]] | None = None
    time: tuple[int, int] = field(default=(1, 1_000))

    def value(self) -> bytes | None:
        return self.body

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def headers(self) -> Any:
        return self.more

    def timestamp(self) -> tuple[int, int]:
        return self.time


SENT = [Sent(3, name=b"abc", more=[("h", b"1234"), ("i", None)]), Sent(4, None, time=(0, -1)), Sent(7)]


def columns(metadata: list[str], schema: Any = None) -> MessageColumns:
    return MessageColumns("topic", JsonValues(), schema, metadata_fields(metadata), ("_timestamp", None))


def test_what_is_read_is_a_column() -> None:
    """A message without a key, a header or a time has null there, and not the one of its neighbour."""
    found = Gathered(tuple(METADATA))
    found.add(SENT[:2])
    found.add(SENT[2:])
    assert (len(found), found.values, found.offsets) == (3, [b"12345", None, b"12345"], [3, 4, 7])
    assert found.column("_key", range(3)).to_pylist() == [b"abc", None, None]
    headers = [[{"key": "h", "value": b"1234"}, {"key": "i", "value": None}], [], []]
    assert found.column("_headers", range(3)).to_pylist() == headers
    assert found.column("_timestamp", [0, 1]).cast("int64").to_pylist() == [1_000, None]
    assert {name: found.column(name, [2]).type for name in METADATA} == METADATA


def test_all_that_is_kept_counts() -> None:
    """A batch of small values with large keys or headers would fill the memory of a worker."""
    sizes = {}
    for metadata in ((), ("_timestamp",), ("_key",), ("_headers",)):
        found = Gathered(metadata)
        found.add(SENT)
        sizes[metadata] = found.size
    assert sizes == {(): 10, ("_timestamp",): 13, ("_key",): 13, ("_headers",): 16}


def test_a_field_does_not_hide_metadata() -> None:
    """Which of two columns of one name is read is nobody's guess."""
    with pytest.raises(InvalidPipeline, match="_key is a field of the values"):
        columns(["_key"]).schema({"schema": [("n", "int64"), ("_key", "binary")]})
    with pytest.raises(InvalidPipeline, match=r"_key is a field of the values.*omit it from schema="):
        columns(["_key"], {"n": "int64", "_key": "binary"})
    assert columns(["_key"]).schema({"schema": [("n", "int64")]}).names == ["n", "_key"]


def test_the_option_is_checked() -> None:
    """A text is a sequence too."""
    assert checked_metadata(["_headers", "_key"], "_timestamp") == ("_timestamp", "_key", "_headers")
    assert checked_metadata([], "ts") == ()
    for wrong in ("_key", ["key"]):
        with pytest.raises(InvalidPipeline, match="give a list of some of _timestamp, _key, _headers"):
            checked_metadata(wrong, "ts")
