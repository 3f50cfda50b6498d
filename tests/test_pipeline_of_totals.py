"""Totals over all time: a state without windows, in jobs, against a plain sum."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count, Monoid, Sum, record
from persistent import (
    FileSink,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    SqliteSink,
)
from persistent.checkpoint.log import Log
from persistent.operations import rollback
from persistent.reading import diff, place
from persistent.testing import verify_task
from persistent.tools.cli import main
from persistent.verify import verify
from tests.few import examples

Rows = Sequence[dict[str, Any]]
COLUMNS = ["page", "n", "sum", "revision", "retracted"]


class Totals(PersistentTask):
    """Totals per page."""

    key = "page"

    def __init__(self, monoid: Monoid[Any] | None = None) -> None:
        self.monoid = monoid or record(n=Count(), sum=Sum())

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(self.monoid)

    def process_message(self, state: Any, message: Any) -> None:
        value = message.value["x"]
        state.update(message.timestamp, {"n": 1, "sum": value} if len(self.monoid.output_fields()) > 1 else value)


def pipeline(given: Rows, checkpoint: Any, sink: Any = None, task: Any = None, **options: Any) -> Pipeline:
    source = MemorySource(given, timestamp="ts", ordered=True)
    return Pipeline(source=source, task=task or Totals(), sink=sink, checkpoint=checkpoint, **options)


def run(given: Rows, checkpoint: Any, sink: Any = None, *, end: bool = False, **options: Any) -> Any:
    return pipeline(given, checkpoint, sink, **options).run(engine="embedded", end_of_input=end)


def summed(given: Rows) -> dict[str, tuple[int, int]]:
    counts, sums = Counter(row["page"] for row in given), Counter[str]()
    for row in given:
        sums[row["page"]] += row["x"]
    return {page: (counts[page], sums[page]) for page in counts}


def newest(rows: Sequence[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """The rows of the largest revision, which readers use."""
    found = {row["page"]: row for row in sorted(rows, key=lambda row: int(row["revision"]))}
    return {page: (row["n"], row["sum"]) for page, row in found.items()}


A = [{"ts": 1_000, "page": "a", "x": 1}, {"ts": 90_000_000, "page": "b", "x": 2}]
# Older than all that was read: nothing is late.
MORE = [*A, {"ts": 5, "page": "a", "x": 10}, {"ts": 6, "page": "c", "x": 100}]

streams = st.lists(
    st.builds(
        lambda ts, page, x: {"ts": ts, "page": page, "x": x},
        st.integers(0, 1 << 40),
        st.sampled_from("abcd"),
        st.integers(-9, 9),
    ),
    min_size=1,
    max_size=30,
)


@given(streams, st.integers(1, 9), st.lists(st.booleans(), min_size=1, max_size=4))
@settings(max_examples=examples(15), deadline=None)
def test_what_is_published_is_a_plain_sum(given: Rows, step_rows: int, ends: list[bool]) -> None:
    """A row that is older than others would be missing, or one count twice after a restart."""
    sink, where = MemorySink(), f"memory://totals-{uuid4().hex}"
    for number, end in enumerate(ends, 1):
        part = given[: -(-len(given) * number // len(ends))]
        before = len(sink.rows())
        report = run(part, where, sink, end=end, step_rows=step_rows)
        assert (report.late, report.open_windows) == (0, 0) and (end or len(sink.rows()) == before)
        if end:
            assert newest(sink.rows()) == summed(part)
    job = pipeline(given, where, sink)
    shown = job.state().to_pylist()
    assert {row["page"]: (row["n"], row["sum"]) for row in shown} == summed(given)
    assert verify(job.storage).ok


def test_an_end_of_input_publishes_the_keys_that_changed(tmp_path: Path) -> None:
    """Each end would publish millions of keys again, or not the one that changed."""
    sink = FileSink(str(tmp_path / "out"), format="jsonl")
    where = str(tmp_path / "job")
    run(A, where, sink, end=True)
    first = lines(tmp_path / "out")
    assert sorted(row["page"] for row in first) == ["a", "b"] and list(first[0]) == COLUMNS
    assert run(A, where, sink, end=True).steps == 0
    report = run(MORE, where, sink)
    assert report.outputs == 0 and "published at the end of the input" in report.unpublished
    assert run(MORE, where, sink, end=True).outputs == 2
    later = [row for row in lines(tmp_path / "out") if row not in first]
    assert {row["page"]: row["sum"] for row in later} == {"a": 11, "c": 100}
    assert min(row["revision"] for row in later) > max(row["revision"] for row in first)
    assert newest([*first, *later]) == summed(MORE)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def test_the_clock_does_not_wait_for_totals() -> None:
    """The end of all time would be the clock, and all later rows late."""
    job = pipeline(A, "memory://totals-clock", MemorySink())
    report = job.run(engine="embedded", end_of_input=True)
    entry = Log(job.storage).newest()
    assert entry is not None and (report.clock_ms, entry.manifest.clock.closed) == (90_000_000, 90_000_000)


def test_a_sink_that_joins_gets_every_key_and_a_rollback_publishes_again() -> None:
    """It would lack what had been published to the others."""
    one, two, where = MemorySink(), MemorySink(), "memory://totals-joins"
    run(A, where, {"one": one}, end=True)
    run(A, where, {"one": one, "two": two}, end=True)
    assert newest(two.rows()) == newest(one.rows()) == summed(A)
    storage = pipeline(A, where, {"one": one}).storage
    newest_id = Log(storage).ids()[-1]
    rollback(storage, 0, outputs="again")
    assert Log(storage).ids()[-1] > newest_id
    run(MORE, where, {"one": one, "two": two}, end=True)
    assert newest(two.rows()) == newest(one.rows()) == summed(MORE)


def test_a_table_is_replaced_by_key(tmp_path: Path) -> None:
    """Each revision would add a row to the table."""
    import sqlite3

    for part in (A, MORE):
        sink = SqliteSink(str(tmp_path / "t.db"), "totals", mode="upsert")
        run(part, str(tmp_path / "job"), sink, end=True)
    found = sqlite3.connect(tmp_path / "t.db").execute("select page, n, sum from totals order by 1")
    assert found.fetchall() == [("a", 2, 11), ("b", 1, 2), ("c", 1, 100)]


def test_it_needs_no_sink_and_no_commutative_monoid() -> None:
    """A running total would be refused because its windows closed nowhere, or were folded pane by pane."""
    given = [{"ts": ts, "page": "a", "x": x} for ts, x in ((50, 1), (10, 2), (30, 3))]
    job = pipeline(given, "memory://totals-last", task=Totals(monoid=Joined()), step_rows=1)
    job.run(engine="embedded", end_of_input=True)
    assert job.state()["value"].to_pylist() == ["123"]


class Joined(Monoid[str]):
    """Texts one after the other: it does not commute."""

    identity = ""
    output_type = pa.string()

    def lift(self, value: Any) -> str:
        return str(value)

    def combine(self, a: str, b: str) -> str:
        return a + b


def test_columns_of_one_name_are_refused() -> None:
    """The revision of a row would be its field of that name, and the largest one win."""
    for name in ("revision",):
        with pytest.raises(InvalidPipeline, match=f"two columns named '{name}'"):
            pipeline(A, "memory://totals-names", task=Totals(monoid=record(**{name: Count(), "n": Count()})))


def test_two_checkpoints_are_compared() -> None:
    """A key would be taken for another because it has no window."""
    job = pipeline(MORE, "memory://totals-diff", MemorySink(), step_rows=2)
    job.run(engine="embedded")
    first, last = place(job.storage, 2), place(job.storage)
    found = diff(first, last, pipeline=job)
    assert found.rows is not None
    rows = {row["page"]: row for row in found.rows.to_pylist()}
    assert {page: row["change"] for page, row in rows.items()} == {"a": "changed", "c": "added"}
    assert (rows["a"]["sum before"], rows["a"]["sum after"], found.equal) == (1, 11, 1)


def test_the_kit_for_tasks_knows_it() -> None:
    """Its rows would have a window of no length, at no time."""
    verify_task(lambda: Totals(), MORE, expected={"a": {"n": 2}, "b": {"n": 1}, "c": {"sum": 100}}, elsewhere=False)
    with pytest.raises(AssertionError, match="key: page='b'"):
        verify_task(lambda: Totals(), A, expected={"a": {"n": 1}, "b": {"n": 7}}, elsewhere=False)


def test_the_commands_show_it(tmp_path: Path) -> None:
    """Whoever asks for a window of it would be given a traceback."""
    (tmp_path / "job.py").write_text(
        "from persistent import *\nfrom monoids import Count\n"
        "class Totals(PersistentTask):\n    key = 'page'\n"
        "    def persistent_state(self): return NonWindowState(Count())\n"
        "    def process_message(self, state, message): state.update(message.timestamp, 1)\n"
        f"job = Pipeline(source=MemorySource({A!r}, timestamp='ts'), task=Totals(), sink=MemorySink(), "
        f"checkpoint={str(tmp_path / 'job')!r})\n"
    )
    name = f"{tmp_path / 'job.py'}:job"

    def said(*arguments: str) -> str:
        return CliRunner().invoke(main, arguments).output

    said("run", name, "--engine", "embedded")
    assert "this state has no windows" in said("state", name, "--window", "2024-01-01T00:00Z")
