"""The last record that was read of a log, recognised again.

A number is used twice where the log is an older copy, or a power loss removed what was not synced. The
record under it is another one then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from persistent.errors import SourceChanged
from persistent.log import SegmentedLog


class LastRecord:
    """Of ``log``, which errors call ``place``. ``remedy``: what to do if the record is another one."""

    def __init__(self, place: str, log: SegmentedLog, remedy: str) -> None:
        self._place, self._log, self._remedy = place, log, remedy
        self._seen: list[Any] = []

    def recorded(self, recorded: Mapping[str, Any], end: int) -> dict[str, Any]:
        """What a plan records of the last record before its end. ``recorded``: by the plan before."""
        number = end - 1
        if number < 0 or recorded.get("last", (-1,))[0] == number:
            return {}
        self._seen = [number, self._log.fingerprint_of(number)]
        return {"last": self._seen}

    def require_same(self, recorded: Mapping[str, Any], read: int) -> None:
        """Raise SourceChanged if the last record before ``read`` is not the recorded one. Checked once per process:
        only a power loss or other files can change it."""
        number, known = last = list(recorded.get("last", (-1, None)))
        if not known or number != read - 1 or last == self._seen:
            return
        found, self._seen = self._log.fingerprint_of(number), last
        if found is not None and found != known:
            self._seen = []
            raise SourceChanged(
                f"{self._place}: record {number:,} is no longer the one that was read. A power loss removed unsynced "
                "records, or the log is an older copy, and others were written under the same numbers since. "
                f"{self._remedy}"
            )
