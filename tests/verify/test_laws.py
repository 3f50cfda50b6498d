"""What a manifest must be after its neighbour is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.operations import compact
from persistent.storage import LocalStorage
from tests.verify.checkpoints import at_one, change_account, change_key, change_newest, faults, look, pipeline


def change_run(manifest: Manifest, **values: Any) -> Manifest:
    runs = manifest.operator.state.runs
    changed = (*runs[:-1], replace(runs[-1], **values))
    return at_one(manifest, operator=manifest.operator.with_state(runs=changed))


def change_source(manifest: Manifest, **values: Any) -> Manifest:
    return at_one(manifest, source=replace(manifest.source, **values))


def change_clock(manifest: Manifest, **values: Any) -> Manifest:
    return at_one(manifest, clock=replace(manifest.clock, **values))


def of_partition(manifest: Manifest, name: str) -> Manifest:
    """As if its only partition were called so."""
    (account,), (position,) = manifest.accounts.values(), manifest.source.positions.values()
    source = replace(manifest.source, partitions=(name,), positions={name: position}, largest={}, idle=())
    return at_one(manifest, source=source, accounts={name: account})


BROKEN_LAWS: dict[str, tuple[Callable[[Manifest], Manifest], str]] = {
    "another parent": (lambda m: replace(m, parent=(m.id - 1, "0" * 64)), "names a parent that differs"),
    "another job": (lambda m: replace(m, job="0" * 32), "has job"),
    "clock back": (
        lambda m: change_clock(m, watermark=1, closed=1),
        ": the clock never goes back",
    ),
    "closed ahead": (lambda m: change_clock(m, closed=1 << 40), "ahead of the clock"),
    "positions back": (
        lambda m: change_source(m, positions={"memory": (0, 1)}),
        ": positions of memory never go back",
    ),
    "partition lost": (lambda m: of_partition(m, "other"), "none vanishes"),
    "epoch back": (lambda m: replace(m, epoch=0), "does not follow"),
    "epoch without fence": (lambda m: replace(m, epoch=m.epoch + 1), "only a fence raises the epoch"),
    "base": (lambda m: replace(m, base=m.id - 1), "with base"),
    "account": (lambda m: change_account(m, read=10_000), "does not balance"),
    "account back": (lambda m: change_account(m, read=0, processed=0, late=0, dead=0), "the account goes back"),
    "rows": (lambda m: change_run(m, rows=m.operator.state.runs[-1].rows + 1), "according to its manifest"),
    "run missing": (lambda m: change_run(m, name="d/Visits/e9-c9-0.arrow"), "missing"),
    "counted twice": (lambda m: change_run(m, first=0, last=m.id), "both count deltas"),
    "deltas ahead": (lambda m: change_run(m, first=m.id + 1, last=m.id + 1), "sums the deltas"),
    "key type": (
        lambda m: change_key(m, key_types=("int64", "string")),
        "holds string",
    ),
    "key name": (
        lambda m: change_key(m, key_names=("a", "b")),
        "has the columns",
    ),
}


@pytest.mark.parametrize("law", BROKEN_LAWS)
def test_every_broken_law_is_found(checkpoint: Path, law: str) -> None:
    """Without it a manifest with a good checksum and a wrong content, as a bug would write it, would pass."""
    change, text = BROKEN_LAWS[law]
    change_newest(checkpoint, change)
    found = look(checkpoint)
    assert text in faults(found)


def test_a_fence_that_changes_something_is_found(tmp_path: Path) -> None:
    """Without it a fence could move the clock past records never read."""
    pipeline(tmp_path, 100).run(engine="embedded")
    log = Log(LocalStorage(tmp_path))
    newest = log.newest()
    assert newest is not None
    log.fence(newest, "1" * 32, 0)
    assert look(tmp_path).ok
    change_newest(tmp_path, lambda m: change_clock(m, watermark=m.clock.watermark + 1))
    assert "a fence copies clocks" in faults(look(tmp_path))


def test_a_compaction_that_changes_more_than_runs_is_found(tmp_path: Path) -> None:
    """Without it a fold could move the clock or the account past records never read."""
    made = pipeline(tmp_path, 400)
    made.run(engine="embedded")
    compact(made)
    assert look(tmp_path).ok
    change_newest(tmp_path, lambda m: change_clock(m, watermark=m.clock.watermark + 1))
    assert "a compaction copies clocks" in faults(look(tmp_path))
