"""A task with several states gives each what a task with that state alone would have given it."""

from __future__ import annotations

import random

import pytest

from persistent.operations import compact
from persistent.verify import verify
from tests.several import KINDS, World, disordered, drawn_runs, newest


def compared(world: World, seed: int) -> None:
    """Run a job with several states, and each state alone, through the same history."""
    runs = drawn_runs(seed, len(world.rows))
    alone = {name: world.alone(name) for name in world.states}
    for number, run in enumerate(runs):
        for one in (world, *alone.values()):
            one.run(run)
            if (seed + number) % 3 == 0:
                compact(one.pipeline(), take_over=True)
        for name, one in alone.items():
            assert world.shown(name) == one.shown(name), (seed, name, number)
    for name, one in alone.items():
        assert newest(world.published(name)) == newest(one.published(name)), (seed, name)
        if name != "early":
            # Another state can make a step, in which early results are published.
            assert world.published(name) == one.published(name), (seed, name)
        assert world.refused[name] == one.refused[name], (seed, name)
    assert _late(world) == set.intersection(*(_late(one) for one in alone.values()))
    checked = verify(world.storage)
    assert checked.ok and not checked.findings, checked


def _late(world: World) -> set[tuple[int, int]]:
    """The records that no state takes, by position."""
    return {(row["ordinal"], row["offset"]) for row in world.pipeline().late().to_pylist() if row["reason"] == "late"}


@pytest.mark.parametrize("seed", range(24))
def test_each_state_is_as_if_it_were_alone(seed: int) -> None:
    """A record that one state refuses must reach the others, and no state may get the rows, the clock or the runs of
    another: whatever the order, the steps, the shards and the restarts."""
    draw = random.Random(seed)
    names = draw.sample([*KINDS], draw.randrange(1, 5))
    by = draw.choice(("message", "batch"))
    compared(World({name: KINDS[name] for name in names}, disordered(seed), by), seed)
