"""Garbage is a file that no kept manifest names and no running work can still name; one rule covers the runs of a
checkpoint and the staged files of a sink.

A file is deleted iff it is not live, and its epoch is lower than ours, or it is ours and its id is at or below the
committed one. Age plays no part. A file whose name is not an attempt's is never deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from persistent.checkpoint.names import attempt_of


def garbage(names: Iterable[str], live: Collection[str], epoch: int, id: int) -> list[str]:
    """The files of these attempts to delete, for a driver of this epoch that has committed ``id``. Names are compared
    as they are, with or without folders; an extension does not matter.

    >>> garbage(["e2-c99-a.x", "e3-c41-a.x", "e3-c42-a.x", "e4-c1-a.x", "note.txt"], {"e3-c41-a.x"}, 3, 41)
    ['e2-c99-a.x']
    """
    live = frozenset(live)
    return [name for name in names if name not in live and is_abandoned(name, epoch, id)]


def is_abandoned(name: str, epoch: int, id: int) -> bool:
    """Whether no driver can still be working on this file."""
    attempt = attempt_of(name)
    return attempt is not None and (attempt[0] < epoch or (attempt[0] == epoch and attempt[1] <= id))
