"""A policy says when to sync."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.errors import InvalidPipeline
from persistent.messaging.log.writer import SyncPolicy, sync_policy


@pytest.mark.parametrize(
    ("value", "policy"),
    [("always", SyncPolicy(1)), ("never", SyncPolicy()), (7, SyncPolicy(7)), ("2 s", SyncPolicy(ms=2_000))],
)
def test_each_way_to_say_it(value: Any, policy: SyncPolicy) -> None:
    """A policy that is misread loses what the user thinks is safe."""
    assert sync_policy(value) == policy


@pytest.mark.parametrize("value", [0, -1, True, None, 1.5, "sometimes", ""])
def test_what_is_none_is_refused(value: Any) -> None:
    """0 would never sync, or always."""
    with pytest.raises(InvalidPipeline, match='"always", "never"'):
        sync_policy(value)


def test_a_bound_is_due_when_it_is_reached() -> None:
    """One entry later is one too many to lose."""
    assert not SyncPolicy(3).is_due(2, 10**9) and SyncPolicy(3).is_due(3, 0)
    assert not SyncPolicy(ms=10).is_due(99, 9.9) and SyncPolicy(ms=10).is_due(1, 10)
    assert not SyncPolicy().is_due(10**9, 10**9)
    assert SyncPolicy(1).each and not SyncPolicy(2).each and not SyncPolicy(ms=1).each
