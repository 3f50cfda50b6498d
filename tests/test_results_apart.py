"""One key whose total leaves its range, or whose fold raises, stops no other; its own result is named, or set aside."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from monoids import Max, Monoid, Sum, record
from persistent import (
    CorruptCheckpoint,
    Pipeline,
    UserCodeError,
)
from persistent.checkpoint.log import Log
from persistent.driver.evolution import Evolution
from persistent.names import manifest_name
from persistent.operations import compact, savepoint
from tests.totals import HIGH, Totals, newest, pipeline, published, rows, run


def widths(job: Pipeline) -> list[bool]:
    """Which runs the document of the newest manifest calls wide."""
    log = Log(job.storage)
    data = job.storage.read(manifest_name(log.ids()[-1])).to_pybytes()
    body = json.loads(data.partition(b"\n")[0])
    return [run.get("wide", False) for run in body["nodes"]["totals"]["runs"]]


def test_a_run_is_wide_as_long_as_its_totals_are() -> None:
    """Read as it is declared, a wide one would be called corrupt; called wide for ever, every fold would be."""
    back = rows(("a", HIGH), ("a", 1), ("b", 7), ("a", -1), ("b", 0))
    job = pipeline(back[:3], Sum(), step_rows=3)
    run(job, end_of_input=False)
    assert [one.wide for one in newest(job).state_runs()] == widths(job) == [True]
    saved = savepoint(job.storage, "wide")
    assert saved is not None
    again = pipeline(back, Sum(), step_rows=2, checkpoint=job.storage, sink=job.sink)
    assert run(again).rows == 2
    compact(again)
    assert not any(widths(again)) and not any(one.wide for one in newest(again).state_runs())
    assert published(again) == {"a": HIGH, "b": 7}


def test_a_wide_run_that_its_manifest_does_not_call_so_is_refused() -> None:
    """What a manifest says of a run is all that is known before it is read."""
    job = pipeline(rows(("a", HIGH), ("a", 1)), Sum())
    run(job, end_of_input=False)
    entry = Log(job.storage).newest()
    assert entry is not None
    from persistent.codec.runs import decode_run

    (found,) = entry.manifest.nodes["totals"].runs
    plain = replace(found, wide=False)
    with pytest.raises(CorruptCheckpoint, match="wider than its manifest says"):
        decode_run(Sum(), job.storage.read(found.name), plain, found.name)


def test_an_overflow_evolves_into_an_unbounded_sum() -> None:
    """It is the way out that the error names."""
    job = pipeline(rows(*[("a", HIGH)] * 20, ("b", 1)), Sum())
    with pytest.raises(UserCodeError):
        run(job)
    wide = Sum(int, unbounded=True)
    evolved = pipeline(
        rows(*[("a", HIGH)] * 20, ("b", 1)),
        wide,
        checkpoint=job.storage,
        sink=job.sink,
        evolve=Evolution(before=Sum(), change=lambda total: total),
    )
    run(evolved)
    assert published(evolved) == {"a": str(20 * HIGH), "b": "1"} and not any(widths(evolved))


def test_a_record_keeps_its_wide_field_through_an_evolution_of_others() -> None:
    """Columns are carried over as they are, and the run says whether one of them is wide."""
    given = rows(("a", HIGH), ("a", 1), ("b", 2))

    class Both(Totals):
        def process_message(self, state: Any, message: Any) -> None:
            state.update(message.timestamp, dict.fromkeys(self.monoid.fields, message.value["v"]))  # type: ignore[attr-defined]

    def job(monoid: Monoid[Any], **options: Any) -> Pipeline:
        made = pipeline(given, monoid, **options)
        return Pipeline(
            source=made.source,
            task=Both(monoid),
            sink=made.sink,
            checkpoint=made.storage,
            **({"evolve": options["evolve"]} if "evolve" in options else {}),
        )

    first = job(record(n=Sum(), top=Max()))
    run(first, end_of_input=False)
    second = job(record(n=Sum()), checkpoint=first.storage, evolve=Evolution(removed=["top"]))
    run(second, end_of_input=False)
    assert newest(second).kind == "migration" and any(widths(second))
    third = job(record(m=Max()), checkpoint=first.storage, evolve=Evolution(removed=["n"]))
    run(third, end_of_input=False)
    assert not any(widths(third))
