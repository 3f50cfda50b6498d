"""The file names of a checkpoint and of a sink are written and parsed only here.

A checkpoint:

    FORMAT                                 the format of the folder, and its job
    m/<id>.json                            a manifest: id in 20 digits, so that names sort as ids do
    p/<base>.json, p/<base>-<number>.json  the plan of the step after checkpoint ``base``
    d/<name>/<attempt>.arrow               a run: of that node, or of the index of that source
    late/<id>-<nonce>.arrow, dead/...      late rows and dead letters, under the id that staged them
    retracted/<first>-<stop>               a mark: late rows and dead letters of these ids are taken back
    staged/<attempt>.arrow                 outputs that wait for a sink without a place of its own
    r/e<epoch>-<nonce>.json                a mark: a driver runs
    s/<name>/                              a savepoint: a checkpoint with a CLAIM

The folder of a sink:

    _staged/<attempt>.<extension>          staged, out of sight
    <id>-<nonce>.<extension>               published, under the id that staged it
    _published/<id>.json, _published/JOB   the files of a checkpoint that count; the job
    _retracted/<first>-<stop>              a mark: outputs of these ids are taken back

An attempt, ``e<epoch>-c<id>-<nonce>``, identifies the driver that made a file and the checkpoint it made it for. That
alone decides whether a manifest can still name it.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta

from persistent.codec.fields import PATH_LENGTH_MAX, Natural, Part

FORMAT_NAME, CLAIM, DOCTOR = "FORMAT", "CLAIM", "DOCTOR"
MANIFESTS, PLANS, DRIVERS = "m", "p", "r"
LATE, DEAD = "late", "dead"
RETRACTED = "retracted"
STAGED = "staged"
_DIGITS = 20

_ATTEMPT = re.compile(r"e([0-9]+)-c([0-9]+)-([0-9a-f]{1,32})")
_ENTRY = re.compile(r"([0-9]{20})(?:-([0-9]+))?\.json")
_PUBLISHED = re.compile(r"([0-9]{20})(?:[-.].*)?")
_RANGE = re.compile(r"([0-9]{20})-([0-9]{20})")
_DRIVER = re.compile(r"e([0-9]+)-([0-9a-f]{1,32})\.json")


class Staged(Part, frozen=True):
    """A staged output file: its name (which determines its final name), rows and bytes; ``sha256`` if it is read
    again before it is published."""

    name: Annotated[
        str,
        Meta(
            max_length=PATH_LENGTH_MAX,
            pattern=r"\A[A-Za-z0-9_][A-Za-z0-9._=@+-]*(/[A-Za-z0-9][A-Za-z0-9._=@+-]*)*\Z",
        ),
    ]
    rows: Natural
    bytes: Natural
    sha256: Annotated[str, Meta(pattern=r"\A([0-9a-f]{64})?\Z")] = ""


@dataclass(frozen=True)
class Attempt:
    """The epoch of the driver, and the checkpoint it works for."""

    epoch: int
    id: int

    def name(self) -> str:
        """A unique name for a file of this attempt."""
        return attempt_name(self.epoch, self.id, new_nonce())


def new_nonce() -> str:
    """A unique random name."""
    return uuid.uuid4().hex


def manifest_name(id: int) -> str:
    """The file of manifest ``id``.

    >>> manifest_name(7)
    'm/00000000000000000007.json'
    """
    return f"{MANIFESTS}/{_number(id)}.json"


def plan_name(base: int, number: int) -> str:
    """The file of plan ``number`` of the step after checkpoint ``base``.

    >>> plan_name(7, 0), plan_name(7, 2)
    ('p/00000000000000000007.json', 'p/00000000000000000007-2.json')
    """
    return f"{PLANS}/{_number(base)}{f'-{number}' if number else ''}.json"


def entry_id(name: str) -> int | None:
    """The id in the name of a manifest or plan, without its folder; None for another name.

    >>> entry_id("00000000000000000007.json"), entry_id("00000000000000000007-2.json"), entry_id("note.json")
    (7, 7, None)
    """
    match = _ENTRY.fullmatch(name)
    return int(match[1]) if match else None


def is_manifest(name: str) -> bool:
    """Whether this is the name of a manifest, without its folder."""
    match = _ENTRY.fullmatch(name)
    return match is not None and match[2] is None


def attempt_name(epoch: int, id: int, nonce: str) -> str:
    """The unique name of one attempt at the work of checkpoint ``id``.

    >>> attempt_name(3, 41, "0" * 32)
    'e3-c41-00000000000000000000000000000000'
    """
    return f"e{epoch}-c{id}-{nonce}"


def attempt_of(name: str) -> tuple[int, int] | None:
    """Epoch and id of the attempt that made a file, whatever its folder and extension; None for another name.

    >>> attempt_of("_staged/e3-c41-0f8fad5b.jsonl"), attempt_of("note.txt")
    ((3, 41), None)
    """
    match = _ATTEMPT.fullmatch(_stem(name))
    return (int(match[1]), int(match[2])) if match else None


def runs_folder(name: str) -> str:
    """The folder of the runs of that node, or of the index of that kind of source."""
    return f"d/{name}"


def run_name(folder: str, attempt: str) -> str:
    """The file of a run in that folder; also of late rows and dead letters until they are published."""
    return f"{folder}/{attempt}.arrow"


def staged_name(attempt: str) -> str:
    """The file of outputs that wait in the checkpoint.

    >>> staged_name("e3-c41-0f8fad5b")
    'staged/e3-c41-0f8fad5b.arrow'
    """
    return f"{STAGED}/{attempt}.arrow"


def savepoint_name(name: str) -> str:
    """The folder of a savepoint."""
    return f"s/{name}"


def driver_name(epoch: int, nonce: str) -> str:
    """The mark of a driver that runs."""
    return f"{DRIVERS}/e{epoch}-{nonce}.json"


def driver_epoch(name: str) -> int | None:
    """The epoch in the name of a driver's mark, without its folder; None for another name.

    >>> driver_epoch("e3-00ff.json"), driver_epoch("note.txt")
    (3, None)
    """
    match = _DRIVER.fullmatch(name)
    return int(match[1]) if match else None


def published_stem(id: int, attempt: str) -> str:
    """The published name of a file staged by an attempt, without its extension. ValueError if ``attempt`` is malformed.

    >>> published_stem(41, "e3-c41-0f8fad5b")
    '00000000000000000041-0f8fad5b'
    """
    match = _ATTEMPT.fullmatch(attempt)
    if match is None:
        raise ValueError(f"attempt {attempt!r} is not of the form e<epoch>-c<id>-<nonce>, its nonce of 0-9 and a-f")
    return f"{_number(id)}-{match[3]}"


def published_name(id: int, staged: str) -> str:
    """The published name of a staged file, with its extension.

    >>> published_name(41, "_staged/e3-c41-0f8fad5b.jsonl")
    '00000000000000000041-0f8fad5b.jsonl'
    """
    _, dot, extension = staged.rpartition("/")[2].partition(".")
    return f"{published_stem(id, _stem(staged))}{dot}{extension}"


def aside_name(folder: str, id: int, staged: Staged) -> str:
    """The published name of late rows or dead letters: ``late/<id>-<nonce>.arrow``."""
    return f"{folder}/{published_name(id, staged.name)}"


def published_id(name: str) -> int:
    """The id in the name of a published file, whatever its folder; -1 for another name.

    >>> published_id("late/00000000000000000041-0f8fad5b.arrow"), published_id("JOB")
    (41, -1)
    """
    match = _PUBLISHED.fullmatch(name.rpartition("/")[2])
    return int(match[1]) if match else -1


def list_name(id: int) -> str:
    """The name of a checkpoint's list of published files, without its folder."""
    return f"{_number(id)}.json"


def retraction_name(first: int, stop: int) -> str:
    """The name of the mark on the ids from ``first`` up to ``stop``, without its folder.

    >>> retraction_name(7, 12)
    '00000000000000000007-00000000000000000012'
    """
    return f"{_number(first)}-{_number(stop)}"


def retractions(names: Iterable[str]) -> list[range]:
    """The ids that these marks cover; other names are skipped.

    >>> retractions([retraction_name(7, 12), "note.txt"])
    [range(7, 12)]
    """
    matches = [_RANGE.fullmatch(name) for name in names]
    return [range(int(mark[1]), int(mark[2])) for mark in matches if mark]


def is_retracted(name: str, marks: Collection[range]) -> bool:
    """Whether a mark covers the id in the name of a published file."""
    id = published_id(name)
    return any(id in mark for mark in marks)


def _number(id: int) -> str:
    return f"{id:0{_DIGITS}d}"


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def garbage(names: Iterable[str], live: Collection[str], epoch: int, id: int) -> list[str]:
    """The files of these attempts to delete, for a driver of this epoch that has committed ``id``: those that no kept
    manifest names and no running work can still name. One rule covers the runs of a checkpoint and the staged files of
    a sink.

    A file is deleted iff it is not live, and its epoch is lower than ours, or it is ours and its id is at or below the
    committed one. Age plays no part. A file whose name is not an attempt's is never deleted. Names are compared as they
    are, with or without folders; an extension does not matter.

    >>> garbage(["e2-c99-a.x", "e3-c41-a.x", "e3-c42-a.x", "e4-c1-a.x", "note.txt"], {"e3-c41-a.x"}, 3, 41)
    ['e2-c99-a.x']
    """
    live = frozenset(live)
    return [name for name in names if name not in live and is_abandoned(name, epoch, id)]


def is_abandoned(name: str, epoch: int, id: int) -> bool:
    """Whether no driver can still be working on this file."""
    attempt = attempt_of(name)
    return attempt is not None and (attempt[0] < epoch or (attempt[0] == epoch and attempt[1] <= id))


STATE: Final = "state"
"""The name of a task's only state, if the task gives it none."""


def state_name(node: str) -> str:
    """The name of a state among those of its task.

    >>> state_name("Visits"), state_name("Visits/hourly")
    ('state', 'hourly')
    """
    return node.partition("/")[2] or STATE


def is_of_several(nodes: Iterable[str]) -> bool:
    """Whether states have names: there are several, or the only one has one."""
    names = list(nodes)
    return len(names) > 1 or any("/" in name for name in names)
