"""What a task does to its messages and elements is watched."""

from __future__ import annotations

import pytest

from persistent import UserCodeError
from persistent.testing import verify_task
from tests.testing.planted import (
    ROWS,
    ChangesTheBatch,
)

pytestmark = pytest.mark.usefixtures("quiet")


def test_columns_cannot_be_changed() -> None:
    """The watermark is made of the timestamps too."""
    with pytest.raises(UserCodeError, match=r"ChangesTheBatch.process_batch raised .* destination is read-only"):
        verify_task(ChangesTheBatch, [{**row, "ts": row["ts"] * 1_000} for row in ROWS], timestamp_unit="us")
