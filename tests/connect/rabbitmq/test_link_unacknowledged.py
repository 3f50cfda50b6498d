"""A tag means something on the channel that delivered it alone."""

from __future__ import annotations

import pytest

from persistent.connect.rabbitmq.link import Unacknowledged


def test_all_up_to_a_number_are_acknowledged_by_one_tag() -> None:
    """One that is acknowledged before its checkpoint is gone from the queue too early."""
    held = Unacknowledged()
    held.begin()
    held.add([1, 2, 5, 6], [10, 11, 12, 13])
    assert held.up_to(0) is None
    assert held.up_to(4) == 11
    assert held.up_to(4) is None
    assert len(held) == 2
    assert held.up_to(6) == 13
    assert len(held) == 0


def test_tags_of_a_channel_before_are_never_acknowledged() -> None:
    """They count from 1 on each channel: another message would be acknowledged, or the channel closed."""
    held = Unacknowledged()
    held.begin()
    held.add([1, 2, 3], [1, 2, 3])
    held.begin()
    assert held.generation == 2
    assert held.up_to(3) is None
    held.add([4], [1])
    assert held.up_to(3) is None
    assert held.up_to(4) == 1


def test_every_record_has_a_tag() -> None:
    """One without would be held for ever, and block the queue."""
    with pytest.raises(ValueError):
        Unacknowledged().add([1, 2], [1])
