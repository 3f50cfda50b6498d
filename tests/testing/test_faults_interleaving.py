"""Turns are the same for a seed, and end when both drivers have ended."""

from __future__ import annotations

import pytest

from persistent.testing.faults import Interleaving, run_both


def interleaved(seed: int) -> list[str]:
    """The operations of two drivers in the order in which they happen."""
    turns, log = Interleaving(seed), []

    def driver(me: int, operations: int) -> int:
        before = turns.before(me)
        for number in range(operations):
            before("write", str(number))
            log.append(f"{me}.{number}")
        return me

    assert run_both(lambda: driver(0, 9), lambda: driver(1, 14), turns) == (0, 1)
    return log


def test_a_seed_is_an_order() -> None:
    """A failure that depends on how threads are scheduled cannot be seen again."""
    orders = [interleaved(seed) for seed in range(8)]
    assert orders == [interleaved(seed) for seed in range(8)]
    assert len({tuple(order) for order in orders}) == 8
    for order in orders:
        assert [name for name in order if name[0] == "0"] == [f"0.{number}" for number in range(9)]
        assert [name for name in order if name[0] == "1"] == [f"1.{number}" for number in range(14)]


@pytest.mark.parametrize("who", [0, 1])
def test_a_driver_that_fails_does_not_hold_up_the_other(who: int) -> None:
    """A test that waits for ever says nothing."""
    turns, done = Interleaving(1), []

    def driver(me: int) -> None:
        before = turns.before(me)
        for number in range(5):
            before("read", "x")
            if me == who and number == 2:
                raise ZeroDivisionError
        done.append(me)

    with pytest.raises(ZeroDivisionError):
        run_both(lambda: driver(0), lambda: driver(1), turns)
    assert done == [1 - who]
