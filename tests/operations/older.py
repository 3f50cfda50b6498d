"""A checkpoint as an older release would have written it: the same, in the documents of that format."""

from __future__ import annotations

from typing import Any

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest, manifest_sha256
from persistent.checkpoint.names import FORMAT_NAME, PLANS, Staged, manifest_name
from persistent.checkpoint.plan import StepPlan
from persistent.codec import decode_document, encode_document
from persistent.storage import Storage


def rewritten(storage: Storage, number: int) -> None:
    """Write every manifest and plan anew, in format ``number``, and the chain of hashes with them."""
    log = Log(storage)
    sha256 = {}
    for id in log.ids():
        manifest = log.read(id).manifest
        parent = manifest.parent and {"id": manifest.parent[0], "sha256": sha256.get(manifest.parent[0], "0" * 64)}
        data = encode_document({**manifest_body(manifest, number), "parent": parent})
        sha256[id] = manifest_sha256(data)
        _replace(storage, manifest_name(id), data)
    for listed in storage.list(PLANS):
        name = f"{PLANS}/{listed}"
        plan = StepPlan.decode(storage.read(name).to_pybytes(), name)
        _replace(storage, name, encode_document(plan_body(plan, number)))
    body = decode_document(storage.read(FORMAT_NAME).to_pybytes(), FORMAT_NAME)
    _replace(storage, FORMAT_NAME, encode_document({**body, "format": number}))


def manifest_body(manifest: Manifest, number: int) -> dict[str, Any]:
    clock, source, operator, state = manifest.clock, manifest.source, manifest.operator, manifest.operator.state
    newest = decode_document(manifest.encode(), "m")
    same = ("job", "id", "kind", "base", "oldest", "epoch", "nonce", "parent", "fences", "replan", "pins")
    later = ("bases", "burnt", "committed_ms", "target", "retract", "left", "origin")
    since = {} if number == 1 else {"since": source.since}
    recorded = number == 2 and {"publishes": manifest.publishes}
    known = number == 2 and {"known_from": state.known_from}
    return {
        **{name: newest[name] for name in (*same, *(later if number == 2 else ()))},
        "format": number,
        "features": ["recorded options", "wide totals"] if number == 2 else [],
        "clock": {
            "watermark": clock.watermark,
            "closed": clock.closed,
            "largest": dict(clock.largest),
            "end_of_input": clock.end_of_input,
        },
        "source": {
            "kind": source.kind,
            "partitions": list(source.partitions),
            "positions": {name: list(position) for name, position in source.positions.items()},
            "recorded": source.recorded,
            "index": [run.to_json() for run in source.index],
            **since,
        },
        "operators": {
            manifest.task_name: {
                "fingerprint": state.fingerprint,
                "key_names": list(operator.key_names),
                "key_types": list(operator.key_types),
                "lowest": state.lowest,
                "published": state.published,
                "runs": [run.to_json() for run in state.runs],
                **{name: value for name, value in (known or {}).items() if value is not None},
            }
        },
        "outputs": _outputs(manifest),
        "ledger": {partition: dict(account.__dict__) for partition, account in manifest.accounts.items()},
        **{name: value for name, value in (recorded or {}).items() if value is not None},
    }


def plan_body(plan: StepPlan, number: int) -> dict[str, Any]:
    source = plan.source
    body = {name: getattr(plan, name) for name in ("job", "base", "number", "nonce", "wall_ms")}
    newest = source.to_json()
    limits = {"max_future_ms": plan.max_future_ms, "max_out_of_orderness_ms": source.max_out_of_orderness_ms}
    return {
        **body,
        "format": number,
        "features": [],
        "close_at": plan.task.close_at,
        "end_of_input": plan.task.ends,
        **{name: newest[name] for name in ("start", "end", "splits", "cap", "recorded", "appended")},
        **({} if number == 1 else {"limits": limits}),
    }


def _outputs(manifest: Manifest) -> list[dict[str, Any]]:
    shown = {batch.id: batch.staged for batch in manifest.sink.unpublished}
    aside = {one.id: one for one in manifest.aside}
    return [
        {
            "id": id,
            "sink": _staged(shown.get(id, ())),
            "late": _staged(aside[id].late if id in aside else ()),
            "dead": _staged(aside[id].dead if id in aside else ()),
        }
        for id in sorted({*shown, *aside})
    ]


def _staged(staged: tuple[Staged, ...]) -> list[dict[str, Any]]:
    return [dict(one.__dict__) for one in staged]


def _replace(storage: Storage, name: str, data: bytes) -> None:
    storage.delete(name)
    storage.write(name, data)
