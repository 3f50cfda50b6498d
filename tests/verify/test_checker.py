"""Verify: whatever is damaged in a checkpoint is found, and what is whole is not called damaged."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    Pipeline,
)
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.running import put_mark
from persistent.engines.embedded import Embedded
from persistent.names import manifest_name
from persistent.operations import compact, pin, rollback, savepoint
from persistent.storage import LocalStorage, MemoryStorage
from persistent.storage.subfolder import savepoint_folder
from persistent.verify import verify, verify_source
from tests.verify.checkpoints import Visits, faults, look, pipeline, rows


class Totals(Visits):
    key = None

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def test_states_of_every_shape_verify(tmp_path: Path) -> None:
    """Without it the checks could hold only for keyed windows."""
    pipeline(tmp_path / "totals", 900, Totals(), step_rows=40).run(engine="embedded", end_of_input=True)
    found = look(tmp_path / "totals")
    assert found.findings == []
    assert found.parts["state runs"].checked > 1


def test_a_checkpoint_before_its_first_record_verifies(tmp_path: Path) -> None:
    """Without it an empty checkpoint could count as damaged."""
    pipeline(tmp_path / "run", 60).run(engine="embedded")
    for name in ("FORMAT", manifest_name(0)):
        (tmp_path / "begun" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / "run" / name, tmp_path / "begun" / name)
    found = look(tmp_path / "begun")
    assert found.findings == []
    assert found.newest_good == 0


def test_a_checkpoint_without_format_yet_verifies(tmp_path: Path) -> None:
    """A full disk or a death between the first two files of a job is no damage: the next run continues."""
    pipeline(tmp_path / "run", 60).run(engine="embedded")
    begun = tmp_path / "begun" / manifest_name(0)
    begun.parent.mkdir(parents=True)
    shutil.copy(tmp_path / "run" / manifest_name(0), begun)
    found = look(tmp_path / "begun")
    assert found.ok
    assert [(one.severity, one.place) for one in found.findings] == [("warning", "FORMAT")]
    shutil.copy(tmp_path / "run" / manifest_name(1), tmp_path / "begun" / manifest_name(1))
    assert not look(tmp_path / "begun").ok


def test_the_oldest_manifest_may_be_missing_because_a_newer_one_is(checkpoint: Path) -> None:
    """Collected by the newest checkpoint, it is missing once that one is lost, which leaves no other trace."""
    ids = Log(LocalStorage(checkpoint)).ids()
    (checkpoint / manifest_name(ids[0])).unlink()
    assert f"{manifest_name(ids[0])}: missing: deleted, or collected after a newer one, which is lost" in faults(
        look(checkpoint)
    )


def test_no_checkpoint_is_a_fault(tmp_path: Path) -> None:
    """Without it a wrong URL would be reported as sound."""
    found = look(tmp_path / "nowhere")
    assert not found.ok
    assert found.newest_good is None


def test_strays_are_warnings(checkpoint: Path) -> None:
    """Without it the files of a killed attempt would raise an alarm, or be passed over in silence."""
    (checkpoint / "d" / "Visits" / f"e1-c3-{'0' * 32}.arrow").write_bytes(b"torn")
    (checkpoint / "notes.txt").write_text("mine")
    found = look(checkpoint)
    assert found.ok
    assert [one.severity for one in found.findings] == ["warning", "warning"]


def test_a_run_at_work_may_be_looked_at() -> None:
    """Without it what a run collects meanwhile would be called lost, so that nobody could verify a live checkpoint."""
    storage = MemoryStorage("verify-live")
    source = MemorySource(rows(3_000), timestamp="ts")
    live = Pipeline(source=source, task=Visits(), sink=MemorySink(), checkpoint=storage, step_rows=20)
    running = threading.Thread(target=live.run, kwargs={"engine": Embedded(threads=1)})
    running.start()
    looks, ids = 0, set()
    while running.is_alive():
        if "FORMAT" in storage.list(""):
            found = verify(storage)
            assert found.ok, faults(found)
            assert not [one for one in found.findings if one.part != "strays"]
            looks, ids = looks + 1, ids | {found.newest}
    running.join()
    assert looks >= 5
    assert len(ids) >= 5
    assert verify(storage).findings == []


def test_late_rows_deleted_are_told(checkpoint: Path) -> None:
    """Without it late rows could be lost after they were counted."""
    sorted((checkpoint / "late").iterdir())[0].unlink()
    assert any("the account says" in one.text for one in look(checkpoint).findings)


# -- after operations ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", ["retract", "again"])
def test_what_operations_leave_verifies(tmp_path: Path, outputs: str) -> None:
    """Without it verify would cry out at every checkpoint that was ever gone back to, pinned, compacted or copied."""
    storage = LocalStorage(tmp_path / "checkpoint")
    made = pipeline(tmp_path / "checkpoint", 1500)
    made.run(engine="embedded")
    ids = Log(storage).ids()
    pin(storage, ids[-8])
    compact(made)
    assert look(tmp_path / "checkpoint").findings == []
    savepoint(storage, "monday")
    copy = verify(savepoint_folder(storage, "monday"))
    assert (copy.ok, copy.findings) == (True, [])
    rollback(storage, ids[-9], outputs=outputs)
    rolled = look(tmp_path / "checkpoint")
    assert rolled.ok and rolled.newest_good == rolled.newest
    more = pipeline(tmp_path / "checkpoint", 1600)
    more.run(engine="embedded", end_of_input=True)
    found = look(tmp_path / "checkpoint")
    assert found.ok, faults(found)
    again = [one.text for one in found.findings]
    assert all("a rollback published some again" in text for text in again)
    assert outputs == "again" or not again
    assert verify_source(more, newest_of(Log(storage))).findings == []


def test_a_rollback_past_what_cannot_be_read_verifies(checkpoint: Path) -> None:
    """Without it nobody could tell whether the way back from damage has worked."""
    storage = LocalStorage(checkpoint)
    last = Log(storage).ids()[-1]
    (checkpoint / manifest_name(last)).write_bytes(b"torn")
    found = look(checkpoint)
    assert (found.ok, found.newest_good) == (False, last - 1)
    rollback(storage, last - 1, outputs="retract")
    assert look(checkpoint).ok, faults(look(checkpoint))
    assert look(checkpoint).newest_good == last + 1


def test_marks_and_the_word_of_the_doctor_are_no_strays(checkpoint: Path) -> None:
    """Without it a running job would look littered."""
    storage = LocalStorage(checkpoint)
    put_mark(storage, 7, "0" * 32)
    storage.put_if_absent("DOCTOR", b"fit")
    assert look(checkpoint).findings == []
    (checkpoint / "r" / "notes.txt").write_text("mine")
    assert [one.place for one in look(checkpoint).findings] == ["r/notes.txt"]


# -- the source ------------------------------------------------------------------------------------------------------


# -- rows ------------------------------------------------------------------------------------------------------------
