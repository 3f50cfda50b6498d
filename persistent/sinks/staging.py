"""A staged name says who staged it: ``e<epoch>-c<id>-<uuid>``, so that what nobody will publish can be told
apart."""

from __future__ import annotations

import re
from collections.abc import Collection

_ATTEMPT = re.compile(r"e([0-9]+)-c([0-9]+)-([A-Za-z0-9_]+)")


def final_stem(staging_id: int, attempt: str) -> str:
    """The name under which a staged file is published, without its extension. ValueError if ``attempt`` is
    none.

    >>> final_stem(41, "e3-c41-0f8fad5b")
    '00000000000000000041-0f8fad5b'
    """
    found = _ATTEMPT.fullmatch(attempt)
    if found is None:
        raise ValueError(f"attempt {attempt!r} is not of the form e<epoch>-c<id>-<uuid>")
    return f"{staging_id:020d}-{found[3]}"


def published_id(name: str) -> int:
    """The id under which a file was published, by its name; -1 where that is none of ours.

    >>> published_id("00000000000000000041-0f8fad5b.jsonl"), published_id("JOB")
    (41, -1)
    """
    digits = name[:20]
    return int(digits) if re.fullmatch(r"[0-9]{20}", digits) and name[20:21] in ("-", ".", "") else -1


def staged_id(name: str) -> int:
    """The id under which a file was staged, by its name; -1 where that is none of ours.

    >>> staged_id("e3-c41-0f8fad5b.jsonl"), staged_id("note.txt")
    (41, -1)
    """
    found = _ATTEMPT.fullmatch(name.partition(".")[0])
    return -1 if found is None else int(found[2])


def swept(names: Collection[str], live: Collection[str], epoch: int, id: int) -> list[str]:
    """Those of the staged ``names`` (file names; an extension does not matter) to delete: not in ``live``,
    and of a lower epoch than ``epoch``, or of this one and at or below ``id``. Names of another form are
    not ours.

    >>> swept(["e2-c99-a.x", "e3-c41-a.x", "e3-c42-a.x", "e4-c1-a.x", "note.txt"], {"e3-c41-a.x"}, 3, 41)
    ['e2-c99-a.x']
    """
    kept = set(live)
    return [name for name in names if name not in kept and _is_over(name, epoch, id)]


def _is_over(name: str, epoch: int, id: int) -> bool:
    found = _ATTEMPT.fullmatch(name.partition(".")[0])
    if found is None:
        return False
    staged_epoch, staged_id = int(found[1]), int(found[2])
    return staged_epoch < epoch or (staged_epoch == epoch and staged_id <= id)
