"""Draws are even, and fixed by their seed."""

from __future__ import annotations

from persistent.testing.faults import choose, draw


def test_draws_are_even_and_fixed() -> None:
    """A place that is never drawn is never tried."""
    drawn = [draw(7, "a", number) for number in range(7_000)]
    assert all(850 < drawn.count(value) < 1_150 for value in range(7))
    assert [choose("abc", "a", number) for number in range(6)] == [choose("abc", "a", number) for number in range(6)]
