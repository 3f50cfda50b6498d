"""A job that goes on as of a clock ends where its twin does, which never ran past it."""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Sum
from persistent import (
    FileSource,
    MemorySource,
    NonWindowState,
    Pipeline,
    RabbitQueueSource,
    Refused,
    Retention,
    TopicSource,
    WindowState,
    tumbling,
)
from persistent.errors import UnknownCheckpoint
from persistent.log import SegmentedLog
from persistent.operations import restart
from persistent.operations.restarting_sources import check_begins_again
from persistent.state.state import PersistentState
from tests.few import examples
from tests.histories import Totals, shown, totals

Rows = list[dict[str, Any]]
LONG = NonWindowState(Sum(), interval_ms=10, history="1 day")
HOUR = WindowState(Sum(), tumbling("1 h"), interval_ms=10)
TIMES = st.lists(st.integers(0, 200), min_size=1, max_size=20)


def rows_of(times: list[int]) -> Rows:
    """Each row is a bit of its own in the sum, so that none makes up for another."""
    return [{"ts": ts, "page": "ab"[number % 2], "n": 1 << number} for number, ts in enumerate(times)]


class Job:
    """A job over sources that grow and join, with small steps."""

    def __init__(self, state: PersistentState) -> None:
        self.state, self.url = state, f"memory://{uuid.uuid4().hex}"

    def of(self, **sources: Rows) -> Pipeline:
        return Pipeline(
            source={name: MemorySource(rows, timestamp="ts") for name, rows in sources.items()},
            task=Totals(self.state),
            checkpoint=self.url,
            step_rows=3,
            retention=Retention(last=1_000),
            discard_closed=True,
        )

    def run(self, ends: bool = False, **sources: Rows) -> None:
        self.of(**sources).run(engine="embedded", end_of_input=ends)


@pytest.mark.parametrize("state", [LONG, HOUR], ids=["without windows", "one window"])
@settings(max_examples=examples(30))
@given(a=TIMES, b=TIMES, first=st.integers(1, 20), clocks=st.lists(st.integers(0, 20), min_size=1, max_size=4))
def test_a_job_that_went_back_counts_what_came_out_of_order_or_of_a_source_that_joined(
    state: PersistentState, a: list[int], b: list[int], first: int, clocks: list[int]
) -> None:
    """The oldest checkpoint that knows the clock lacks them, and as they are before the clock, they would be passed
    over when they are read again."""
    job, one, other = Job(state), rows_of(a), rows_of(b)
    job.run(a=one[:first])
    job.run(a=one, b=other)
    job.run(ends=state.window is None, a=one, b=other)
    every = [*one, *other]
    for clock in (10 * clock for clock in clocks):
        try:
            held = shown(job.of(a=one, b=other).state(as_of=clock))
        except UnknownCheckpoint:
            continue
        assert held == totals(row for row in every if row["ts"] < clock)
        with suppress(Refused):
            restart(job.of(a=one, b=other), clock, outputs="again")
            job.run(a=one, b=other)
            job.run(ends=state.window is None, a=one, b=other)
        assert shown(job.of(a=one, b=other).state()) == totals(every)


@pytest.mark.parametrize("state", [LONG, HOUR], ids=["without windows", "one window"])
@settings(max_examples=examples(30))
@given(a=TIMES, b=TIMES, first=st.integers(1, 20), read=st.integers(1, 20), which=st.integers(0, 20))
def test_a_source_that_lags_loses_nothing(
    state: PersistentState, a: list[int], b: list[int], first: int, read: int, which: int
) -> None:
    """The clock does not go back for a source that joins: what of it is before the clock, and not read yet, would be
    taken for what was read. In the order of time, as the sources promise."""
    job, one, other = Job(state), rows_of(sorted(a)), rows_of(sorted(b))
    job.run(a=one[:first])
    job.run(a=one, b=other[:read])
    with suppress(UnknownCheckpoint, Refused):
        restart(job.of(a=one, b=other), 10 * which, outputs="again")
    job.run(a=one, b=other)
    assert shown(job.of(a=one, b=other).state()) == totals([*one, *other])


def test_a_source_that_lags_is_refused_until_it_has_come_to_the_clock() -> None:
    """Whoever goes back must learn which source holds the clock up, and what to do."""
    job, one, other = Job(LONG), rows_of([0, 100]), rows_of([0, 10, 20, 100])
    job.run(a=one)
    job.run(a=one, b=other[:3])
    with pytest.raises(Refused, match=r"the source 'b' has been read up to 1970-01-01 00:00:00\.020Z in checkpoint"):
        restart(job.of(a=one, b=other), 50, outputs="again")
    restart(job.of(a=one, b=other), 20, outputs="again")
    job.run(a=one, b=other)
    restart(job.of(a=one, b=other), 50, outputs="again")
    job.run(a=one, b=other)
    assert shown(job.of(a=one, b=other).state()) == totals([*one, *other])


def test_a_source_of_which_nothing_was_read_is_read_whole() -> None:
    """Its records before the clock are in no state."""
    job, one, other = Job(LONG), rows_of([0, 100]), rows_of([10, 20, 100])
    job.run(a=one)
    restart(job.of(a=one, b=other), 50, outputs="again")
    job.run(a=one, b=other)
    assert shown(job.of(a=one, b=other).state()) == totals([*one, *other])


def test_files_that_are_not_read_may_be_from_before_the_clock(tmp_path: Path) -> None:
    """The clock was past them when their source joined: they would be passed over as read."""
    for name, times in {"a/1": [100, 200], "b/1": [150], "b/2": [5, 160]}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        rows = [json.dumps({"ts": ts, "page": name[0], "n": 1}) for ts in times]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))

    def of(*names: str) -> Pipeline:
        where = {name: f"{tmp_path}/{name}/*.jsonl" for name in names}
        sources = {name: FileSource(path, timestamp="ts", timestamp_unit="ms") for name, path in where.items()}
        return Pipeline(source=sources, task=Totals(LONG), checkpoint=tmp_path / "checkpoint", step_rows=1)

    def stop(report: Any) -> None:
        raise KeyboardInterrupt

    of("a").run(engine="embedded")
    with suppress(KeyboardInterrupt):
        of("a", "b").run(engine="embedded", on_step=stop)
    with pytest.raises(Refused, match=r"'b' has files in checkpoint \d+ that are not read"):
        restart(of("a", "b"), 50, outputs="again", take_over=True)
    of("a", "b").run(engine="embedded")
    restart(of("a", "b"), 50, outputs="again", take_over=True)
    of("a", "b").run(engine="embedded")
    assert shown(of("a", "b").state()) == {"a": 2, "b": 3}


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_journal_can_only_be_gone_back_in_to_a_checkpoint(kind: str, tmp_path: Path) -> None:
    """It begins where the last checkpoint ends, and the record of what was acknowledged would be forgotten."""
    log = SegmentedLog(tmp_path / "journal")
    source: Any = TopicSource("127.0.0.1:1", "t", journal=log)
    if kind == "queue":
        source = RabbitQueueSource("amqp://localhost", "q", journal=log)
    before = Pipeline(source=MemorySource([{"ts": 1}], timestamp="ts"), task=Totals(LONG), checkpoint=tmp_path / "c")
    job = replace(before.job(), sources={"x": source})
    with pytest.raises(Refused, match=r"'x', .*Source\(.*reads a journal.*persistent rollback"):
        check_begins_again(job)
