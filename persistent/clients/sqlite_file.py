"""A connection to a file of SQLite, whose COMMIT outlasts a loss of power.

By default the folder is not synced after the journal of a transaction was deleted: a loss of power brings the journal
back, and with it what was before the COMMIT. EXTRA syncs the folder too; with a write-ahead log it is FULL.
"""

from __future__ import annotations

import sqlite3
from typing import Any


def connected(path: str, wait_ms: int, **options: Any) -> sqlite3.Connection:
    """A connection that begins no transaction by itself, and waits so long while another writes. sqlite3.Error."""
    database: sqlite3.Connection = sqlite3.connect(path, timeout=wait_ms / 1000, isolation_level=None, **options)
    database.execute("PRAGMA synchronous = EXTRA")
    return database
