"""Logs on both kinds of stores, and what is in them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from persistent.log import LogPosition, SegmentedLog

KINDS = ("file", "memory")


def place(kind: str, folder: Path) -> str:
    return str(folder / "log") if kind == "file" else f"memory://{uuid.uuid4().hex}"


def values(log: SegmentedLog, start: LogPosition | None = None, **options: Any) -> list[bytes]:
    """All records from a position on."""
    return [record for batch in log.read(start, **options) for record in batch.records.to_pylist()]


def positions(log: SegmentedLog) -> list[LogPosition]:
    """Where each record is."""
    return [
        batch.first._replace(slot=batch.first.slot + slot) for batch in log.read() for slot in range(len(batch.records))
    ]
