"""A key limit says which keys a sink can never hold. A record is checked against the limits before it counts, because a
sink must not refuse what the state has counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from monoids.groupby.sorting import Integers, Mask

KeyLimit = Callable[[pa.Table], Iterable[tuple[Mask, str]]]
"""Rows of key columns that a sink can never hold, each time with the reason."""


class KeysRefused(ValueError):
    """A sink can never hold the keys of some messages. ``reasons``: the reason by the offset of the message; empty if
    the messages are unknown."""

    def __init__(self, reason: str = "", reasons: Mapping[int, str] | None = None) -> None:
        super().__init__(reason)
        self.reasons = reasons or {}

    def of(self, offset: int) -> ValueError:
        """The error of one message."""
        return ValueError(self.reasons.get(offset, str(self)))


class KeyLimits:
    """The limits of those ``sinks`` that have limits. ``names``: the names of the key columns. Notes the messages of a
    batch whose keys are refused."""

    def __init__(self, sinks: Iterable[Any] = (), names: Sequence[str] = ()) -> None:
        self._limits: list[KeyLimit] = [sink.refused_keys for sink in sinks if names and sink.limits_keys]
        self._names = tuple(names)
        self._reasons: dict[int, str] = {}

    def __bool__(self) -> bool:
        return bool(self._limits)

    def note(self, distinct: Sequence[pa.Array], keys: Sequence[pa.Array], offsets: Integers | None) -> None:
        """Note the messages whose keys are refused. ``distinct``: each key once; ``keys``: the key of each update;
        ``offsets``: the offset of its message, None if unknown. KeysRefused for a refused key without an offset."""
        for limit in self._limits:
            if not any(refused.any() for refused, _ in limit(self._table(distinct))):
                continue
            for refused, reason in limit(self._table(keys)):
                if refused.any() and offsets is None:
                    raise KeysRefused(reason)
                if offsets is not None:
                    self._reasons.update(dict.fromkeys(offsets[refused].tolist(), reason))

    def check(self) -> None:
        """KeysRefused if a message is noted."""
        if self._reasons:
            raise KeysRefused(reasons=self._reasons)

    def clear(self) -> None:
        """Forget the noted messages."""
        self._reasons = {}

    def _table(self, columns: Sequence[pa.Array]) -> pa.Table:
        return pa.table(list(columns), self._names)
