"""The shapes of a checkpoint's documents define what a manifest, a plan and FORMAT may hold.

The shapes of the newest format are here, older ones in ``persistent.checkpoint.older_formats``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from persistent.checkpoint.features import FEATURES
from persistent.checkpoint.positions import CODECS, agree, position
from persistent.codec import RUN, type_of
from persistent.codec.shapes import (
    NAME,
    SHA256,
    Misfit,
    anything,
    both,
    fields,
    flag,
    items,
    mapping,
    one_of,
    optional,
    path,
    sequence,
    text,
    whole,
)
from persistent.errors import CorruptCheckpoint, NewerFormat
from persistent.lateness import ANSWERS, CHANGE, CLOCKS, EARLY

FORMATS = (1, 2, 3)
"""The formats that this release reads, oldest first. It writes the newest."""
SETS = ("rollback", "savepoint", "merge")
"""Kinds that set the state to a copy: clock and positions can go back."""
KINDS = ("fence", "checkpoint", "correction", "compaction", "migration", *SETS)

MANY = 1_000_000
ID = whole(0, 10**20 - 1)
COUNT = whole(0)
PARTITION = text(1_000)
NONCE = text(200)
RUNS = sequence(RUN, MANY)
_PARTS_MAX = 1_000
_OFFSETS_MAX = 10_000
_DAY_S = 86_400
_SINK_NAME = r"[A-Za-z0-9_][A-Za-z0-9._=@+-]*(/[A-Za-z0-9][A-Za-z0-9._=@+-]*)*"
_STAGED = {"rows": COUNT, "bytes": COUNT, "sha256": text(64, "([0-9a-f]{64})?", "a SHA-256 or nothing")}
ASIDE = sequence(fields({**_STAGED, "name": path("d")}), MANY)
SHOWN = sequence(fields({**_STAGED, "name": text(1_000, _SINK_NAME, "a staged name")}), MANY)
LEDGER = mapping(
    PARTITION,
    fields(
        {
            **dict.fromkeys(("read", "processed", "late", "dead", "duplicate"), COUNT),
            "mix": whole(0, (1 << 64) - 1),
        },
        {"skipped": COUNT},
    ),
    MANY,
)
TIMES = mapping(PARTITION, optional(whole()), MANY)
_POSITIONS = mapping(PARTITION, position, MANY)
_CODEC = text(200, "[a-z0-9-]+/[0-9]+", "the name and version of a codec")


def _key_type(value: Any) -> None:
    text(60)(value)
    try:
        type_of(value)
    except ValueError as error:
        raise Misfit(str(error)) from error


def as_many_key_types(operator: Any) -> None:
    """Every key column has a type, or none has until the first key is counted."""
    if operator["key_types"] and len(operator["key_types"]) != len(operator["key_names"]):
        raise Misfit("needs as many key types as key names")


KEY = {"key_names": sequence(text(10_000), 1_000), "key_types": sequence(_key_type, 1_000)}
STATE = {"fingerprint": anything, "lowest": optional(whole()), "published": ID, "runs": RUNS}


def _ascending_offsets(zone: Any) -> None:
    """Neighbouring rules of a zone differ, in the order of time, and there is one."""
    offsets = zone["offsets"]
    if not offsets or any(a[0] >= b[0] or a[1] == b[1] for a, b in pairwise(offsets)):
        raise Misfit("offsets are not the rules of a zone in the order of time")


_ZONE = both(
    fields({"name": text(200), "offsets": sequence(items(whole(), whole(-_DAY_S, _DAY_S)), _OFFSETS_MAX)}),
    _ascending_offsets,
)


def named(shape: Any) -> Any:
    """The parts of one kind, by name."""
    return mapping(NAME, shape, _PARTS_MAX)


_OPERATOR_NAME = text(401, r"[A-Za-z0-9][A-Za-z0-9._=@+-]*(/[A-Za-z0-9][A-Za-z0-9._=@+-]*)?", "the name of a state")


def _by_operator(shape: Any) -> Any:
    """What each state of a task has, by the name of the task, and of the state if it has one."""
    return mapping(_OPERATOR_NAME, shape, _PARTS_MAX)


_SEEN = fields(
    {
        "columns": fields(
            {
                "origin": sequence(text(10_000), 1_000),
                "sequence": optional(text(10_000)),
                "epoch": optional(text(10_000)),
            }
        ),
        "pane_ms": whole(1),
        "expired": whole(),
        "runs": RUNS,
    },
    {"kinds": mapping(text(10_000), text(200), _PARTS_MAX)},
)
_READINGS = sequence(fields({"until": _POSITIONS, "recorded": mapping(text(1_000), anything, _PARTS_MAX)}), _PARTS_MAX)


def _readings_agree(source: Any) -> None:
    """The positions of each reading fit the codec of the source."""
    for number, reading in enumerate(source.get("readings", ())):
        try:
            agree({"codec": source["codec"], **reading}, ("until",))
        except Misfit as misfit:
            raise misfit.below(f"readings[{number}]") from misfit.__cause__


_SOURCE = both(
    fields(
        {
            "kind": text(200),
            "codec": _CODEC,
            "partitions": sequence(PARTITION, MANY),
            "positions": _POSITIONS,
            "largest": mapping(PARTITION, whole(), MANY),
            "idle": sequence(PARTITION, MANY),
            "recorded": anything,
            "index": RUNS,
            "since": optional(whole()),
        },
        {"seen": _SEEN, "readings": _READINGS},
    ),
    lambda source: agree(source, ("positions",)),
    _readings_agree,
)
_CORRECTION = fields(
    {"checkpoint": ID, "added": COUNT, "removed": COUNT, "panes": items(whole(), whole()), "sha256": SHA256},
    {"refused": sequence(NAME, _PARTS_MAX)},
)
_EMITTED = {"emit": one_of(CHANGE, EARLY), "passed": mapping(one_of(*CLOCKS), whole(0), 1)}
_ANSWERED = {"late": one_of(*ANSWERS), **_EMITTED}
_STATE_PARTS = {"zone": _ZONE, "final": whole(0), "added": whole(0), "shown_at": whole(0), **_ANSWERED}
_OPERATOR = both(
    fields(
        {
            "inputs": sequence(NAME, _PARTS_MAX),
            **KEY,
            "states": named(fields({**STATE, "known_from": optional(whole(0))}, _STATE_PARTS)),
        }
    ),
    as_many_key_types,
)


def _after_the_one_before(batch: Any) -> None:
    if batch["before"] is not None and batch["before"] >= batch["id"]:
        raise Misfit(f"the preceding batch {batch['before']} is not below its id {batch['id']}")


_BATCH = both(fields({"id": ID, "before": optional(ID), "staged": SHOWN}), _after_the_one_before)
HEAD = {
    "format": whole(1),
    "features": sequence(text(100), 100),
    "job": text(200),
}
LOG = {
    **HEAD,
    "id": ID,
    "kind": one_of(*KINDS),
    "base": ID,
    "oldest": ID,
    "epoch": ID,
    "nonce": NONCE,
    "parent": optional(fields({"id": ID, "sha256": SHA256})),
    "fences": COUNT,
    "replan": COUNT,
    "pins": sequence(ID, MANY),
}
"""The fields of a manifest of every format for its place in the log."""
KEPT = {
    "bases": sequence(items(ID, whole()), MANY),
    "burnt": sequence(ID, MANY),
    "committed_ms": whole(),
    "target": optional(ID),
    "retract": optional(items(ID, ID)),
    "left": sequence(items(ID, ID, flag), MANY),
    "origin": optional(items(text(200), ID)),
}
"""The fields of a manifest since format 2 for the checkpoints that are kept, and those that were abandoned."""


def in_order(manifest: Any) -> None:
    """No id refers to a later manifest."""
    for name in ("base", "oldest", "epoch"):
        if manifest[name] > manifest["id"]:
            raise Misfit(f"{name} {manifest[name]} is above its id {manifest['id']}")
    parent = manifest["parent"]
    if parent is not None and parent["id"] >= manifest["id"]:
        raise Misfit(f"its parent {parent['id']} is not below its id {manifest['id']}")


def _of_one_job(manifest: Any) -> None:
    """Exactly the tasks have clocks and accounts, and an account covers exactly the inputs of its task."""
    tasks = manifest["operators"]
    for name in ("clocks", "ledger"):
        if manifest[name].keys() != tasks.keys():
            raise Misfit(f"{name} are of {_names(manifest[name])}, the tasks are {_names(tasks)}")
    for task, operator in tasks.items():
        if sorted(manifest["ledger"][task]) != sorted(operator["inputs"]):
            raise Misfit(f"{task} reads {_names(operator['inputs'])}, its account is of other inputs")


def _names(names: Any) -> str:
    return ", ".join(f"{name:.60}" for name in list(names)[:10]) or "none"


_CLOCK = fields({"watermark": whole(), "closed": whole(), "ended": flag}, {"quiet_ms": whole(1)})
_TASK = fields(
    {"close_at": whole(), "ends": flag}, {"zone": _ZONE, "final_at": whole(0), "of_sessions": flag, **_EMITTED}
)
MANIFEST = both(
    fields(
        {
            **LOG,
            **KEPT,
            "sources": named(_SOURCE),
            "clocks": _by_operator(_CLOCK),
            "operators": _by_operator(_OPERATOR),
            "ledger": _by_operator(named(LEDGER)),
            "sinks": named(
                fields(
                    {"does": sequence(NAME, 100), "last": optional(ID), "unpublished": sequence(_BATCH, MANY)},
                    {"emptied": flag, "late": flag, "state": NAME},
                )
            ),
            "aside": sequence(fields({"id": ID, "late": ASIDE, "dead": ASIDE}), MANY),
            "publishes": optional(flag),
            "revision_base": COUNT,
        },
        {
            "inherits": named(fields({"jobs": sequence(text(200), 1_000), "number": COUNT}, {"state": NAME})),
            "not_after": whole(),
            "corrections": mapping(NAME, _CORRECTION, MANY),
        },
    ),
    in_order,
    _of_one_job,
)


def _within_the_source(at: Any) -> None:
    """A path of an input stays below the root of the source."""
    if type(at) is not dict:
        raise Misfit("is not a mapping")
    named = at.get("path", "")
    if type(named) is not str or named.startswith("/") or "\0" in named or ".." in named.split("/"):
        raise Misfit(f"path {named!r:.60} leaves the source")


SPLITS = sequence(items(PARTITION, sequence(items(COUNT, COUNT, COUNT, _within_the_source), MANY)), MANY)
STEP = {**HEAD, "base": ID, "number": COUNT, "nonce": NONCE, "wall_ms": whole()}
"""The fields of a plan of every format for its step."""
PLAN = fields(
    {
        **STEP,
        "sources": named(
            both(
                fields(
                    {
                        "codec": _CODEC,
                        "start": _POSITIONS,
                        "end": _POSITIONS,
                        "splits": SPLITS,
                        "cap": TIMES,
                        "idle": sequence(PARTITION, MANY),
                        "recorded": anything,
                        "appended": RUNS,
                        "max_out_of_orderness_ms": optional(COUNT),
                    },
                    {"joins": sequence(PARTITION, MANY), "skipped": mapping(PARTITION, COUNT, MANY)},
                ),
                lambda source: agree(source, ("start", "end")),
            )
        ),
        "tasks": _by_operator(_TASK),
        "max_future_ms": optional(COUNT),
    },
    {"quiet_ms": whole(1), "not_after": whole()},
)
FORMAT_FILE = fields({**HEAD, "key_groups": whole(1), "hash": whole(1)})


def is_of_several(operators: Iterable[str]) -> bool:
    """Whether states have names: there are several, or the only one has one."""
    names = list(operators)
    return len(names) > 1 or any("/" in name for name in names)


def check_format(body: Any, place: str) -> None:
    """Refuse a format or feature that this release does not know."""
    if type(body) is not dict or type(body.get("features")) is not list:
        raise CorruptCheckpoint(
            f"{place}: is not a document of a checkpoint: check the url, or restore the file from a copy"
        )
    if type(body.get("format")) is not int or body["format"] not in FORMATS:
        known = ", ".join(map(str, FORMATS))
        raise NewerFormat(
            f"{place}: format {body.get('format')!r:.20}, but this release reads {known}: use a newer release"
        )
    if not all(type(feature) is str for feature in body["features"]):
        raise CorruptCheckpoint(f"{place}: a feature is not text")
    unknown = [feature for feature in body["features"] if feature not in FEATURES]
    if unknown:
        needed = ", ".join(f"{feature:.60}" for feature in unknown[:10])
        raise NewerFormat(f"{place}: needs {needed}, unknown here: use a newer release")


def check_known(body: Any, place: str) -> None:
    """Refuse a manifest or plan that only a newer release can continue: one with several tasks or states, with a source
    that the task does not read, or with positions of an unknown codec. CorruptCheckpoint if it has no source, task,
    input or state."""
    operators = body.get("operators", {})
    several = [("tasks", dict.fromkeys(name.partition("/")[0] for name in body.get("tasks", operators)))]
    several += [(f"states of {task}", one["states"]) for task, one in operators.items()]
    inputs = [(f"inputs of {task}", one["inputs"]) for task, one in operators.items()]
    for what, of in (("sources", body["sources"]), *several, *inputs):
        if not of:
            raise CorruptCheckpoint(f"{place}: has no {what}, which no release writes")
    for what, of in several:
        if len(of) > 1:
            raise NewerFormat(
                f"{place}: has {len(of)} {what} ({_names(of)}), but this release knows jobs with one: use a "
                "newer release"
            )
    for what, of in inputs:
        unread = body["sources"].keys() - set(of)
        if unread and not set(of) - body["sources"].keys():
            raise NewerFormat(
                f"{place}: {_names(sorted(unread))} is not among the {what}, but this release knows tasks that read "
                "all sources: use a newer release"
            )
    for name, source in body["sources"].items():
        if source["codec"] not in CODECS:
            raise NewerFormat(
                f"{place}: positions of {name} use the codec {source['codec']}, but this release knows "
                f"{', '.join(CODECS)}: use a newer release"
            )
