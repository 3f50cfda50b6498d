"""Garbage is a file that no kept manifest names and that no work under way may still name.

A file is deleted iff it is not live, and its epoch is lower than ours, or it is ours and its id is at or below
the committed one. Age plays no part.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

KEPT = 10
_ATTEMPT = re.compile(r"e(\d+)-c(\d+)-[0-9a-f]{32}")


def attempt_name(epoch: int, id: int, nonce: str) -> str:
    """The unique name of one attempt at the work of checkpoint ``id``.

    >>> attempt_name(3, 41, "0" * 32)
    'e3-c41-00000000000000000000000000000000'
    """
    return f"e{epoch}-c{id}-{nonce}"


def garbage(names: Iterable[str], live: Collection[str], epoch: int, id: int) -> list[str]:
    """Which of these attempts' files to delete, for a driver of this epoch that has committed ``id``."""
    return [name for name in names if name not in live and is_abandoned(name, epoch, id)]


def is_abandoned(name: str, epoch: int, id: int) -> bool:
    """Whether nobody can still be working for this file."""
    match = _ATTEMPT.match(name.rpartition("/")[2])
    if not match:
        return False
    of_epoch, of_id = int(match[1]), int(match[2])
    return of_epoch < epoch or (of_epoch == epoch and of_id <= id)


def oldest_kept(checkpoints: Iterable[int], before: int) -> int:
    """The id of the oldest of the newest ten checkpoints; never lower than ``before``."""
    newest = sorted(checkpoints)[-KEPT:]
    return max(before, newest[0] if newest else 0)
