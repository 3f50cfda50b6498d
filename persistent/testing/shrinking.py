"""Shrinking drops half of the records, then quarters, while the defect still shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from persistent.testing.running import InputRecords

S = TypeVar("S")

TRIES_MAX = 120


def smallest(records: InputRecords, seen: S, look: Callable[[InputRecords], S | None]) -> tuple[InputRecords, S]:
    """A small part of the records for which ``look`` still finds a defect, and that defect.

    >>> smallest([1, 2, 3, 4, 5, 6], "both", lambda some: "both" if {2, 5} <= set(some) else None)
    ([2, 5], 'both')
    """
    size, tries = len(records) // 2, 0
    while size and tries < TRIES_MAX:
        start, shorter = 0, False
        while start < len(records) and tries < TRIES_MAX:
            less = _without(records, start, start + size)
            found = look(less) if len(less) else None
            tries += 1
            if found is None:
                start += size
            else:
                records, seen, shorter = less, found, True
        if size > 1:
            size = min(size // 2, max(len(records) // 2, 1))
        elif not shorter:
            break
    return records, seen


def _without(records: InputRecords, start: int, stop: int) -> Any:
    if isinstance(records, pa.Table):
        return pa.concat_tables([records.slice(0, start), records.slice(stop)])
    return [*records[:start], *records[stop:]]
