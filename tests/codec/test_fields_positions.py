"""Positions are read by their codec, compared by its order, and bounded before anybody looks into them."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.checkpoint.parts import SourcePart
from persistent.codec.fields import CODECS, OFFSET, ORDINAL_OFFSET, codec_of
from persistent.connect.memory import MemorySource
from persistent.errors import InvalidPipeline
from tests.checkpoint.samples import read_back


def test_a_codec_has_the_name_that_documents_give_it() -> None:
    """Under another, every checkpoint there is would be of an unknown one."""
    assert dict(CODECS) == {"ordinal-offset/1": ORDINAL_OFFSET, "offset/1": OFFSET}


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_a_position_is_read_as_it_was_written(codec: Any) -> None:
    """Another one skips records, or reads them twice."""
    positions = codec.first, codec.of(0, 1), codec.of(7, 2**63 - 1)
    there = dict(zip("abc", positions))
    assert read_back(SourcePart("K", (*there,), there, codec=codec.name)).positions == there


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


def test_a_source_names_a_codec_that_is_there() -> None:
    """Its checkpoint could not be read again."""
    source: Any = MemorySource([{"ts": 1}])
    assert codec_of(source) is ORDINAL_OFFSET
    source.codec = "offset/1"
    assert codec_of(source) is OFFSET
    source.codec = "offset/2"
    with pytest.raises(InvalidPipeline, match="positions of the codec 'offset/2'; choose one of ordinal-offset/1, off"):
        codec_of(source)
