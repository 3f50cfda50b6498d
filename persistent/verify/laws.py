"""The laws of the manifest log; each violation is a sentence.

of one manifest             it belongs to this job, its account balances, nothing is closed ahead of the clock
of a manifest and the next  the next names it as its parent, nothing goes back, a fence changes nothing
of the runs in a manifest   in every key group each delta counts once
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from msgspec.structs import asdict

from persistent.checkpoint.manifest import SETS, Manifest
from persistent.checkpoint.parts import partition_name
from persistent.checkpoint.successor import Entry, broken
from persistent.codec import Run


def differences(before: Run, after: Run, manifest: Manifest) -> str:
    """The fields of a run that differ between an earlier manifest and this one. Only ``low`` may change, and only
    upwards: except in a rollback, which names the run as its target does."""
    names = (name for name in before.__struct_fields__ if name != "low")
    changed = [name for name in names if getattr(before, name) != getattr(after, name)]
    goes_back = after.low < before.low and manifest.kind != "rollback"
    return ", ".join([*changed, *(["low"] if goes_back else [])])


def manifest_faults(manifest: Manifest, job: str | None) -> Iterator[str]:
    """The broken laws of one manifest. ``job``: the job in FORMAT, if that is readable."""
    if job is not None and manifest.job != job:
        yield f"has job {manifest.job}, but FORMAT has {job}"
    if manifest.kind in ("checkpoint", "correction", *SETS) and not manifest.is_base:
        yield f"is a {manifest.kind} with base {manifest.base}"
    for partition, account in manifest.accounts.items():
        if not account.balances:
            yield f"{partition}: the account does not balance: {account}"
    for clock in (node.clock for node in manifest.nodes.values()):
        if not 0 <= clock.closed <= clock.watermark:
            yield f"windows are closed up to {clock.closed}, ahead of the clock {clock.watermark}"


def step_faults(manifest: Manifest, parent: Entry) -> Iterator[str]:
    """The broken laws between a manifest and its parent."""
    if manifest.parent != (parent.manifest.id, parent.sha256):
        yield f"names a parent that differs from the present manifest {parent.manifest.id}"
    before, after = parent.manifest, manifest
    for law in broken(after, before):
        yield f"does not follow {before.id}: {law}"
    later = after.accounts
    for partition, account in before.accounts.items() if after.kind not in SETS else ():
        partition = partition if partition in later else _qualified(before, partition, after)
        if not _grows(asdict(account), asdict(later[partition]) if partition in later else {}):
            yield f"{partition}: the account goes back"


def _qualified(before: Manifest, partition: str, after: Manifest) -> str:
    """The name of a single source's partition, after other sources have joined."""
    source, *_ = before.sources
    return partition_name(source, partition, len(after.sources))


def _grows(before: Mapping[str, int], after: Mapping[str, int]) -> bool:
    return all(after.get(name, -1) >= value for name, value in before.items() if name != "mix")


def sum_faults(runs: tuple[Run, ...], id: int) -> Iterator[str]:
    """In every key group each delta counts once: the runs follow each other, and none overlaps the next."""
    for run in runs:
        if not 0 <= run.first <= run.last <= id:
            yield f"run {run.name} sums the deltas {run.first} to {run.last}"
    borders = sorted({border for run in runs for border in (run.low, run.high)})
    for low in borders[:-1]:
        there = [run for run in runs if run.low <= low < run.high]
        for run, later in itertools.pairwise(there):
            if run.last > later.first:
                yield f"runs {run.name} and {later.name} both count deltas up to {run.last} in key group {low}"
