"""The pictures of the page on notebooks: ``python -m tests.notebook.pictures`` runs two jobs, and draws them again.

One is the report of a run over old files, the other the checkpoints of a job that follows the time of day, and was away
for a while.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import vl_convert

from examples.page_views import generate
from monoids import Count, Max, record
from persistent import (
    Embedded,
    FileSource,
    MemorySource,
    PersistentTask,
    Pipeline,
    Retention,
    WindowState,
    tumbling,
)
from persistent.time.clock import sleep_s, wall_ms

DOCS = Path(__file__).parents[2] / "docs"


class Views(PersistentTask):
    """Views by page and minute."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(record(views=Count(), slowest=Max()), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"views": 1, "slowest": message.value["millis"]})

    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"views": 1, "slowest": batch["millis"]})


def old_files(folder: Path) -> Any:
    """A run over files of years ago, after one over the first of them."""
    generate(folder / "made", rows=400_000, file_rows=40_000, seed=3)
    (folder / "events").mkdir()
    made = sorted((folder / "made").iterdir())
    source = FileSource(folder / "events" / "*.parquet", timestamp="ts", ordered=True)
    pipeline = Pipeline(
        source=source, task=Views(), checkpoint=str(folder / "old"), step_rows=10_000, discard_closed=True
    )
    for some in (made[:2], made[2:]):
        for file in some:
            file.rename(folder / "events" / file.name)
        report = pipeline.run(engine=Embedded())
    return report.plot()


def time_of_day(folder: Path) -> Any:
    """A job that is given what arrives, for half a minute, with a pause."""
    rng, rows = np.random.default_rng(5), list[dict[str, Any]]()
    pipeline = Pipeline(
        source=MemorySource(rows, timestamp="ts", ordered=True),
        task=Views(),
        checkpoint=str(folder / "live"),
        discard_closed=True,
        retention=Retention(last=200),
    )
    for number in range(40):
        behind = rng.integers(0, 900, 400) + np.where(rng.random(400) < 0.01, 90_000, 0)
        now_ms = wall_ms()
        rows += [{"ts": int(now_ms - one), "page": f"/{one % 97}", "millis": int(one)} for one in behind]
        pipeline.run(engine=Embedded(), progress=False)
        sleep_s(8.0 if number == 20 else 0.3)
    return pipeline.plot()


def main() -> None:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name, chart in (("report", old_files(folder)), ("checkpoints", time_of_day(folder))):
            described = chart.to_dict()
            described["title"] = described["title"].replace(f"{folder}/", "")
            (DOCS / f"notebook-{name}.svg").write_text(vl_convert.vegalite_to_svg(described), encoding="utf-8")


if __name__ == "__main__":
    main()
