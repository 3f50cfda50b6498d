"""Positions are ordered as their tuples, their bytes and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent.errors import CorruptLog
from persistent.messaging.log.frames import BEGINNING, LogPosition

POSITIONS = st.builds(LogPosition, *[st.integers(0, 2**63 - 1)] * 3)


@given(POSITIONS, POSITIONS)
def test_bytes_and_text_come_back_and_bytes_are_ordered(one: LogPosition, other: LogPosition) -> None:
    """A store of offsets that sorts bytes would take a later position for an earlier one."""
    assert LogPosition.from_bytes(one.to_bytes()) == LogPosition.from_text(str(one)) == one
    assert (one < other) == (one.to_bytes() < other.to_bytes())
    assert len(one.to_bytes()) == 25


@pytest.mark.parametrize("data", [b"", b"\x01", BEGINNING.to_bytes()[:-1], b"\x02" + BEGINNING.to_bytes()[1:]])
def test_bytes_of_another_version_or_length_are_refused(data: bytes) -> None:
    """They would be read as some position, and the records before it never."""
    with pytest.raises(CorruptLog, match="is not a position of a log"):
        LogPosition.from_bytes(data)


def test_a_negative_position_is_refused() -> None:
    """No record is there."""
    with pytest.raises(CorruptLog, match="negative"):
        LogPosition.from_bytes(b"\x01" + b"\xff" * 24)


@pytest.mark.parametrize("text", ["", "1-2", "1-2-3-4", "1-2-x", "1--2", "-1-2-3", "1-2-\u0663"])
def test_a_text_that_is_none_is_refused(text: str) -> None:
    """A misread name of a cut would cut off another part of the log."""
    with pytest.raises(CorruptLog):
        LogPosition.from_text(text)


def test_the_position_after_is_in_the_same_entry() -> None:
    """Whether another slot follows is for the reader to find out."""
    assert LogPosition(3, 2, 1).after() == LogPosition(3, 2, 2)
