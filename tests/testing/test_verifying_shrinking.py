"""Of many records few are shown."""

from __future__ import annotations

from collections import Counter

import pytest

from persistent.testing import TaskDiffers, verify_task
from tests.testing.planted import (
    ROWS,
    Visits,
)

pytestmark = pytest.mark.usefixtures("quiet")


def test_what_is_not_expected_is_found_with_few_records() -> None:
    """A wrong model, or a wrong task, is seen in one record rather than in a thousand."""
    with pytest.raises(TaskDiffers, match="Visits differs from the expected result") as caught:
        verify_task(Visits, ROWS, expected=lambda rows: Counter(row["page"] for row in rows if row["n"]))
    assert len(caught.value.records) == 1
