"""The explanation of a job reads the newest manifest of its checkpoint, and nothing else.

The words for a checkpoint: where the next run goes on, and whether it can.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart
from persistent.connect.promises import Guarantee
from persistent.connect.source import parts_of
from persistent.driver.commit import first_manifest
from persistent.driver.evolution import adapted, check_emission
from persistent.driver.naming import check_not_read_back
from persistent.driver.options import ROWS_FIRST, ROWS_MAX, Options
from persistent.driver.output_batches import check_takes_as_before
from persistent.engines.embedded import Embedded
from persistent.errors import PersistentError
from persistent.explain import Explanation, Section
from persistent.explain.of_states import closing_section, kept_section, memory_section, publishing_section, shard_sizes
from persistent.storage.failures import without_secrets
from persistent.storage.places import short_name
from persistent.storage.protocol import Storage
from persistent.task.task import task_name
from persistent.text.figures import clock_text, count_text, duration_text
from persistent.time.lateness import FINAL
from persistent.worker.job import Job, Node


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
            source.check_recorded(view.sources[name].recorded)
    except PersistentError as error:
        return {"refused": without_secrets(str(error)), "migrates": False}
    return {"refused": None, "migrates": view is not manifest}


def explained(
    job: Job,
    options: Options,
    guarantee: Guarantee,
    parallelism: int | None,
    *,
    start_from: Storage | None = None,
    name: str | None = None,
) -> Explanation:
    """What the job will do with these options. ``parallelism``: how many items the engine runs at once; None: one for
    each processor. ``start_from``: the checkpoint that a new job begins with, as a copy; ``name``: of the pipeline."""
    parallelism = Embedded(parallelism).parallelism
    newest = Log(job.storage).newest()
    manifest = None if newest is None else newest.manifest
    known = {} if manifest is None else manifest.nodes
    parts = {id: known.get(id) for id in job.nodes}
    return Explanation(
        (
            continued_section(job, options, manifest, start_from, name),
            _read(job, options, manifest),
            kept_section(job),
            closing_section(job),
            publishing_section(job),
            _run(job, parts, parallelism),
            _promised(guarantee),
            memory_section(job, parts, options.step_rows, parallelism),
        )
    )


def _read(job: Job, options: Options, manifest: Manifest | None) -> Section:
    sources = {}
    for name, source in job.sources.items():
        known = None if manifest is None or name not in manifest.sources else manifest.sources[name]
        sources[name] = {
            "what": without_secrets(repr(source)),
            "partitions": None if known is None or not manifest or not manifest.base else len(known.partitions),
            "max_out_of_orderness_ms": source.max_out_of_orderness,
            "dedupe": job.dedupe[name].said() if name in job.dedupe else None,
        }
    lines = [f"{name}: {_source_text(fact)}." for name, fact in sources.items()]
    facts = {"sources": sources, "step_rows": options.step_rows}
    lists = any(part.lists for part in parts_of(*job.sources.values()))
    return Section("reads", (*lines, *_sizes(options, len(sources)), *_clock(options, sources, lists=lists)), facts)


def _source_text(fact: Mapping[str, Any]) -> str:
    count = fact["partitions"]
    partitions = "partitions are known after the first step" if count is None else count_text(count, "partition")
    copies = f"; {fact['dedupe']}" if fact["dedupe"] else ""
    return f"{fact['what']}; {partitions}{copies}"


def _sizes(options: Options, sources: int) -> Iterator[str]:
    if options.step_rows is not None:
        yield f"A step reads exactly {count_text(options.step_rows, 'record')}{' of each source' * (sources > 1)}."
    else:
        yield (
            f"A step takes about a second: the first reads about {ROWS_FIRST:,} records, none more than about "
            f"{ROWS_MAX:,}."
        )


def _clock(options: Options, sources: Mapping[str, Mapping[str, Any]], *, lists: bool) -> Iterator[str]:
    lags = {name: fact["max_out_of_orderness_ms"] for name, fact in sources.items()}
    behind = {duration_text(lag) for lag in lags.values()}
    whose = "of the partition that is furthest behind"
    if behind == {duration_text(0)}:
        yield f"The clock is the largest timestamp {whose}: no disorder is waited for."
    else:
        by = (
            ", ".join(f"{name} {duration_text(lag)}" for name, lag in lags.items()) if len(behind) > 1 else behind.pop()
        )
        yield f"The clock is the largest timestamp {whose}, minus the disorder that is waited for: {by}."
    if lists:
        yield "It waits for files that are listed and not read yet, unless ordered=True promises their order."
    future = duration_text(options.max_future_ms)
    yield f"A timestamp more than {future} ahead of both clock and time of day is a dead letter."
    if options.quiet_after_ms is not None:
        yield f"A run that follows moves the clock on after {duration_text(options.quiet_after_ms)} without a record."
    if options.max_drift_ms is not None:
        yield f"A partition more than {duration_text(options.max_drift_ms)} ahead of the slowest waits."


def _run(job: Job, parts: Mapping[str, NodePart | None], parallelism: int) -> Section:
    """The jobs of the engine in one step."""
    splits = max(1, parallelism // len(job.sources))
    counts = {name: shard_sizes(view, parallelism)[0] for name, view in parts.items()}
    after = [node.name for node in job.nodes.values() if node.sinks and _publishes_later(node)]
    each = ", ".join(f"{node.name} in {count_text(counts[name], 'shard')}" for name, node in job.nodes.items())
    lines = [
        f"A step is one job of the engine: up to {count_text(splits, 'split')} of each source, what the clock has "
        f"closed ({each}, by what is stored now), and the runs that are due to be folded.",
    ]
    if after:
        lines.append(
            f"Where late records or changes touch what is published, another job follows in the same step: "
            f"{', '.join(after)}."
        )
    lines.append("The driver commits the checkpoint by one file, then publishes, then deletes what nobody needs.")
    facts = {"parallelism": parallelism, "splits": splits, "shards": counts, "publishes_after": after}
    return Section("runs", tuple(lines), facts)


def _publishes_later(node: Node) -> bool:
    lateness = node.state.lateness
    corrects = lateness.allowed_ms and lateness.emit != FINAL
    return bool(corrects or lateness.of_changes or node.state.time_to_live)


def _promised(guarantee: Guarantee) -> Section:
    parts = {
        name: {"level": one.level, "reason": one.reason, "while": one.while_} for name, one in guarantee.parts.items()
    }
    level = without_secrets(str(guarantee).partition(":")[0]) + "."
    reasons = (without_secrets(f"{name}: {part}.") for name, part in guarantee.parts.items())
    facts = {"guarantee": without_secrets(str(guarantee)), "parts": parts}
    return Section("promises", (level, *reasons), facts)
