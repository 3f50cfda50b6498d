"""What a task does to its messages and elements is watched."""

from __future__ import annotations

import pytest

from persistent.testing import TaskDiffers, verify_task
from tests.testing.planted import (
    ROWS,
    ChangesTheBatch,
)

pytestmark = pytest.mark.usefixtures("quiet")


def test_columns_that_are_changed_are_found() -> None:
    """The watermark is made of the timestamps too."""
    with pytest.raises(TaskDiffers, match=r"batch.timestamps\[1\], before: 7\n.*after: 6"):
        verify_task(ChangesTheBatch, [{**row, "ts": row["ts"] * 1_000} for row in ROWS], timestamp_unit="us")
