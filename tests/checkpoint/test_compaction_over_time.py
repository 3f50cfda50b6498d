"""Compaction folds neighbours early and nothing else: the sum, and its order, stay what they were."""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import log
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monoids import Count
from persistent import (
    FileSource,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    tumbling,
)
from persistent.checkpoint import compaction
from persistent.checkpoint.compaction import FAN_IN, Merge, choose, choose_all, replaced, shards
from persistent.checkpoint.log import Log
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.driver.report import StepReport
from persistent.storage import LocalStorage, MemoryStorage, Storage
from persistent.verify.findings import sum_faults
from tests.few import examples, one_in

PROBES = (0, 1, 2, 3, 127, 300, 511, 512, 777, 1000, 1022, 1023)
"""The key groups that are looked at."""


@dataclass
class Fold:
    """Runs, and what each holds of the probed key groups: the numbers of the deltas, in order. Concatenation
    does not commute."""

    runs: tuple[Run, ...] = ()
    contents: dict[str, Mapping[int, tuple[int, ...]]] = field(default_factory=dict)
    names: int = 0

    def name(self) -> str:
        self.names += 1
        return f"d/V/{self.names}"

    def add(self, id: int, rows: int) -> None:
        """The delta of checkpoint ``id``."""
        run = Run(self.name(), rows, 1, "", 0, 0, KEY_GROUPS, 0, 0, id, id)
        self.contents[run.name] = dict.fromkeys(PROBES, (self.names,))
        self.runs += (run,)

    def apply(self, merge: Merge, keeps: float, keys: int) -> None:
        """Do what a merge says; ``keeps``: the part of its rows that have keys of their own; at most ``keys``
        remain."""
        width = merge.high - merge.low
        rows = sum(rows_between(run, merge.low, merge.high) for run in merge.inputs)
        kept = max(1, min(int(rows * keeps), keys * width // KEY_GROUPS))
        first, last = min(run.first for run in merge.inputs), max(run.last for run in merge.inputs)
        output = Run(self.name(), kept, 1, "", merge.low, merge.low, merge.high, 0, 0, first, last)
        self.contents[output.name] = {
            group: tuple(number for run in merge.inputs for number in self.of(run, group))
            for group in PROBES
            if merge.low <= group < merge.high
        }
        self.runs = replaced(self.runs, merge, output)

    def of(self, run: Run, group: int) -> tuple[int, ...]:
        return self.contents[run.name][group] if run.low <= group < run.high else ()

    def sums(self) -> list[tuple[int, ...]]:
        """The fold of all runs, group by group."""
        return [tuple(number for run in self.runs for number in self.of(run, group)) for group in PROBES]


def rows_between(run: Run, low: int, high: int) -> int:
    """About how many rows a run has in some key groups."""
    return run.rows_left * max(0, min(run.high, high) - max(run.low, low)) // (run.high - run.low)


def check_merge(runs: tuple[Run, ...], merge: Merge, delta_rows: int, published: int) -> None:
    """Neighbours only, whole, of a bounded size, on one side of what was published."""
    places = [runs.index(run) for run in merge.inputs]
    assert places == list(range(places[0], places[0] + len(places))), "not neighbours"
    assert 0 <= merge.low < merge.high <= KEY_GROUPS
    assert {run.first <= published for run in merge.inputs} != {True, False}, "mixes what was published"
    width = merge.high - merge.low
    rows = sum(rows_between(run, merge.low, merge.high) for run in merge.inputs)
    bound = max(compaction._ROWS_MIN, FAN_IN * delta_rows)
    # Twice: which rows are where in a run is estimated, as if they were spread evenly over its key groups.
    assert rows <= 2 * bound or width == 1, f"{rows} rows in one step, at most about {bound} expected"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small bounds, so that folds of a few thousand rows go on over several steps."""
    monkeypatch.setattr(compaction, "_ROWS_MIN", 1 << 10)
    monkeypatch.setattr(compaction, "_TIER_0_ROWS", 64)


steps = st.lists(
    st.tuples(st.lists(st.integers(1, 3000), min_size=0, max_size=4), st.floats(0.01, 1), st.integers(0, 9)),
    max_size=80,
)


@settings(deadline=None, max_examples=examples(150))
@given(steps)
def test_any_merges_keep_the_sum_and_its_order(steps: list[tuple[list[int], float, int]]) -> None:
    """I3 for monoids that do not commute: a run folded out of its place would answer "last" with what came first."""
    fold, published = Fold(), 0
    numbers: list[int] = []
    for id, (deltas, keeps, event) in enumerate(steps, start=1):
        for merge in choose_all(fold.runs, sum(deltas), published):
            check_merge(fold.runs, merge, sum(deltas), published)
            before = fold.sums()
            fold.apply(merge, keeps, 1 << 40)
            assert fold.sums() == before
        for rows in deltas:
            fold.add(id, rows)
            numbers.append(fold.names)
        if event == 0:
            published = id
        assert fold.sums() == [tuple(numbers)] * len(PROBES)
        for run in fold.runs:
            assert (run.first <= published) == (run.last <= published) or published == id
            assert 0 <= run.start <= run.low < run.high <= KEY_GROUPS


@pytest.mark.parametrize("splits", [1, 2, 7])
@pytest.mark.parametrize("keys", [50, 5_000, 1 << 40], ids=["few-keys", "many-keys", "new-keys"])
def test_the_number_of_runs_stays_small(keys: int, splits: int) -> None:
    """Runs that add up make every restart and every window slower, and the manifest larger, for ever."""
    fold, most, steps, rows = Fold(), 0, 1_000, 20
    for id in range(1, steps):
        for merge in choose_all(fold.runs, splits * rows):
            fold.apply(merge, 1.0, keys)
        for _ in range(splits):
            fold.add(id, rows)
        most = max(most, len(fold.runs))
    tiers = log(steps * splits * rows / compaction._TIER_0_ROWS, FAN_IN) + 2
    # While a large fold goes on, what is too large to be folded beside it waits.
    waiting = splits * FAN_IN // 2 * min(keys, steps * rows) / compaction._ROWS_MIN
    assert most <= (FAN_IN + splits) * tiers + waiting, f"{most} runs after {steps} steps"


def test_a_large_fold_goes_on_until_it_is_done() -> None:
    """Abandoned half-way, its inputs would be read twice as often as before, for ever."""
    fold = Fold()
    for id in range(1, 9):
        fold.add(id, 50_000)
    merges = []
    while merge := choose(fold.runs, 1):
        check_merge(fold.runs, merge, 1, 0)
        merges.append(merge)
        fold.apply(merge, 1.0, 1 << 40)
    assert [merge.low for merge in merges] == [0, *(merge.high for merge in merges[:-1])]
    assert merges[-1].high == KEY_GROUPS and len(merges) > 100
    assert {(run.first, run.last) for run in fold.runs} == {(1, 8)}
    assert fold.sums() == [tuple(range(1, 9))] * len(PROBES)


def test_a_merge_that_comes_to_nothing_leaves_nothing() -> None:
    """All its panes are closed: an empty run would be named, and read, for ever."""
    fold = Fold()
    for id in range(1, 9):
        fold.add(id, 2)
    merge = choose(fold.runs, 1)
    assert merge is not None and len(merge.inputs) == 8
    assert replaced(fold.runs, merge, None) == ()
    half = Merge(merge.inputs, 0, 512)
    left = replaced(fold.runs, half, None)
    assert [run.low for run in left] == [512] * 8
    # What is left of the inputs goes on to be folded where it stopped.
    rest = choose(left, 1)
    assert rest is not None and (rest.low, rest.high, rest.inputs) == (512, KEY_GROUPS, left)


def test_a_fold_goes_on_to_pieces_after_one_that_came_to_nothing() -> None:
    """Left behind, they would be folded with later deltas, and a sound checkpoint be called damaged."""
    made = Run("made", 100, 1, "", 0, 0, 500, 0, 0, 1, 5)
    delta = Run("delta", 100, 1, "", 0, 500, KEY_GROUPS, 0, 0, 1, 1)
    # The sum of the deltas 2 to 5, of which [500, 700) was empty, and [0, 500) is in what was made.
    piece = Run("piece", 100, 1, "", 700, 700, KEY_GROUPS, 0, 0, 2, 5)
    later = tuple(Run(f"later{id}", 1, 1, "", 0, 0, KEY_GROUPS, 0, 0, id, id) for id in range(6, 14))
    merge = choose((made, delta, piece, *later), 1)
    assert merge == Merge((delta, piece), 500, KEY_GROUPS)
    rest = Run("rest", 100, 1, "", 500, 500, KEY_GROUPS, 0, 0, 1, 5)
    assert replaced((made, delta, piece, *later), merge, rest) == (made, rest, *later)


def test_no_fold_has_too_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long keys of many rows fill a column of text, and the job could never be run again."""
    monkeypatch.setattr(compaction, "_BYTES_MAX", 1000)
    fold = Fold()
    for id in range(1, 9):
        fold.add(id, 2)
    fold.runs = tuple(replace(run, bytes=500) for run in fold.runs)
    merges = choose_all(fold.runs, 1)
    assert [merge.low for merge in merges] == [0, 256, 512, 768]
    before = fold.sums()
    for merge in merges:
        assert sum(run.bytes * (merge.high - merge.low) // KEY_GROUPS for run in merge.inputs) <= 1000
        fold.apply(merge, 1.0, 1 << 40)
    assert fold.sums() == before
    assert [(run.first, run.last, run.low, run.high) for run in fold.runs] == [
        (1, 8, merge.low, merge.high) for merge in merges
    ]


def test_any_merges_in_pieces_keep_the_sum_and_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece that finds its place taken by the one before would lose the deltas it sums."""
    monkeypatch.setattr(compaction, "_BYTES_MAX", 40)
    pieces = 0
    for seed in range(20):
        rng, fold, numbers = random.Random(seed), Fold(), []
        for id in range(1, 120):
            merges = choose_all(fold.runs, 1)
            pieces += len(merges)
            for merge in merges:
                fold.apply(merge, 1.0, 1 << 40)
            fold.runs = tuple(replace(run, bytes=max(1, run.rows // 20)) for run in fold.runs)
            fold.add(id, rng.randrange(1, 500))
            numbers.append(fold.names)
            assert fold.sums() == [tuple(numbers)] * len(PROBES)
            assert list(sum_faults(fold.runs, id)) == []
    assert pieces > 1_000


def test_shards_are_bounded_by_the_bytes_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing by rows alone would put more text into one column than fits; panes not closed must not count."""
    monkeypatch.setattr(compaction, "_BYTES_MAX", 1000)
    runs = [
        Run("r", 1, 3000, "", 0, 0, KEY_GROUPS, 0, 99, 1, 1),
        Run("s", 1, 2000, "", 0, 512, KEY_GROUPS, 0, 99, 2, 2),
    ]
    assert len(shards(runs)) == 4
    assert shards(runs, panes=(0, 25)) == [(0, KEY_GROUPS)]
    assert shards(runs, 2, panes=(50, 1 << 40)) == [(0, 512), (512, KEY_GROUPS)]
    assert shards(runs, panes=(100, 200)) == shards(runs, panes=(-9, 0)) == shards([]) == [(0, KEY_GROUPS)]
    assert [low for low, _ in shards(runs)] == [0, 256, 512, 768]


def test_what_was_published_is_not_mixed() -> None:
    """The next end of input publishes the keys updated since the last: in a mixed run they could not be told apart."""
    fold = Fold()
    for id in range(1, 13):
        fold.add(id, 2)
    assert choose(fold.runs, 2, published=6) is None
    merge = choose(fold.runs, 2, published=9)
    assert merge is not None and [run.first for run in merge.inputs] == list(range(1, 10))


# -- whole runs -------------------------------------------------------------------------------------------------------


class Visits(PersistentTask):
    """A count for every user: every key in its own time, so that the state grows."""

    key = "user"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class VisitsByTime(Visits):
    """The same, by windows that close all the time."""

    def persistent_state(self) -> WindowState:
        return WindowState(Count(), tumbling(50))


def all_files(storage: Storage, task: type[PersistentTask], kind: str) -> int:
    """Files in the folders that are collected, and FORMAT."""
    return sum(len(storage.list(folder)) for folder in ("", "m", "p", f"d/{task.__name__}", f"d/{kind}"))


@pytest.mark.parametrize("task", one_in(2, [Visits, VisitsByTime]))
def test_four_hundred_steps_leave_few_files(task: type[PersistentTask]) -> None:
    """A job that runs for a year must not fill its folder, nor slow down with age."""
    storage = MemoryStorage(uuid.uuid4().hex)
    rows = [{"ts": number, "user": f"u{number * number % 997}"} for number in range(2_000)]
    reports: list[StepReport] = []
    most = 0

    def look(report: StepReport) -> None:
        nonlocal most
        reports.append(report)
        most = max(most, all_files(storage, task, "MemorySource"))

    pipeline = Pipeline(source=MemorySource(rows), task=task(), sink=MemorySink(), checkpoint=storage, step_rows=5)
    pipeline.run(engine="embedded", on_step=look)
    assert len(reports) >= 400
    assert most <= 200, f"{most} files"
    assert max(report.manifest_bytes for report in reports) <= 64 << 10
    newest = Log(storage).newest()
    assert newest is not None and len(newest.manifest.state_runs()) <= 32
    assert sum(pipeline.state()["value"].to_pylist()) == (2_000 if task is Visits else 50)


@pytest.mark.check
def test_many_small_input_files_leave_few_files(tmp_path: Path) -> None:
    """The listing of the source is state too: one file for each step would be 10,000 files."""
    for number in range(300):
        (tmp_path / f"{number:05d}.jsonl").write_text(f'{{"ts": {number}, "user": "u{number % 7}"}}\n')
    storage = LocalStorage(tmp_path / "checkpoint")
    source = FileSource(os.fspath(tmp_path / "*.jsonl"), timestamp="ts", timestamp_unit="ms")
    pipeline = Pipeline(source=source, task=Visits(), checkpoint=storage, step_rows=3)
    reports: list[StepReport] = []
    pipeline.run(engine="embedded", on_step=reports.append)
    assert len(reports) >= 100
    assert all_files(storage, Visits, "FileSource") <= 200
    assert max(report.manifest_bytes for report in reports) <= 64 << 10
    assert sum(pipeline.state()["value"].to_pylist()) == 300
