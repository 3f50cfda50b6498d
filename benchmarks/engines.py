"""The engines that the benchmarks run on: a local Spark session, and this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from persistent import Pipeline, RunReport, StepReport
from persistent.engines.embedded import Embedded


def spark_session(cores: int = 2) -> Any:
    """A SparkSession on ``local[cores]``, as this package sets one up for itself."""
    from persistent.engines.spark_session import local_session

    return local_session(cores)


def drain(
    pipeline: Pipeline,
    session: Any = None,
    *,
    threads: int = 2,
    end_of_input: bool = True,
    on_step: Callable[[StepReport], None] | None = None,
) -> RunReport:
    """Run ``pipeline`` over what is there, on ``session`` or else on ``threads`` of this process; its report."""
    if session is not None:
        return pipeline.run(session, end_of_input=end_of_input, on_step=on_step)
    engine = Embedded(threads=threads)
    try:
        return pipeline.run(engine=engine, end_of_input=end_of_input, on_step=on_step)
    finally:
        engine.stop()
