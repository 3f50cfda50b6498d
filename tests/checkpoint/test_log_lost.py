"""A manifest is lost where something of its checkpoint is there, and nothing newer is in the log."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from msgspec.structs import replace

from persistent import MemorySource, Pipeline
from persistent.checkpoint.log import Log, Trace
from persistent.checkpoint.successor import Entry
from persistent.errors import CorruptCheckpoint, StorageError
from persistent.names import manifest_name
from persistent.storage import MemoryStorage
from tests.checkpoint.samples import manifest
from tests.driver.shop import Visits


@pytest.fixture
def log() -> Log:
    """A log with manifest 0, and a fence on it."""
    storage = MemoryStorage("lost")
    storage.clear()
    log = Log(storage)
    log.fence(log.create(manifest()), "driver")
    return log


def newest(log: Log) -> Entry:
    entry = log.newest()
    assert entry is not None
    return entry


@pytest.mark.parametrize("folder", ["p", "late", "dead"])
def test_a_trace_above_is_of_a_lost_one(log: Log, folder: str) -> None:
    """The highest counts: an id at or below it must not be used again."""
    for id in (0, 3, 2):
        log.storage.write(f"{folder}/{id:020d}-a.arrow", b"")
    log.storage.write(f"{folder}/notes", b"")
    lost = log.lost(0, 1)
    assert lost == Trace(3, f"memory://lost/{folder}/{3:020d}-a.arrow")
    assert log.lost(3, 1) is None
    assert log.lost(0, 1, Trace(4, "the sink")) == Trace(4, "the sink")
    assert log.lost(0, 1, Trace(2, "the sink")) == lost


def test_where_others_have_gone_on_nothing_is_lost(log: Log) -> None:
    """The plan is of their checkpoint, whose manifest was put after we had looked."""
    log.storage.write(f"p/{2:020d}.json", b"")
    stale = newest(log)
    log.fence(stale, "another")
    assert log.lost(0, 1) is None
    assert log.check_whole(stale.manifest) == -1


def test_a_fence_hides_nothing(log: Log) -> None:
    """It stands under the very id that was lost."""
    log.storage.write(f"p/{1:020d}.json", b"")
    with pytest.raises(CorruptCheckpoint, match="is lost") as caught:
        log.check_whole(newest(log).manifest)
    url = "memory://lost"
    assert str(caught.value) == (
        f"{url}/p/{1:020d}.json: left by checkpoint 1, whose manifest {manifest_name(1)} is lost: to continue from 0 "
        f"would publish later outputs again. Restore the manifests from a copy of {url}. Or: "
        f"Checkpoint 1 is the newest whose manifest verifies: 'persistent rollback {url} 1 --outputs=retract' goes "
        "back to it and takes back later outputs"
    )


def test_after_a_rollback_it_is_the_id_to_go_on_above(log: Log) -> None:
    """An operator has said what becomes of what was published; to refuse once more would leave no way out."""
    old = newest(log).manifest
    assert log.check_whole(old) == log.check_whole(old, goes_back=True) == -1
    log.storage.write(f"p/{5:020d}.json", b"")
    assert log.check_whole(old, goes_back=True) == 5
    assert log.check_whole(replace(old, target=0)) == 5


@pytest.mark.parametrize(("above", "ids"), [(-1, [2]), (1, [2]), (2, [2, 3]), (3, [2, 4]), (90, [2, 91])])
def test_to_fence_above_an_id_takes_two_fences_at_most(log: Log, above: int, ids: list[int]) -> None:
    """The first takes the next id, for which others reach; the second leaves the lost ids out, however many."""
    fence = log.fence(newest(log), "mine", above=above).manifest
    assert log.ids() == [0, 1, *ids]
    assert (fence.id, fence.epoch, fence.base) == (ids[-1], 1 + len(ids), 0)
    assert fence.burnt == ((above,) if above > 2 else ())


def test_who_fences_in_between_goes_above_too(log: Log) -> None:
    """Else two drivers go on from one manifest, each with ids the other does not look at."""
    log.fence(newest(log), "mine", above=90)
    log.storage.delete(manifest_name(91))
    first = newest(log)
    assert (first.manifest.id, first.manifest.burnt) == (2, (90,))
    assert log.fence(first, "another").manifest.id == 91


class Lagging(MemoryStorage):
    """Lists what was there a while ago: not the files ``hidden``."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lags = True
        self.hidden = ""

    def list(self, folder: str) -> list[str]:
        names = super().list(folder)
        return (
            [name for name in names if not (self.lags and f"{folder}/{name}" >= self.hidden)]
            if folder == "m"
            else names
        )


@pytest.mark.parametrize("runs", [0, 1], ids=["the first manifest", "a later one"])
@pytest.mark.parametrize("traces", [False, True], ids=["without traces", "with a trace"])
def test_a_store_whose_lists_lag_is_named_and_a_later_run_goes_on(runs: int, traces: bool) -> None:
    """It was a bare AssertionError; or a manifest said to be lost, with the advice to go back behind it; or a fence was
    put again and again."""
    storage = Lagging(uuid.uuid4().hex)
    rows = [{"ts": number, "page": "a", "n": 1} for number in range(8)]

    def run(count: int) -> Any:
        source = MemorySource(rows[:count])
        return Pipeline(source=source, task=Visits(), discard_closed=True, checkpoint=storage).run(engine="embedded")

    storage.lags = False
    for _ in range(runs):
        run(4)
    if runs and traces:
        storage.write(f"dead/{storage.list('m')[-1].removesuffix('.json')}-a.arrow", b"")
    storage.lags, storage.hidden = True, f"m/{(storage.list('m') or [''])[-1]}"
    with pytest.raises(
        StorageError, match=r"exists, but the store does not list it\. .* Run again; .* 'persistent doctor"
    ):
        run(8)
    storage.lags = False
    run(8)
    newest = Log(storage).newest()
    assert newest is not None and newest.manifest.accounts["memory"].read == 8
