"""The words for a checkpoint: where the next run goes on, and whether it can."""

from __future__ import annotations

from typing import Any

from persistent.checkpoint.manifest import Manifest
from persistent.driver.commit import first_manifest
from persistent.driver.destinations import check_not_read_back
from persistent.driver.evolution import adapted, check_emission
from persistent.driver.options import Options
from persistent.driver.output_batches import check_takes_as_before
from persistent.errors import PersistentError
from persistent.explain import Section
from persistent.sources.file import FileSource
from persistent.storage import Storage
from persistent.storage.failures import without_secrets
from persistent.storage.short_names import short_name
from persistent.task import task_name
from persistent.text.figures import clock_text, count_text
from persistent.worker.job import Job


def continued_section(
    job: Job, options: Options, manifest: Manifest | None, start_from: Storage | None, name: str | None
) -> Section:
    """Where the next run continues, and whether it is refused. ``manifest``: the newest; None without a checkpoint."""
    url, name = without_secrets(job.storage.url), name or short_name(job.storage.url)
    facts: dict[str, Any] = {"pipeline": name, "checkpoint_url": url, "task": task_name(job.task), "checkpoint": None}
    if manifest is None or not manifest.base:
        facts["start_from"] = None if start_from is None else without_secrets(start_from.url)
        copy = "" if start_from is None else f", which begins as a copy of {facts['start_from']}"
        facts |= {"refused": _misplaced(job)}
        lines = (f"{name}, task {facts['task']}: a new job, in {url}{copy}.", *_refused(facts))
        return Section("pipeline", lines, facts)
    clock = manifest.clock.watermark
    facts |= {"checkpoint": manifest.base, "clock_ms": clock}
    read = sum(account.read for account in manifest.accounts.values())
    line = (
        f"{name}, task {facts['task']}: continues at checkpoint {manifest.base} of {url}, clock {clock_text(clock)}, "
        f"with {count_text(read, 'record')} read, as far as the checkpoint tells: the run itself "
        "looks at what is in files and sinks."
    )
    facts |= _fit(job, options, manifest)
    migrates = ("The next run migrates the state to the task as it is now.",) if facts["migrates"] else ()
    return Section("pipeline", (line, *_refused(facts), *migrates), facts)


def _refused(facts: dict[str, Any]) -> tuple[str, ...]:
    return (f"The next run is refused: {facts['refused']}",) if facts["refused"] else ()


def _misplaced(job: Job) -> str | None:
    """Why the next run is refused for the places of its sources, sinks and checkpoint; None if it is not."""
    try:
        check_not_read_back(job.sources, job.all_sinks, job.storage)
    except PersistentError as error:
        return without_secrets(str(error))
    return None


def _fit(job: Job, options: Options, manifest: Manifest) -> dict[str, Any]:
    """``refused``: why the next run refuses the checkpoint, or None. ``migrates``: whether it migrates the state."""
    first, url = first_manifest(job, ""), job.storage.url
    if misplaced := _misplaced(job):
        return {"refused": misplaced, "migrates": False}
    try:
        view = adapted(manifest, first, options.evolve, options.dropped, url)
        check_emission(view, first, url)
        check_takes_as_before(job, view)
        for name, source in job.sources.items():
            # Refused if the record of the source contradicts its options.
            if isinstance(source, FileSource) and "schema" in view.sources[name].recorded:
                source.schema(view.sources[name].recorded)
    except PersistentError as error:
        return {"refused": without_secrets(str(error)), "migrates": False}
    return {"refused": None, "migrates": view is not manifest}
