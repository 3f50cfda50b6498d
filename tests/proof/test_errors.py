"""A slice of the section "errors": a run goes on after an error, or says it clearly, and nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.checkpoint.log import Log
from persistent.errors import CorruptCheckpoint
from persistent.storage import Put
from tests.proof.disk import SimulatedDisk, SimulatedFiles
from tests.proof.errors import GROUNDS, PLAN, Cases, Counted, Fault, Store, System
from tests.proof.oracle import CHECKPOINT, SINK
from tests.proof.worlds import VISITS, drawn_names


@pytest.mark.crash
@pytest.mark.parametrize(("ground", "job"), PLAN, ids=repr)
def test_an_error_anywhere_loses_nothing(ground: System, job: Any) -> None:
    """Errors come once, and errors come to stay; in neither case may the last checkpoint be the price."""
    with drawn_names(0):
        cases = Cases(ground, job).run(12 / 2_500 if ground.name == "system" else 10 / 300)
    assert cases.failures == [] and cases.cases >= 8


@pytest.mark.crash
def test_two_errors_lose_nothing_either() -> None:
    """The second often falls upon what mends the first."""
    with drawn_names(0):
        cases = Cases(GROUNDS[0], VISITS, seed=1).run(0.004, pairs=True)
    assert cases.failures == [] and cases.cases >= 8


@pytest.mark.crash
def test_an_answer_taken_for_granted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a put without an answer could pass as won, the section would be blind."""

    def believing(log: Log, name: str, data: bytes, is_ours: Any) -> bool:
        return log.storage.put_if_absent(name, data) is not Put.LOST

    monkeypatch.setattr(Log, "_put", believing)
    cases = Cases(Store(), VISITS)
    with drawn_names(0):
        for at in range(100):
            if not cases.failures:
                cases.case((Fault("no answer", at),))
    assert cases.failures


@pytest.mark.crash
def test_a_disk_that_answers_nothing_more_ends_the_run() -> None:
    """To whom a failing disk is a folder that is not there, looking for one that is takes for ever."""
    cases = Cases(System(), VISITS)
    with drawn_names(0):
        counted = Counted(())
        System().process(VISITS, cases.oracle, SimulatedDisk(), counted).run()
        looks = [at for at, verb in enumerate(counted.verbs) if verb == "stat"]
        for at in looks[:3]:
            cases.case((Fault("EIO", at, 1_000),))
    assert cases.failures == [] and cases.cases == 3


@pytest.mark.crash
@pytest.mark.parametrize("folder", [f"{CHECKPOINT}/m", SINK])
def test_what_is_gone_after_a_run_is_found(folder: str) -> None:
    """A recovery that loses a checkpoint or an output would pass if nobody looked at what it leaves."""
    with drawn_names(0):
        oracle, ground, disk = VISITS.oracle(), System(), SimulatedDisk()
        process = ground.calm(VISITS, oracle, disk)
        process.run()
        ground.recover(VISITS, oracle, disk.copy(), process.acknowledged)
        files = SimulatedFiles(disk)
        files.unlink(f"{folder}/{disk.files_in(folder)[-1]}")
        with pytest.raises((AssertionError, CorruptCheckpoint)):
            ground.recover(VISITS, oracle, disk, process.acknowledged)
