"""A pipeline in HTML: its parts, what it guarantees, and what its checkpoint holds. No secret of a URL is shown.

A store that does not answer is not waited for: what cannot be read is said in place of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final

from monoids.html import Fact, facts_html
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.running import running
from persistent.stopping import StopRequest, heard
from persistent.storage import Storage
from persistent.storage.failures import without_secrets
from persistent.task import key_names, task_name
from persistent.text.figures import bytes_text, clock_text, count_text, span_text, utc_text
from persistent.text.fingerprints import part_text
from persistent.worker.job import Job

_WAIT_SECONDS: Final = 5.0
_RETRY_SECONDS: Final = 2.0
_FATES: Final = ("processed", "late", "dead", "duplicate", "skipped")


def pipeline_html(job: Job, guarantee: str) -> str:
    """A pipeline and its newest checkpoint, as a table."""
    facts = [*_parts(job), ("guarantee", guarantee), ("", "checkpoint"), *_checkpoint(job.storage)]
    return facts_html(f"Pipeline {task_name(job.task)}", [(name, without_secrets(text)) for name, text in facts])


def _parts(job: Job) -> Iterator[Fact]:
    for name, source in job.sources.items():
        yield _named("source", name, job.sources), repr(source)
    yield "task", f"{type(job.task).__name__}, by {', '.join(key_names(job.task)) or 'no key'}"
    states = job.nodes
    for one in states.values():
        window = "" if one.state.window is None else f", {part_text('window', one.state.fingerprint()['window'])}"
        yield _named("state", one.name, states), f"{one.state.monoid!r}{window}"
    for name, sink in job.all_sinks.items():
        yield _named("sink", name, job.all_sinks), repr(sink)


def _named(what: str, name: str, among: Mapping[str, Any]) -> str:
    return what if len(among) == 1 else f"{what} {name}"


def _checkpoint(storage: Storage) -> Iterator[Fact]:
    yield "folder", storage.url
    found: SimpleQueue[list[Fact]] = SimpleQueue()
    # On a thread of its own, since a client can wait for a minute within one call.
    Thread(target=lambda: found.put(_read(storage)), name="persistent-shown", daemon=True).start()
    try:
        yield from found.get(timeout=_WAIT_SECONDS)
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
    for name in manifest.operators:
        clock = manifest.clocks[name]
        ended = ", end of input" if clock.ended else ""
        of = "clock" if len(manifest.operators) == 1 else f"clock of {name}"
        yield of, f"{clock_text(clock.watermark)}{ended}"
    sums = {fate: sum(getattr(one, fate) for one in manifest.accounts.values()) for fate in ("read", *_FATES)}
    fates = ", ".join(f"{sums[fate]:,} {fate}" for fate in _FATES if sums[fate])
    yield "records", f"{sums['read']:,} read{f': {fates}' if fates else ''}"
    runs = manifest.state_runs()
    rows, size = sum(run.rows_left for run in runs), sum(run.bytes for run in runs)
    yield "state", f"{count_text(rows, 'row')} in {count_text(len(runs), 'run')}, {bytes_text(size)}"
