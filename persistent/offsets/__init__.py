"""Offset stores keep how far readers have read, each under its id.

protocol.py    one small document for each reader, replaced by compare-and-swap; its contents
sqlite.py      a SQLite file
leveldb.py     a LevelDB folder
stored.py      a folder of any store that can hold a checkpoint
opening.py     the store at a place
"""

from persistent.offsets.leveldb import LevelDbOffsets
from persistent.offsets.opening import open_offsets
from persistent.offsets.protocol import OffsetStore
from persistent.offsets.sqlite import SqliteOffsets
from persistent.offsets.stored import StoredOffsets

__all__ = ["LevelDbOffsets", "OffsetStore", "SqliteOffsets", "StoredOffsets", "open_offsets"]
