"""Options change between runs: every option has a class, and what the class promises holds."""

from __future__ import annotations

import inspect
import uuid
from pathlib import Path
from typing import Any

import pytest

import persistent
from monoids import Sum
from persistent import (
    FileSink,
    FileSource,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Retention,
    WindowState,
    tumbling,
)
from persistent.connect.sink import BatchSink, Sink, StagingSink
from persistent.connect.source import Source
from persistent.driver.changes import OPTIONS, OnChange, options_text
from persistent.errors import InvalidPipeline, SinkMismatch, UnknownCheckpoint
from persistent.state.state import PersistentState
from persistent.storage import MemoryStorage
from persistent.testing.faults import FaultyStorage, Killed, Operations

ROOT = Path(__file__).parents[2]


class Totals(PersistentTask):
    """Sums of "n"."""

    key = ()

    def __init__(self, state: Any) -> None:
        self.state = state

    def persistent_state(self) -> Any:
        return self.state

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["n"])


WINDOWS = WindowState(Sum(), tumbling(10))
ROWS = [{"ts": ts, "other": 3, "n": 1} for ts in (5, 25, 14, 31)]


def name() -> str:
    return f"changes-{uuid.uuid4().hex}"


def pipeline(checkpoint: Any, rows: Any = ROWS, state: Any = WINDOWS, **options: Any) -> Pipeline:
    given = {name: options.pop(name) for name in ("timestamp", "max_out_of_orderness") if name in options}
    source = options.pop("source", None) or MemorySource(rows, ordered=True, **given)
    options = {"discard_closed": "sink" not in options, "step_rows": 2, **options}
    return Pipeline(source=source, task=Totals(state), checkpoint=checkpoint, **options)


def killed_after_a_plan(url: str, number: int, **options: Any) -> None:
    """A run that dies just after it has put its plan of that number."""
    operations = Operations()
    storage = FaultyStorage(MemoryStorage(url), operations)
    begin, plans = operations.begin, 0

    def at_a_plan(verb: str, place: str, file: str) -> bool:
        nonlocal plans
        if verb == "put_if_absent" and file.startswith("p/"):
            plans += 1
            if plans == number:
                operations.at, operations.how = operations.count, "after"
        return begin(verb, place, file)

    operations.begin = at_a_plan  # type: ignore[method-assign]
    with pytest.raises(Killed):
        pipeline(storage, **options).run(engine="embedded")


def files(url: str) -> dict[str, bytes]:
    storage = MemoryStorage(url)
    return {name: bytes(data) for name, data in storage._files.items()}


def test_a_planned_step_has_the_limit_of_the_run_that_commits_it() -> None:
    """A limit that was corrected after an error would leave the job at the same error."""
    url = name()
    far = [{"ts": 3 * 86_400_000 + (1 << 41), "n": 1}, {"ts": 5, "n": 1}, {"ts": 9 * 86_400_000 + (1 << 41), "n": 1}]
    killed_after_a_plan(url, 1, rows=far, max_future="36500 days")
    after = pipeline(f"memory://{url}", far, max_future="1 day")
    assert (after.run(engine="embedded").rows, after.dead_letters().num_rows) == (3, 2)


def test_a_planned_step_has_the_disorder_of_the_run_that_commits_it() -> None:
    """The clock would pass what the corrected option waits for, and never go back."""
    url = name()
    killed_after_a_plan(url, 1)
    after = pipeline(f"memory://{url}", max_out_of_orderness=20)
    after.run(engine="embedded")
    assert after.late().num_rows == 0


def test_a_plan_is_not_run_by_another_timestamp() -> None:
    """It was checked when a step was planned; one that had been planned was counted by the other time, silently."""
    url = name()
    killed_after_a_plan(url, 2)
    before = files(url)
    with pytest.raises(InvalidPipeline, match=r"timestamp='other': .* timestamp='ts'"):
        pipeline(f"memory://{url}", timestamp="other").run(engine="embedded")
    assert files(url) == before
    assert pipeline(f"memory://{url}").run(engine="embedded").clock_ms == 31


def test_a_plan_of_files_is_refused_before_anything_is_written(tmp_path: Any) -> None:
    """A run that is refused would fence off one that goes on, and begin the planned step once more."""
    (tmp_path / "a.jsonl").write_text('{"ts": 5, "other": 3, "n": 1}\n' * 3)
    url = name()
    of = {"path": tmp_path / "a.jsonl", "timestamp_unit": "ms"}
    killed_after_a_plan(url, 2, source=FileSource(timestamp="ts", **of))
    before = files(url)
    with pytest.raises(InvalidPipeline, match=r"timestamp='other': .* timestamp='ts'"):
        pipeline(f"memory://{url}", source=FileSource(timestamp="other", **of)).run(engine="embedded")
    assert files(url) == before


def test_another_timestamp_is_refused_where_nothing_is_new() -> None:
    """It would be taken once, and refused by the next record."""
    url = f"memory://{name()}"
    pipeline(url).run(engine="embedded")
    with pytest.raises(InvalidPipeline, match="timestamp='other'"):
        pipeline(url, timestamp="other").run(engine="embedded")


def test_a_longer_history_does_not_make_known_what_was_folded() -> None:
    """The state as of a clock would hold what came after it: sums of panes that were apart no more."""
    url = f"memory://{name()}"
    rows = [{"ts": 10 * number, "n": 1} for number in range(1, 31)]
    keep: Any = {"retention": Retention(last=1), "step_rows": 1}
    short, long = NonWindowState(Sum(), interval_ms=10, history=20), NonWindowState(Sum(), interval_ms=10, history=200)
    pipeline(url, rows[:20], short, **keep).run(engine="embedded")
    grown = pipeline(url, rows, long, **keep)
    with pytest.raises(UnknownCheckpoint):
        grown.state(as_of=100)
    grown.run(engine="embedded")
    for clock in range(0, 310, 10):
        try:
            (row,) = grown.state(as_of=clock).to_pylist()
        except UnknownCheckpoint:
            continue
        assert row["value"] == sum(row["ts"] < clock for row in rows), clock
    assert grown.state(as_of=200).to_pylist() == [{"value": 19}]


def test_a_folder_without_what_was_published_is_refused(tmp_path: Any) -> None:
    """Results would lie in two folders, and no reader of either know of the other."""
    url = f"memory://{name()}"
    pipeline(url, sink=FileSink(tmp_path / "a")).run(engine="embedded", end_of_input=True)
    rows = [*ROWS, {"ts": 95, "n": 1}]
    with pytest.raises(SinkMismatch, match=r"b.* has none of the outputs of job .*_published"):
        pipeline(url, rows, sink=FileSink(tmp_path / "b")).run(engine="embedded", end_of_input=True)
    assert not (tmp_path / "b").exists()
    (tmp_path / "a").rename(tmp_path / "b")
    done = pipeline(url, rows, sink=FileSink(tmp_path / "b")).run(engine="embedded", end_of_input=True)
    assert done.outputs == 1


# -- the table ---------------------------------------------------------------------------------------------------


def parameters(of: str) -> list[str]:
    taken: Any = persistent
    for part in of.split("."):
        taken = getattr(taken, part)
    return [name for name in inspect.signature(taken).parameters if name != "self"]


OWNERS = sorted({option.of for option in OPTIONS})


@pytest.mark.parametrize("of", OWNERS)
def test_every_option_has_a_class(of: str) -> None:
    """An option that nobody has thought about is one that silently changes results."""
    assert [option.name for option in OPTIONS if option.of == of] == parameters(of)


def test_everything_that_a_pipeline_is_made_of_is_in_the_table() -> None:
    """A new source, sink or state would come with options that the table does not have."""
    for public in persistent.__all__:
        thing = getattr(persistent, public)
        assert not is_part(thing) or public in OWNERS or not parameters(public), public


def is_part(thing: Any) -> bool:
    """Whether it is a source, a sink or a state, or makes a window."""
    if inspect.isfunction(thing):
        return bool(inspect.signature(thing).return_annotation == "Window")
    contracts = PersistentState, Source, Sink, StagingSink, BatchSink
    return inspect.isclass(thing) and issubclass(thing, contracts) and thing not in contracts


def test_a_source_is_known_by_what_it_subclasses() -> None:
    """One that was exported without a row, and no test said so."""

    class Queue(Source):
        """A source like any other."""

    assert is_part(Queue) and is_part(FileSource) and is_part(MemorySource) and is_part(FileSink)
    assert is_part(persistent.MemorySink) and is_part(persistent.SqliteSink)
    assert is_part(tumbling) and not is_part(PersistentTask)


def test_the_page_is_the_table() -> None:
    """What is read is the page; what is checked is the table."""
    page = (ROOT / "docs" / "options.md").read_text()
    assert options_text() in page
    assert all(f"- **{effect.value}**" in page for effect in OnChange)
    assert "docs/options.md" in (ROOT / "README.md").read_text()
