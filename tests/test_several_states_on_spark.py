"""A task with several states comes to the same on Spark as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from persistent import FileSink, MemorySource, Pipeline
from persistent.verify import verify
from tests.several import KINDS, Several, disordered

pytestmark = [pytest.mark.spark, pytest.mark.check]


def outcome_on(engine: Any, folder: Path, names: tuple[str, ...]) -> dict[str, list[str]]:
    """What a job publishes and holds, run in two parts."""
    rows = disordered(11, 60)
    for stop in (30, 60):
        job = Pipeline(
            source=MemorySource(rows[:stop], timestamp="ts", ordered=True),
            task=Several({name: KINDS[name] for name in names}),
            checkpoint=str(folder / "checkpoint"),
            sink={name: FileSink(folder / name, format="parquet") for name in names},
            step_rows=20,
        )
        job.run(engine, end_of_input=stop == 60) if engine else job.run(engine="embedded", end_of_input=stop == 60)
    assert verify(job.storage).findings == []
    found: dict[str, Any] = {f"state {name}": job.state(name=name).to_pylist() for name in names}
    found |= {
        name: [row for path in (folder / name).glob("*.parquet") for row in pq.read_table(path).to_pylist()]
        for name in names
    }
    found["late"] = job.late().to_pylist()
    return {part: sorted(map(str, some)) for part, some in found.items()}


@pytest.mark.parametrize(
    "names", [("short", "total"), ("retracting", "sessions", "changes", "days"), ("lives", "short", "living")]
)
def test_the_engine_makes_no_difference(spark: Any, names: tuple[str, ...], tmp_path: Path) -> None:
    """The job that workers get has all states, and each of their items says which it is of."""
    (tmp_path / "one").mkdir()
    assert outcome_on(spark, tmp_path / "spark", names) == outcome_on(None, tmp_path / "one", names)
