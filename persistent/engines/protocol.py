"""An engine is one verb: ``map`` a function over items, on workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Where the work of a step is done.

    ``parallelism``: how many items are worked on at once. ``in_process``: whether workers share the memory of the
    driver; if not, functions, items and results travel by cloudpickle.
    """

    @property
    def name(self) -> str: ...

    @property
    def parallelism(self) -> int: ...

    @property
    def in_process(self) -> bool: ...

    def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``[function(item) for item in items]``, each item on some worker.

        A worker may die and an item be worked on again, even twice at once: the result is that of one attempt that
        succeeded, and attempts must not disturb each other. A ``PersistentError`` is not tried again and reaches the
        caller as the type it is, with its message and attributes; any other exception may be, and ends as
        ``EngineError``. Nothing is being worked on when ``map`` returns; after an interrupt or an error, attempts on
        other machines may go on for some seconds.
        """

    def stop(self) -> None:
        """Let go of the workers. What the user brought along (a session) stays."""
