"""What a job promises is the weakest promise of its sources, its checkpoint and its sinks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from persistent import dedupe as copies
from persistent.promises import Guarantee, guarantee_of, promise_of, promise_of_checkpoint
from persistent.worker.job import Job


def guarantee_of_job(job: Job, *, proved: bool) -> Guarantee:
    """The guarantee of a job, and why. ``proved``: whether its store is proved to create files atomically."""
    parts = {}
    for name, source in job.sources.items():
        parts[_part("source", name, job.sources)] = promise_of(
            source, "the same positions give the same records", deduplicated=name in job.dedupe
        )
    parts["checkpoint"] = promise_of_checkpoint(job.storage, proved=proved)
    for name, sink in job.sinks.items():
        parts[_part("sink", name, job.sinks)] = promise_of(sink, "it publishes committed outputs")
    if job.late_sink is not None:
        parts["late_sink"] = promise_of(job.late_sink, "it publishes committed outputs")
    drops = job.discard_closed and any(node.state.window is not None and not node.sinks for node in job.nodes.values())
    limits = ["for the open windows only: those that close are discarded"] if drops else []
    limits += copies.said(job.dedupe, job.sources)
    return guarantee_of(parts, "; ".join(limits))


def _part(what: str, name: str, among: Mapping[str, Any]) -> str:
    return what if len(among) == 1 else f"{what} {name}"
