"""What a job promises names each of its parts."""

from __future__ import annotations

from persistent import MemorySink, MemorySource, Pipeline
from persistent.driver.naming import guarantee_of_job
from persistent.storage import LocalStorage
from tests.visits import GOOD, Visits


def test_each_part_is_named_as_the_pipeline_names_it(tmp_path: object) -> None:
    """Of several sources nobody could tell which one is weak."""
    sources = {name: MemorySource(GOOD, timestamp="ts") for name in ("a", "b")}
    late = {"late_sink": MemorySink()}
    pipeline = Pipeline(source=sources, task=Visits(), sink=MemorySink(), checkpoint=LocalStorage(tmp_path), **late)
    found = guarantee_of_job(pipeline.job(), proved=True)
    assert list(found.parts) == ["source a", "source b", "checkpoint", "sink", "late_sink"]
    assert found == pipeline.guarantee()
    assert guarantee_of_job(pipeline.job(), proved=False).parts["checkpoint"].while_
