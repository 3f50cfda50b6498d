"""The offset store at a place."""

from __future__ import annotations

import os
from typing import cast

from persistent.offsets.protocol import OffsetStore
from persistent.offsets.sqlite import SqliteOffsets
from persistent.offsets.stored import StoredOffsets


def open_offsets(place: str | os.PathLike[str] | OffsetStore) -> OffsetStore:
    """A path is a SQLite file; a URL is a folder of that store; a store is returned as it is.

    >>> open_offsets("offsets.db"), open_offsets("memory://doctest-offsets")
    (SqliteOffsets('offsets.db'), StoredOffsets('memory://doctest-offsets'))
    """
    if not isinstance(place, str | os.PathLike):
        return place
    text = os.fspath(place)
    return cast("OffsetStore", StoredOffsets(text) if "://" in text else SqliteOffsets(text))
