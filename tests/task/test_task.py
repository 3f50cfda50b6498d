"""A task: what it may be, and what a checkpoint knows of it."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from monoids import Count, Monoid, Sum
from persistent import (
    CorruptCheckpoint,
    FingerprintChanged,
    InvalidPipeline,
    MemorySource,
    Message,
    NonWindowState,
    OtherJob,
    PersistentTask,
    Pipeline,
    State,
    WindowState,
    sliding,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep

ROWS = [{"ts": n, "page": "abc"[n % 3]} for n in range(9)]


class Visits(PersistentTask):
    """Messages per page."""

    key: Any = "page"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: State, message: Message) -> None:
        state.update(message.timestamp, 1)


def pipeline_of(task: PersistentTask, rows: Any = ROWS, checkpoint: str = "", **options: Any) -> Pipeline:
    url = checkpoint or f"memory://{uuid.uuid4().hex}"
    source = MemorySource(rows, timestamp="ts")
    return Pipeline(source=source, task=task, checkpoint=url, discard_closed=True, **options)


def counted(task: PersistentTask, rows: Any = ROWS, **options: Any) -> dict[Any, int]:
    pipeline = pipeline_of(task, rows, **options)
    pipeline.run(engine="embedded")
    return {row[pipeline.task.key]: row["value"] for row in pipeline.state().to_pylist()}


def test_a_process_message_that_yields_or_returns_is_refused() -> None:
    """A generator's body would never run: every message counted as processed, none in the state."""

    class Yields(Visits):
        def process_message(self, state: State, message: Message) -> Any:
            yield state.update(message.timestamp, 1)

    class Returns(Visits):
        def process_message(self, state: State, message: Message) -> Any:
            return {"page": message.key}

    with pytest.raises(InvalidPipeline, match="yields"):
        pipeline_of(Yields())
    with pytest.raises(Exception, match="returned something"):
        counted(Returns())


def test_what_no_manifest_can_hold_is_refused_at_once() -> None:
    """The run would die in its first step, without a sentence that helps."""

    class Rate(Monoid[int]):
        identity = 0

        def combine(self, a: int, b: int) -> int:
            return a + b

        def parameters(self) -> dict[str, Any]:
            return {"rate": 0.5}

    class Rates(Visits):
        def persistent_state(self) -> NonWindowState:
            return NonWindowState(Rate())

    class Named(Visits):
        name = "über/alles"

    with pytest.raises(InvalidPipeline, match="text and integers"):
        pipeline_of(Rates())
    with pytest.raises(InvalidPipeline, match="plain name"):
        pipeline_of(Named())


def test_a_tuple_among_the_parameters_is_no_other_monoid() -> None:
    """JSON knows lists only: the second run would be refused, with old and new printed alike."""

    class Between(Monoid[int]):
        identity = 0

        def combine(self, a: int, b: int) -> int:
            return a + b

        def parameters(self) -> dict[str, Any]:
            return {"bounds": (1, 2)}

    class Task(Visits):
        def persistent_state(self) -> NonWindowState:
            return NonWindowState(Between())

    url = f"memory://{uuid.uuid4().hex}"
    pipeline_of(Task(), checkpoint=url).run(engine="embedded")
    assert pipeline_of(Task(), checkpoint=url).run(engine="embedded").steps == 0


def test_before_the_first_checkpoint_a_changed_task_just_runs() -> None:
    """A new user whose first attempt failed would be told to put the task back as it was."""

    class Fails(Visits):
        def process_message(self, state: State, message: Message) -> None:
            raise RuntimeError("not yet")

    class Totals(Visits):
        name = "Fails"

        def persistent_state(self) -> NonWindowState:
            return NonWindowState(Sum())

    url = f"memory://{uuid.uuid4().hex}"
    with pytest.raises(Exception, match="not yet"):
        pipeline_of(Fails(), checkpoint=url).run(engine="embedded")
    assert pipeline_of(Totals(), checkpoint=url).state().num_rows == 0
    report = pipeline_of(Totals(), checkpoint=url).run(engine="embedded")
    assert report.rows == len(ROWS)
    assert "the task has changed, monoid: Count() -> Sum(int): nothing was committed yet" in str(report)
    with pytest.raises(
        FingerprintChanged, match=r"another definition: monoid: Sum\(int\) -> Count\(\)\. Restore the old task"
    ):
        pipeline_of(Fails(), checkpoint=url).run(engine="embedded")
    with pytest.raises(FingerprintChanged):
        pipeline_of(Fails(), checkpoint=url).state()


def test_a_renamed_task_is_adopted_and_another_source_is_not() -> None:
    """To call the class by its right name is a change like any other; the positions of another source mean nothing."""

    class Draft(Visits):
        def process_message(self, state: State, message: Message) -> None:
            raise RuntimeError("not yet")

    url = f"memory://{uuid.uuid4().hex}"
    with pytest.raises(Exception, match="not yet"):
        pipeline_of(Draft(), checkpoint=url).run(engine="embedded")
    other = type("Other", (MemorySource,), {"kind": "Other"})(ROWS, timestamp="ts")
    with pytest.raises(OtherJob, match="its source: MemorySource, this pipeline's: Other"):
        Pipeline(source=other, task=Visits(), checkpoint=url).run(engine="embedded")
    report = pipeline_of(Visits(), checkpoint=url).run(engine="embedded")
    assert report.rows == len(ROWS) and "the task has changed, Draft -> Visits" in str(report)


def test_order_is_not_promised_where_it_is_not_kept() -> None:
    """The last of [1, 3, 0] would be 1: a sliding window is the sum of its panes, whenever their messages came."""

    class Last(Monoid[int]):
        identity = 0

        def combine(self, a: int, b: int) -> int:
            return b

    class Task(Visits):
        window = tumbling(10)

        def persistent_state(self) -> Any:
            return WindowState(Last(), self.window)

    class Sliding(Task):
        window = sliding(20, every=10)

    pipeline_of(Task())
    with pytest.raises(InvalidPipeline, match="commutative = True"):
        pipeline_of(Sliding())


def test_a_task_may_be_composed_on_its_instance() -> None:
    """A task that is put together from functions would be refused, as if it defined nothing."""

    class Composed(PersistentTask):
        def __init__(self) -> None:
            self.persistent_state = lambda: NonWindowState(Count())  # type: ignore[method-assign]
            self.process_message = lambda state, message: state.update(message.timestamp, 1)  # type: ignore[method-assign]

    assert pipeline_of(Composed(), [{"ts": 1}, {"ts": 2}]).run(engine="embedded").rows == 2


def test_a_plan_that_starts_elsewhere_is_not_run() -> None:
    """Records before its start would be lost, or those after it counted twice."""
    rows = list(ROWS)
    pipeline = pipeline_of(Visits(), rows)
    pipeline.run(engine="embedded")
    log = Log(pipeline.storage)
    entry = log.newest()
    assert entry is not None
    manifest = entry.manifest
    elsewhere = {"memory": SourceStep({"memory": (0, 5)}, {"memory": (0, 9)}, (), {})}
    plan = StepPlan(manifest.job, manifest.base, 0, "0", 1 << 40, elsewhere, {"Visits": TaskStep()})
    log.put_plan(plan)
    with pytest.raises(CorruptCheckpoint, match=r"starts at .*delete the file"):
        pipeline.run(engine="embedded")


def test_a_key_field_of_a_type_that_is_no_key_is_refused() -> None:
    """With dead letters on, the whole source would be set aside."""

    class Lists(Visits):
        key: Any = "tags"

    with pytest.raises(InvalidPipeline, match=r"'tags'.*not supported"):
        counted(Lists(), [{"ts": 1, "tags": ["x"]}], on_error="dead-letter")
