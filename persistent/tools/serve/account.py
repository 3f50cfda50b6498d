"""The account of a job: read = processed + late + dead + duplicate, by partition, and the rows that were set aside.

A correction (``persistent correct``) can put a record that was set aside into the states. The record then counts in the
windows that hold its time, as far as they still take records. A correction is refused for a record if any of its
windows is final.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from persistent.checkpoint.parts import total
from persistent.checkpoint.set_aside import aside_names
from persistent.codec.sealed import decode_table
from persistent.errors import InvalidPipeline, PersistentError
from persistent.names import published_id, state_name
from persistent.text.figures import shell_word, utc_text
from persistent.text.readable import readable_list
from persistent.time.clock import wall_ms
from persistent.time.session_window import SessionWindow
from persistent.time.window import AnyWindow
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.state_reading import StateReading, Wanted, names_of, reading
from persistent.tools.serve.wording import cell, corrections_words, place_text

_PARTITIONS_MAX = 500
PAGE = 50


def account(job: Shown, at: int | None = None) -> dict[str, Any]:
    """The account of a checkpoint: the total, and the account of each partition, the partition with the most records
    first. Several states of a task share one account, since they have read the same records. Corrections are listed
    beside it."""
    manifest = job.entry(at).manifest
    accounts = manifest.accounts
    ordered = sorted(accounts.items(), key=lambda pair: (-pair[1].read, pair[0]))
    rest = total(counts for _, counts in ordered[_PARTITIONS_MAX:])
    return {
        "id": manifest.id,
        "total": total(accounts.values()).fates,
        "partitions": [{"name": name, **counts.fates} for name, counts in ordered[:_PARTITIONS_MAX]],
        "more": {"count": len(ordered) - _PARTITIONS_MAX, **rest.fates} if len(ordered) > _PARTITIONS_MAX else None,
        "balances": all(counts.balances for counts in accounts.values()),
        "states": [state_name(id) for id in manifest.nodes] if len(manifest.nodes) > 1 else [],
        "corrections": corrections_words(manifest),
    }


_FOLDERS = {"late": "late rows", "dead": "dead letters"}


def aside(job: Shown, folder: str, cursor: str = "", limit: int = PAGE) -> dict[str, Any]:
    """A page of late rows or dead letters, the newest step first. ``cursor``: where the previous page ended. A file
    holds the rows of one step, and only as many files are read as fill the page."""
    look = job.look()
    names = list(reversed(aside_names(job.storage, folder)))
    name, _, row = cursor.partition(":")
    if cursor and not (row.isascii() and row.isdigit() and published_id(name) >= 0):
        raise InvalidPipeline(f"{cursor!r} is no place among the {_FOLDERS[folder]}: begin at the first page")
    names = [file for file in names if not name or file <= name]
    start = int(row or 0) if names and names[0] == name else 0
    rows: list[dict[str, Any]] = []
    following, lands = None, landing(job)
    for file in names:
        if len(rows) >= limit:
            following = f"{file}:0"
            break
        try:
            data = job.storage.read(f"{folder}/{file}")
        except FileNotFoundError:
            # Taken back, or collected, meanwhile.
            continue
        table = decode_table(data, None, f"{job.storage.url}/{folder}/{file}")
        part = table.slice(start, limit - len(rows))
        rows += _rows(part, lands)
        if start + part.num_rows < table.num_rows:
            following = f"{file}:{start + part.num_rows}"
            break
        start = 0
    count = job.facts(look.newest.manifest.id)[folder]
    return {"rows": rows, "next": following, "files": len(names), "total": count, "correct": _command(job)}


def _command(job: Shown) -> str | None:
    """How a corrected record is put in; None without a pipeline."""
    if job.pipeline is None:
        return None
    return f"persistent correct {shell_word(place_text(job.target))} NAME --add FILE"


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
        for row in readable_list(table)
    ]


_DAY = len("2024-05-06")

Landing = Callable[[int | None], str]


def landing(job: Shown) -> Landing | None:
    """Says, for a timestamp, where its record would land now. None without the pipeline of the checkpoint."""
    if job.pipeline is None:
        return None
    names, manifest = names_of(job.pipeline), job.look().newest.manifest
    limit = max(wall_ms(), manifest.furthest) + job.pipeline.max_future_ms
    limit = limit if manifest.not_after is None else min(limit, manifest.not_after)
    try:
        states = [reading(job, Wanted(name=name)) for name in names or ("",)]
    except PersistentError:
        # The task has changed since: its windows are not those of the checkpoint.
        return None

    def of(timestamp: int | None) -> str:
        if timestamp is None:
            return "needs a usable time"
        if timestamp < 0:
            return "needs a time from 1970 on"
        if timestamp > limit:
            return f"needs a time up to {utc_text(limit)}"
        named = [f"{name}: " for name in names] or [""]
        return "; ".join(f"{name}{_in_state(state, timestamp)}" for name, state in zip(named, states))

    return of


def _in_state(state_reading: StateReading, timestamp: int) -> str:
    state, clock = state_reading.node.state, state_reading.clock
    window = state.window
    if window is None:
        life = state.time_to_live
        if life is not None and life.may_be_late(timestamp, clock.watermark):
            return "its key has expired by then"
        return "the sum of its key, at any time"
    if isinstance(window, SessionWindow):
        return "too old for a session" if window.may_be_late(timestamp, clock.watermark) else "a session that is open"
    if not bool(window.holds(np.array([timestamp]))[0]):
        return "no window holds it"
    return _in_windows(window, state_reading.manifest.nodes[state_reading.node.id].final, clock.closed, timestamp)


def _in_windows(window: AnyWindow, final: int, closed: int, timestamp: int) -> str:
    first, last = int(window.first_number(timestamp)), int(window.last_number(timestamp))
    start, end = int(window.start_of(first)), int(window.end_of(first))
    # The first of them that ends is the first to be final.
    if end <= final:
        fate = "is final"
    elif end <= closed:
        fate = "is closed, and published anew"
    else:
        fate = "is open"
    others = f", the first of {last - first + 1:,} windows," if last > first else ""
    begins, ends = utc_text(start), utc_text(end)
    same_day = begins[:_DAY] == ends[:_DAY]
    return f"{begins} to {ends[_DAY + 1 :] if same_day else ends}{others} {fate}"
