"""A page of a state: some of its rows, in the order of their key groups or sorted; and what each run adds to a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from persistent.checkpoint.manifest import Manifest
from persistent.codec.fields import KEY_GROUPS, Run
from persistent.errors import InvalidPipeline
from persistent.names import state_name
from persistent.reading.place import read_place
from persistent.text.fingerprints import window_text
from persistent.time.clock import monotonic_s
from persistent.tools.serve.shown import Shown
from persistent.tools.serve.state_reading import SORTED_ROWS_MAX, StateReading, Wanted, reading
from persistent.tools.serve.wording import cells, columns_of, cut, monoid_words, time_to_live

PAGE = 50
_BUDGET_S = 0.15
_OFFSET_MAX = 20_000
_RUNS_SHOWN = 50
_REASONS_SHOWN, _REASON_MAX = 3, 500


def state_page(job: Shown, wanted: Wanted, cursor: str = "", limit: int = PAGE) -> dict[str, Any]:
    """Rows from a cursor on, in the order of the key groups. ``next``: the cursor of the next page; None at the end. A
    search first shows the key that equals the text: its key group is known, so it is found at once in any state."""
    group, skip = _cursor(cursor)

    def read(state: StateReading) -> dict[str, Any]:
        until = monotonic_s() + _BUDGET_S
        first = state.of_the_key()
        rows_max = limit - (0 if cursor else first.num_rows)
        rows, following = _walked(state, first, (group, skip), rows_max, until)
        rows = rows if cursor else pa.concat_tables([first, rows])
        progress = _progress(state, following)
        return {**_described(state), **_table(rows), **_omitted(state), "next": following, "progress": progress}

    return _read(job, wanted, read)


def sorted_page(job: Shown, wanted: Wanted, by: str, offset: int = 0, limit: int = PAGE) -> dict[str, Any]:
    """Rows sorted by a column; ``-`` before its name: the largest first."""
    name, order = (by[1:], "descending") if by.startswith("-") else (by, "ascending")
    if offset > _OFFSET_MAX:
        raise InvalidPipeline(f"a sorted state is shown up to row {_OFFSET_MAX:,}: search in it, or download it")

    def read(state: StateReading) -> dict[str, Any]:
        if state.rows > SORTED_ROWS_MAX and state.part.key is None:
            raise InvalidPipeline(
                f"this state has about {state.rows:,} rows: sorting reads all of them, so it is offered up to "
                f"{SORTED_ROWS_MAX:,}. Search for a key, choose a window, or download the state"
            )
        rows, total = _first_sorted(state, name, order, offset + limit)
        following = f"{offset + limit}" if total > offset + limit else None
        part = rows.slice(offset, limit)
        whole = {"next": following, "progress": 1.0, "total": total}
        return {**_described(state), **_table(part), **_omitted(state), **whole}

    return _read(job, wanted, read)


def _read(job: Shown, wanted: Wanted, read: Any) -> dict[str, Any]:
    """Reads while the job runs: if the newest checkpoint is collected before it is read, its successor is read. A
    result that the monoid cannot present is omitted, and hides no other result."""
    first = reading(job, wanted)
    if wanted.as_of:
        return dict(read(replace(first, omitted=[])))
    return dict(read_place(first.place, lambda place: read(replace(first, place=place, omitted=[]))))


def _cursor(text: str) -> tuple[int, int]:
    group, _, skip = text.partition(".")
    parts = group or "0", skip or "0"
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InvalidPipeline(f"{text!r} is no place in a state: begin at the first page")
    return min(int(parts[0]), KEY_GROUPS), int(parts[1])


def _walked(
    state: StateReading, first: pa.Table, place: tuple[int, int], limit: int, until: float
) -> tuple[pa.Table, str | None]:
    """The rows from ``place`` on, without those of ``first``, until there are ``limit`` rows or the time is ``until``;
    and the cursor of the next page, None at the end."""
    parts, count = [state.empty], 0
    group, skip = place
    for low, high, table in state.slices(group):
        if first.num_rows:
            table = table.filter(pc.not_equal(table.column(state.names[0]), state.find))
        part = table.slice(skip, max(limit - count, 0))
        parts.append(part)
        count += part.num_rows
        if skip + part.num_rows < table.num_rows:
            return pa.concat_tables(parts), f"{low}.{skip + part.num_rows}"
        skip = 0
        over = count >= limit or monotonic_s() > until
        if over and high < state.part.high:
            return pa.concat_tables(parts), f"{high}.0"
    return pa.concat_tables(parts), None


def _progress(state: StateReading, following: str | None) -> float:
    """The share of the key groups that was walked."""
    if following is None:
        return 1.0
    part = state.part
    return (int(following.partition(".")[0]) - part.low) / max(part.high - part.low, 1)


def _first_sorted(state: StateReading, by: str, order: str, count: int) -> tuple[pa.Table, int]:
    """The first rows of the sorted state, and the number of all."""
    field = next((column for column in state.empty.schema if column.name == by), None)
    if field is None or pa.types.is_nested(field.type):
        names = [column.name for column in state.empty.schema if not pa.types.is_nested(column.type)]
        raise InvalidPipeline(f"cannot sort by {by!r}: choose one of {', '.join(names)}")
    ties = [name for name in state.names if name != by]
    keys = [(by, order), *((name, "ascending") for name in ties)]
    kept, total = state.empty, 0
    for _, _, table in state.slices():
        total += table.num_rows
        kept = pa.concat_tables([kept, table]).sort_by(keys).slice(0, count)
    return kept, total


def _described(state: StateReading) -> dict[str, Any]:
    manifest, part = state.manifest, state.manifest.nodes[state.node.id]
    return {
        "id": manifest.id,
        "clock_ms": state.clock.watermark,
        "closed_ms": state.clock.closed if part.has_windows else None,
        "final_ms": part.final if part.has_windows else None,
        "as_of_ms": state.part.as_of,
        "key": list(state.names),
        "key_types": list(part.key_types),
        "monoid": monoid_words(part.fingerprint["monoid"]),
        "window": window_text(part.fingerprint["window"]),
        "time_to_live": time_to_live(part.fingerprint),
        "rows_about": state.rows,
        "name": state.node.name,
        "names": state.all_names,
    }


def _omitted(state: StateReading) -> dict[str, Any]:
    """The results that cannot be presented: how many, and why the first of them cannot."""
    omitted = state.omitted or []
    texts = [cut(failing_key.text(state.names), _REASON_MAX) for failing_key in omitted[:_REASONS_SHOWN]]
    return {"omitted": len(omitted), "omitted_first": texts}


def _table(rows: pa.Table) -> dict[str, Any]:
    return {"columns": columns_of(rows.schema), "rows": cells(rows)}


def shape(job: Shown, at: int | None = None) -> dict[str, Any]:
    """What can be said of the states without their monoids: keys, rows, bytes, and the panes they span."""
    manifest = job.entry(at).manifest
    return {"id": manifest.id, "states": list(_shapes(manifest))}


def _shapes(manifest: Manifest) -> Iterator[dict[str, Any]]:
    for id, node in manifest.nodes.items():
        runs = node.runs
        yield {
            "name": id,
            "state": state_name(id),
            "clock_ms": node.clock.watermark,
            "key": [f"{key}: {kind}" for key, kind in zip(node.key_names, node.key_types)],
            "monoid": monoid_words(node.fingerprint["monoid"]),
            "window": window_text(node.fingerprint["window"]),
            "time_to_live": time_to_live(node.fingerprint),
            "rows": sum(run.rows_left for run in runs),
            "bytes": sum(run.bytes for run in runs),
            "runs": len(runs),
            "pane_min": min((run.pane_min for run in runs), default=None) if node.has_windows else None,
            "pane_max": max((run.pane_max for run in runs), default=None) if node.has_windows else None,
        }


def why(job: Shown, wanted: Wanted) -> dict[str, Any]:
    """Where the value of a key comes from: the whole, and what each run adds to it, oldest first."""
    if wanted.key is None:
        raise InvalidPipeline("no key is given: choose a row of the state")

    def read(state: StateReading) -> dict[str, Any]:
        runs = [run for run in _runs(state) if run.low <= state.part.low < run.high]
        parts = [_contribution(state, run) for run in runs[-_RUNS_SHOWN:]]
        whole = pa.concat_tables([state.empty, *state.folded(state.part)])
        return {
            **_described(state),
            **_table(whole),
            "group": state.part.low,
            "groups": KEY_GROUPS,
            "runs": len(runs),
            "runs_all": len(_runs(state)),
            "older": max(0, len(runs) - _RUNS_SHOWN),
            "contributions": [part for part in parts if part["rows"]],
            **_omitted(state),
        }

    return _read(job, wanted, read)


def _runs(state: StateReading) -> tuple[Run, ...]:
    return state.manifest.nodes[state.node.id].runs


def _contribution(state: StateReading, run: Run) -> Mapping[str, Any]:
    """The rows of the key as this run alone gives them."""
    part = structs.replace(state.manifest.nodes[state.node.id], runs=(run,))
    alone = structs.replace(state.manifest, nodes={**state.manifest.nodes, state.node.id: part})
    omitted = replace(state, omitted=[])
    rows = pa.concat_tables([state.empty, *omitted.folded(state.part, alone)])
    return {"run": run.name, "first": run.first, "last": run.last, "bytes": run.bytes, "rows": cells(rows)}
