"""What a notebook shows of a pipeline: its parts and its checkpoint, and how it went. How a run goes on is shown by
``persistent.progress``.

Nothing here is imported on a worker, and Altair only where it is used. No secret of a URL is shown. A store that does
not answer is not waited for: what cannot be read is said in place of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

import pyarrow as pa

from monoids.html import Fact, facts_html
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import total
from persistent.checkpoint.running import running
from persistent.errors import CorruptCheckpoint, InvalidPipeline, UnknownCheckpoint
from persistent.storage.failures import without_secrets
from persistent.storage.protocol import Storage
from persistent.task.task import key_names, task_name
from persistent.text.figures import bytes_text, clock_text, count_text, span_text, utc_text
from persistent.text.fingerprints import part_text
from persistent.text.plots import Point, plotted
from persistent.time.clock import StopRequest, heard
from persistent.worker.job import Job

_WAIT_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 2.0


def pipeline_html(job: Job, guarantee: str) -> str:
    """A pipeline and its newest checkpoint, as a table."""
    facts = [*_parts(job), ("guarantee", guarantee), ("", "checkpoint"), *_checkpoint(job.storage)]
    return facts_html(f"Pipeline {task_name(job.task)}", [(name, without_secrets(text)) for name, text in facts])


def _parts(job: Job) -> Iterator[Fact]:
    for name, source in job.sources.items():
        yield _named("source", name, job.sources), repr(source)
    yield "task", f"{type(job.task).__name__}, by {', '.join(key_names(job.task)) or 'no key'}"
    states = job.nodes
    for node in states.values():
        window = "" if node.state.window is None else f", {part_text('window', node.state.fingerprint()['window'])}"
        yield _named("state", node.name, states), f"{node.state.monoid!r}{window}"
    for name, sink in job.all_sinks.items():
        yield _named("sink", name, job.all_sinks), repr(sink)


def _named(what: str, name: str, among: Mapping[str, Any]) -> str:
    return what if len(among) == 1 else f"{what} {name}"


def _checkpoint(storage: Storage) -> Iterator[Fact]:
    yield "folder", storage.url
    answers: SimpleQueue[list[Fact]] = SimpleQueue()
    # On a thread of its own, since a client can wait for a minute within one call.
    Thread(target=lambda: answers.put(_read(storage)), name="persistent-shown", daemon=True).start()
    try:
        yield from answers.get(timeout=_WAIT_SECONDS)
    except Empty:
        yield "cannot be read", f"the store has not answered for {span_text(int(1000 * _WAIT_SECONDS))}"


def _read(storage: Storage) -> list[Fact]:
    """What the newest checkpoint says, or why it cannot be read."""
    request = StopRequest()
    request.make()
    try:
        # Asked to stop from the start: a failure is tried again for a moment only.
        with heard(request, _RETRY_SECONDS):
            newest = Log(storage).newest()
            drivers = [] if newest is None else running(storage, newest.manifest.epoch)
    except Exception as error:
        return [("cannot be read", f"{type(error).__name__}: {error}")]
    if newest is None:
        return [("newest", "none: the pipeline has not run yet")]
    driver = ", ".join(f"may run: {mark}" for mark in drivers) or "none runs"
    return [*_facts(newest.manifest), ("driver", driver)]


def _facts(manifest: Manifest) -> Iterator[Fact]:
    planned = f", planned at {utc_text(manifest.committed_ms)}" if manifest.committed_ms else ""
    yield "newest", f"{manifest.base}{planned}; kept: {count_text(max(len(manifest.bases), 1), 'checkpoint')}"
    for name in manifest.nodes:
        clock = manifest.nodes[name].clock
        ended = ", end of input" if clock.ended else ""
        of = "clock" if len(manifest.nodes) == 1 else f"clock of {name}"
        yield of, f"{clock_text(clock.watermark)}{ended}"
    account = total(manifest.accounts.values())
    fates = ", ".join(f"{count:,} {fate}" for fate, count in account.fates.items() if count and fate != "read")
    yield "records", f"{account.read:,} read{f': {fates}' if fates else ''}"
    runs = manifest.state_runs()
    rows, size = sum(run.rows_left for run in runs), sum(run.bytes for run in runs)
    yield "state", f"{count_text(rows, 'row')} in {count_text(len(runs), 'run')}, {bytes_text(size)}"


LIBRARIES: Final = ("pandas", "polars")


def frame_of(table: pa.Table, library: str) -> Any:
    """The table as a data frame. InvalidPipeline for another library, or one that is not installed.

    Whole numbers with nulls stay whole numbers: ``table.to_pandas()`` would make floats of them, which are not exact
    from 2**53 on.

    >>> frame_of(pa.table({"n": pa.array([2**60 + 1, None])}), "pandas")["n"].tolist()
    [1152921504606846977, <NA>]
    """
    if library not in LIBRARIES:
        raise InvalidPipeline(f"state_frame({library!r}): give one of {', '.join(map(repr, LIBRARIES))}")
    try:
        frames = import_module(library)
    except ImportError as error:
        raise InvalidPipeline(f"state_frame({library!r}) cannot import it ({error}): pip install {library}") from error
    if library == "pandas":
        return table.to_pandas(types_mapper=frames.ArrowDtype)
    return frames.from_arrow(_narrow(table))


def _narrow(table: pa.Table) -> pa.Table:
    """The table with decimals of 38 digits, the widest of Polars. InvalidPipeline if a decimal has more digits."""
    fields = [
        field.with_type(pa.decimal128(38, field.type.scale)) if pa.types.is_decimal256(field.type) else field
        for field in table.schema
    ]
    try:
        return table.cast(pa.schema(fields))
    except pa.ArrowException as error:
        raise InvalidPipeline(
            f"state_frame('polars'): {error}, and Polars has decimals of at most 38 digits: take state_frame('pandas')"
        ) from error


CHECKPOINTS_MAX: Final = 1_000
"""The newest so many are read."""


def plotted_history(storage: Storage) -> Any:
    """The kept checkpoints as an Altair chart. UnknownCheckpoint if they are too few, NoCheckpoint if there is none."""
    manifests = line(storage)
    place = without_secrets(storage.url)
    points = list(_points(manifests))
    if not points:
        raise UnknownCheckpoint(
            f"{place} keeps fewer than two checkpoints that were planned, so there is no history to plot: keep more, "
            "Pipeline(retention=Retention(last=100)), and run again; or plot the report of a run, report.plot()"
        )
    return plotted(points, f"checkpoints {manifests[0].id} to {manifests[-1].id} of {place}", of_day=True)


def line(storage: Storage) -> list[Manifest]:
    """The kept checkpoints that led to the newest one, oldest first: with a state of their own, and not abandoned by a
    rollback. NoCheckpoint if there is none."""
    log = Log(storage)
    newest = newest_of(log).manifest
    ids = [id for id in log.kept_ids(newest) if not newest.has_left(id)]
    return [base for id in ids[-CHECKPOINTS_MAX:] if (base := _manifest(log, id, newest)) is not None and base.is_base]


def _manifest(log: Log, id: int, newest: Manifest) -> Manifest | None:
    """The manifest; None if it was collected meanwhile."""
    if id == newest.id:
        return newest
    try:
        return log.read(id).manifest
    except CorruptCheckpoint:
        if id in log.kept_ids(newest_of(log).manifest):
            raise
        return None


def _points(manifests: Sequence[Manifest]) -> Iterator[Point]:
    """What each checkpoint added to the one before. A step reads its records after its plan: so the rate of a
    checkpoint lasts until the plan of the next, and the rate of the newest is not known yet."""
    for (before, manifest), after in zip(pairwise(manifests), [*manifests[2:], None]):
        if not manifest.committed_ms:
            continue
        runs = manifest.state_runs()
        rows = _added(before, manifest, "read")
        span_ms = after.committed_ms - manifest.committed_ms if after is not None else 0
        yield {
            "at": manifest.committed_ms,
            "when": f"checkpoint {manifest.id}, {utc_text(manifest.committed_ms)}",
            "rows": rows,
            "rows_per_second": 1000 * rows / span_ms if span_ms > 0 else None,
            "clock_ms": manifest.clock.watermark,
            "lag_ms": manifest.committed_ms - manifest.clock.watermark,
            "late": _added(before, manifest, "late"),
            "dead": _added(before, manifest, "dead"),
            "state_rows": sum(run.rows_left for run in runs),
            "state_bytes": sum(run.bytes for run in runs),
        }


def _added(before: Manifest, manifest: Manifest, fate: str) -> int:
    """How many more records have this fate than in the checkpoint before; none after a rollback."""
    now, then = (total(kept.accounts.values()).fates[fate] for kept in (manifest, before))
    return max(now - then, 0)
