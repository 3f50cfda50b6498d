"""The words for a state: what it keeps, when its windows close, what is late for it, what it publishes, and the memory
of a worker, estimated from the rows of a step, the width of an element and the size of a shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from persistent.checkpoint.compaction import shards
from persistent.checkpoint.parts import NodePart
from persistent.driver.cautions import FOLLOWS
from persistent.driver.options import ROWS_MAX
from persistent.driver.step import SHARD_ROWS
from persistent.explain import Section
from persistent.state.rows import values_of
from persistent.state.state import PersistentState
from persistent.task.task import key_names
from persistent.text.figures import bytes_text, duration_text
from persistent.text.fingerprints import monoid_text, window_text
from persistent.time.lateness import ACCUMULATE, CHANGE, FINAL, RETRACT, Lateness
from persistent.time.session_window import SessionWindow
from persistent.worker.job import Job, Node

_CORRECTED = {
    ACCUMULATE: "by the new value, with a larger revision",
    RETRACT: "by the old row with retracted = true and then the new one",
}


def kept_section(job: Job) -> Section:
    """What the states keep, by key."""
    facts = {node.name: _facts(node) for node in job.nodes.values()}
    named = len(facts) > 1
    lines = [
        f"{f'{name}: ' if named else ''}{fact['monoid']} for each {_of_what(fact)}." for name, fact in facts.items()
    ]
    return Section("keeps", tuple(lines), {"key": list(key_names(job.task)), "states": facts})


def _facts(node: Node) -> dict[str, Any]:
    state, fingerprint = node.state, node.state.fingerprint()
    lateness = state.lateness
    return {
        "monoid": monoid_text(fingerprint["monoid"]),
        "key": list(key_names(node.task)),
        "window": None if fingerprint.get("window") is None else window_text(fingerprint["window"]),
        "ttl_ms": None if state.time_to_live is None else state.time_to_live.ttl_ms,
        "commutative": bool(values_of(state.monoid).commutative),
        "emit": lateness.emit,
        "allowed_lateness_ms": lateness.allowed_ms,
        "late": lateness.answer,
        "early_ms": lateness.early_ms,
    }


def _of_what(fact: dict[str, Any]) -> str:
    key = ", ".join(fact["key"])
    kept = f"key ({key})" if key else "job: there is no key"
    window = "" if fact["window"] is None else f", by {fact['window']}"
    lives = "" if fact["ttl_ms"] is None else f", forgotten {duration_text(fact['ttl_ms'])} after its last record"
    folds = "" if fact["commutative"] else ", in the order of the records"
    return f"{kept}{window}{lives}{folds}"


def closing_section(job: Job) -> Section:
    """When windows close, and what is late."""
    return _by_state("closes", job, _closing)


def _closing(node: Node) -> Iterator[str]:
    state, lateness = node.state, node.state.lateness
    if state.window is None:
        yield from _without_windows(state)
        return
    if isinstance(state.window, SessionWindow):
        gap = duration_text(state.window.gap_ms)
        less = f", less {duration_text(lateness.allowed_ms)}" if lateness.allowed_ms else ""
        yield f"A session closes in the step after the clock has passed its last record by {gap}, the gap."
        yield f"A record is late if it is older than the clock of the step before{less}."
    else:
        yield "A window closes in the step after the clock has passed its end (end <= clock)."
        yield from _late(lateness)
    yield "With --end-of-input (end_of_input=True) every window closes at the end of the input."


def _without_windows(state: PersistentState) -> Iterator[str]:
    yield "There are no windows: the value of a key is that of all its records."
    if state.time_to_live is None:
        yield "Nothing is late."
    else:
        ttl = duration_text(state.time_to_live.ttl_ms)
        yield f"A key is forgotten once the clock has passed its last record by {ttl}."
        yield f"A record is late if it is older than {ttl} at the clock of the step before."


def _late(lateness: Lateness) -> Iterator[str]:
    if not lateness.allowed_ms:
        yield "A record is late if every window that holds it had closed by the clock of the step before."
        return
    allowed = duration_text(lateness.allowed_ms)
    yield f"It still takes records until the clock has passed its end by {allowed}; then it is final."
    yield "A record is late if every window that holds it was final by the clock of the step before."


def publishing_section(job: Job) -> Section:
    """What goes to which sink, and when."""
    section = _by_state("publishes", job, _publishing)
    late = "" if job.late_sink is None else "; late records go to the late sink too"
    aside = f"Late records and dead letters are set aside in the checkpoint{late}."
    stops = "" if job.dead_letters else " A record for which the task raises stops the run."
    return Section(
        section.name, (*section.lines, aside + stops), {"sinks": {name: job.takes.get(name) for name in job.sinks}}
    )


def _publishing(node: Node) -> Iterator[str]:
    lateness, has_windows = node.state.lateness, node.state.window is not None
    if not node.sinks:
        has_no = "Windows that close are discarded: there is no sink." if has_windows else "Nothing: there is no sink."
        yield f"{has_no} The state can be read."
        return
    yield f"To {', '.join(node.sinks)}: {_when(lateness, has_windows=has_windows)}."
    if not has_windows and not lateness.of_changes:
        yield f"A run that follows (--follow) publishes nothing of it. {FOLLOWS}."
    if has_windows and lateness.allowed_ms and lateness.emit not in (CHANGE, FINAL):
        yield f"A late record that counts corrects a published result {_CORRECTED[str(lateness.answer)]}."
    if isinstance(node.state.window, SessionWindow) and lateness.answer is not None:
        yield "A published session that becomes longer, or joins another, is taken back by a row with retracted = true."


def _when(lateness: Lateness, *, has_windows: bool) -> str:
    if lateness.emit == CHANGE:
        return "what each step has changed"
    if lateness.emit == FINAL:
        return "each window once, when it is final"
    closes = "each window when it closes" if has_windows else "every key at the end of the input"
    if lateness.early_ms is None:
        return closes
    return f"{closes}, and what has changed whenever the clock passes a multiple of {duration_text(lateness.early_ms)}"


def _by_state(name: str, job: Job, words: Any) -> Section:
    """The lines of all states, each behind the name of its state. States with equal lines share them, and if all lines
    are equal, no name is given."""
    names_by_lines: dict[tuple[str, ...], list[str]] = {}
    for node in job.nodes.values():
        names_by_lines.setdefault(tuple(words(node)), []).append(node.name)
    if len(names_by_lines) == 1:
        (common,) = names_by_lines
        return Section(name, common)
    lines = [f"{', '.join(names)}: {' '.join(texts)}" for texts, names in names_by_lines.items()]
    return Section(name, tuple(lines))


_PYTHON_BYTES = 150 << 20
_RECORD_BYTES = 100
_KEY_BYTES = 32
_ELEMENT_BYTES = 64
_COPIES = 3


@dataclass(frozen=True)
class RowWidth:
    """The bytes of a row of a state, and where that figure is from: "measured", "fixed" or "assumed"."""

    row_bytes: int
    origin: str


def row_width(node: Node, part: NodePart | None) -> RowWidth:
    """The width of a row (hash, key, pane, element) of a node, from its runs if there are any."""
    runs = () if part is None else part.runs
    rows = sum(run.rows for run in runs)
    if rows:
        return RowWidth(max(1, sum(run.bytes for run in runs) // rows), "measured")
    widths = [_width(field.type) for field in values_of(node.state.monoid).schema]
    if None in widths:
        return RowWidth(_KEY_BYTES + _ELEMENT_BYTES, "assumed")
    return RowWidth(_KEY_BYTES + sum(width for width in widths if width is not None), "fixed")


def shard_sizes(part: NodePart | None, parallelism: int) -> tuple[int, int]:
    """The number of shards in which a node would be folded now, and the bytes of a shard on average."""
    runs = () if part is None else part.runs
    if not runs:
        return 1, 0
    least = parallelism if sum(run.rows_left for run in runs) > SHARD_ROWS else 1
    count = len(shards(runs, least))
    return count, -(-sum(run.bytes for run in runs) // count)


def memory_section(job: Job, parts: Mapping[str, NodePart | None], step_rows: int | None, parallelism: int) -> Section:
    """The memory of one worker, with what is assumed. ``parts``: of each node in the newest checkpoint."""
    rows = -(-(step_rows or ROWS_MAX) // parallelism)
    widths = {name: row_width(node, parts[name]) for name, node in job.nodes.items()}
    folded = max(shard_sizes(parts[name], parallelism)[1] for name in widths)
    read = rows * _RECORD_BYTES
    delta = rows * sum(width.row_bytes for width in widths.values())
    whole = _PYTHON_BYTES + read + _COPIES * max(delta, folded)
    facts: dict[str, Any] = {
        "worker_bytes": whole,
        "split_rows": rows,
        "record_bytes": _RECORD_BYTES,
        "row_bytes": {name: width.row_bytes for name, width in widths.items()},
        "row_bytes_from": {name: width.origin for name, width in widths.items()},
        "shard_bytes": folded,
    }
    each = "; ".join(f"{width.row_bytes:,} bytes a row ({width.origin})" for width in widths.values())
    lines = (
        f"At most about {bytes_text(whole)} for each of {parallelism} workers (threads share the first part): "
        f"{bytes_text(_PYTHON_BYTES)} for Python and Arrow, {bytes_text(read)} for the records of a split, and three "
        f"times the larger of its delta ({bytes_text(delta)}) and a shard of the state ({bytes_text(folded)}).",
        f"Assumed: {rows:,} records a split, {_RECORD_BYTES} bytes a record, each with a key and pane of its own; "
        f"state: {each}.",
    )
    return Section("memory", lines, facts)


def _width(kind: pa.DataType) -> int | None:
    """The bytes of a value; None if they vary."""
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return None
