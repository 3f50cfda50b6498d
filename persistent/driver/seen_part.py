"""What was seen of a source goes from one checkpoint to the next here: begun, grown, expired, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from persistent.checkpoint.compaction import replaced
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import SeenPart
from persistent.codec import Run
from persistent.dedupe import Dedupe
from persistent.errors import FingerprintChanged
from persistent.worker.job import Folded, FoldRuns
from persistent.worker.seen_items import SeenBefore

DROPPED = "dedupe"
"""The name in ``allow_dropped`` by which a run without deduplication forgets what was seen."""


def begun(dedupe: Dedupe | None) -> SeenPart | None:
    """What was seen before anything is read; None without deduplication."""
    return None if dedupe is None else SeenPart(dedupe.columns(), dedupe.pane_ms)


def seen_of(manifest: Manifest, dedupe: Dedupe | None) -> SeenPart | None:
    """What was seen up to this checkpoint; of a job that begins to deduplicate, nothing."""
    found = held(manifest)
    return begun(dedupe) if dedupe is None or found is None or manifest.base == 0 else found


def held(manifest: Manifest) -> SeenPart | None:
    """What a checkpoint has seen; of several sources, none has."""
    return next((source.seen for source in manifest.sources.values() if source.seen is not None), None)


def seen_before(manifest: Manifest, dedupe: Dedupe | None) -> SeenBefore | None:
    """What the splits of the step after this checkpoint are told."""
    seen = seen_of(manifest, dedupe)
    if seen is None or dedupe is None:
        return None
    return SeenBefore(seen.runs, seen.horizon(manifest.clock.watermark, dedupe.within_ms), seen.pane_ms)


def seen_after(
    manifest: Manifest,
    dedupe: Dedupe | None,
    new: Iterable[Run],
    folded: Sequence[tuple[FoldRuns, Folded]],
    watermark: int,
) -> SeenPart | None:
    """What was seen after a step that wrote these new runs, and moved the clock to ``watermark``."""
    seen = seen_of(manifest, dedupe)
    if seen is None or dedupe is None:
        return None
    runs, expired = seen.runs, seen.horizon(watermark, dedupe.within_ms)
    for item, one in folded:
        if not one.failure:
            runs = replaced(runs, item.merge, one.run)
    runs = tuple(run for run in (*runs, *new) if run.pane_max >= expired)
    return replace(seen, expired=expired, runs=runs)


def check_seen(found: Manifest, expected: Manifest, dropped: Sequence[str], url: str) -> None:
    """FingerprintChanged if the checkpoint recognises copies, and this pipeline would not, or by other columns."""
    had, has = held(found), held(expected)
    if had is None or found.base == 0 or (has is not None and dict(has.columns) == dict(had.columns)):
        return
    if has is not None:
        raise FingerprintChanged(
            f"{url}: copies were recognised by {_columns(had)}, this pipeline has dedupe by {_columns(has)}. Put it "
            "back; or read the source again into a new checkpoint and sink"
        )
    if DROPPED not in dropped:
        raise FingerprintChanged(
            f"{url}: copies are recognised by {_columns(had)}, and this pipeline has no dedupe=: they would count. Put "
            f"it back; or forget what was seen: Pipeline(allow_dropped=[{DROPPED!r}])"
        )


def notes(found: Manifest, dedupe: Dedupe | None) -> Iterator[tuple[str, str]]:
    """What a run that begins or ends deduplication does to records read before."""
    if found.base == 0:
        return
    if dedupe is not None and held(found) is None:
        yield (
            "dedupe",
            f"deduplication begins after checkpoint {found.base}: what was read before is not known, so a copy of it "
            "counts again",
        )
    if dedupe is None and held(found) is not None:
        yield "dedupe", "deduplication ends: what was seen is forgotten, and copies count from now on"


def _columns(seen: SeenPart) -> str:
    epoch = seen.columns["epoch"]
    names = [*seen.columns["origin"], *([epoch] if epoch else []), seen.columns["sequence"]]
    return f"({', '.join(names)})"
