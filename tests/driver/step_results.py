"""The results of a step of one node, made by hand, and the manifest that they commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from monoids import Count
from persistent import Dedupe, NonWindowState, WindowState
from persistent.checkpoint.manifest import Manifest, Retention
from persistent.checkpoint.parts import Account
from persistent.checkpoint.plan import StepPlan
from persistent.checkpoint.successor import Entry
from persistent.driver.commit import next_manifest
from persistent.driver.results import Fold, NodeResults, Results
from persistent.driver.step import Step
from persistent.names import STATE
from persistent.storage import MemoryStorage
from persistent.time.window import Window
from persistent.worker.job import Closed, Job, Mapped, MappedNode
from tests.driver.visits import Visits

NODE = "Visits"
SCHEMA = pa.schema([("origin", pa.string()), ("n", pa.int64())])


def mapped(
    run: Any = None,
    key_types: tuple[str, ...] = (),
    *,
    source: str = "memory",
    partition: str = "memory",
    account: Account | None = None,
    **parts: Any,
) -> Mapped:
    """A split, and its run of the node."""
    return Mapped(source, partition, {NODE: MappedNode(run, key_types=key_types)}, account or Account(), **parts)


def results(
    splits: Sequence[Mapped] = (),
    closed: Sequence[Closed] = (),
    folded: Sequence[Fold] = (),
    discarded: int = 0,
    seen_folded: Sequence[Fold] = (),
) -> Results:
    """Those of a step."""
    own = tuple(one.nodes[NODE] for one in splits)
    node = NodeResults(own, tuple(closed), tuple(folded), discarded)
    return Results(tuple(splits), {NODE: node}, tuple(seen_folded))


def job_of(
    window: Window | None, sinks: Mapping[str, Any], lags: Mapping[str, int], dedupe: Mapping[str, Dedupe]
) -> Job:
    """A job of these sources, which commits and never reads."""
    state = NonWindowState(Count()) if window is None else WindowState(Count(), window)
    sources: Any = {
        name: SimpleNamespace(max_out_of_orderness=lag, schema=lambda recorded: SCHEMA) for name, lag in lags.items()
    }
    return Job(Visits(), {STATE: state}, sources, sinks, MemoryStorage("step-results"), False, dedupe=dedupe)


def committed(
    last: Entry,
    plan: StepPlan,
    of: Results,
    *,
    window: Window | None = None,
    sinks: Mapping[str, Any] | None = None,
    lags: Mapping[str, int] | None = None,
    dedupe: Mapping[str, Dedupe] | None = None,
    retention: Retention | None = None,
) -> Manifest:
    """The manifest after ``last`` with these results."""
    lags = dict.fromkeys(plan.sources, 0) | dict(lags or {})
    step = replace(Step(last, plan), results=of, index=dict.fromkeys(plan.sources, ()))
    return next_manifest(job_of(window, sinks or {}, lags, dedupe or {}), step, retention or Retention())
