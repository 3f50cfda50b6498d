"""A function gets every batch, at least once, with the number that tells a second time from a first."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from monoids import Count
from persistent import (
    FunctionSink,
    InvalidPipeline,
    MemorySource,
    PersistentTask,
    Pipeline,
    Refused,
    UserCodeError,
    WindowState,
    tumbling,
)
from persistent.connect.sink import OutputBatch
from persistent.engines.embedded import Embedded
from persistent.operations import rollback
from persistent.testing.sink_driver import OnOperation
from tests.connect.ledger import Ledger
from tests.connect.places import LedgerSuite


class TestIdempotent(LedgerSuite):
    """A function that remembers the ids it has seen."""

    test_what_is_retracted_is_gone = None  # type: ignore[assignment]
    test_what_a_rollback_owes_is_published_before = None  # type: ignore[assignment]
    test_a_driver_that_slept_publishes_nothing_taken_back = None  # type: ignore[assignment]
    test_another_job_is_refused = None  # type: ignore[assignment]
    test_a_batch_follows_the_one_before = None  # type: ignore[assignment]
    test_the_heir_of_a_savepoint_takes_over = None  # type: ignore[assignment]

    def make(self, place: Ledger, step: OnOperation) -> Any:
        return FunctionSink(Remembering(place.name))


class Remembering:
    """Writes each id once into a ledger."""

    def __init__(self, place: str) -> None:
        self.place = place

    def __call__(self, table: pa.Table, id: int) -> None:
        ledger = Ledger.places[self.place]
        with ledger.lock:
            if id not in {number for number, _ in ledger.entries}:
                ledger.entries += [(id, row) for row in table.to_pylist()]


class Visits(PersistentTask):
    """Counts."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def pipeline(sink: Any, checkpoint: str, **options: Any) -> Pipeline:
    source = MemorySource([{"ts": n, "page": f"p{n % 3}"} for n in range(1, 40)], timestamp="ts", ordered=True)
    return Pipeline(source=source, task=Visits(), sink=sink, checkpoint=checkpoint, step_rows=10, **options)


def test_a_function_that_raises_gets_its_batch_again() -> None:
    """Outputs that were committed would be seen by nobody."""
    seen: list[tuple[int, int]] = []
    fails = [True]

    def function(table: pa.Table, id: int) -> None:
        seen.append((id, table.num_rows))
        if len(seen) == 2 and fails.pop():
            raise OSError("the other end is away")

    made = pipeline(FunctionSink(function), "memory://function-raises")
    with pytest.raises(UserCodeError, match=r"raised OSError: the other end is away.*the next run delivers them again"):
        made.run(engine=Embedded(threads=1), end_of_input=True)
    made.run(engine=Embedded(threads=1), end_of_input=True)
    ids = [id for id, _ in seen]
    assert ids[1] == ids[2] and ids == sorted(ids) and sum(dict(seen).values()) == 12


@pytest.mark.parametrize("wrong", [lambda: 0, lambda table: 0, lambda a, b, c: 0, lambda table, *, id: 0, {}, 5])
def test_a_function_that_cannot_be_called_is_refused_at_once(wrong: Any) -> None:
    """Else the first checkpoint with outputs would tell, an hour later."""
    with pytest.raises(InvalidPipeline, match="a table and an id"):
        FunctionSink(wrong)


def test_whatever_takes_a_table_and_an_id_is_taken() -> None:
    """What says nothing of its arguments, as some built-in functions, may well take them."""
    for right in (lambda *all: 0, lambda table, id, more=1: 0, max, dict.update):  # type: ignore[misc]
        FunctionSink(right)


def test_it_says_that_it_may_repeat() -> None:
    """A pipeline that needs each row once would run all the same."""
    sink = FunctionSink(print)
    assert sink.guarantee().level == "at-least-once" and "print" in repr(sink)
    assert pipeline(sink, "memory://function-said").guarantee().startswith("at-least-once")
    with pytest.raises(InvalidPipeline, match="at-least-once"):
        pipeline(sink, "memory://function-said", require="exactly-once")
    with pytest.raises(InvalidPipeline, match="give a function"):
        FunctionSink("print")  # type: ignore[arg-type]
    sink.deliver(OutputBatch("j", 1, 0, 0, 1, "", (), (), lambda staged: pa.table({})))


def test_a_rollback_cannot_take_back_and_says_what_to_do() -> None:
    """What the function has done is done."""
    made = pipeline(FunctionSink(lambda table, id: None), "memory://function-back")
    made.run(engine=Embedded(threads=1), end_of_input=True)
    before = dict(made.storage._files)
    with pytest.raises(Refused, match=r"the sink 'function' of this job cannot take back.*--outputs=again"):
        rollback(made.storage, 2, outputs="retract", take_over=True)
    assert made.storage._files == before
