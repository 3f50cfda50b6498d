"""A retraction is a mark: what is published under its ids does not count, whoever publishes it, and whenever.

A driver that was fenced may fall asleep in the middle of a publication, wake up after a rollback that took it back,
and go on: no store can stop it. So a file ``<first>-<stop>`` is put, once and for good, and who reads looks for it.
Ids are never used again; so what a mark covers stays covered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from persistent.sinks.staging import published_id

RETRACTED = "retracted"
"""Where a checkpoint has its marks, on its late rows and dead letters."""

_MARK = re.compile(r"([0-9]{20})-([0-9]{20})")


def retraction_name(first: int, stop: int) -> str:
    """The mark on the ids from ``first`` up to ``stop``.

    >>> retraction_name(7, 12)
    '00000000000000000007-00000000000000000012'
    """
    return f"{first:020d}-{stop:020d}"


def retractions(names: Iterable[str]) -> list[range]:
    """The ids that these marks cover; names of another form are none.

    >>> retractions([retraction_name(7, 12), "note.txt"])
    [range(7, 12)]
    """
    found = [_MARK.fullmatch(name) for name in names]
    return [range(int(mark[1]), int(mark[2])) for mark in found if mark]


def is_retracted(name: str, marks: Collection[range]) -> bool:
    """Whether one of the marks covers the id in the name of something published."""
    id = published_id(name.rpartition("/")[2])
    return any(id in mark for mark in marks)
