"""The values of the metrics that a manifest holds, by metric, under the values of their labels but the pipeline's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account
from persistent.task import state_name

PARTITIONS_MAX: Final = 200
"""So many partitions of a source, in the order in which they joined, have values of their own."""
OTHERS: Final = "(others)"
"""The label of the partition that is furthest behind among all others."""
_FATES: Final = ("processed", "late", "dead", "duplicate")

Values = Mapping[tuple[str, ...], float]


def _records(manifest: Manifest, now_ms: int) -> Values:
    wholes = _accounts(manifest)
    return {(name, fate): getattr(whole, fate) for name, whole in wholes.items() for fate in _FATES}


def _skipped(manifest: Manifest, now_ms: int) -> Values:
    return {(name,): whole.skipped for name, whole in _accounts(manifest).items()}


def _accounts(manifest: Manifest) -> dict[str, Account]:
    """The account of each source. All states have read the same records, so theirs are equal."""
    return {name: sum(accounts.values(), Account()) for name, accounts in manifest.inputs.items()}


def _clocks(manifest: Manifest, now_ms: int) -> Values:
    """Without the clocks that have not begun: 0 would be fifty years behind."""
    return {_state(name): one.watermark / 1000 for name, one in manifest.clocks.items() if one.watermark}


def _clock_lags(manifest: Manifest, now_ms: int) -> Values:
    return {_state(name): (now_ms - one.watermark) / 1000 for name, one in manifest.clocks.items() if one.watermark}


def _closed(manifest: Manifest, now_ms: int) -> Values:
    with_windows = {name for name, one in manifest.operators.items() if one.state.has_windows}
    clocks = manifest.clocks.items()
    return {_state(name): one.closed / 1000 for name, one in clocks if name in with_windows and one.closed}


def _partition_times(manifest: Manifest, now_ms: int) -> Values:
    return {labels: largest / 1000 for labels, largest in _largest(manifest)}


def _partition_lags(manifest: Manifest, now_ms: int) -> Values:
    return {labels: (now_ms - largest) / 1000 for labels, largest in _largest(manifest)}


def _largest(manifest: Manifest) -> Iterator[tuple[tuple[str, ...], int]]:
    """The largest timestamp of each partition that has one, and the least of those beyond the first."""
    for name, source in manifest.sources.items():
        own = source.partitions[:PARTITIONS_MAX]
        yield from (((name, one), source.largest[one]) for one in own if one in source.largest)
        others = [source.largest[one] for one in source.partitions[PARTITIONS_MAX:] if one in source.largest]
        if others and OTHERS not in own:
            yield (name, OTHERS), min(others)


def _rows(manifest: Manifest, now_ms: int) -> Values:
    return {_state(name): sum(run.rows_left for run in one.state.runs) for name, one in manifest.operators.items()}


def _bytes(manifest: Manifest, now_ms: int) -> Values:
    return {_state(name): sum(run.bytes for run in one.state.runs) for name, one in manifest.operators.items()}


def _runs(manifest: Manifest, now_ms: int) -> Values:
    return {_state(name): len(one.state.runs) for name, one in manifest.operators.items()}


def _owed(manifest: Manifest, now_ms: int) -> Values:
    return {(name,): len(part.owed) for name, part in manifest.sinks.items()}


def _planned(manifest: Manifest, now_ms: int) -> Values:
    return {(): manifest.committed_ms / 1000} if manifest.committed_ms else {}


def _rollback(manifest: Manifest, now_ms: int) -> Values:
    """A rollback has the id behind those that it abandoned."""
    return {(): max((stop for _, stop, _ in manifest.left), default=0)}


def _state(operator: str) -> tuple[str, str]:
    return operator.partition("/")[0], state_name(operator)


FROM_MANIFEST: Mapping[str, Callable[[Manifest, int], Values]] = {
    "checkpoint.id": lambda manifest, now_ms: {(): manifest.base},
    "checkpoint.epoch": lambda manifest, now_ms: {(): manifest.epoch},
    "checkpoint.timestamp": _planned,
    "rollback.id": _rollback,
    "records": _records,
    "skipped.positions": _skipped,
    "clock.timestamp": _clocks,
    "clock.lag": _clock_lags,
    "closed.timestamp": _closed,
    "partition.timestamp": _partition_times,
    "partition.lag": _partition_lags,
    "state.rows": _rows,
    "state.size": _bytes,
    "state.runs": _runs,
    "sink.owed.batches": _owed,
}
"""By the name of the metric: its values in a manifest, at a time of day (ms)."""
