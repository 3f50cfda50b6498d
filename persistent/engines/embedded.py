"""The embedded engine maps in threads of this process: the reference implementation of ``Engine``.

A pipeline runs on the engine of the caller's choice; without one, on Spark if a session is active, otherwise here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import Any, TypeVar

from persistent.engines.protocol import Engine
from persistent.errors import EngineError, InvalidPipeline, PersistentError

T = TypeVar("T")
R = TypeVar("R")


class Embedded:
    """Processes ``threads`` items at once (default: one per processor); with 1, in the calling thread.

    >>> Embedded(threads=2).map(len, ["a", "bb", ""])
    [1, 2, 0]
    """

    name = "embedded"
    in_process = True

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None and threads < 1:
            raise InvalidPipeline(f"Embedded(threads={threads}): give at least 1")
        self.parallelism = threads or os.cpu_count() or 1
        self._pool: ThreadPoolExecutor | None = None

    def __repr__(self) -> str:
        return f"Embedded(threads={self.parallelism})"

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``[function(item) for item in items]``. Of several failures, the first item's is raised.

        After a failure no further item begins, and all begun items end before it is raised.
        """
        try:
            if self.parallelism == 1 or len(items) < 2:
                return [function(item) for item in items]
            return self._map_on_threads(function, items)
        except PersistentError:
            raise
        except Exception as error:
            raise EngineError(f"{type(error).__name__} on the embedded engine: {error}") from error

    def stop(self) -> None:
        """End the threads; a later ``map`` starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _map_on_threads(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.parallelism, thread_name_prefix="persistent")
        # Each item runs in a copy of this context, and so sees, for example, a request to stop.
        futures = [self._pool.submit(copy_context().run, function, item) for item in items]
        ended = set[Future[R]]()
        try:
            ended = wait(futures, return_when=FIRST_EXCEPTION).done
        finally:
            begun = [future for future in futures if future in ended or not future.cancel()]
            if len(ended) < len(begun):
                wait(begun)
        return _results(begun, len(items))


def _results(begun: Sequence[Future[R]], expected: int) -> list[R]:
    """The results, or the failure of the first item that failed."""
    results = [future.result() for future in begun]
    assert len(results) == expected, "an item was skipped although none failed"
    return results


def chosen_engine(spark: Any, engine: str | Engine | None) -> Engine:
    """The engine of ``spark``, a SparkSession, or of ``engine``. Without both: Spark with the active session, if there
    is one, otherwise this process. InvalidPipeline for an unknown ``engine``, or if both are given and differ."""
    if spark is not None and engine not in (None, "spark"):
        raise InvalidPipeline("give either a SparkSession or engine=, not both")
    if engine == "embedded":
        chosen: Engine = Embedded()
    elif isinstance(engine, str) and engine != "spark":
        raise InvalidPipeline(f'engine={engine!r}: choose "spark", "embedded" or an engine')
    elif engine is not None and not isinstance(engine, str):
        chosen = engine
    else:
        session = spark if spark is not None else _active_session()
        if session is None and engine == "spark":
            raise InvalidPipeline('engine="spark" needs a SparkSession: give run(spark), or create one first')
        chosen = _spark_engine(session) if session is not None else Embedded()
    return chosen


def _active_session() -> Any:
    """The active SparkSession, if this process has loaded pyspark at all."""
    sql = sys.modules.get("pyspark.sql")
    return sql.SparkSession.getActiveSession() if sql is not None else None


def _spark_engine(session: Any) -> Engine:
    from persistent.engines.spark import Spark

    if not hasattr(session, "createDataFrame"):
        raise InvalidPipeline(
            f"spark={session!r} is not a SparkSession: give SparkSession.builder.getOrCreate(); or engine=, as in "
            'run(engine="embedded")'
        )
    return Spark(session)
