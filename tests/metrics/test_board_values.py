"""The values of a manifest: each under labels of which there are few, and none twice."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account, TaskPart
from persistent.metrics.board import FROM_MANIFEST, OTHERS, PARTITIONS_MAX
from persistent.storage import MemoryStorage
from tests.tools.serve.jobs import Each, pipeline
from tests.visits import GOOD, pipeline_of, run


def manifest(job: Any = None) -> Manifest:
    """The newest after a run."""
    if job is None:
        job = pipeline_of(GOOD, MemoryStorage("values"), step_rows=10)
        run(job)
    newest = Log(job.storage).newest()
    assert newest is not None
    return newest.manifest


def test_each_partition_up_to_a_bound_and_the_last_of_the_others() -> None:
    """A topic with thousands of partitions would fill the memory of whoever collects them."""
    found = manifest()
    ((name, source),) = found.sources.items()
    many = tuple(f"p{n}" for n in range(PARTITIONS_MAX + 3))
    largest = {one: 1_000 * (n + 1) for n, one in enumerate(many)} | {many[-2]: 7_000}
    found = replace(found, sources={name: replace(source, partitions=many, largest=largest)})
    times = FROM_MANIFEST["partition.timestamp"](found, 0)
    assert len(times) == PARTITIONS_MAX + 1 and times[name, OTHERS] == 7 and times[name, "p0"] == 1
    assert FROM_MANIFEST["partition.lag"](found, 10_000)[name, OTHERS] == 3
    source = replace(found.sources[name], partitions=(OTHERS, *many), largest={**largest, OTHERS: 5_000})
    again = FROM_MANIFEST["partition.timestamp"](replace(found, sources={name: source}), 0)
    assert again[name, OTHERS] == 5, "its own, if one has that name"


def test_records_are_summed_over_partitions() -> None:
    """Their sum would not be what was read."""
    found = manifest()
    ((task, part),) = found.tasks.items()
    ((name, _),) = part.inputs.items()
    one = Account(read=10, processed=4, late=3, dead=2, duplicate=1, skipped=5)
    found = replace(found, tasks={task: TaskPart({name: {"0": one, "1": one}})})
    assert FROM_MANIFEST["records"](found, 0) == {
        (name, "processed"): 8,
        (name, "late"): 6,
        (name, "dead"): 4,
        (name, "duplicate"): 2,
    }
    assert FROM_MANIFEST["skipped.positions"](found, 0) == {(name,): 10}


def test_each_of_several_states_has_its_own() -> None:
    """One could be far behind, and nobody would see it."""
    job = pipeline("metrics-states", task=Each(), sink=None, discard_closed=True)
    job.run(engine="embedded")
    found = manifest(job)
    for name in ("clock.timestamp", "state.rows", "state.size", "state.runs"):
        assert FROM_MANIFEST[name](found, 0).keys() == {("Each", "minutes"), ("Each", "living")}, name
    assert FROM_MANIFEST["closed.timestamp"](found, 0).keys() == {("Each", "minutes")}


def test_a_clock_that_has_not_begun_has_no_value() -> None:
    """It would be fifty years behind, and wake somebody at each first start."""
    job = pipeline_of([], MemoryStorage("values-empty"))
    found = replace(manifest(), nodes=first(job).nodes)
    assert not FROM_MANIFEST["clock.lag"](found, 10**12) and not FROM_MANIFEST["clock.timestamp"](found, 10**12)


def first(job: Any) -> Manifest:
    from persistent.driver.commit import first_manifest

    return first_manifest(job.job(), "0" * 32)


def test_the_first_manifest_has_values() -> None:
    """A scrape before the first checkpoint would fail."""
    found = first(pipeline_of(GOOD, MemoryStorage("values-first")))
    for name, values in FROM_MANIFEST.items():
        assert all(value >= 0 for value in values(found, 10**12).values()), name
