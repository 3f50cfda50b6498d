"""Checkpoints to verify, and how they are damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from monoids import Count, Sum, record
from persistent import (
    FileSink,
    MemorySource,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.names import manifest_name
from persistent.storage import LocalStorage
from persistent.verify import Verification, verify
from tests.checkpoint.samples import with_one
from tests.single import only


class Visits(PersistentTask):
    key = ("page", "country")

    def persistent_state(self) -> WindowState:
        return WindowState(record(visits=Count(), bytes=Sum()), tumbling(12_000))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "bytes": message.value["bytes"]})


def rows(count: int) -> list[dict[str, Any]]:
    """Mostly in order; some late by more than a window, one before 1970."""
    rng = random.Random(7)
    made = [
        {
            "ts": 30_000 + 20 * i - (20_000 if rng.random() < 0.02 else rng.randrange(500)),
            "page": rng.choice(["/home", "/ä", None]),
            "country": rng.choice(["de", "fr"]),
            "bytes": rng.randrange(100),
        }
        for i in range(count)
    ]
    for row in made[50:51]:
        row["ts"] = -5
    return made


def pipeline(folder: Path, count: int, task: PersistentTask | None = None, step_rows: int = 60) -> Pipeline:
    source = MemorySource(rows(count), timestamp="ts")
    sink = FileSink(f"{folder}-published")
    return Pipeline(source=source, task=task or Visits(), sink=sink, checkpoint=str(folder), step_rows=step_rows)


def change_newest(folder: Path, change: Callable[[Manifest], Manifest]) -> Manifest:
    """Put another manifest in place of the newest, with a trailer that fits."""
    storage = LocalStorage(folder)
    newest = Log(storage).newest()
    assert newest is not None
    changed = change(newest.manifest)
    (folder / manifest_name(newest.manifest.id)).write_bytes(changed.encode())
    return changed


def at_one(manifest: Manifest, **values: Any) -> Manifest:
    """The manifest with its only source or task changed."""
    return with_one(manifest, **values)


def change_account(manifest: Manifest, **values: Any) -> Manifest:
    return at_one(manifest, accounts={name: replace(one, **values) for name, one in manifest.accounts.items()})


def change_key(manifest: Manifest, **values: Any) -> Manifest:
    return at_one(manifest, node=replace(only(manifest.nodes), **values))


def look(folder: Path) -> Verification:
    return verify(LocalStorage(folder))


def faults(found: Verification) -> str:
    return "\n".join(f"{one.place}: {one.text}" for one in found.findings if one.severity == "fault")
