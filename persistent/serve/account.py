"""The account of a job: read = processed + late + dead + duplicate, by partition, and the rows that were set aside."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from monoids.arrays import python_list
from persistent.checkpoint.names import published_id
from persistent.checkpoint.parts import Account
from persistent.checkpoint.set_aside import aside_names
from persistent.codec import decode_table
from persistent.errors import InvalidPipeline
from persistent.serve.landing import Landing, landing
from persistent.serve.shown import FATES, Shown
from persistent.serve.wording import cell, corrections_words, place_text
from persistent.task import state_name
from persistent.text.figures import utc_text
from persistent.text.shell import shell_word

_PARTITIONS_MAX = 500
PAGE = 50


def account(shown: Shown, at: int | None = None) -> dict[str, Any]:
    """The account of a checkpoint: in all, and by partition, those with most records first. It is that of each of
    several states, since all have read the same records. Corrections stand beside it."""
    manifest = shown.entry(at).manifest
    accounts = manifest.accounts
    whole = sum(accounts.values(), Account())
    ordered = sorted(accounts.items(), key=lambda pair: (-pair[1].read, pair[0]))
    rest = sum((one for _, one in ordered[_PARTITIONS_MAX:]), Account())
    return {
        "id": manifest.id,
        "total": _numbers(whole),
        "partitions": [{"name": name, **_numbers(one)} for name, one in ordered[:_PARTITIONS_MAX]],
        "more": {"count": len(ordered) - _PARTITIONS_MAX, **_numbers(rest)} if len(ordered) > _PARTITIONS_MAX else None,
        "balances": all(one.balances for one in accounts.values()),
        "states": [state_name(one) for one in manifest.operators] if len(manifest.operators) > 1 else [],
        "corrections": corrections_words(manifest),
    }


def _numbers(one: Account) -> dict[str, int]:
    return {name: getattr(one, name) for name in FATES}


_FOLDERS = {"late": "late rows", "dead": "dead letters"}


def aside(shown: Shown, folder: str, cursor: str = "", limit: int = PAGE) -> dict[str, Any]:
    """Late rows or dead letters, newest first. ``cursor``: where the page before ended. Reads as many files as fill a
    page; a file holds those of one step."""
    look = shown.look()
    names = list(reversed(aside_names(shown.storage, folder)))
    name, _, row = cursor.partition(":")
    if cursor and not (row.isascii() and row.isdigit() and published_id(name) >= 0):
        raise InvalidPipeline(f"{cursor!r} is no place among the {_FOLDERS[folder]}: begin at the first page")
    names = [one for one in names if not name or one <= name]
    start = int(row or 0) if names and names[0] == name else 0
    rows: list[dict[str, Any]] = []
    following, lands = None, landing(shown)
    for one in names:
        if len(rows) >= limit:
            following = f"{one}:0"
            break
        try:
            data = shown.storage.read(f"{folder}/{one}")
        except FileNotFoundError:
            # Taken back, or collected, meanwhile.
            continue
        table = decode_table(data, None, f"{shown.storage.url}/{folder}/{one}")
        part = table.slice(start, limit - len(rows))
        rows += _rows(part, lands)
        if start + part.num_rows < table.num_rows:
            following = f"{one}:{start + part.num_rows}"
            break
        start = 0
    total = shown.facts(look.newest.manifest.id)[folder]
    return {"rows": rows, "next": following, "files": len(names), "total": total, "correct": _command(shown)}


def _command(shown: Shown) -> str | None:
    """How a corrected record is put in; None without a pipeline."""
    if shown.pipeline is None:
        return None
    return f"persistent correct {shell_word(place_text(shown.target))} NAME --add FILE"


def _rows(table: pa.Table, lands: Landing | None) -> list[dict[str, Any]]:
    return [
        {
            "partition": row["partition"],
            "file": place_text(row["file"]) if row["file"] and "://" in row["file"] else row["file"],
            "offset": cell(row["offset"]),
            "time": None if row["timestamp"] is None else utc_text(row["timestamp"]),
            "reason": row["reason"],
            "checkpoint": row["checkpoint"],
            "lands": None if lands is None else lands(row["timestamp"]),
            "record": cell(row["value"] if row["data"] is None else row["data"]),
        }
        for row in python_list(table)
    ]
