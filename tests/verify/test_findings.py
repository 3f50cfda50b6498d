"""What was looked at is counted, and what was found is told where it is."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from persistent.checkpoint.log import Log
from persistent.names import manifest_name
from persistent.operations import pin, rollback
from persistent.storage import LocalStorage
from persistent.verify import Verification, verify
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
    made_at = {int(run.name.partition("-c")[2].partition("-")[0]): run for run in newest.manifest.nodes["Visits"].runs}
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


def test_the_verdict_says_how_to_continue(checkpoint: Path) -> None:
    """Without it "the newest verifies" would be the last word on a checkpoint that no run accepts."""
    ids = Log(LocalStorage(checkpoint)).ids()
    (checkpoint / manifest_name(ids[-3])).unlink()
    found = look(checkpoint)
    way = f"'persistent rollback {checkpoint} {ids[-1]} --outputs=retract'"
    assert found.verdict.endswith(f"is the newest, and itself verifies: {way} continues from it without what is lost")
    rollback(str(checkpoint), ids[-1], outputs="retract")
    assert look(checkpoint).ok
    (checkpoint / "FORMAT").unlink()
    assert f"'persistent show {checkpoint}' says how to write FORMAT again" in look(checkpoint).verdict
    nothing = Verification("s3://bucket/job", newest=7)
    assert nothing.verdict.endswith("restore the folder from a copy, or let a new job start from a savepoint")


def test_a_fence_is_not_newer_than_what_it_stands_on(checkpoint: Path) -> None:
    """A rollback was advised to the checkpoint that the next run continues from, after each start anew."""
    storage = LocalStorage(checkpoint)
    good = Log(storage).newest().manifest.base  # type: ignore[union-attr]
    next((checkpoint / "dead").glob("*.arrow")).write_bytes(b"torn")
    told = look(checkpoint).verdict
    pin(storage, good)
    found = look(checkpoint)
    assert found.newest == good + 1 and not found.ok
    assert found.verdict == told == f"checkpoint {good} is the newest, and itself verifies"


def test_a_fault_has_its_place_once() -> None:
    """Without it a line of many faults would be twice as long, and hide what is wrong."""
    found = Verification("s3://bucket/job")
    found.fault("plans", "p/1.json", "p/1.json: torn")
    found.fault("plans", "p/1.json", "s3://bucket/job/p/1.json: torn")
    assert {finding.text for finding in found.findings} == {"torn"}


def test_the_command_of_a_verdict_works_in_a_folder_with_blanks(made: Path, tmp_path: Path) -> None:
    """Its path is one word of a shell: without quotes it names other places."""
    place = Path(shutil.copytree(made, tmp_path / "my job's" / "a checkpoint"))
    newest = Log(LocalStorage(place)).ids()[-1]
    (place / manifest_name(newest)).write_bytes(b"torn")
    command = look(place).verdict.partition(": '")[2].removesuffix("' goes back to it")
    assert shlex.split(command)[:3] == ["persistent", "rollback", str(place)]
