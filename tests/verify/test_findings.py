"""What was looked at is counted, and what was found is told where it is."""

from __future__ import annotations

from pathlib import Path

from persistent.checkpoint.log import Log
from persistent.storage import LocalStorage
from persistent.verify import verify
from tests.verify.checkpoints import faults, look


def test_a_whole_checkpoint_verifies(made: Path) -> None:
    """Without it verify could call sound checkpoints damaged, and nobody would believe it."""
    found = look(made)
    assert found.findings == []
    assert found.newest_good == found.newest == Log(LocalStorage(made)).ids()[-1]
    for part in ("manifests", "plans", "state runs", "late rows", "dead letters"):
        assert found.parts[part].checked > 0, part
    ledger = Log(LocalStorage(made)).newest().manifest.accounts["memory"]  # type: ignore[union-attr]
    assert found.parts["late rows"].rows == ledger.late > 0
    assert found.parts["dead letters"].rows == ledger.dead == 1


def test_the_newest_sound_checkpoint_is_named(checkpoint: Path) -> None:
    """Without it nobody would know how far to go back."""
    newest = Log(LocalStorage(checkpoint)).newest()
    assert newest is not None
    made_at = {
        int(run.name.partition("-c")[2].partition("-")[0]): run
        for run in newest.manifest.operators["Visits"].state.runs
    }
    last = max(made_at)
    (checkpoint / made_at[last].name).unlink()
    found = look(checkpoint)
    assert f"{made_at[last].name}: missing" in faults(found)
    assert found.newest_good == last - 1


def test_progress_ends_with_every_byte(made: Path) -> None:
    """Without it a long look would show nothing, or never reach its end."""
    told: list[tuple[int, int]] = []
    found = verify(LocalStorage(made), on_progress=lambda done, total: told.append((done, total)))
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1] == found.parts["state runs"].bytes
