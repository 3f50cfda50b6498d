"""Ids grow with batch and row, and never beyond what clients can say: one that goes back is passed over in silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from persistent import SinkMismatch
from persistent.connect.rabbitmq.stream_place import NUMBER_MAX, ROWS_MAX, batch_of, mark_id, row_id

NUMBERS, ROWS = st.integers(0, NUMBER_MAX - 1), st.integers(0, ROWS_MAX - 1)
CLAIMS = st.integers(0, 4_094)


@given(NUMBERS, ROWS, NUMBERS, ROWS)
def test_ids_are_ordered_as_batches_and_rows(number: int, row: int, other: int, another: int) -> None:
    """Two rows with one id would be one row."""
    assert (row_id(number, row) < row_id(other, another)) == ((number, row) < (other, another))
    assert batch_of(row_id(number, row)) == number
    assert 0 <= row_id(number, row) < 1 << 63


@given(NUMBERS, CLAIMS, NUMBERS, CLAIMS)
def test_marks_are_ordered_as_numbers_and_claims(number: int, claims: int, other: int, more: int) -> None:
    """An older mark comes too late; 0 is the id of none."""
    assert (mark_id(number, claims) < mark_id(other, more)) == ((number, claims) < (other, more))
    assert 0 < mark_id(number, claims) < 1 << 63


def test_what_is_beyond_an_id_is_refused() -> None:
    """It would be the id of another row."""
    assert row_id(NUMBER_MAX - 1, ROWS_MAX - 1) == (1 << 63) - 1
    assert (ROWS_MAX, NUMBER_MAX) == (1 << 30, 1 << 33)
    for number, row in ((1, ROWS_MAX), (1, -1), (NUMBER_MAX, 0), (-1, 0)):
        with pytest.raises(SinkMismatch, match=r"1,073,741,824 rows|beyond 8,589,934,592"):
            row_id(number, row)
    with pytest.raises(SinkMismatch, match="beyond"):
        mark_id(NUMBER_MAX, 0)
    for claims in (-1, 4_095):
        with pytest.raises(SinkMismatch, match="started from one savepoint"):
            mark_id(1, claims)
    assert mark_id(1, 4_094) < mark_id(2, 0)
