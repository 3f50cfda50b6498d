"""Positions are read by their codec, compared by its order, and bounded before anybody looks into them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from persistent.checkpoint.positions import (
    CODECS,
    OFFSET,
    ORDINAL_OFFSET,
    agree,
    codec_of,
    positions_from_json,
    positions_to_json,
)
from persistent.codec.shapes import Misfit
from persistent.errors import InvalidPipeline


def test_a_codec_has_the_name_that_documents_give_it() -> None:
    """Under another, every checkpoint there is would be of an unknown one."""
    assert dict(CODECS) == {"ordinal-offset/1": ORDINAL_OFFSET, "offset/1": OFFSET}


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_a_position_is_read_as_it_was_written(codec: Any) -> None:
    """Another one skips records, or reads them twice."""
    for position in (codec.first, codec.of(0, 1), codec.of(7, 2**63 - 1)):
        written = codec.to_json(position)
        codec.shape(written)
        assert codec.from_json(written) == position
    there = {"a": codec.of(1, 2), "b": codec.first}
    assert positions_from_json(codec.name, positions_to_json(codec.name, there)) == there


def test_ordinals_and_offsets_are_ordered_as_they_are_read() -> None:
    """The first record of the next file comes after the last of this one."""
    of = ORDINAL_OFFSET.of
    assert ORDINAL_OFFSET.first == of(0, 0) == (0, 0)
    assert of(0, 9) < of(1, 6) < of(1, 7) < of(1, 8) < of(2, 0)
    assert OFFSET.first == OFFSET.of(0, 0) == 0
    assert OFFSET.of(0, 7) < OFFSET.of(0, 8)


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_the_records_before_a_position_are_those_that_a_step_up_to_it_reads(codec: Any) -> None:
    """A source is compared with the account up to a position: one record more or less is a fault that is none."""
    ordinals = (0, 1, 2) if codec is ORDINAL_OFFSET else (0,)
    position = codec.of(1, 5)
    for ordinal in ordinals:
        stop = codec.stop(position, ordinal)
        for offset in range(9):
            is_before = stop is None or offset < stop
            assert is_before == (codec.of(ordinal, offset) < position), (ordinal, offset)


def test_a_position_is_told_to_people() -> None:
    """Whoever looks for the record goes by it."""
    assert ORDINAL_OFFSET.text((3, 40)) == "3, offset 40" and OFFSET.text(40) == "offset 40"


@pytest.mark.parametrize("value", [-1, True, 1.0, "0", None, [0], 2**63])
def test_what_is_no_offset_is_refused(value: Any) -> None:
    """No driver of ours wrote it."""
    with pytest.raises(Misfit):
        OFFSET.shape(value)


def test_a_source_names_a_codec_that_is_there() -> None:
    """Its checkpoint could not be read again."""
    source: Any = SimpleNamespace()
    assert codec_of(source) is ORDINAL_OFFSET
    source.codec = "offset/1"
    assert codec_of(source) is OFFSET
    source.codec = "offset/2"
    with pytest.raises(InvalidPipeline, match="positions of the codec 'offset/2'; choose one of ordinal-offset/1, off"):
        codec_of(source)


@pytest.mark.parametrize("value", [[], [0], [0, 0, 0], [0, -1], [-1, 0], [0, "0"], [True, 0], [0, 2**63], "0,0", 5])
def test_what_is_no_ordinal_and_offset_is_refused(value: Any) -> None:
    """No driver of ours wrote it."""
    with pytest.raises(Misfit):
        ORDINAL_OFFSET.shape(value)


def test_positions_of_a_known_codec_agree_with_it() -> None:
    """Of one that is not known here nothing can be said: a newer release is to be asked for, not a copy."""
    part = {"codec": "ordinal-offset/1", "start": {"a": [0, 0]}, "end": {"a": [0, 1], "b": [1]}}
    agree(part, ("start",))
    with pytest.raises(Misfit, match=r"^end\.b: has 1 values instead of 2$"):
        agree(part, ("start", "end"))
    agree({**part, "codec": "another/1"}, ("start", "end"))
