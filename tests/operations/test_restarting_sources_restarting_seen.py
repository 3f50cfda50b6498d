"""A job that recognises copies goes on as of a clock."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count
from persistent import Dedupe, NonWindowState, Refused
from persistent.operations import restart
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.few import examples
from tests.task.test_dedupe import BY_NUMBER, Visits, account, counted, pipeline, row, storage_of


class History(Visits):
    def persistent_state(self) -> Any:
        return NonWindowState(Count(), interval_ms=5, history="1 h")


@pytest.fixture
def url() -> Iterator[str]:
    yield from _url()


def _url() -> Iterator[str]:
    name = f"restarting-{uuid.uuid4().hex}"
    yield f"memory://{name}"
    MemoryStorage(name).clear()


@settings(max_examples=examples(20), deadline=None)
@given(
    sent=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 15), st.integers(0, 40)), min_size=8, max_size=50),
    step_rows=st.integers(1, 15),
    restamped=st.booleans(),
    random=st.randoms(use_true_random=False),
    clock=st.sampled_from([1_000, 1_020, 1_025, 1_050, 1_100]),
)
def test_a_job_that_goes_on_as_of_a_clock_judges_as_one_that_never_stopped(
    sent: list[tuple[str, int, int]], step_rows: int, restamped: bool, random: Random, clock: int
) -> None:
    """What was seen after the clock would swallow the records that are read again; what was seen before it, forgotten,
    would let their copies count. In another order, as a source that has moved may give them."""
    for url in _url():
        rows = [row(origin, n, 1_000 + 10 * n + (own if restamped else 0)) for origin, n, own in sent]
        rows += [row("c", 0, 1_450)]
        dedupe = replace(BY_NUMBER, within=400, restamped=restamped)
        options = {"task": History(), "dedupe": dedupe, "lag": "300 ms", "step_rows": step_rows}
        job = pipeline(url, rows, **options)
        job.run(engine="embedded")
        if restamped and clock % 100:
            with pytest.raises(Refused, match=r"kept in panes of 100 ms, and cannot be cut .* clock 1000 or 1100"):
                restart(job, clock, outputs="again")
            continue
        if restamped and clock < 1_100:
            with pytest.raises(Refused, match=r"what was seen before .*0\.700Z is forgotten .* clock 1100 or later"):
                restart(job, clock, outputs="again")
            continue
        restart(job, clock, outputs="again")
        before = [pair for pair, ts in _first(rows) if ts < clock]
        assert counted(job) == Counter(origin for origin, _ in before)
        again = random.sample(rows, len(rows)) if not restamped else rows
        moved = pipeline(url, again, **options)
        moved.run(engine="embedded")
        assert counted(moved) == Counter(origin for origin, _ in {pair for pair, _ in _first(rows)})
        assert verify(storage_of(url)).ok


def _first(rows: list[Any]) -> list[tuple[tuple[str, int], int]]:
    """Each (origin, number) with the timestamp of the record that has it first."""
    found: dict[tuple[str, int], int] = {}
    for one in rows:
        found.setdefault((one["origin"], one["n"]), one["ts"])
    return list(found.items())


@pytest.mark.parametrize("dedupe", [replace(BY_NUMBER, within=400, restamped=True), Dedupe.by_id("n", within=400)])
def test_a_copy_after_the_clock_of_a_restart_is_known_by_its_original_before_it(url: str, dedupe: Dedupe) -> None:
    """Both are read again: the original is in the state, and its copy must not count beside it."""
    rows = [row("a", 1, 1_090), row("a", 2, 1_099), row("a", 1, 1_110), row("a", 3, 1_120), row("a", 3, 1_210)]
    rows += [row("b", 9, 1_280)]
    options = {"task": History(), "dedupe": dedupe, "lag": "90 ms"}
    job = pipeline(url, rows, **options)
    job.run(engine="embedded")
    assert counted(job) == {"a": 3, "b": 1}
    restart(job, 1_100, outputs="again")
    assert counted(job) == {"a": 2}
    moved = pipeline(url, rows, **options)
    moved.run(engine="embedded")
    assert counted(moved) == {"a": 3, "b": 1}
    assert account(url) == {"read": 6, "processed": 2, "late": 0, "dead": 0, "duplicate": 4}
