"""An LRU cache keeps the most recently used values. It is never part of a pickle."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class LruCache(Generic[Value]):
    """At most ``limit`` values; the least recently used is dropped first. Threads may share it.

    >>> squares = LruCache[int](2)
    >>> squares.get(3, lambda: 3 * 3), squares.get(3, lambda: 0)
    (9, 9)
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of ``key``, computed if it is not in the cache."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._limit:
                self._values.popitem(last=False)
        return value

    def __reduce__(self) -> tuple[Any, ...]:
        return LruCache, (self._limit,)
