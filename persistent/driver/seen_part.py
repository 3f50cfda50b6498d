"""The seen records of a source pass from one checkpoint to the next here: begun, grown, expired, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import SeenColumns, SeenPart
from persistent.checkpoint.plan import StepPlan
from persistent.connect.offsets import UNCONFIRMED
from persistent.driver.results import Fold, Runs, runs_after
from persistent.errors import FingerprintChanged
from persistent.task.dedupe import Dedupe, check_columns, kinds_of
from persistent.worker.job import Job
from persistent.worker.seen_items import SeenBefore

DROPPED = "dedupe"
"""The name in ``allow_dropped`` by which a run without deduplication forgets the seen records."""


def begun(dedupe: Dedupe | None) -> SeenPart | None:
    """The seen records before anything is read; None without deduplication."""
    return None if dedupe is None else SeenPart(SeenColumns(**dedupe.columns()), dedupe.pane_ms)


def seen_of(manifest: Manifest, dedupe: Mapping[str, Dedupe], source: str) -> SeenPart | None:
    """The records of a source seen up to this checkpoint; none if deduplication begins now."""
    if source not in dedupe:
        return None
    seen = manifest.sources[source].seen if source in manifest.sources and manifest.base else None
    return begun(dedupe[source]) if seen is None else seen


def seen_before(manifest: Manifest, dedupe: Mapping[str, Dedupe]) -> dict[str, SeenBefore]:
    """The seen records for the splits of each source, in the step after this checkpoint."""
    before = {}
    for name, rule in dedupe.items():
        seen = seen_of(manifest, dedupe, name)
        assert seen is not None
        horizon = _horizon(seen, rule, manifest.clock.watermark, manifest.sources[name].recorded)
        before[name] = SeenBefore(seen.runs, horizon, seen.pane_ms)
    return before


def _horizon(seen: SeenPart, dedupe: Dedupe, watermark: int, recorded: Mapping[str, Any]) -> int:
    """The first pane that counts. Messages whose acknowledgement is not confirmed may come again, with times of their
    own, however late."""
    return seen.horizon(min(watermark, recorded.get(UNCONFIRMED, watermark)), dedupe.within_ms)


def seen_after(
    seen: SeenPart,
    dedupe: Dedupe,
    new: Runs,
    folded: Sequence[Fold],
    watermark: int,
    *,
    kinds: Mapping[str, str] = MappingProxyType({}),
    recorded: Mapping[str, Any] = MappingProxyType({}),
) -> SeenPart:
    """The seen records after a step. ``new``: the runs that it wrote. ``watermark``: the clock that it moved to.
    ``kinds``: the kinds of the values that it read, by column. ``recorded``: by the plan of the source."""
    expired = _horizon(seen, dedupe, watermark, recorded)
    runs = tuple(run for run in (*runs_after(seen.runs, folded), *new) if run.pane_max >= expired)
    return replace(seen, expired=expired, runs=runs, kinds={**seen.kinds, **kinds})


def kinds_read(job: Job, plan: StepPlan) -> dict[str, dict[str, str]]:
    """The kinds of the values that identify a record, by source, in what a plan reads."""
    return {
        name: kinds_of(job.dedupe[name], job.sources[name].schema(step.recorded))
        for name, step in plan.sources.items()
        if name in job.dedupe and step.splits
    }


def check_names(job: Job, manifest: Manifest, source: str, recorded: Mapping[str, Any]) -> None:
    """InvalidPipeline unless the records of this plan have the columns that identify them. FingerprintChanged if these
    columns have another kind of value than in the seen records."""
    reader, dedupe = job.sources[source], job.dedupe[source]
    schema = reader.schema(recorded)
    check_columns(dedupe, schema, reader.text_columns(recorded) if reader.infers else ())
    _check_kinds(manifest, dedupe, source, schema, job.storage.url)


def _check_kinds(manifest: Manifest, dedupe: Dedupe, source: str, schema: pa.Schema, url: str) -> None:
    """FingerprintChanged if the seen records have names of another kind than this schema: no copy would be
    recognised."""
    seen = manifest.sources[source].seen
    for name, kind in kinds_of(dedupe, schema).items() if seen is not None and seen.runs else ():
        had = seen.kinds.get(name, kind) if seen is not None else kind
        if had != kind:
            where = f" of {source}" if len(manifest.sources) > 1 else ""
            raise FingerprintChanged(
                f"{url}: copies{where} were recognised by {name!r}, which held {had} and is now read as {kind}: none "
                "would be recognised, and each would count again. Give the source the type that it had (schema=); or "
                "read it again into a new checkpoint and sink"
            )


def check_seen(manifest: Manifest, expected: Manifest, dropped: Sequence[str], url: str) -> None:
    """FingerprintChanged if the checkpoint recognises copies, but this pipeline would not, or by other columns."""
    for name, source in manifest.sources.items() if manifest.base else ():
        has = expected.sources[name].seen if name in expected.sources else None
        where = f" of {name}" if len(manifest.sources) > 1 else ""
        if source.seen is not None:
            _check_columns(source.seen, has, dropped, url, where)


def _check_columns(had: SeenPart, has: SeenPart | None, dropped: Sequence[str], url: str, where: str) -> None:
    if has is not None and has.columns != had.columns:
        raise FingerprintChanged(
            f"{url}: copies{where} were recognised by {_columns(had)}, but this pipeline has dedupe by "
            f"{_columns(has)}. Restore it; or read the source again into a new checkpoint and sink"
        )
    if has is None and DROPPED not in dropped:
        raise FingerprintChanged(
            f"{url}: copies{where} are recognised by {_columns(had)}, but this pipeline has no dedupe=: they would "
            f"count. Restore it; or forget the seen records: Pipeline(allow_dropped=[{DROPPED!r}])"
        )


def notes(manifest: Manifest, dedupe: Mapping[str, Dedupe]) -> Iterator[tuple[str, str]]:
    """Notes on the consequences of beginning or ending deduplication."""
    for name, source in manifest.sources.items() if manifest.base else ():
        where = f" of {name}" if len(manifest.sources) > 1 else ""
        if name in dedupe and source.seen is None:
            yield (
                f"dedupe{where}",
                f"deduplication{where} begins after checkpoint {manifest.base}: earlier records are unknown, so a copy "
                "of them counts again",
            )
        if name not in dedupe and source.seen is not None:
            yield (
                f"dedupe{where}",
                f"deduplication{where} ends: the seen records are forgotten, and copies count from now on",
            )


def _columns(seen: SeenPart) -> str:
    names = [*seen.columns.origin, *filter(None, (seen.columns.epoch, seen.columns.sequence))]
    return f"({', '.join(names)})"
