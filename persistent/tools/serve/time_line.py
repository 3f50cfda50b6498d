"""The time line lists the checkpoints, newest first, page by page; one of them in words; and the difference of two.

The last steps of a job, as its checkpoints tell: how many rows they have read, and how long each took.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodePart, SourcePart
from persistent.checkpoint.successor import Entry
from persistent.codec.documents import format_of
from persistent.codec.fields import CODECS
from persistent.errors import InvalidPipeline, UnknownCheckpoint
from persistent.reading import Change, diff
from persistent.text.figures import bytes_text, clock_text, count_text, utc_text
from persistent.text.fingerprints import window_text
from persistent.time.clock import monotonic_s
from persistent.tools.serve.shown import FATES, CheckpointFacts, Shown, own_corrections
from persistent.tools.serve.state_reading import chosen, names_of
from persistent.tools.serve.wording import cells, columns_of, corrections_words, monoid_words, sink_words, time_to_live

PAGE = 100
_VALUES_ROWS_MAX = 2_000_000
_VALUES_SHOWN = 100
_LINES_MAX = 200
_BUDGET_S = 0.1


def time_line(job: Shown, before: int | None = None, limit: int = PAGE) -> dict[str, Any]:
    """The kept checkpoints with ids below ``before``, newest first: at most ``limit``, and fewer if reading them takes
    long. ``next``: the ``before`` of the next page. ``added``: the records since the next older line. ``after``: the id
    of that line, if checkpoints between are no longer kept; ``added`` then includes their records."""
    look, until = job.look(), monotonic_s() + _BUDGET_S
    newest = look.newest.manifest
    ids = [id for id in look.ids if id <= newest.id and newest.keeps(id)]
    stop = len(ids) if before is None else bisect_left(ids, before)
    chosen: list[int] = []
    lines = []
    for id in reversed(ids[max(0, stop - limit) : stop]):
        if chosen and monotonic_s() > until:
            break
        chosen.append(id)
        try:
            lines.append(_line(job.facts(id), newest))
        except UnknownCheckpoint:
            # A driver has collected it meanwhile.
            continue
    readable = [line for line in lines if "read" in line]
    for line, older in zip(readable, [*readable[1:], None]):
        if older is not None:
            line["added"] = {name: line[name] - older[name] for name in FATES}
            if line["parent"] != older["id"]:
                line["after"] = older["id"]
    more = bool(chosen) and chosen[-1] != ids[0]
    return {"checkpoints": lines, "kept": len(ids), "next": chosen[-1] if more else None}


def kept(job: Shown) -> dict[str, Any]:
    """The checkpoints whose states can be read, with the time of their plans. The newest manifest names all of them."""
    newest = job.look().newest.manifest
    left = [range(first, stop) for first, stop, _ in newest.left]
    ids = sorted({**newest.bases, newest.base: newest.committed_ms}.items())
    return {"kept": [[id, ms] for id, ms in ids if not any(id in gone for gone in left)]}


def _line(facts: CheckpointFacts, newest: Manifest) -> dict[str, Any]:
    id = facts["id"]
    return {
        **facts,
        "pinned": id in newest.pins,
        "kept_by_policy": id < newest.oldest and id not in newest.pins,
        "abandoned": newest.has_left(id),
    }


def in_words(job: Shown, id: int | None) -> dict[str, Any]:
    """A manifest in words."""
    entry, newest = job.entry(id), job.look().newest.manifest
    manifest = entry.manifest
    return {
        **_line(job.facts(manifest.id), newest),
        "meaning": _MEANING[manifest.kind](manifest),
        "words": [{"name": name, "text": text} for name, text in (*_words(entry), *_states(manifest))],
    }


_MEANING: Mapping[str, Callable[[Manifest], str]] = {
    "checkpoint": lambda manifest: (
        "The empty state before anything was read."
        if manifest.id == 0
        else "A step was counted: its records, their sums and the outputs of closed windows, all at once."
    ),
    "fence": lambda manifest: (
        f"A driver took over as epoch {manifest.epoch}: it repeats the state of checkpoint {manifest.base}, and every "
        "earlier driver finds its next id taken."
    ),
    "correction": lambda manifest: (
        f"The correction {' or '.join(repr(correction['name']) for correction in own_corrections(manifest))} "
        "put records into the state, or took some out, after the fact. It read no source, so the account is that of "
        "the checkpoint before."
    ),
    "compaction": lambda manifest: f"Runs of checkpoint {manifest.base} were folded into fewer. No value has changed.",
    "migration": lambda manifest: (
        f"The state of checkpoint {manifest.base} was migrated to a new definition of the task."
    ),
    "rollback": lambda manifest: f"The job went back to checkpoint {manifest.target}. Later ones no longer count.",
    "savepoint": lambda manifest: "A copy of one checkpoint that stands by itself.",
    "merge": lambda manifest: "Two jobs over disjoint sources were joined.",
}


def _words(entry: Entry) -> Iterator[tuple[str, str]]:
    manifest, clock = entry.manifest, entry.manifest.clock
    yield "epoch", f"{manifest.epoch}; format {format_of(manifest)}, {bytes_text(entry.bytes)}"
    yield "job", manifest.job
    if manifest.origin is not None:
        yield "started from", f"checkpoint {manifest.origin[1]} of job {manifest.origin[0]}"
    yield "state of", f"checkpoint {manifest.base}; {manifest.oldest} is the oldest kept"
    for name, ids in (("pinned", manifest.pins), ("burnt", manifest.burnt)):
        if ids:
            yield name, ", ".join(map(str, ids[:_LINES_MAX]))
    if manifest.committed_ms:
        yield "planned at", utc_text(manifest.committed_ms)
    for id, node in manifest.nodes.items():
        yield "clock" if len(manifest.nodes) == 1 else f"clock of {id}", _clock(node)
    yield "end of input", "declared" if clock.end_of_input else "not declared"
    if manifest.not_after is not None:
        yield "not after", f"{utc_text(manifest.not_after)}: later timestamps are dead letters"
    if manifest.retract is not None:
        first, stop = manifest.retract
        yield "takes back", f"the outputs of checkpoints {first} to {stop - 1}"
    for name, source in sorted(manifest.sources.items()):
        yield from _source(name, source, len(manifest.sources))
    for name, sink in sorted(manifest.sinks.items()):
        last = "no batch yet" if sink.last is None else f"last batch {sink.last}"
        waiting = "1 batch waits" if len(sink.owed) == 1 else f"{len(sink.owed):,} batches wait"
        batches = f"{waiting} to be published" if sink.owed else "all published"
        yield f"sink {name}", f"takes {sink_words(sink)}; {last}, {batches}"
    for row in corrections_words(manifest):
        by = f"by checkpoint {row['checkpoint']}{'' if manifest.origin is None else ' (its own, or of the job before)'}"
        yield f"correction {row['name']}", f"{by}: {row['text']}"


def _clock(node: NodePart) -> str:
    """The clock of a node."""
    windows = f", windows closed up to {clock_text(node.clock.closed)}" if node.has_windows else ""
    return f"{clock_text(node.clock.watermark)}{windows}"


def _source(name: str, source: SourcePart, sources: int) -> Iterator[tuple[str, str]]:
    yield "source", source.kind if sources == 1 else f"{name}, a {source.kind}"
    positions = sorted(source.positions.items())
    for partition, position in positions[:_LINES_MAX]:
        yield f"reads {partition}", f"next: {CODECS[source.codec].text(position)}"
    if len(positions) > _LINES_MAX:
        yield "and", f"{len(positions) - _LINES_MAX:,} more partitions"
    if source.seen is not None:
        rows = sum(run.rows_left for run in source.seen.runs)
        yield "recognises copies", f"by {rows:,} rows of seen records, since {clock_text(source.seen.expired)}"


def _states(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for id, node in manifest.nodes.items():
        key = ", ".join(f"{name}: {kind}" for name, kind in zip(node.key_names, node.key_types))
        rows, size = sum(run.rows_left for run in node.runs), sum(run.bytes for run in node.runs)
        runs = count_text(len(node.runs), "run")
        yield f"state {id}", f"{count_text(rows, 'row')} in {runs}, {bytes_text(size)}"
        yield "key", key or ", ".join(node.key_names) or "none"
        yield "monoid", monoid_words(node.fingerprint["monoid"])
        yield "window", window_text(node.fingerprint["window"])
        if time_to_live(node.fingerprint) is not None:
            yield "time to live", f"a key lives {time_to_live(node.fingerprint)} after its last message"
        if node.added is not None:
            yield "added", f"at the clock {clock_text(node.added)}: it lacks what was read before"


def difference(job: Shown, before: int, after: int | None, values: bool, name: str = "") -> dict[str, Any]:
    """What changed between two checkpoints; with ``values``, and the pipeline, also by key and window. ``name``: the
    state, if the task has several; by default the first state that the checkpoint ``before`` has."""
    places = job.place(before), job.place(after)
    rows = sum(run.rows_left for place in places for run in place.manifest.state_runs())
    if values and rows > _VALUES_ROWS_MAX:
        raise InvalidPipeline(
            f"{rows:,} rows are too many to compare here (at most {_VALUES_ROWS_MAX:,}): 'persistent diff PIPELINE "
            f"{before} {places[1].manifest.id}' compares them"
        )
    pipeline = job.pipeline if values else None
    of = None if pipeline is None else chosen(pipeline, places[0].manifest, name)
    comparison = diff(*places, pipeline=pipeline, limit=_VALUES_SHOWN, name=of)
    changes = [_change(change) for change in comparison.changes]
    shown_changes = changes[: 5 * _LINES_MAX]
    answer: dict[str, Any] = {
        "before": comparison.before.manifest.id,
        "after": comparison.after.manifest.id,
        "changes": shown_changes,
        "changes_more": len(changes) - len(shown_changes),
    }
    if comparison.rows is not None and pipeline is not None:
        answer["values"] = {
            "name": of,
            "names": names_of(pipeline),
            "differing": comparison.differing,
            "equal": comparison.equal,
            "columns": columns_of(comparison.rows.schema),
            "rows": cells(comparison.rows),
        }
    return answer


def _change(change: Change) -> dict[str, Any]:
    both = {"before": change.before, "after": change.after}
    return {"part": change.part, "name": change.name, **{name: _side(change.part, side) for name, side in both.items()}}


def _side(part: str, value: Any) -> str | None:
    if value is None:
        return None
    if part == "clock" and not isinstance(value, bool):
        return clock_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


RATE_STEPS = 20
_PARTS_MAX = 60
_STEPS = 4
"""How many steps make a part, if there are many steps: an even number, as every second step may read nothing."""
_PAUSE_MS, _PAUSE_STEPS = 60_000, 20
"""A pause is longer than a minute, and than twenty usual steps."""
_RATED = ("processed", "late", "dead", "duplicate")


@dataclass(frozen=True)
class LastSteps:
    """The last steps, from plan to plan. The rows of a step are read between its plan and the next plan, so the rows of
    the newest checkpoint do not count yet. The rows after checkpoint ``first``, up to ``last``, were read in
    ``span_ms``."""

    first: CheckpointFacts
    last: CheckpointFacts
    span_ms: int
    step_ms: tuple[int, ...]
    """The time of each step, shortest first. A step with another checkpoint before the next plan is left out."""

    def rate(self, rows: int) -> float | None:
        """Rows a second, if these steps have read ``rows``; None if they took no time."""
        return 1000 * rows / self.span_ms if self.span_ms > 0 else None


def last_steps(recent: Sequence[CheckpointFacts]) -> LastSteps | None:
    """The last steps; None if there are fewer than two."""
    timed = [facts for facts in recent if facts["committed_ms"]][-RATE_STEPS - 1 :]
    if len(timed) < 3:
        return None
    first, last, before = timed[0], timed[-1], timed[1:]
    steps = sorted(b["committed_ms"] - a["committed_ms"] for a, b in pairwise(before) if follows(a, b))
    return LastSteps(first, timed[-2], last["committed_ms"] - before[0]["committed_ms"], tuple(steps))


def rates(recent: Sequence[CheckpointFacts]) -> list[dict[str, float]]:
    """Rows a second by their fate, in parts of the time since the last pause, oldest first.

    A part sums up several steps, so that a step that waits for input, or only moves the clock, makes no gap. The rows
    of a step are read from its plan to the next plan. The rows of a checkpoint that is no longer kept count with the
    next kept one.
    """
    steps = _since_pause([*_timed_steps([facts for facts in recent if facts["committed_ms"]])])
    if not steps:
        return []
    least = max(1, (steps[-1].stop_ms - steps[0].start_ms) // _PARTS_MAX)
    parts, many = list[_Timed](), _STEPS if len(steps) >= _STEPS * _STEPS else 2
    open_, count = steps[0], 0
    for step in steps:
        open_, count = (open_.with_next(step), count + 1) if count else (step, 1)
        if count >= many and open_.stop_ms - open_.start_ms >= least:
            parts.append(open_)
            count = 0
    if count:
        parts[-1:] = [parts[-1].with_next(open_)] if parts else [open_]
    return [{"from_ms": part.start_ms, "to_ms": part.stop_ms, **part.rates()} for part in parts]


@dataclass(frozen=True)
class _Timed:
    """What one step or several steps have read, and when: from the first plan to the plan after the last step."""

    start_ms: int
    stop_ms: int
    rows: Mapping[str, int]

    def with_next(self, step: _Timed) -> _Timed:
        return _Timed(self.start_ms, step.stop_ms, {fate: self.rows[fate] + step.rows[fate] for fate in _RATED})

    def rates(self) -> dict[str, float]:
        return {fate: 1000 * rows / (self.stop_ms - self.start_ms) for fate, rows in self.rows.items()}


def _timed_steps(timed: Sequence[CheckpointFacts]) -> Iterator[_Timed]:
    """The steps of these checkpoints. A step that took no time, as the time of day was set back, is joined with the
    next. A step over checkpoints that are no longer known is joined with the step before."""
    previous: _Timed | None = None
    for a, b, c in zip(timed, timed[1:], timed[2:], strict=False):
        rows = {fate: max(0, b[fate] - a[fate]) for fate in _RATED}
        step = _Timed((b if follows(a, b) else a)["committed_ms"], c["committed_ms"], rows)
        if previous is not None and (previous.stop_ms <= previous.start_ms or not follows(a, b)):
            step = replace(previous.with_next(step), start_ms=min(previous.start_ms, step.start_ms))
        elif previous is not None:
            yield previous
        previous = step
    if previous is not None and previous.stop_ms > previous.start_ms:
        yield previous


def _since_pause(steps: Sequence[_Timed]) -> Sequence[_Timed]:
    """The steps after the last pause that more than two steps follow: otherwise a night without a driver would fill the
    picture. If the time of day was set back, only the steps since then."""
    spans = sorted(step.stop_ms - step.start_ms for step in steps)
    pause = max(_PAUSE_MS, _PAUSE_STEPS * spans[len(spans) // 2]) if spans else 0
    cuts = [place + 1 for place, step in enumerate(steps[:-3]) if step.stop_ms - step.start_ms > pause]
    back = [place + 1 for place, (a, b) in enumerate(pairwise(steps)) if b.start_ms < a.start_ms]
    return steps[max([0, *cuts, *back]) :]


def follows(a: CheckpointFacts, b: CheckpointFacts) -> bool:
    """Whether no other checkpoint with a state of its own was between both."""
    return b.get("before") in (None, a.get("id"))
