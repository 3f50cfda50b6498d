"""A plan is cut into splits of about equal size."""

from __future__ import annotations

import pytest

from persistent.sources import Budget, FileSource, SourceState
from tests.connect.draining import drain, read
from tests.connect.written import rows, write


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_a_large_file_is_shared_evenly_among_workers(tmp_path, ending):
    """Without it one worker would do the work of a step and the others would wait."""
    write(tmp_path / f"a.{ending}", rows(0, 4_000), row_group=250)
    source = FileSource(tmp_path, timestamp="ts")
    plan = source.plan(SourceState({}), Budget(4_000, splits=4))
    sizes = [len(read(source, split, plan.recorded)[0]) for split in plan.splits]
    assert len(sizes) == 4 and sum(sizes) == 4_000 and min(sizes) > 900


def test_many_small_files_share_a_split(tmp_path):
    """Without it 100 files would be 100 tasks."""
    for place in range(100):
        write(tmp_path / f"{place:03}.jsonl", rows(place * 3, 3))
    source = FileSource(tmp_path, timestamp="ts")
    plan = source.plan(SourceState({}), Budget(10_000, splits=2))
    assert [len(split.spans) for split in plan.splits] == [50, 50]
    assert drain(source).values == rows(0, 300)


def test_a_plan_names_a_bounded_number_of_files(tmp_path, monkeypatch):
    """Without it the plan over 100,000 small files would be too large to be read again, and the job stuck."""
    monkeypatch.setattr("persistent.connect.files.source._FILES_MAX", 7)
    for place in range(20):
        write(tmp_path / f"{place:03}.jsonl", rows(place * 3, 3 if place % 5 else 0))
    drained = drain(FileSource(tmp_path, timestamp="ts"))
    assert [sum(len(split.spans) for split in plan.splits) for plan in drained.plans] == [7, 7, 2]
    assert drained.values == [row for place in range(20) if place % 5 for row in rows(place * 3, 3)]
