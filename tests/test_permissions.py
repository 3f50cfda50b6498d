"""On a local disk a checkpoint is its owner's alone; what a sink publishes is for others to read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from monoids import Count
from persistent import PersistentTask, Pipeline, WindowState, tumbling
from persistent.engines.embedded import Embedded
from persistent.sinks import FileSink
from persistent.sources import MemorySource


class Visits(PersistentTask):
    """Visits a page and minute."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: object, message: object) -> None:
        if message.value["n"] == 398:  # type: ignore[attr-defined]
            raise ValueError("a dead letter")
        state.update(message.timestamp, 1)  # type: ignore[attr-defined]


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Of the folder and everything below, what others than the owner may do, and the owner."""
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]}


def test_a_whole_checkpoint_is_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Keys and values of all users stand in it."""
    for numbers in ([*range(0, 300, 2)], [*range(0, 300, 2), 1, 3, *range(300, 400)]):
        rows = [{"ts": n * 1000, "page": f"p{n % 3}", "n": n} for n in numbers]
        Pipeline(
            source=MemorySource(pa.Table.from_pylist(rows), timestamp="ts"),
            task=Visits(),
            sink=FileSink(str(tmp_path / "out")),
            checkpoint=str(tmp_path / "c"),
            step_rows=50,
            on_error="dead-letter",
        ).run(engine=Embedded(threads=2))
    found = modes(tmp_path / "c")
    folders = {name.split("/")[0] for name in found if "/" in name}
    assert {"m", "p", "d", "late", "dead"} <= folders and "FORMAT" in found
    for name, mode in found.items():
        assert mode == (0o700 if (tmp_path / "c" / name).is_dir() else 0o600), f"{name}: {mode:o}"
    published = modes(tmp_path / "out")
    assert any(name.endswith(".parquet") for name in published)
    for name, mode in published.items():
        is_folder = (tmp_path / "out" / name).is_dir()
        assert mode == (0o777 if is_folder else 0o666) & ~umask, f"{name}: {mode:o}"
