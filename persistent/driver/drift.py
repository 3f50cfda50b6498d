"""A partition that is too far ahead of the slowest one waits, so that the state need not hold what it would bring.

The clock waits for the slowest partition, and the windows of a fast one stay open until then. The rule depends on the
timestamps that were read alone, and the slowest partition with something to read is always read, so a job never stands.
"""

from __future__ import annotations

from collections.abc import Mapping

from persistent.checkpoint.parts import SourcePart
from persistent.sources.protocol import SourcePlan


def too_far_ahead(
    planned: Mapping[str, SourcePlan],
    parts: Mapping[str, SourcePart],
    lag_ms: Mapping[str, int],
    watermark: int,
    max_drift_ms: int,
) -> dict[str, frozenset[str]]:
    """The partitions, by source, whose clock is more than ``max_drift_ms`` ahead of the slowest that has something to
    read. ``lag_ms``: the disorder of each source.

    The clock of a partition is its largest timestamp less the disorder. One that is behind the ``watermark`` counts as
    being there: its records are late however fast they are read.
    """
    at = {
        (name, partition): max(parts[name].largest.get(partition, 0) - lag_ms[name], watermark)
        for name, plan in planned.items()
        for partition in plan.unread
    }
    slowest = min(at.values(), default=0)
    ahead: dict[str, set[str]] = {}
    for (name, partition), reached in at.items():
        if reached - slowest > max_drift_ms:
            ahead.setdefault(name, set()).add(partition)
    return {name: frozenset(partitions) for name, partitions in ahead.items()}
