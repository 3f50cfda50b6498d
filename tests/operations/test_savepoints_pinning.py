"""What is pinned is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from persistent import NoCheckpoint, UnknownCheckpoint
from persistent.checkpoint.log import Log
from persistent.names import manifest_name
from persistent.operations import collect_garbage, pin, rollback
from persistent.verify import verify
from tests.crash.sweep import calm
from tests.crash.worlds import LONG
from tests.operations.going_on import MORE, go_on
from tests.operations.twins import VISITS, bases, check_sound, ended, newest


def test_a_pin_outlives_steps_fences_and_rollbacks(folder: Path) -> None:
    """Who pins a checkpoint before an upgrade wants it back after it, whatever has happened since."""
    world = ended(LONG, folder)
    id = bases(world)[0]
    expected = world.pipeline().state(at=id)
    assert pin(world.checkpoint, id).manifest.pins == (id,)
    go_on(world)
    assert id < newest(world).oldest and newest(world).pins == (id,)
    collect_garbage(world.checkpoint)
    rollback(world.checkpoint, bases(world)[-1], outputs="retract")
    assert verify(world.checkpoint).ok
    assert world.pipeline().state(at=id).equals(expected)
    rollback(world.checkpoint, id, outputs="retract")
    assert world.pipeline().state().equals(expected)
    world.run()
    assert world.outcome() == calm(MORE, folder).outcome
    check_sound(world)


def test_what_is_unpinned_is_collected(folder: Path) -> None:
    """A pin forgotten holds its files for ever; one taken out must not."""
    world = ended(LONG, folder)
    id = bases(world)[0]
    files = Log(world.checkpoint).read(id).manifest.files()
    pin(world.checkpoint, id)
    go_on(world, replace(MORE, rows=MORE.rows[:-1], end_of_input=False))
    assert files <= set(world.runs())
    pin(world.checkpoint, id, remove=True)
    go_on(world)
    assert newest(world).pins == () and id not in newest(world).bases
    collect_garbage(world.checkpoint)
    assert not files & set(world.runs())
    assert manifest_name(id)[2:] not in world.checkpoint.list("m")
    check_sound(world)


def test_bad_pins_are_refused_and_nothing_is_changed(folder: Path) -> None:
    """A pin on an id that is gone would promise what nobody can keep."""
    world = ended(VISITS, folder)
    id = bases(world)[-1]
    pin(world.checkpoint, id)
    before = dict(world.checkpoint._files)  # type: ignore[attr-defined]
    assert pin(world.checkpoint, id).manifest.id == newest(world).id
    with pytest.raises(UnknownCheckpoint, match="keeps no checkpoint 99; it keeps 0, 2"):
        pin(world.checkpoint, 99)
    fence = newest(world).id
    with pytest.raises(UnknownCheckpoint, match=f"{fence} is a fence of checkpoint {id}, and no .*; it keeps 0, 2"):
        pin(world.checkpoint, fence)
    with pytest.raises(UnknownCheckpoint, match=f"checkpoint 0 is not pinned; pinned: {id}"):
        pin(world.checkpoint, 0, remove=True)
    with pytest.raises(NoCheckpoint):
        pin("memory://nothing-there", 0)
    assert world.checkpoint._files == before  # type: ignore[attr-defined]
