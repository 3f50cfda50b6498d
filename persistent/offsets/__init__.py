"""Offset stores keep how far readers have read, each under its id.

protocol.py    a small document for each reader, exchanged by compare-and-swap; what stands in it
sqlite.py      a file of SQLite
leveldb.py     a folder of LevelDB
stored.py      a folder of any store that a checkpoint can lie on
opening.py     the store at a place
"""

from persistent.offsets.leveldb import LevelDbOffsets
from persistent.offsets.opening import open_offsets
from persistent.offsets.protocol import OffsetStore
from persistent.offsets.sqlite import SqliteOffsets
from persistent.offsets.stored import StoredOffsets

__all__ = ["LevelDbOffsets", "OffsetStore", "SqliteOffsets", "StoredOffsets", "open_offsets"]
