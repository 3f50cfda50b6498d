"""A script of visits."""

from __future__ import annotations

from typing import Any

from monoids import Count
from persistent import NonWindowState, PersistentTask, Pipeline
from persistent.engines.embedded import Embedded


class Visits(PersistentTask):
    """Counts messages."""

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def rows(*times: int) -> list[dict[str, int]]:
    return [{"ts": time} for time in times]


def run(pipeline: Pipeline, **options: Any) -> Any:
    return pipeline.run(engine=Embedded(threads=1), **options)


def counted(pipeline: Pipeline) -> list[int]:
    return [row["value"] for row in pipeline.state().to_pylist()]
