"""Positions are read by their codec, compared by its order, and bounded before anybody looks into them."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.checkpoint.positions import (
    CODECS,
    ORDINAL_OFFSET,
    agree,
    positions_from_json,
    positions_to_json,
)
from persistent.codec.shapes import Misfit


def test_a_codec_has_the_name_that_documents_give_it() -> None:
    """Under another, every checkpoint there is would be of an unknown one."""
    assert dict(CODECS) == {"ordinal-offset/1": ORDINAL_OFFSET}


@pytest.mark.parametrize("codec", CODECS.values(), ids=lambda codec: codec.name)
def test_a_position_is_read_as_it_was_written(codec: Any) -> None:
    """Another one skips records, or reads them twice."""
    for position in (codec.first, (0, 1), (7, 2**63 - 1)):
        written = codec.to_json(position)
        codec.shape(written)
        assert codec.from_json(written) == position
    there = {"a": (1, 2), "b": codec.first}
    assert positions_from_json(codec.name, positions_to_json(codec.name, there)) == there


def test_ordinals_and_offsets_are_ordered_as_they_are_read() -> None:
    """The first record of the next file comes after the last of this one."""
    back = ORDINAL_OFFSET.goes_back
    assert ORDINAL_OFFSET.first == (0, 0)
    assert not back((1, 7), (1, 7)) and not back((1, 7), (2, 0)) and not back((1, 7), (1, 8))
    assert back((1, 7), (1, 6)) and back((1, 7), (0, 9))


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
