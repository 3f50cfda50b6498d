"""The words for a checkpoint: where the next run goes on, and whether it can."""

from __future__ import annotations

from typing import Any

from persistent.checkpoint.manifest import Manifest
from persistent.driver.commit import first_manifest
from persistent.driver.evolution import adapted, check_emission
from persistent.driver.options import Options
from persistent.errors import PersistentError
from persistent.explain.explanation import Section
from persistent.storage import Storage
from persistent.storage.failures import without_secrets
from persistent.storage.short_names import short_name
from persistent.task import task_name
from persistent.text.figures import clock_text, count_text
from persistent.worker.job import Job


def continued_section(job: Job, options: Options, manifest: Manifest | None, start_from: Storage | None) -> Section:
    """Where a run goes on, and whether it is refused there. ``manifest``: the newest; None without a checkpoint."""
    url, name = without_secrets(job.storage.url), short_name(job.storage.url)
    facts: dict[str, Any] = {"pipeline": name, "checkpoint_url": url, "task": task_name(job.task), "checkpoint": None}
    if manifest is None or not manifest.base:
        facts["start_from"] = None if start_from is None else without_secrets(start_from.url)
        copy = "" if start_from is None else f", which begins as a copy of {facts['start_from']}"
        return Section("pipeline", (f"{name}, task {facts['task']}: a new job, in {url}{copy}.",), facts)
    clock = manifest.clock.watermark
    facts |= {"checkpoint": manifest.base, "clock_ms": clock}
    read = sum(one.read for one in manifest.accounts.values())
    line = (
        f"{name}, task {facts['task']}: continues at checkpoint {manifest.base} of {url}, clock {clock_text(clock)}, "
        f"with {count_text(read, 'record')} read."
    )
    facts |= _fit(job, options, manifest)
    refused = (f"The next run is refused: {facts['refused']}",) if facts["refused"] else ()
    migrates = ("The next run migrates the state to the task as it is now.",) if facts["migrates"] else ()
    return Section("pipeline", (line, *refused, *migrates), facts)


def _fit(job: Job, options: Options, manifest: Manifest) -> dict[str, Any]:
    """Whether the checkpoint is refused, and why, or migrated."""
    first, url = first_manifest(job, ""), job.storage.url
    try:
        view = adapted(manifest, first, options.evolve, options.dropped, url)
        check_emission(view, first, url)
    except PersistentError as error:
        return {"refused": without_secrets(str(error)), "migrates": False}
    return {"refused": None, "migrates": view is not manifest}
