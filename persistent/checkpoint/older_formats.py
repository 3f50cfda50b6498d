"""The older formats of manifests and plans: the shapes of their documents, and their translation to the newest.

    1    the first
    2    records which manifests hold a state of their own, and what operations have left; later also the options of a
         driver (``known_from``, ``publishes``, ``limits``)

Both describe jobs with one source, one task with one state, and at most one sink. Only the task has a name, and
only in a manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from persistent.checkpoint import shapes
from persistent.checkpoint.parts import default_name
from persistent.checkpoint.positions import ORDINAL_OFFSET
from persistent.codec.shapes import (
    NAME,
    Shape,
    anything,
    both,
    fields,
    flag,
    mapping,
    one_of,
    optional,
    sequence,
    text,
    whole,
)
from persistent.task import STATE

UNNAMED = ""
"""The name of source and task in a decoded plan of an older format."""
SINK = "sink"
"""The name of a sink whose outputs come from an older release."""

_POSITIONS = mapping(shapes.PARTITION, ORDINAL_OFFSET.shape, shapes.MANY)
_SOURCE = {
    "kind": text(200),
    "partitions": sequence(shapes.PARTITION, shapes.MANY),
    "positions": _POSITIONS,
    "recorded": anything,
    "index": shapes.RUNS,
}
_OPERATOR = both(fields({**shapes.KEY, **shapes.STATE}, {"known_from": whole(0)}), shapes.as_many_key_types)
_MANIFEST_1 = {
    **shapes.LOG,
    "kind": one_of("checkpoint", "fence"),
    "clock": fields(
        {
            "watermark": whole(),
            "closed": whole(),
            "largest": mapping(shapes.PARTITION, whole(), shapes.MANY),
            "end_of_input": flag,
        }
    ),
    "source": fields(_SOURCE),
    "operators": mapping(NAME, _OPERATOR, 1_000),
    "outputs": sequence(
        fields({"id": shapes.ID, "sink": shapes.SHOWN, "late": shapes.ASIDE, "dead": shapes.ASIDE}), shapes.MANY
    ),
    "ledger": shapes.LEDGER,
}
_MANIFEST_2 = {
    **_MANIFEST_1,
    **shapes.KEPT,
    "kind": one_of(*shapes.KINDS),
    "source": fields({**_SOURCE, "since": optional(whole())}),
}
_PLAN = fields(
    {
        **shapes.STEP,
        "close_at": whole(),
        "end_of_input": flag,
        "start": _POSITIONS,
        "end": _POSITIONS,
        "splits": shapes.SPLITS,
        "cap": shapes.TIMES,
        "recorded": anything,
        "appended": shapes.RUNS,
    },
    {"limits": fields({"max_future_ms": shapes.COUNT, "max_out_of_orderness_ms": shapes.COUNT})},
)

MANIFEST: Mapping[int, Shape] = {
    1: both(fields(_MANIFEST_1), shapes.in_order),
    2: both(fields(_MANIFEST_2, {"publishes": flag}), shapes.in_order),
    3: shapes.MANIFEST,
}
"""The shape of a manifest, by format."""
PLAN: Mapping[int, Shape] = {1: _PLAN, 2: _PLAN, 3: shapes.PLAN}
"""The shape of a plan, by format."""

_SINCE_2: Mapping[str, Any] = {
    "bases": [],
    "burnt": [],
    "committed_ms": 0,
    "target": None,
    "retract": None,
    "left": [],
    "origin": None,
}
"""The fields that format 1 lacks, with their values."""


def manifest_of_today(body: dict[str, Any]) -> dict[str, Any]:
    """A manifest of any format with the fields of the newest; its ``format`` is the one it was read in."""
    if body["format"] == shapes.FORMATS[-1]:
        return body
    source, clock = body["source"], body["clock"]
    name = default_name(source["kind"], "source")
    return {
        **{key: body[key] for key in shapes.LOG},
        **{key: body.get(key, before) for key, before in _SINCE_2.items()},
        "sources": {
            name: {
                "since": None,
                **source,
                "codec": ORDINAL_OFFSET.name,
                "largest": clock["largest"],
                "idle": [],
            }
        },
        "clocks": {
            task: {"watermark": clock["watermark"], "closed": clock["closed"], "ended": clock["end_of_input"]}
            for task in body["operators"]
        },
        "operators": {task: _operator(operator, name) for task, operator in body["operators"].items()},
        "ledger": {task: {name: body["ledger"]} for task in body["operators"]},
        "sinks": _sinks(body),
        "aside": [
            {key: outputs[key] for key in ("id", "late", "dead")}
            for outputs in body["outputs"]
            if outputs["late"] or outputs["dead"]
        ],
        "publishes": body.get("publishes"),
        "revision_base": 0,
    }


def plan_of_today(body: dict[str, Any]) -> dict[str, Any]:
    """A plan of any format with the fields of the newest; source and task of an older one are ``UNNAMED``."""
    if body["format"] == shapes.FORMATS[-1]:
        return body
    limits = body.get("limits", {"max_future_ms": None, "max_out_of_orderness_ms": None})
    source = {
        **{key: body[key] for key in ("start", "end", "splits", "cap", "recorded", "appended")},
        "codec": ORDINAL_OFFSET.name,
        "idle": [],
        "max_out_of_orderness_ms": limits["max_out_of_orderness_ms"],
    }
    return {
        **{key: body[key] for key in shapes.STEP},
        "sources": {UNNAMED: source},
        "tasks": {UNNAMED: {"close_at": body["close_at"], "ends": body["end_of_input"]}},
        "max_future_ms": limits["max_future_ms"],
    }


def _operator(operator: Mapping[str, Any], source: str) -> dict[str, Any]:
    state = {"known_from": None, **{key: value for key, value in operator.items() if key not in shapes.KEY}}
    return {"inputs": [source], **{key: operator[key] for key in shapes.KEY}, "states": {STATE: state}}


def _sinks(body: Mapping[str, Any]) -> dict[str, Any]:
    """The sink, if it has unpublished batches; older formats do not record earlier batches."""
    batches = [
        {"id": outputs["id"], "before": None, "staged": outputs["sink"]}
        for outputs in body["outputs"]
        if outputs["sink"]
    ]
    return {SINK: {"does": [], "last": None, "unpublished": batches}} if batches else {}
