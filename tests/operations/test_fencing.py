"""An operation enters a checkpoint only where nobody else writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from persistent import StillRunning
from persistent.checkpoint.running import put_mark
from persistent.operations import collect_garbage, compact, pin, rollback, savepoint, upgrade
from persistent.verify import verify
from tests.operations.twins import OPEN, ended, newest, twin


def test_a_running_job_is_not_written_to(folder: Path) -> None:
    """Two writers are told apart by the fence: but the one that is fenced off was somebody's job."""
    world = ended(OPEN, folder)
    place: Any = world.checkpoint
    epoch = newest(world).epoch
    mark = put_mark(place, epoch, "driver")
    before = dict(place._files)
    writers: dict[str, Any] = {
        "compact": lambda **options: compact(world.pipeline(), **options),
        "pin": lambda **options: pin(place, 0, **options),
        "collect": lambda **options: collect_garbage(place, **options),
        "rollback": lambda **options: rollback(place, 0, outputs="again", **options),
    }
    for name, write in writers.items():
        with pytest.raises(StillRunning, match=r"process \d+ on .*, since .*Z\. Stop it .*--take-over"):
            write()
        assert place._files == before, name
    assert collect_garbage(place, dry_run=True) == ()
    savepoint(place, "monday")
    assert upgrade(place).manifest.id == newest(world).id
    for name, write in writers.items():
        other = twin(world)
        place, world = other.checkpoint, other
        assert mark in [f"r/{one}" for one in place.list("r")] or name == "rollback"
        # Once one has fenced the driver off, it is no longer in the way of the next.
        write(take_over=name == "compact")
        assert newest(world).epoch == epoch + 1 + list(writers).index(name), name
    assert verify(place).ok
