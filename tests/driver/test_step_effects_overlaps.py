"""Splits of one step that have seen the same number: it counts in the first of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monoids import Count
from monoids.groupby.summing import group_by
from persistent import Dedupe, Embedded, MemorySource, NonWindowState, PersistentTask, Pipeline
from persistent.connect.formats.timestamps import TimeLimit
from persistent.connect.source import Budget, SourceState
from persistent.driver import step_effects
from persistent.driver.options import Options
from persistent.driver.step_effects import set_apart, shared_hashes
from persistent.driver.workbench import Workbench
from persistent.names import Attempt
from persistent.storage import MemoryStorage
from persistent.worker.job import Mapped, MapSplit, SplitOfNode
from persistent.worker.seen_items import SeenBefore, SeenSpan
from persistent.worker.seen_state import seen_monoid
from tests.few import examples

BY_NUMBER = Dedupe(origin="origin", sequence="n")


class Visits(PersistentTask):
    key = "origin"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


@pytest.fixture
def storage() -> Iterator[MemoryStorage]:
    yield (made := MemoryStorage(f"overlaps-{uuid.uuid4().hex}"))
    made.clear()


def mapped(
    storage: Any, sent: list[list[tuple[Any, ...]]], dedupe: Dedupe = BY_NUMBER, horizon: int = 0
) -> tuple[Workbench, list[MapSplit], list[Mapped]]:
    """The splits of one step, and the results of each for itself. A record has a time, or that of its number."""
    rows = [{"ts": ts[0] if ts else 100 + n, "origin": origin, "n": n} for part in sent for origin, n, *ts in part]
    source = MemorySource(rows, timestamp="ts", ordered=True)
    job = Pipeline(source=source, task=Visits(), checkpoint=storage, dedupe=dedupe).job()
    bench = Workbench(job, Embedded(threads=1), Options())
    plan = source.plan(SourceState({"memory": (0, 0)}), Budget(len(rows), True, len(sent)))
    assert len(plan.splits) == len(sent)
    seen = SeenBefore((), horizon, 10)
    given = plan.recorded, dict.fromkeys(job.nodes, SplitOfNode(0, 0)), TimeLimit(10_000), None, seen
    items = [MapSplit(Attempt(1, 1), "memory", "memory", split, *given) for split in plan.splits]
    return bench, items, [bench.work(item) for item in items]  # type: ignore[misc]


def fates(results: list[Mapped]) -> list[tuple[int, int]]:
    return [(one.account.processed, one.account.duplicate) for one in results]


def test_a_number_counts_in_the_first_split_that_has_it(storage: Any) -> None:
    """Each split for itself found it new: together they would count it three times."""
    bench, items, results = mapped(storage, [[("a", 1), ("b", 1)], [("a", 1), ("a", 2)], [("a", 2), ("a", 1)]])
    assert fates(results) == [(2, 0), (2, 0), (2, 0)]
    again, apart = set_apart(bench, items, results)
    assert fates(apart) == [(2, 0), (1, 1), (0, 2)]
    assert apart[0] is results[0] and again[0] is items[0]
    assert again[1].seen is not None and again[1].seen.also
    rerun = [bench.work(item) for item in again]
    assert fates(rerun) == fates(apart), "an item that is mapped once more for its keys knows the same"  # type: ignore[arg-type]


def test_an_id_counts_in_the_first_split_that_has_it(storage: Any) -> None:
    """As numbers do; a split without common ids is not mapped again."""
    sent = [[("a", 1), ("b", 1)], [("c", 1), ("d", 2)], [("d", 2), ("a", 1)]]
    bench, items, results = mapped(storage, sent, Dedupe.by_id(("origin", "n")))
    assert fates(results) == [(2, 0), (2, 0), (2, 0)]
    again, apart = set_apart(bench, items, results)
    assert fates(apart) == [(2, 0), (2, 0), (0, 2)] and again[:2] == items[:2]


def test_numbers_are_counted_up_to_64_bits() -> None:
    """Two ranges of half of all numbers: a sum that wraps would hide what two splits share."""
    for element in (((-(2**63), -1), (1, 2**63 - 1)), ((0, 2**33), (2**40, 2**40)), ((5, 5),), ()):
        rows = group_by(seen_monoid(), [pa.array([b"k"] * 3)], np.arange(3), seen_monoid().pack([(element, 1)] * 3), 1)
        assert step_effects._count(rows) == 3 * sum(last - first + 1 for first, last in element)


def test_numbers_that_interleave_are_not_mapped_again(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender whose messages are spread over partitions: no number is in two of them, though their bounds cross."""
    bench, items, results = mapped(storage, [[("a", 1), ("a", 3)], [("a", 2), ("a", 4)], [("b", 1), ("b", 2)]])
    monkeypatch.setattr(bench.engine, "map", lambda work, given: [work(item) for item in given if 1 / 0])
    assert set_apart(bench, items, results) == (items, results)


def test_a_split_after_one_that_overlaps_is_mapped_again_only_if_it_does(storage: Any) -> None:
    """Else one resent message would read the rest of the step twice."""
    bench, items, results = mapped(storage, [[("a", 1), ("a", 5)], [("a", 1), ("a", 2)], [("a", 3), ("a", 4)]])
    _, apart = set_apart(bench, items, results)
    assert fates(apart) == [(2, 0), (1, 1), (2, 0)] and apart[2] is results[2]


def test_runs_are_read_only_where_bounds_cross(storage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Senders that keep to one partition cost the driver no look at what they have sent."""
    bench, items, results = mapped(storage, [[("a", 1), ("a", 2)], [("a", 3), ("b", 1)]])
    monkeypatch.setattr(step_effects, "read_rows", None)
    assert set_apart(bench, items, results) == (items, results)


def test_a_copy_that_is_too_old_is_a_copy_of_an_earlier_split(storage: Any) -> None:
    """Its pane has expired, and a split by itself cannot judge it: it would be late on two workers, and a copy on
    one."""
    sent = [[("a", 1), ("a", 2)], [("a", 2, 50), ("a", 3)], [("a", 7, 50), ("b", 2, 50)]]
    bench, items, results = mapped(storage, sent, horizon=90)
    assert [one.account.late for one in results] == [0, 1, 2]
    _, apart = set_apart(bench, items, results)
    assert fates(apart) == [(2, 0), (1, 1), (0, 0)] and apart[2] is results[2]
    ids = [[("a", 1), ("b", 1)], [("c", 1, 50), ("c", 2)], [("b", 1, 50), ("c", 1, 50)]]
    bench, items, results = mapped(storage, ids, Dedupe.by_id(("origin", "n")), horizon=90)
    _, apart = set_apart(bench, items, results)
    assert fates(apart) == [(2, 0), (1, 0), (0, 1)] and apart[1] is results[1] and apart[2].account.late == 1


def test_a_number_used_again_in_one_split_is_no_witness_for_the_next(storage: Any) -> None:
    """The second split finds its record new and the youngest, until it knows the first. By then the third has taken it
    for the youngest too, and would find a copy where one worker finds another use."""
    bench, items, results = mapped(storage, [[("a", 5, 10)], [("a", 5, 100)], [("a", 5, 50)]])
    again, apart = set_apart(bench, items, results)
    assert [one.account.dead for one in apart] == [0, 1, 1] and fates(apart) == [(1, 0), (0, 0), (0, 0)]
    assert fates([bench.work(item) for item in again]) == fates(apart)  # type: ignore[misc]


SENT = st.lists(st.tuples(st.sampled_from("aab"), st.integers(0, 5), st.integers(0, 60)), min_size=2, max_size=24)


@pytest.mark.parametrize(
    "dedupe",
    [
        replace(BY_NUMBER, within=40),
        replace(BY_NUMBER, within=40, restamped=True),
        Dedupe.by_id(("origin", "n"), within=40),
        Dedupe.by_id(("origin", "n"), within=40, restamped=False),
    ],
    ids=repr,
)
@settings(max_examples=examples(12), deadline=None)
@example(sent=[("a", 1, 20), ("a", 2, 20), ("a", 9, 60), ("a", 4, 90), ("a", 2, 30), ("a", 1, 50)], steps=3)
@given(sent=SENT, steps=st.integers(1, 3))
def test_what_a_record_becomes_does_not_depend_on_the_workers(
    dedupe: Dedupe, sent: list[tuple[str, int, int]], steps: int
) -> None:
    """One worker reads a step as one split, and judges record by record. A run on more workers, or a rerun on fewer,
    must give the same account, the same state, and set the same records aside for the same reasons."""
    rows = [{"ts": 10 * step + ts, "origin": o, "n": n} for step, (o, n, ts) in enumerate(sent)]
    found = []
    for threads in (1, 3, len(rows)):
        source = MemorySource(rows, timestamp="ts", ordered=True)
        place = MemoryStorage(f"workers-{uuid.uuid4().hex}")
        options = {"dedupe": dedupe, "step_rows": -(-len(rows) // steps)}
        job = Pipeline(source=source, task=Visits(), checkpoint=place, **options)
        report = job.run(engine=Embedded(threads=threads))
        aside = [table.select(["offset", "reason", "checkpoint"]) for table in (job.late(), job.dead_letters())]
        account = report.ledger["memory"]
        found.append((account, [sorted(map(str, one.to_pylist())) for one in aside], job.state().to_pylist()))
        place.clear()
    assert all(one == found[0] for one in found)


def test_without_deduplication_nothing_is_done(storage: Any) -> None:
    """All jobs come by here."""
    bench, items, results = mapped(storage, [[("a", 1), ("a", 2)], [("a", 1), ("b", 1)]])
    plain = [replace(one, seen=None) for one in results]
    assert set_apart(bench, items, plain) == (items, plain)


def test_bounds_cross_wherever_one_begins_before_another_ends() -> None:
    """One long range over many short ones; ranges that only touch; equal hashes only."""

    def span(key: int, first: int, last: int) -> SeenSpan:
        none = np.array([0])
        return SeenSpan(np.array([key], np.uint64), np.array([first]), np.array([last]), none, none, none)

    assert shared_hashes([span(1, 1, 100), span(1, 200, 300), span(2, 1, 100), span(1, 50, 50)]).tolist() == [1]
    assert shared_hashes([span(1, 1, 4), span(1, 4, 9), span(2, 5, 6), span(2, 7, 8)]).tolist() == [1]
    ids = [SeenSpan.of_ids(np.array(hashes, np.uint64)) for hashes in ([1, 2, 3], [4], [3, 5, 4], [])]
    assert shared_hashes(ids).tolist() == [3, 4] and shared_hashes(ids[1:2]).tolist() == []
    assert shared_hashes([]).tolist() == shared_hashes([span(1, 1, 4)]).tolist() == []
