"""An export is the state, as others read it."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from persistent import (
    InvalidPipeline,
    Pipeline,
)
from persistent.reading import export, place
from persistent.storage import LocalStorage
from tests.reading.visits import pipeline_of, same, visits


def test_an_export_is_the_state_as_duckdb_reads_it(pipeline: Pipeline, tmp_path: Path) -> None:
    """Without it what analysts see could be of other types or rows than the state."""
    done = export(pipeline, str(tmp_path / "out"), file_bytes=150)
    state = pipeline.state()
    assert len(done.files) > 3
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [*(f.name for f in done.files), "_export.json"]
    read = duckdb.sql(f"select * from '{tmp_path}/out/*.parquet'").to_arrow_table()
    assert read.column_names == state.column_names
    names = ["page", "status", "visits", "who", "last"]
    assert same(read.select(names), state.select(names).to_pylist())
    manifest = place(pipeline.storage).manifest
    metadata = pq.read_schema(tmp_path / "out" / done.files[-1].name).metadata
    assert metadata[b"persistent.job"] == manifest.job.encode()
    assert metadata[b"persistent.checkpoint"] == str(manifest.id).encode() == str(done.checkpoint).encode()
    assert metadata[b"persistent.clock_ms"] == str(manifest.clock.watermark).encode()
    assert done.rows == state.num_rows


def test_an_empty_state_is_exported_with_its_columns(tmp_path: Path) -> None:
    """Without it a query over the export of a quiet day would fail."""
    made = pipeline_of(visits(30), tmp_path / "checkpoint", step_rows=10)
    made.run(engine="embedded", end_of_input=True)
    assert export(made, str(tmp_path / "out")).rows == 0
    read = duckdb.sql(f"select page, status, visits from '{tmp_path}/out/*.parquet'").to_arrow_table()
    assert (read.num_rows, read.column_names) == (0, ["page", "status", "visits"])


def test_an_export_never_mixes_with_another(pipeline: Pipeline, tmp_path: Path) -> None:
    """Without it two exports in one folder would be counted together."""
    export(pipeline, str(tmp_path / "out"))
    with pytest.raises(InvalidPipeline, match="must be empty"):
        export(pipeline, str(tmp_path / "out"))
    with pytest.raises(InvalidPipeline, match="must be empty"):
        export(pipeline, LocalStorage(pipeline.storage.url))
