"""A connection to a SQLite file whose COMMIT survives a power loss.

By default the folder is not synced after the journal of a transaction was deleted: a power loss can bring the journal
back, and with it the state before the COMMIT. EXTRA syncs the folder too; with a write-ahead log it is FULL.
"""

from __future__ import annotations

import sqlite3
from typing import Any


def connected(path: str, wait_ms: int, **options: Any) -> sqlite3.Connection:
    """A connection without implicit transactions that waits this long for another writer. sqlite3.Error."""
    database: sqlite3.Connection = sqlite3.connect(path, timeout=wait_ms / 1000, isolation_level=None, **options)
    database.execute("PRAGMA synchronous = EXTRA")
    return database
