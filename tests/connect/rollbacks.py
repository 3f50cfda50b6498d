"""A job that is rolled back twice, before and after it has published anything."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from monoids import Count
from persistent import MemorySource, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.operations import rollback

ROWS = [{"page": "a", "ts": number * 20_000} for number in range(12)]


class Visits(PersistentTask):
    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def visits(sink: Any, records: list[dict[str, Any]], checkpoint: str, **options: Any) -> Pipeline:
    """A job that counts the visits of a page by the minute."""
    source = MemorySource(records, timestamp="ts")
    return Pipeline(source=source, task=Visits(), sink=sink, checkpoint=checkpoint, **options)


def roll_back_twice(sink: Callable[[str], Any], modes: tuple[str, str] = ("upsert", "upsert")) -> None:
    """Before and after the job has published; then run it to the end. ``modes``: of the sink until the first rollback,
    and from then on."""
    checkpoint = f"memory://twice-{uuid.uuid4().hex}"

    def run(rows: int, mode: str) -> None:
        visits(sink(mode), ROWS[:rows], checkpoint).run(engine="embedded")

    run(1, modes[0])
    log = Log(visits(sink(modes[0]), ROWS, checkpoint).storage)
    first = log.ids()[-1]
    run(2, modes[0])
    rollback(log.storage, first, outputs="retract")
    run(3, modes[1])
    run(12, modes[1])
    rollback(log.storage, first, outputs="retract")
    run(8, modes[1])
