"""The page that shows jobs: each view, cold, over 10,000 checkpoints and over 10 million keys.

Every request is the first of a server that knows nothing: it has read no manifest, and the files of the checkpoint are
not in the cache of the system. So each figure holds what the disk takes. The median of the runs counts for each view,
and the slowest view has to meet the target.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from benchmarks import engines, measure
from monoids import Count, Max, record
from persistent import MemorySource, NonWindowState, PersistentTask, Pipeline, Retention
from persistent.checkpoint.manifest import Manifest, manifest_sha256
from persistent.names import manifest_name, new_nonce

TARGET_MS = 300
KEY = "user-000000007"


class Visits(PersistentTask):
    """Visits and the largest amount by user."""

    key = "user"

    def persistent_state(self) -> Any:
        return NonWindowState(record(visits=Count(), largest=Max()))

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"visits": 1, "largest": batch["amount"]})


def job(place: Path, keys: int, rows: int, step_rows: int, retention: Retention) -> Pipeline:
    random = np.random.default_rng(1)
    numbers = random.permutation(rows) % keys
    table = pa.table(
        {
            "ts": np.arange(rows, dtype=np.int64),
            "user": pa.array(np.char.mod("user-%09d", numbers)),
            "amount": random.integers(0, 1_000_000, rows),
        }
    )
    source = MemorySource(table, timestamp="ts", timestamp_unit="ms", ordered=True)
    return Pipeline(source=source, task=Visits(), checkpoint=str(place), step_rows=step_rows, retention=retention)


def grow(place: Path, checkpoints: int) -> None:
    """The manifests that a job writes which keeps so many checkpoints: each names all that are kept before it. Those
    of a step that reads nothing, so the last runs are those of all."""
    folder = place / "m"
    data = max(folder.iterdir()).read_bytes()
    manifest = Manifest.decode(data, str(folder))
    for id in range(manifest.id + 1, checkpoints + 1):
        now = manifest.committed_ms + 1_000
        manifest = replace(
            manifest,
            id=id,
            base=id,
            parent=(id - 1, manifest_sha256(data)),
            commits=(*manifest.commits, (id, now)),
            committed_ms=now,
            nonce=new_nonce(),
        )
        data = manifest.encode()
        (place / manifest_name(id)).write_bytes(data)


def views(pipeline: Pipeline, key: str) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """What is asked, by name: the address of a view, and its query."""
    from persistent.tools.serve import Shown
    from persistent.tools.serve.time_line import kept

    ids = [id for id, _ in kept(Shown("job", "", pipeline.storage))["kept"]]
    earlier, one = ids[len(ids) // 2], json.dumps([key])
    return {
        "now": ("now", {}),
        "graph": ("graph", {}),
        "time line": ("timeline", {}),
        "time line, further down": ("timeline", {"before": earlier}),
        "manifest": ("manifest", {"id": earlier}),
        "difference": ("difference", {"from": earlier, "to": ids[-1]}),
        "state": ("state", {}),
        "state, further down": ("state", {"cursor": "700.0"}),
        "state, before": ("state", {"at": earlier}),
        "state, a key": ("state", {"key": one}),
        "state, a search": ("state", {"find": key}),
        "state, its slider": ("kept", {}),
        "why": ("why", {"key": one}),
        "account": ("account", {}),
        "late rows": ("late", {}),
        "storage": ("storage", {}),
        "storage, a key": ("storage", {"key": one}),
    }


def cold_ms(pipeline: Pipeline, place: Path, view: str, asked: Mapping[str, Any]) -> tuple[float, float]:
    """The milliseconds of the first request of a new server, for files that the system has forgotten: by the wall, and
    of the processor."""
    from starlette.testclient import TestClient

    from persistent.tools.serve import Shown, application

    client = TestClient(
        application({"job": Shown("job", "job", pipeline.storage, pipeline)}), base_url="http://127.0.0.1"
    )
    with client:
        client.get("/assets/main.js")
        forget(place)
        start, busy = time.perf_counter(), time.process_time()
        answer = client.get(f"/api/job/{view}", params=dict(asked))
        taken, worked = time.perf_counter() - start, time.process_time() - busy
    if answer.status_code != 200:
        raise measure.RowsDiffer(f"{view}: {answer.text}")
    return 1000 * taken, 1000 * worked


def forget(place: Path) -> None:
    """Drop the files of a folder from the cache of the system."""
    os.sync()
    for path in place.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def measured(name: str, pipeline: Pipeline, place: Path, runs: int) -> list[measure.Figure]:
    found, busiest = [], 0.0
    for said, (view, asked) in views(pipeline, KEY).items():
        times = [cold_ms(pipeline, place, view, asked) for _ in range(runs)]
        taken, worked = (measure.median([one[side] for one in times]) for side in (0, 1))
        busiest = max(busiest, worked)
        click.echo(f"{name}: {said} {taken:,.0f} ms, {worked:,.0f} ms of the processor")
        found.append(measure.Figure(f"{name}: {said}", taken, "ms", None, TARGET_MS, at_least=False))
    return [*found, measure.Figure(f"{name}: the most of the processor", busiest, "ms")]


def on_disk(made: Path, place: Path, keys: int, rows: int, step_rows: int, retention: Retention) -> Pipeline:
    """The checkpoint of a job that has read its rows, made in one folder and moved to another."""
    engines.drain(job(made, keys, rows, step_rows, retention), end_of_input=False)
    if made != place:
        shutil.move(made, place)
    return job(place, keys, rows, step_rows, retention)


@click.command(help="Each view of the page, cold, over many checkpoints and over many keys.")
@click.option("--checkpoints", default=10_000, show_default=True, help="0: none of this part.")
@click.option("--keys", default=10_000_000, show_default=True, help="0: none of this part.")
@click.option("--runs", default=3, show_default=True)
@click.option(
    "--make", type=click.Path(file_okay=False, path_type=Path), help="Make them here, and move them to --work."
)
@measure.common
def main(checkpoints: int, keys: int, runs: int, make: Path | None, cache: Path, work: Path | None, seed: int) -> None:
    figures = []
    with measure.empty_folder(work or cache) as folder, measure.empty_folder(make or folder) as made:
        if keys:
            place = folder / "keys"
            pipeline = on_disk(made / "keys", place, keys, keys + keys // 10, max(keys // 5, 1), Retention(last=4))
            figures += measured("many keys", pipeline, place, runs)
        if checkpoints:
            place = folder / "checkpoints"
            pipeline = on_disk(made / "many", place, 1_000, 1_000, 50, Retention(last=checkpoints))
            grow(place, checkpoints)
            figures += measured("many checkpoints", pipeline, place, runs)
    slowest = max(figures, key=lambda one: one.value)
    parameters = {"checkpoints": checkpoints, "keys": keys, "runs": runs}
    measure.publish("page", parameters, figures, slowest=slowest.name)


if __name__ == "__main__":
    main()
