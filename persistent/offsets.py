"""Offset stores keep how far readers have read, each under its id."""

from persistent.messaging.offsets import LevelDbOffsets, OffsetStore, SqliteOffsets, StoredOffsets, open_offsets

__all__ = ["LevelDbOffsets", "OffsetStore", "SqliteOffsets", "StoredOffsets", "open_offsets"]
