"""Every run that a kept manifest names is read whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from monoids import Count
from persistent import (
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.operations import compact
from persistent.storage import LocalStorage
from tests.few import one_in
from tests.single import only
from tests.verify.checkpoints import at_one, change_key, change_newest, faults, look


def kept_files(folder: Path) -> Iterator[Path]:
    manifest = Log(LocalStorage(folder)).newest().manifest  # type: ignore[union-attr]
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        number = path.name.partition(".")[0].partition("-")[0]
        if path.parent.name not in ("m", "p") or int(number) >= manifest.oldest:
            yield path


@pytest.mark.parametrize("every", one_in(2, [5, 1]))
def test_every_flipped_byte_is_found(every: int, checkpoint: Path) -> None:
    """Without it bits that a disk has turned would be folded into results."""
    rng = random.Random(3)
    for path in list(kept_files(checkpoint))[::every]:
        data = path.read_bytes()
        place = rng.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :])
        assert not look(checkpoint).ok, f"{path}, byte {place}"
        path.write_bytes(data)
    assert look(checkpoint).findings == []


@pytest.mark.parametrize("every", one_in(2, [5, 1]))
def test_every_lost_and_every_torn_file_is_found(every: int, checkpoint: Path) -> None:
    """Without it a file that a broken copy has left out would be missed until it is needed."""
    for number, path in enumerate(list(kept_files(checkpoint))[::every]):
        data = path.read_bytes()
        path.unlink()
        # Plans are only needed until their step is committed.
        if path.parent.name != "p":
            assert look(checkpoint).findings, f"{path} lost"
        path.write_bytes(data[: len(data) // 2] if number % 2 else b"")
        assert look(checkpoint).findings, f"{path} torn"
        path.write_bytes(data)


def test_overlapping_sums_are_found(checkpoint: Path) -> None:
    """Without it a delta could count twice: once in a folded run, and once more by itself."""

    def twice(manifest: Manifest) -> Manifest:
        runs = only(manifest.nodes).runs
        return at_one(manifest, node=structs.replace(only(manifest.nodes), runs=(*runs, runs[0])))

    change_newest(checkpoint, twice)
    assert "both count deltas" in faults(look(checkpoint))


class Prices(PersistentTask):
    """Counts by price."""

    key = {"price": lambda message: Decimal(message.value["price"])}

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def test_decimal_keys_that_grow_are_no_damage(tmp_path: Path) -> None:
    """Each step may bring longer ones: the runs before would be called corrupt, and 0 the newest good checkpoint."""
    prices = ["1.5", "22.25", "333.125", "4444.0625", "1"]
    source = MemorySource([{"ts": n, "price": price} for n, price in enumerate(prices)], timestamp="ts")
    made = Pipeline(source=source, task=Prices(), checkpoint=str(tmp_path), step_rows=1)
    made.run(engine="embedded")
    found = look(tmp_path)
    assert not faults(found) and found.newest_good == found.newest
    assert sorted(row["price"] for row in made.state().to_pylist()) == sorted(map(Decimal, prices))
    compact(made)
    assert not faults(look(tmp_path))


@pytest.mark.parametrize("said", ["decimal128(2, 1)", "decimal128(12, 1)", "string"])
def test_decimal_keys_that_do_not_fit_are_damage(tmp_path: Path, said: str) -> None:
    """A manifest that says less than its runs hold could not be read as it says."""
    source = MemorySource([{"ts": 1, "price": "22.25"}], timestamp="ts")
    Pipeline(source=source, task=Prices(), checkpoint=str(tmp_path)).run(engine="embedded")

    def changed(manifest: Manifest) -> Manifest:
        return change_key(manifest, key_types=(said,))

    change_newest(tmp_path, changed)
    assert f"column key:price holds decimal128(4, 2), but {said} according to its manifest" in faults(look(tmp_path))
