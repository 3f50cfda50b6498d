"""What a source gives when it is read to its end, step after step, as a driver reads it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from persistent.sources import Budget, DeadRecord, Source, SourcePlan, SourceState, Span, Split

Row = tuple[int, int, int, dict[str, Any]]


@dataclass
class Drained:
    """``rows``: (ordinal, offset, timestamp, fields); ``steps``: how many records each step took."""

    rows: list[Row]
    dead: list[DeadRecord]
    steps: list[int]
    plans: list[SourcePlan]
    state: SourceState

    @property
    def values(self) -> list[dict[str, Any]]:
        return [row[3] for row in self.rows]


def drain(
    source: Source,
    rows: int = 1_000_000,
    exact: bool = False,
    splits: int = 1,
    state: SourceState | None = None,
    follow: bool = False,
) -> Drained:
    """Plan and read until nothing is left; every plan goes through JSON, as it does in a checkpoint."""
    drained = Drained([], [], [], [], state or SourceState({}))
    while True:
        plan = source.plan(drained.state, Budget(rows, exact, splits), follow=follow)
        if not plan.splits:
            return drained
        partition = next(iter(plan.end))
        assert tuple(plan.end[partition]) > tuple(drained.state.positions.get(partition, (0, 0)))
        taken = 0
        for split in plan.splits:
            alive, dead = read(source, thawed(split), plan.recorded)
            drained.rows += alive
            drained.dead += dead
            taken += len(alive) + len(dead)
        drained.steps.append(taken)
        drained.plans.append(plan)
        drained.state = after(drained.state, plan)


def read(source: Source, split: Split, recorded: Any) -> tuple[list[Row], list[DeadRecord]]:
    """The rows and the dead records of one split, once every promise about them is checked."""
    rows: list[Row] = []
    dead: list[DeadRecord] = []
    for records in source.read(split, recorded):
        assert records.batch.schema == source.schema(recorded)
        assert records.batch.num_rows == len(records.timestamps) == len(records.offsets)
        assert records.timestamps.dtype == records.offsets.dtype == "int64"
        records.batch.validate(full=True)
        ordinals = [records.ordinal] * len(records.offsets)
        rows += zip(
            ordinals, records.offsets.tolist(), records.timestamps.tolist(), records.batch.to_pylist(), strict=True
        )
        dead += records.dead
    places = sorted([row[:2] for row in rows] + [(record.ordinal, record.offset) for record in dead])
    assert len(set(places)) == len(places)
    assert [row[:2] for row in rows] == sorted(row[:2] for row in rows)
    spans = {(span.ordinal, span.start, span.stop) for span in split.spans}
    assert all(any(o == s[0] and s[1] <= offset < s[2] for s in spans) for o, offset in places)
    return rows, dead


def after(state: SourceState, plan: SourcePlan) -> SourceState:
    """The state that a checkpoint after this plan keeps."""
    index = state.index
    if plan.appended is not None:
        index = plan.appended if index is None else pa.concat_tables([index, plan.appended], promote_options="default")
    recorded = json.loads(json.dumps(plan.recorded))
    return replace(state, positions=plan.end, recorded=recorded, index=index)


def thawed(split: Split) -> Split:
    """The split as it is read from a plan that was written down."""
    spans = json.loads(json.dumps([[s.ordinal, s.start, s.stop, dict(s.at)] for s in split.spans]))
    return Split(split.partition, tuple(Span(*span) for span in spans))
