"""Setting a clock back repairs it after one record with a time far ahead has closed every window.

The windows up to that time are closed, and every record since is late. So the job returns to the newest kept checkpoint
from before the record, and timestamps after a limit are dead letters from then on: the record comes again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from persistent.checkpoint.commit_change import Decision, Location, Manifests, commit_change, log_of, look_at_all
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import SinkBatch
from persistent.checkpoint.successor import Entry
from persistent.errors import Refused
from persistent.operations.rolling_back import check_outputs, go_back, was_taken_back
from persistent.text.figures import clock_text, count_text, utc_text
from persistent.time.clock import Instant, instant_ms


@dataclass(frozen=True)
class Undone:
    """What setting a clock back undoes. ``target``: the checkpoint to return to. ``checkpoints``: the later ones that
    are kept. ``clock``, ``closed``: their values before and after (ms); ``closed`` is None without windows.
    ``records``: how many are read again. ``outputs``: the rows that the kept ones of these checkpoints gave to the
    ``sinks``, which are the sinks that got any."""

    target: int
    checkpoints: tuple[int, ...]
    clock: tuple[int, int]
    closed: tuple[int, int] | None
    records: int
    outputs: int
    sinks: tuple[str, ...]

    def __str__(self) -> str:
        listed = f" ({', '.join(map(str, self.checkpoints))})" if self.checkpoints else ""
        parts = [
            f"the clock goes from {clock_text(self.clock[0])} to {clock_text(self.clock[1])}",
            f"the checkpoints after it{listed} are undone, and {count_text(self.records, 'record')} will be read again",
        ]
        if self.closed is not None:
            ends = f"the windows that end after {clock_text(self.closed[1])}, up to {clock_text(self.closed[0])}"
            parts.append(f"{ends}, open again")
        if self.sinks:
            rows = count_text(self.outputs, "row")
            parts.append(f"{rows} of the kept ones among these checkpoints went to {', '.join(self.sinks)}")
        elif self.checkpoints:
            parts.append("the kept ones among these checkpoints have published nothing")
        return f"back to checkpoint {self.target}: {'; '.join(parts)}"


def set_back(storage: Location, *, not_after: Instant, outputs: str, take_over: bool = False) -> Entry:
    """Return to the newest kept checkpoint whose clock, and every timestamp that it has counted, is at most
    ``not_after``. Later timestamps are dead letters from then on, until ``lift_limit``.

    ``outputs``, ``take_over`` and errors: as in ``rollback``. Refused if nothing after ``not_after`` was counted, or if
    no checkpoint from before is kept, with what remains to be done. ``undone`` says beforehand what this undoes.
    """
    check_outputs(outputs)
    limit, log = instant_ms(not_after, "not_after"), log_of(storage)
    return go_back(
        log, lambda manifests: _target(log, manifests, limit), outputs=outputs, take_over=take_over, not_after=limit
    )


def undone(storage: Location, not_after: Instant) -> Undone:
    """What ``set_back`` would undo. Changes nothing. Refused as ``set_back``."""
    limit, log = instant_ms(not_after, "not_after"), log_of(storage)
    manifests = look_at_all(log)
    target, newest = _target(log, manifests, limit), manifests.newest.manifest
    later = {
        id: one for id, one in sorted(manifests.bases().items()) if target.id < id and not was_taken_back(manifests, id)
    }
    rows = Counter[str]()
    for name, batch in _given(later):
        rows[name] += sum(staged.rows for staged in batch.staged)
    read = sum(tally.read for tally in newest.accounts.values()) - sum(tally.read for tally in target.accounts.values())
    return Undone(
        target=target.id,
        checkpoints=tuple(later),
        clock=(newest.furthest, target.furthest),
        closed=(_closed(newest), _closed(target)) if _has_windows(newest) else None,
        records=max(read, 0),
        outputs=rows.total(),
        sinks=tuple(sorted(name for name, count in rows.items() if count)),
    )


def _given(later: Mapping[int, Manifest]) -> list[tuple[str, SinkBatch]]:
    """The batches of these checkpoints, with the names of their sinks, each once: the next checkpoint lists a batch
    too, as it may still be unpublished."""
    batches = {
        (name, batch.id): batch
        for manifest in later.values()
        for name, sink in manifest.sinks.items()
        for batch in sink.unpublished
        if batch.id in later
    }
    return [(name, batch) for (name, _), batch in batches.items()]


def _has_windows(manifest: Manifest) -> bool:
    return any(node.has_windows for node in manifest.nodes.values())


def _closed(manifest: Manifest) -> int:
    """The clock up to which windows of a state are closed."""
    return max(node.clock.closed for node in manifest.nodes.values() if node.has_windows)


def lift_limit(storage: Location, *, take_over: bool = False) -> Entry:
    """Let timestamps after the limit of ``set_back`` count again. A step that was planned already runs as planned. If
    there is no limit, returns the newest manifest. StillRunning."""

    def decide(manifests: Manifests) -> Decision | None:
        return None if manifests.newest.manifest.not_after is None else Decision("fence", {"not_after": None})

    return commit_change(log_of(storage), decide, take_over=take_over)


def _target(log: Log, manifests: Manifests, limit: int) -> Manifest:
    """The newest kept checkpoint that has counted nothing after the limit. Refused if that is the newest of all, or if
    there is none."""
    url, newest = log.storage.url, manifests.newest.manifest
    # Of a lost manifest above it nobody knows what it had counted.
    if _furthest(newest) <= limit and not manifests.is_lost:
        raise Refused(
            f"{url}: nothing after {utc_text(limit)} was counted, and the clock stands at "
            f"{clock_text(newest.furthest)}: there is nothing to set back. Nothing was changed"
        )
    bases = {id: base for id, base in manifests.bases().items() if not was_taken_back(manifests, id)}
    ids = [id for id, base in bases.items() if _furthest(base) <= limit]
    if ids:
        return bases[max(ids)]
    earliest = min(map(_furthest, bases.values()), default=0)
    raise Refused(
        f"{url} keeps no checkpoint from before: each has counted a timestamp after {utc_text(limit)}, the earliest up "
        f"to {utc_text(earliest)}. Nothing was changed. What remains: a later --not-after, if one of them is good; a "
        "savepoint from before (Pipeline(start_from=URL)); a new checkpoint that reads the source again, with a "
        "max_future= that makes the record a dead letter; or to leave it: records behind the clock are in 'persistent "
        "late'. To keep checkpoints for longer: retention="
    )


def _furthest(manifest: Manifest) -> int:
    """The latest time that a checkpoint knows of: its clock, or a timestamp that it has counted."""
    return max((manifest.furthest, *manifest.clock.largest.values()))
