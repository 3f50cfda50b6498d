"""A publishing id is the number of a batch and of a row in it, in one integer. A broker ignores a record whose id is
not above the last under the same name, so a row has one id for good, and ids never go back.

Rows are numbered in the order of the batch, which is that of its staged files: the same after a crash.
"""

from __future__ import annotations

from typing import Final

from persistent.errors import SinkMismatch

_ROW_BITS: Final = 30
_ID_BITS: Final = 63
"""Clients have signed 64-bit integers."""
_CLAIM_BITS: Final = 12
ROWS_MAX: Final = 1 << _ROW_BITS
NUMBER_MAX: Final = 1 << _ID_BITS - _ROW_BITS


def row_id(number: int, row: int) -> int:
    """The id of a row of a batch, both from 0 on. SinkMismatch beyond what an id can hold.

    >>> row_id(1, 0), row_id(1, 5) - row_id(1, 0), batch_of(row_id(7, 5))
    (1073741824, 5, 7)
    """
    _require(number)
    if not 0 <= row < ROWS_MAX:
        raise SinkMismatch(f"a batch has more than {ROWS_MAX:,} rows for one stream: make the steps shorter")
    return number << _ROW_BITS | row


def batch_of(id: int) -> int:
    """The number of the batch of the row with this id; 0 for the id 0, which no row has."""
    return id >> _ROW_BITS


def mark_id(number: int, claims: int) -> int:
    """The id of the mark of batch ``number`` after ``claims`` successive claims by jobs. Of two marks with one id the
    first is kept.

    >>> mark_id(0, 0), mark_id(0, 1), mark_id(1, 0) > mark_id(0, 4_000)
    (1, 2, True)
    """
    _require(number)
    if not 0 <= claims < (1 << _CLAIM_BITS) - 1:
        raise SinkMismatch("too many jobs have started from one savepoint, one after the other, and published nothing")
    return (number << _CLAIM_BITS | claims) + 1


def _require(number: int) -> None:
    if not 0 <= number < NUMBER_MAX:
        raise SinkMismatch(f"batch {number:,} is beyond {NUMBER_MAX:,}, the last that an id of a stream can name")
