"""An update that cannot be meant is refused with what to write instead."""

from __future__ import annotations

import pytest

from persistent.state.updates import check_no_mapping, swapped


def test_a_mapping_is_no_one() -> None:
    """It counted as 1, whatever count was in it."""
    check_no_mapping([1, None, "a", (1, 2)])
    with pytest.raises(TypeError, match=r"by the mapping \{'n': 3\}.*record\(count=Count\(\)\)"):
        check_no_mapping([1, {"n": 3}])


def test_the_error_says_in_which_order_they_come() -> None:
    """A reader could not tell which of two numbers is which."""
    assert "an update at 7 (1970-01-01 00:00:00.007Z) whose value, 9," in str(swapped("update", 7, 9))
    assert str(swapped("update_batch", 7, 9)).endswith("Use state.update_batch(timestamp, value)")
