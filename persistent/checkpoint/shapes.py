"""The shapes of the documents of a checkpoint say what may stand in a manifest, a plan and FORMAT."""

from __future__ import annotations

from typing import Any

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

FORMATS = (1, 2)
"""The formats that can be read, oldest first. What is written is of the newest."""
WIDE = "wide totals"
"""The feature of a manifest that names a run with totals beyond the types of its monoid."""
RECORDED = "recorded options"
"""The feature of a manifest or plan with fields that the first release of its format does not know."""
FEATURES = frozenset({WIDE, RECORDED})
"""What a document may need of its reader."""
SETS = ("rollback", "savepoint", "merge")
"""Kinds that set the state to a copy, wherever it stood: clock and positions may go back."""
KINDS = ("checkpoint", "compaction", "fence", "migration", *SETS)

_MANY = 1_000_000
_ID = whole(0, 10**20 - 1)
_COUNT = whole(0)
_PARTITION = text(1_000)
_POSITION = items(_COUNT, _COUNT)
_POSITIONS = mapping(_PARTITION, _POSITION, _MANY)
_TIMES = mapping(_PARTITION, optional(whole()), _MANY)
_NONCE = text(200)
_SINK_NAME = r"[A-Za-z0-9_][A-Za-z0-9._=@+-]*(/[A-Za-z0-9][A-Za-z0-9._=@+-]*)*"
_STAGED = {"rows": _COUNT, "bytes": _COUNT, "sha256": text(64, "([0-9a-f]{64})?", "a SHA-256 or nothing")}
_ASIDE = sequence(fields({**_STAGED, "name": path("d")}), _MANY)
_SHOWN = sequence(fields({**_STAGED, "name": text(1_000, _SINK_NAME, "a staged name")}), _MANY)
_ACCOUNT = fields(
    {
        **dict.fromkeys(("read", "processed", "late", "dead", "duplicate"), _COUNT),
        "mix": whole(0, (1 << 64) - 1),
    }
)


def _key_type(value: Any) -> None:
    text(60)(value)
    try:
        type_of(value)
    except ValueError as error:
        raise Misfit(str(error)) from error


def _as_many_key_types(operator: Any) -> None:
    if operator["key_types"] and len(operator["key_types"]) != len(operator["key_names"]):
        raise Misfit("as many key types as key names are wanted")


_RUNS = sequence(RUN, _MANY)
_OPERATOR = both(
    fields(
        {
            "fingerprint": anything,
            "key_names": sequence(text(10_000), 1_000),
            "key_types": sequence(_key_type, 1_000),
            "lowest": optional(whole()),
            "published": _ID,
            "runs": _RUNS,
        },
        {"known_from": whole(0)},
    ),
    _as_many_key_types,
)
_SOURCE = {
    "kind": text(200),
    "partitions": sequence(_PARTITION, _MANY),
    "positions": _POSITIONS,
    "recorded": anything,
    "index": _RUNS,
}
_MANIFEST_1 = {
    "format": whole(1),
    "features": sequence(text(100), 100),
    "job": text(200),
    "id": _ID,
    "kind": one_of("checkpoint", "fence"),
    "base": _ID,
    "oldest": _ID,
    "epoch": _ID,
    "nonce": _NONCE,
    "parent": optional(fields({"id": _ID, "sha256": SHA256})),
    "clock": fields(
        {"watermark": whole(), "closed": whole(), "largest": mapping(_PARTITION, whole(), _MANY), "end_of_input": flag}
    ),
    "source": fields(_SOURCE),
    "operators": mapping(NAME, _OPERATOR, 1_000),
    "outputs": sequence(fields({"id": _ID, "sink": _SHOWN, "late": _ASIDE, "dead": _ASIDE}), _MANY),
    "ledger": mapping(_PARTITION, _ACCOUNT, _MANY),
    "fences": _COUNT,
    "replan": _COUNT,
    "pins": sequence(_ID, _MANY),
}
_MANIFEST_2 = {
    **_MANIFEST_1,
    "kind": one_of(*KINDS),
    "source": fields({**_SOURCE, "since": optional(whole())}),
    "bases": sequence(items(_ID, whole()), _MANY),
    "burnt": sequence(_ID, _MANY),
    "committed_ms": whole(),
    "target": optional(_ID),
    "retract": optional(items(_ID, _ID)),
    "left": sequence(items(_ID, _ID, flag), _MANY),
    "origin": optional(items(text(200), _ID)),
}
_MANIFEST_2_MORE = {"publishes": flag}
"""Not in the manifests of the first release."""


def _in_order(manifest: Any) -> None:
    """Ids refer to what was before; positions and account are of the partitions there are."""
    for name in ("base", "oldest", "epoch"):
        if manifest[name] > manifest["id"]:
            raise Misfit(f"{name} {manifest[name]} is above its id {manifest['id']}")
    parent = manifest["parent"]
    if parent is not None and parent["id"] >= manifest["id"]:
        raise Misfit(f"its parent {parent['id']} is not below its id {manifest['id']}")


MANIFEST = {
    1: both(fields(_MANIFEST_1), _in_order),
    2: both(fields(_MANIFEST_2, _MANIFEST_2_MORE), _in_order),
}


def _within_the_source(at: Any) -> None:
    """A path of an input stays below the root of the source."""
    if type(at) is not dict:
        raise Misfit("is not a mapping")
    named = at.get("path", "")
    if type(named) is not str or named.startswith("/") or "\0" in named or ".." in named.split("/"):
        raise Misfit(f"path {named!r:.60} leaves the source")


PLAN = fields(
    {
        "format": whole(1),
        "features": sequence(text(100), 100),
        "job": text(200),
        "base": _ID,
        "number": _COUNT,
        "nonce": _NONCE,
        "wall_ms": whole(),
        "close_at": whole(),
        "end_of_input": flag,
        "start": _POSITIONS,
        "end": _POSITIONS,
        "splits": sequence(
            items(_PARTITION, sequence(items(_COUNT, _COUNT, _COUNT, _within_the_source), _MANY)), _MANY
        ),
        "cap": _TIMES,
        "recorded": anything,
        "appended": _RUNS,
    },
    {"limits": fields({"max_future_ms": _COUNT, "max_out_of_orderness_ms": _COUNT})},
)
"""``limits`` is not in the plans of the first release."""
FORMAT_FILE = fields(
    {
        "format": whole(1),
        "features": sequence(text(100), 100),
        "job": text(200),
        "key_groups": whole(1),
        "hash": whole(1),
    }
)


def check_format(body: Any, place: str) -> None:
    """Refuse a format or feature that this release does not know."""
    if type(body) is not dict or type(body.get("features")) is not list:
        raise CorruptCheckpoint(f"{place}: is no document of a checkpoint")
    if type(body.get("format")) is not int or body["format"] not in FORMATS:
        known = ", ".join(map(str, FORMATS))
        raise NewerFormat(
            f"{place}: format {body.get('format')!r:.20}, this release reads {known}: use a newer release"
        )
    unknown = [feature for feature in body["features"] if feature not in FEATURES]
    if unknown:
        needed = ", ".join(f"{feature!s:.60}" for feature in unknown[:10])
        raise NewerFormat(f"{place}: needs {needed}, unknown here: use a newer release")
