"""An engine has one verb: ``map`` a function over items, on workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Runs the items of a step on workers.

    ``parallelism``: the number of items that run at once. ``in_process``: whether workers share the driver's memory; if
    not, functions, items and results are sent by cloudpickle.

    An engine may also have ``check(storages, *sources)``: raise ``InvalidPipeline`` for a storage or source that its
    workers cannot reach.
    """

    @property
    def name(self) -> str: ...

    @property
    def parallelism(self) -> int: ...

    @property
    def in_process(self) -> bool: ...

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``[function(item) for item in items]``, each item on some worker.

        If a worker dies, its item runs again, and two attempts of an item can run at once: they must not disturb each
        other. One successful attempt gives the result. A ``PersistentError`` is not retried, and reaches the caller
        with its type, message and attributes. Any other exception may be retried, and becomes ``EngineError``. When
        ``map`` returns, no item is running; after an interrupt or an error, attempts on other machines may continue for
        seconds.
        """

    def stop(self) -> None:
        """Release the workers. The user's session stays open."""
