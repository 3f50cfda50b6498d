"""What was read counts as it was read then, whatever the options of a source have become."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from persistent.checkpoint.parts import ReadBefore, Reading, SourcePart, readings_after, readings_of
from tests.checkpoint.samples import json_of, read_back


def at(*positions: int, codec: str = "offset/1", **recorded: Any) -> SourcePart:
    """A source whose partitions "0", "1", ... are read up to these positions."""
    names = tuple(map(str, range(len(positions))))
    return SourcePart("KafkaSource", names, dict(zip(names, positions)), recorded, codec=codec)


def moved(source: SourcePart, *positions: int, **recorded: Any) -> SourcePart:
    """The source after a step that recorded this, and ends at these positions."""
    return replace(at(*positions, **recorded), readings=readings_after(source, recorded))


def test_a_reading_ends_where_another_begins() -> None:
    """Without it what was counted before a change could only be read as it is read now."""
    source = moved(at(), 5, 0, schema=["a"], begins=1)
    assert source.readings == ()
    source = moved(source, 9, 0, schema=["a"], begins=2)
    assert readings_of(source, "0") == [Reading(0, None, {"schema": ["a"]})]
    source = moved(source, 20, 7, schema=["b"], reader="r", begins=3)
    assert readings_of(source, "0") == [
        Reading(0, 9, {"schema": ["a"]}),
        Reading(9, None, {"schema": ["b"], "reader": "r"}),
    ]
    # Nothing of this partition had been read by the first.
    assert readings_of(source, "1") == [Reading(0, None, {"schema": ["b"], "reader": "r"})]
    source = moved(source, 21, 7, schema=["b"], reader="r")
    source = moved(source, 30, 8, schema=["b"], reader="s")
    assert [one.high for one in readings_of(source, "0")] == [9, 21, None]
    assert [one.high for one in readings_of(source, "1")] == [7, None]
    assert readings_of(source, "new") == [Reading(0, None, {"schema": ["b"], "reader": "s"})]


def test_a_reading_by_which_nothing_was_read_is_left_out() -> None:
    """A source that changes its mind while nothing comes would push out the readings that count."""
    source = moved(moved(at(), 0, schema=["a"]), 4, schema=["b"])
    assert source.readings == ()
    source = moved(moved(moved(source, 4, schema=["c"]), 4, schema=["d"]), 6, schema=["e"])
    assert readings_of(source, "0") == [Reading(0, 4, {"schema": ["b"]}), Reading(4, None, {"schema": ["e"]})]
    # Before its first plan a source has recorded nothing; one of a user may have no columns at all.
    assert readings_after(at(4), {"schema": ["a"]}) == ()
    assert readings_after(at(4, mine=1), {"mine": 2}) == ()


def test_equal_in_a_document_is_equal() -> None:
    """A source that records tuples would have another reading after every restart."""
    assert readings_after(at(4, schema=[["a", "int64"]]), {"schema": (("a", "int64"),)}) == ()


def test_a_source_is_read_back_with_its_readings() -> None:
    """The manifest is JSON: a position that is read back is the one that was written."""
    source = SourcePart(
        "FileSource", ("0",), {"0": (2, 7)}, {"schema": ["b"]}, readings=(ReadBefore({"0": (2, 7)}, {"schema": ["a"]}),)
    )
    assert json_of(source)["readings"] == [{"until": {"0": [2, 7]}, "recorded": {"schema": ["a"]}}]
    assert read_back(source) == source
    assert readings_of(source, "0") == [
        Reading((0, 0), (2, 7), {"schema": ["a"]}),
        Reading((2, 7), None, {"schema": ["b"]}),
    ]


def test_the_oldest_of_many_readings_are_forgotten() -> None:
    """A manifest that grew with every change would one day be too large to be written."""
    source = moved(at(), 1, 1, schema=[0])
    for number in range(1, 17):
        source = moved(source, 1 + number, 1, schema=[number])
    assert [one.recorded for one in readings_of(source, "0")] == [{"schema": [number]} for number in range(17)]
    source = moved(moved(source, 18, 1, schema=[17]), 19, 1, schema=[18])
    first, *rest = readings_of(source, "0")
    assert first == Reading(0, 3, None)
    assert [one.recorded for one in rest] == [{"schema": [number]} for number in range(3, 19)]
    assert readings_of(source, "1")[0] == Reading(0, 1, None)
