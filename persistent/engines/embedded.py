"""The embedded engine maps in threads of this process: the reference implementation of ``Engine``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

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
