"""A damaged checkpoint is told, and there is a way back: a slice of the proof."""

from __future__ import annotations

import pytest

from persistent.checkpoint.log import Log
from tests.few import one_in
from tests.proof import corruption


@pytest.mark.parametrize(("scale", "way_back_every"), one_in(2, [(0.003, 60), (0.01, 40)]))
def test_damage_is_told_and_the_way_back_works(
    scale: float, way_back_every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit that is read as another is a wrong number for ever after."""
    monkeypatch.setattr(corruption, "_WAY_BACK_EVERY", way_back_every)
    result = corruption.prove(None, scale=scale)
    assert result.failures == ()
    assert result.cases > 40_000 * scale


def test_a_reader_that_believes_what_it_reads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof that no defect can fail proves nothing: here no hash is compared."""
    monkeypatch.setattr("hashlib.sha256", _Believing)
    trial = corruption.Trial(corruption.victim(windows=False), [])
    newest = Log(trial.victim.storage(trial.victim.files)).newest()
    assert newest is not None
    run = f"checkpoint:{max(newest.manifest.files())}"
    for place in range(0, len(trial.victim.files[run]), 7):
        trial.run(corruption.flipped(run, 8 * place))
    assert any("nothing was told" in failure for failure in trial.failures)


@pytest.mark.parametrize("windows", one_in(2, [True, False]))
def test_lost_manifests_are_told_or_are_nothing(windows: bool) -> None:
    """Where outputs were published they would come twice, and nobody would hear of it."""
    trial = corruption.Trial(corruption.victim(windows=windows), [])
    for files in (trial.victim.files, trial.victim.planned, trial.victim.ended):
        trial.lost(files)
    assert trial.failures == []
    assert 0 < trial.told < trial.cases


def test_a_driver_that_goes_on_from_the_manifest_below_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where nobody looks at what the lost checkpoint left, the proof must fail."""
    monkeypatch.setattr(Log, "lost", lambda *_: None)
    trial = corruption.Trial(corruption.victim(windows=True), [])
    trial.lost(trial.victim.ended)
    assert any("another result than without damage" in failure for failure in trial.failures)


class _Believing:
    """A hash that is the same of everything."""

    def __init__(self, data: object = b"") -> None:
        pass

    def update(self, data: object) -> None:
        pass

    def digest(self) -> bytes:
        return bytes(32)

    def hexdigest(self) -> str:
        return "0" * 64
