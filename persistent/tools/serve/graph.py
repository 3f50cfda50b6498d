"""The graph of a job: its sources, the task, each of its states, their sinks, and what was set aside.

The graph shows what the checkpoint says, whether the job runs or not, and guesses nothing: a figure that no checkpoint
holds is shown as unknown, with the reason. The page only draws nodes and edges, so it would draw several tasks too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.output_parts import SinkPart
from persistent.checkpoint.parts import Account, NodePart, SourcePart, partition_name, total
from persistent.codec.fields import CODECS
from persistent.connect.halves import HISTORY, LIVE, SEAM, halves_of, has_switched
from persistent.errors import UnknownCheckpoint
from persistent.names import STATE, state_name
from persistent.reading import PartitionReading
from persistent.text.figures import count_text
from persistent.text.fingerprints import window_text
from persistent.time.clock import wall_ms
from persistent.tools.serve.now import BAD, STILL, WARN, Verdict, verdicts
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.time_line import RATE_STEPS, LastSteps, last_steps
from persistent.tools.serve.wording import place_text, published_words, sink_words, time_to_live, when_words

_PARTITIONS_MAX = 6
_NOT_YET = "Rows a second, and how long a step takes, are known after three checkpoints that are kept."
_BEYOND = "only the source knows what it holds beyond"

Vertex = dict[str, Any]


def graph(job: Shown) -> dict[str, Any]:
    """The nodes of a job with their facts, each layer in its order, and the edges between the nodes. ``known``: how
    many of the last checkpoints could be read in a moment; the next call may know more."""
    checkpoint = _Known(job, job.look().newest.manifest, wall_ms())
    manifest = checkpoint.manifest
    task, *_ = manifest.tasks
    aside = [_late(checkpoint), _dead(checkpoint)]
    sources = [source for name, part in sorted(manifest.sources.items()) for source in _sources(checkpoint, name, part)]
    states = [_state(checkpoint, id, node) for id, node in sorted(manifest.nodes.items())]
    takes = {name: "late" if part.node is None else _vertex(part.node) for name, part in manifest.sinks.items()}
    sinks = sorted(manifest.sinks.items(), key=lambda pair: (pair[1].late, takes[pair[0]], pair[0]))
    edges = [(source["id"], "task") for source in sources] + [("task", vertex["id"]) for vertex in (*states, *aside)]
    edges += [(takes[name], f"sink/{name}") for name, _ in sinks]
    return {
        "id": manifest.id,
        "name": job.name,
        "steps": checkpoint.steps_text,
        "known": len(checkpoint.recent),
        "nodes": [*sources, _task(checkpoint, task), *states, *aside, *(_sink(checkpoint, *sink) for sink in sinks)],
        "edges": edges,
    }


@dataclass(frozen=True)
class _Known:
    """The newest checkpoint of a job, and what the last checkpoints before it tell of its rates and its clock."""

    shown: Shown
    manifest: Manifest
    at_ms: int

    @cached_property
    def recent(self) -> list[Manifest]:
        """The last checkpoints that are kept, oldest first."""
        manifests = []
        for facts in self.shown.recent(RATE_STEPS + 1):
            try:
                manifests.append(self.shown.entry(facts["id"]).manifest)
            except UnknownCheckpoint:
                # It was collected; its facts are remembered, but not each of its parts.
                manifests.clear()
        return manifests

    @cached_property
    def steps(self) -> LastSteps | None:
        return last_steps([self.shown.facts(manifest.id) for manifest in self.recent])

    @property
    def steps_text(self) -> str:
        """Between which checkpoints the rates are measured; or, while there are no rates, when there will be."""
        if self.steps is None:
            return _NOT_YET
        ids = f"{self.steps.first['id']:,} and {self.steps.last['id']:,}"
        return f"Rows a second are those between the plans of checkpoints {ids}."

    @cached_property
    def ends(self) -> tuple[Manifest, Manifest] | None:
        """The checkpoints before the first of the last steps, and after the last."""
        if self.steps is None:
            return None
        by_id = {manifest.id: manifest for manifest in self.recent}
        return by_id[self.steps.first["id"]], by_id[self.steps.last["id"]]

    @cached_property
    def clocks(self) -> Mapping[str, PartitionReading]:
        return {partition.name: partition for partition in self.shown.clock().partitions}

    @cached_property
    def said(self) -> Mapping[str, Verdict]:
        recent = [self.shown.facts(manifest.id) for manifest in self.recent]
        return {verdict["of"]: verdict for verdict in verdicts(self.shown, recent, self.at_ms)}

    def rate(self, name: str, partitions: Iterable[str], fate: str = "read") -> float | None:
        """The records of these partitions of a source, a second."""
        if self.steps is None or self.ends is None:
            return None
        then, now = (_account(manifest, name, partitions) for manifest in self.ends)
        return self.steps.rate(max(0, now.fates[fate] - then.fates[fate]))


def _account(manifest: Manifest, name: str, partitions: Iterable[str]) -> Account:
    accounts = manifest.inputs.get(name, {})
    return total(accounts[partition] for partition in partitions if partition in accounts)


def _fact(name: str, value: Any, form: str = "number") -> dict[str, Any]:
    """``form``: how the page writes it: number, rate, bytes, clock, text."""
    return {"name": name, "value": value, "form": form}


def _unknown(name: str, why: str) -> dict[str, Any]:
    return {"name": name, "value": None, "form": "unknown", "why": why}


def _rate(name: str, value: float | None) -> dict[str, Any] | None:
    return None if value is None else _fact(name, value, "rate")


def _tag(level: str, text: str) -> dict[str, str]:
    return {"level": level, "text": text}


def _node(id: str, kind: str, title: str, *facts: dict[str, Any] | None, **more: Any) -> Vertex:
    """``more``: ``says``, a line below the title; ``tags``; ``parts``; ``view``, ``query``: the page with more."""
    return {"id": id, "kind": kind, "title": title, "facts": [fact for fact in facts if fact], "tags": [], **more}


def _sources(checkpoint: _Known, name: str, part: SourcePart) -> Iterator[Vertex]:
    """The node of a source. A source of two halves has a node for each: the history, and the live half after it."""
    halves = halves_of(part.kind, part.recorded, part.partitions)
    for number, (kind, recorded, partitions) in enumerate(halves):
        half = "" if SEAM not in part.recorded else (HISTORY, LIVE)[number]
        whole = [f"{half}/{partition}" if half else partition for partition in partitions]
        called = f"{name}, {half}" if half else name
        account = _account(checkpoint.manifest, name, whole)
        counts = {fate: account.fates[fate] for fate in ("late", "dead", "duplicate")}
        parts = sorted((_partition(checkpoint, name, part, partition) for partition in whole), key=_slowest_first)
        yield _node(
            f"source/{called}",
            "source",
            called,
            _place(recorded),
            _fact("read", account.read),
            _rate("rows a second", checkpoint.rate(name, whole)),
            *(_fact(_FATE.get(fate, fate), count) for fate, count in counts.items() if count),
            _seen(part) if half != HISTORY else None,
            _unread(part, recorded, whole, half),
            says=kind,
            tags=[*_source_tags(half, part.recorded, account)],
            parts=parts[:_PARTITIONS_MAX],
            parts_more=max(0, len(parts) - _PARTITIONS_MAX),
            view="now",
            query={"see": "clock"},
        )


_FATE = {"dead": "dead letters", "duplicate": "duplicates"}


def _place(recorded: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("root", "topic"):
        if isinstance(recorded.get(name), str):
            return _fact({"root": "below"}.get(name, name), place_text(recorded[name]), "text")
    return _unknown("place", "the checkpoint names none for this kind of source")


def _seen(part: SourcePart) -> dict[str, Any] | None:
    if part.seen is None:
        return None
    return _fact("records that copies are recognised by", sum(run.rows_left for run in part.seen.runs))


def _unread(part: SourcePart, recorded: Mapping[str, Any], partitions: list[str], half: str) -> dict[str, Any]:
    """How much of a source is not read yet. A checkpoint knows this of files alone: they are listed before they are
    read."""
    if half == HISTORY and has_switched(part.recorded):
        return _fact("not read yet", "nothing", "text")
    if "root" not in recorded or len(partitions) != 1:
        return _unknown("not read yet", _BEYOND)
    listed = sum(run.rows for run in part.index)
    position: Any = part.positions[partitions[0]]
    ordinal, offset = position
    began = ", and a part of the next" if offset and ordinal < listed else ""
    return _fact("listed files", f"{ordinal:,} of {listed:,} are read{began}", "text")


def _source_tags(half: str, recorded: Mapping[str, Any], account: Account) -> Iterator[dict[str, str]]:
    if half and has_switched(recorded):
        yield _tag(STILL, "has been read" if half == HISTORY else "is read now")
    elif half:
        yield _tag(STILL, "is read now" if half == HISTORY else "waits for the history")
    if account.skipped:
        yield _tag(BAD, f"{count_text(account.skipped, 'position')} skipped")
    if not account.balances:
        yield _tag(BAD, "does not add up")


def _partition(checkpoint: _Known, name: str, part: SourcePart, partition: str) -> dict[str, Any]:
    label = partition_name(name, partition, len(checkpoint.manifest.sources))
    clock, holder = checkpoint.clocks.get(label), checkpoint.shown.clock().held_by
    tags = []
    if holder is not None and holder.name == label and len(checkpoint.clocks) > 1:
        tags.append(_tag(WARN, "holds the clock back"))
    if clock is not None and clock.is_idle:
        tags.append(_tag(STILL, "idle"))
    if clock is not None and clock.lists:
        tags.append(_tag(STILL, "has files not read yet"))
    position = part.positions.get(partition)
    return {
        "name": partition,
        "position": None if position is None else CODECS[part.codec].text(position),
        "largest": None if clock is None else clock.largest,
        "reached": None if clock is None else clock.reached,
        "rate": checkpoint.rate(name, [partition]),
        "tags": tags,
    }


def _slowest_first(part: dict[str, Any]) -> tuple[bool, int, str]:
    return part["reached"] is None, part["reached"] or 0, part["name"]


def _task(checkpoint: _Known, name: str) -> Vertex:
    manifest, steps = checkpoint.manifest, checkpoint.steps
    processed = sum(account.processed for account in manifest.accounts.values())
    rates = [checkpoint.rate(source, manifest.sources[source].partitions, "processed") for source in manifest.sources]
    usual = steps.step_ms[len(steps.step_ms) // 2] if steps is not None and steps.step_ms else None
    node, *_ = manifest.nodes.values()
    return _node(
        "task",
        "task",
        name,
        _fact("clock", manifest.clock.watermark, "clock"),
        _fact("processed", processed),
        _rate("rows a second", None if None in rates or not rates else sum(rate or 0 for rate in rates)),
        None if usual is None else _fact("step, plan to plan", usual, "span"),
        _fact("checkpoint", manifest.id),
        _fact("key", ", ".join(node.key_names) or "none", "text"),
        says=f"task, epoch {manifest.epoch:,}",
        tags=[_tag(checkpoint.said[of]["level"], checkpoint.said[of]["title"]) for of in ("alive", "behind")],
        view="timeline",
        query={},
    )


def _vertex(node: str) -> str:
    return f"state/{state_name(node)}"


def _state(checkpoint: _Known, id: str, node: NodePart) -> Vertex:
    name, partly = state_name(id), checkpoint.shown.partly_late()
    missing = partly.missing().get("" if name == STATE else name, 0)
    closed = node.clock.closed if node.has_windows else None
    takers = checkpoint.manifest.sinks_of(id)
    late = node.late is not None and node.has_windows
    return _node(
        _vertex(id),
        "state",
        name if name != STATE else f"state of {id}",
        _fact("clock", node.clock.watermark, "clock") if len(checkpoint.manifest.nodes) > 1 else None,
        None if closed is None else _fact("windows closed up to", closed, "clock"),
        _fact("final up to", node.final, "clock") if late else None,
        _fact("rows, about", sum(run.rows_left for run in node.runs)),
        _fact("size", sum(run.bytes for run in node.runs), "bytes"),
        _fact("runs", len(node.runs)),
        _fact("published", when_words(node) if takers else "nowhere: no sink takes it", "text"),
        None if node.added is None else _fact("lacks what was read before", node.added, "clock"),
        says=f"a key lives {life}" if (life := time_to_live(node.fingerprint)) else _windows(node.fingerprint),
        tags=[_tag(WARN, f"{missing:,} partly late")] if missing else [],
        view="state",
        query={} if name == STATE else {"name": name},
    )


def _windows(fingerprint: Mapping[str, Any]) -> str:
    return "no windows" if fingerprint["window"] is None else window_text(fingerprint["window"])


def _sink(checkpoint: _Known, name: str, part: SinkPart) -> Vertex:
    before = [batch for batch in part.owed if batch.id != checkpoint.manifest.base]
    return _node(
        f"sink/{name}",
        "sink",
        name,
        _fact("takes", sink_words(part), "text"),
        _given(checkpoint, name),
        None if part.last is None else _fact("last batch", part.last),
        _fact("published", published_words(part, checkpoint.manifest), "text"),
        says=_sink_kind(checkpoint, part, name),
        tags=[_tag(WARN, "batches wait")] if before else [],
        view="now",
        query={"see": "sinks"},
    )


def _sink_kind(checkpoint: _Known, part: SinkPart, name: str) -> str:
    """Its kind is known of the pipeline alone: a checkpoint knows sinks by their names."""
    pipeline = checkpoint.shown.pipeline
    sink = None if pipeline is None else pipeline.late_sink if part.late else pipeline.sinks.get(name)
    return "sink of a kind that only the pipeline knows" if sink is None else type(sink).__name__


def _given(checkpoint: _Known, name: str) -> dict[str, Any]:
    """The rows that the last kept checkpoints gave to a sink: each names its own batch."""
    kept = [(manifest.id, manifest.sinks[name].unpublished) for manifest in checkpoint.recent if name in manifest.sinks]
    rows = [staged.rows for id, batches in kept for batch in batches if batch.id == id for staged in batch.staged]
    return _fact(f"rows of the last {count_text(len(kept), 'checkpoint')}", sum(rows))


def _late(checkpoint: _Known) -> Vertex:
    partly = checkpoint.shown.partly_late()
    return _node(
        "late",
        "aside",
        "Late rows",
        _fact("late", sum(account.late for account in checkpoint.manifest.accounts.values())),
        _rate("rows a second", _all(checkpoint, "late")),
        _fact("partly late", partly.records()) if partly.records() else None,
        _unknown("partly late", f"{count_text(partly.unread, 'file')} not counted yet") if partly.unread else None,
        says="set aside, with file, offset and reason",
        view="account",
        query={"rows": "late"},
    )


def _dead(checkpoint: _Known) -> Vertex:
    return _node(
        "dead",
        "aside",
        "Dead letters",
        _fact("dead", sum(account.dead for account in checkpoint.manifest.accounts.values())),
        _rate("rows a second", _all(checkpoint, "dead")),
        says="not decodable, or without a usable time",
        view="account",
        query={"rows": "dead"},
    )


def _all(checkpoint: _Known, fate: str) -> float | None:
    """The records of all sources with this fate, a second."""
    sources = checkpoint.manifest.sources
    rates = [checkpoint.rate(name, source.partitions, fate) for name, source in sources.items()]
    return None if None in rates or not rates else sum(rate or 0 for rate in rates)
