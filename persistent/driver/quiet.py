"""A quiet watch measures for how long a driver has seen every partition at its end.

Only the time between two looks that both found nothing counts: not the time before this driver, and not a look that
waits for a server that is away. A record that arrives between two looks is found by the second, or another driver has
read it, and then the positions differ. Either begins the watch anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from persistent.checkpoint.manifest import Manifest
from persistent.clock import monotonic_s
from persistent.sources.protocol import Positions, SourcePlan


class QuietWatch:
    """The looks of one driver at its sources."""

    def __init__(self) -> None:
        self._positions: dict[str, Positions] = {}
        self._before_ms = 0
        self._watched_s = 0.0
        self._looked_s: float | None = None

    def saw(self, planned: Mapping[str, SourcePlan], manifest: Manifest, began_s: float) -> None:
        """Remember a look from the positions of ``manifest``, which began at ``began_s`` and has just ended."""
        if not all(map(_is_at_its_end, planned.values())):
            self._looked_s = None
            return
        positions = {name: part.positions for name, part in manifest.sources.items()}
        if self._looked_s is None or positions != self._positions:
            # What drivers have watched since the last record stands in the manifest.
            self._before_ms, self._watched_s = max(one.quiet_ms for one in manifest.clocks.values()), 0.0
        else:
            self._watched_s += began_s - self._looked_s
        self._positions, self._looked_s = positions, monotonic_s()

    def lasts_ms(self, quiet_after_ms: int) -> int:
        """For how long it has been quiet, earlier drivers included; 0 unless this one has watched that long."""
        watched_ms = round(self._watched_s * 1_000)
        return 0 if self._looked_s is None or watched_ms < quiet_after_ms else self._before_ms + watched_ms


def _is_at_its_end(planned: SourcePlan) -> bool:
    """Whether nothing is left to read: neither records that cannot be read yet, nor records that are gone."""
    return not (planned.splits or planned.held or planned.skipped)
