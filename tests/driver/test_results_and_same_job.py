"""What was seen goes from one checkpoint to the next."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from msgspec import structs

from monoids import Count
from persistent import Dedupe, FingerprintChanged, MemorySource, NonWindowState, PersistentTask, Pipeline
from persistent.checkpoint.compaction import Merge
from persistent.checkpoint.parts import NodeClock, SeenColumns, SeenPart
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.driver import results, same_job
from persistent.driver.commit import first_manifest
from persistent.driver.results import first_seen
from persistent.driver.same_job import check_seen
from persistent.names import STATE, Attempt
from persistent.storage import MemoryStorage
from persistent.verify import verify
from persistent.worker.job import Folded, FoldRuns, Job

BY_NUMBER = Dedupe(origin="origin", sequence="n", within=40)


class Visits(PersistentTask):
    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())


class Counted(Visits):
    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def manifest(dedupe: Dedupe | None, seen: SeenPart | None = None, watermark: int = 0, base: int = 3) -> Any:
    state = NonWindowState(Count())
    job = Job(
        Visits(),
        {STATE: state},
        {"memory": MemorySource([])},
        {},
        MemoryStorage("seen-part"),
        False,
        dedupe={} if dedupe is None else {"memory": dedupe},
    )
    found = first_manifest(job, "nonce")
    ((name, source),) = found.sources.items()
    nodes = {id: structs.replace(node, clock=NodeClock(watermark)) for id, node in found.nodes.items()}
    sources = {name: structs.replace(source, seen=seen or source.seen)}
    return structs.replace(found, sources=sources, nodes=nodes, id=base, base=base)


def named(dedupe: Dedupe | None) -> dict[str, Dedupe]:
    return {} if dedupe is None else {"memory": dedupe}


def seen_of(last: Any, dedupe: Dedupe | None) -> Any:
    return results.seen_of(last, named(dedupe), "memory")


def seen_before(last: Any, dedupe: Dedupe | None) -> Any:
    return results.seen_before(last, named(dedupe)).get("memory")


def seen_after(last: Any, dedupe: Dedupe, *rest: Any) -> Any:
    return results.seen_after(seen_of(last, dedupe), dedupe, *rest)


def notes(last: Any, dedupe: Dedupe | None) -> Any:
    return same_job.dedupe_notes(last, named(dedupe))


def run(name: str, pane: int, last: int | None = None) -> Run:
    return Run(name, 5, 100, "0" * 64, 0, 0, KEY_GROUPS, pane, pane if last is None else last, 1, 1)


def test_it_begins_with_nothing_and_expires_with_the_clock() -> None:
    """A horizon ahead of what is remembered would make copies late; one behind it would let them count."""
    assert first_seen(BY_NUMBER) == SeenPart(SeenColumns(("origin",), "n"), 10)
    found = seen_after(manifest(BY_NUMBER), BY_NUMBER, [run("a", 0, 20), run("b", 20, 30)], (), 77)
    assert found is not None and found.expired == 30 and [one.name for one in found.runs] == ["b"]
    before = seen_before(manifest(BY_NUMBER, found, 77), BY_NUMBER)
    assert before is not None and (before.horizon, before.pane_ms) == (30, 10)
    assert seen_after(manifest(BY_NUMBER, found, 77), BY_NUMBER, [], (), 77) == found
    assert first_seen(None) is None and seen_before(manifest(None), None) is None


def test_what_expired_never_comes_back() -> None:
    """A longer time reaches back only as far as is remembered; a shorter one holds at once, on the same panes."""
    part = SeenPart(SeenColumns(**BY_NUMBER.columns()), 10, 30, (run("b", 30),))
    longer = seen_before(manifest(BY_NUMBER, part, 77), replace(BY_NUMBER, within=1_000))
    shorter = seen_before(manifest(BY_NUMBER, part, 77), replace(BY_NUMBER, within=12))
    assert longer is not None and shorter is not None
    assert (longer.horizon, longer.pane_ms, shorter.horizon, shorter.pane_ms) == (30, 10, 60, 10)


def test_folds_replace_their_inputs_unless_they_failed() -> None:
    """A failed fold that counted would forget all that it was to sum."""
    part = SeenPart(SeenColumns(**BY_NUMBER.columns()), 10, 0, (run("a", 0), run("b", 20)))
    item = FoldRuns(Attempt(1, 1), Merge(part.runs, 0, KEY_GROUPS), 0, "memory", 10)
    for one, expected in (
        (Folded(run("sum", 0, 20), None), ["sum", "new"]),
        (Folded(None, None, "no memory"), ["a", "b", "new"]),
        (Folded(None, None), ["new"]),
    ):
        found = seen_after(manifest(BY_NUMBER, part), BY_NUMBER, [run("new", 30)], [(item, one)], 0)
        assert found is not None and [one.name for one in found.runs] == expected


def test_a_job_that_has_committed_nothing_takes_any_columns() -> None:
    """The first plan failed over a name mistyped: the next run must not be refused for it."""
    other = replace(BY_NUMBER, sequence="m")
    assert seen_of(manifest(BY_NUMBER, base=0), other) == first_seen(other)
    assert seen_of(manifest(BY_NUMBER), BY_NUMBER) == first_seen(BY_NUMBER)
    check_seen(manifest(BY_NUMBER, base=0), manifest(other, base=0), (), "url")


def test_other_columns_and_none_are_refused() -> None:
    """Copies would count, and nobody would see why."""
    found = manifest(BY_NUMBER)
    check_seen(found, manifest(replace(BY_NUMBER, within="1 h", restamped=True)), (), "url")
    check_seen(manifest(None), manifest(BY_NUMBER), (), "url")
    check_seen(found, manifest(None), ["dedupe"], "url")
    with pytest.raises(
        FingerprintChanged, match=r"^url: copies .*\(origin, n\), .* dedupe by \(origin, e, n\). Restore"
    ):
        check_seen(found, manifest(replace(BY_NUMBER, epoch="e")), ["dedupe"], "url")
    with pytest.raises(FingerprintChanged, match=r"no dedupe=: they would count. Restore it; or forget"):
        check_seen(found, manifest(None), ["other"], "url")


def test_a_run_that_begins_or_ends_it_says_so() -> None:
    """What was read before is not known; the seen records are forgotten."""
    assert [what for what, _ in notes(manifest(None), BY_NUMBER)] == ["dedupe"]
    assert [text for _, text in notes(manifest(BY_NUMBER), None)] == [
        "deduplication ends: the seen records are forgotten, and copies count from now on"
    ]
    for quiet in (notes(manifest(None, base=0), BY_NUMBER), notes(manifest(BY_NUMBER), BY_NUMBER)):
        assert list(quiet) == []


def test_the_kinds_of_names_are_kept_and_must_not_change() -> None:
    """By names of another kind nothing would be recognised, and every copy count."""
    begun = seen_after(manifest(BY_NUMBER), BY_NUMBER, [run("a", 70)], (), 77)
    assert begun is not None and begun.kinds == {}
    found = results.seen_after(begun, BY_NUMBER, (), (), 77, kinds={"origin": "text"})
    assert found.kinds == {"origin": "text"}
    assert results.seen_after(found, BY_NUMBER, (), (), 77).kinds == {"origin": "text"}, "of a step without records"

    def check(seen: SeenPart | None, origin: pa.DataType) -> None:
        schema = pa.schema([("origin", origin), ("n", pa.int64())])
        same_job._check_kinds(manifest(BY_NUMBER, seen=seen), BY_NUMBER, "memory", schema, "url")

    with pytest.raises(FingerprintChanged, match=r"^url: copies were recognised by .origin., which held text and is"):
        check(found, pa.int64())
    for seen, origin in ((found, pa.large_string()), (found, pa.null()), (begun, pa.int64()), (None, pa.int64())):
        check(seen, origin)
    check(structs.replace(found, runs=()), pa.int64())


@pytest.mark.parametrize("within", [40, 4_000])
def test_what_was_seen_and_is_forgotten_in_the_same_step_leaves_no_file(within: int) -> None:
    """No manifest ever names it: every clean run would end with warnings of a run that was cut off."""
    rows = [{"ts": 100 * n, "origin": "ab"[n % 2], "n": n} for n in range(200)]
    job = Pipeline(
        source=MemorySource(rows, timestamp="ts", ordered=True),
        task=Counted(),
        checkpoint=f"memory://{uuid.uuid4().hex}",
        dedupe=Dedupe(origin="origin", sequence="n", within=within),
        step_rows=5,
    )
    job.run(engine="embedded")
    assert not verify(job.storage).findings
