"""A failing key is a key, or one window of it, without a result: its fold raises, or the monoid cannot present its sum.

It is found by halves (``persistent.state.difference``): of the rows to present, or to fold. All other keys get their
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from monoids import Monoid
from monoids.encoding import to_json
from monoids.groupby.summing import GroupSums
from persistent.checkpoint.aside_columns import aside_rows
from persistent.checkpoint.runs import write_table
from persistent.connect.formats.json_rows import json_rows
from persistent.errors import InvalidPipeline, UserCodeError
from persistent.names import Attempt, Staged
from persistent.state.difference import Placed
from persistent.task.task import STATE, key_names
from persistent.text.figures import utc_text
from persistent.text.readable import readable
from persistent.time.session_window import ends_of, result_columns, values_of
from persistent.worker.job import Node
from persistent.worker.output_tables import END, START


@dataclass(frozen=True)
class FailingKey:
    """``window``: start and end (ms), None without windows. ``element``: encoded, if it exists. ``result``: as JSON, if
    a sink cannot hold it."""

    key: tuple[Any, ...]
    window: tuple[int, int] | None
    error: Exception
    element: bytes | None = None
    result: str | None = None

    def text(self, names: Sequence[str]) -> str:
        """Its key and window, and the error."""
        parts = (
            [f"key ({', '.join(f'{name}={value!r:.200}' for name, value in zip(names, self.key))})"] if names else []
        )
        if self.window is not None:
            parts.append(f"window {utc_text(self.window[0])} to {utc_text(self.window[1])}")
        return f"{', '.join(parts) or 'the whole state'}: {type(self.error).__name__}: {self.error}"


def of_state(node: Node) -> str:
    """Which state it is, of a task with several."""
    return "" if node.name == STATE else f", of the state {node.name!r}"


def no_result(node: Node, failing: FailingKey) -> UserCodeError:
    """The error that stops a run, or a read."""
    another = "Keep the state and give it another monoid, with Pipeline(evolve=Evolution(before=..., change=...))"
    if node.state.gaps is not None:
        another = "Give the task another monoid, a new checkpoint and a new sink, and read the source again"
    key = f"{failing.text(key_names(node.task))}{of_state(node)}"
    error = UserCodeError(
        f"{type(node.task).__name__}: no result for {key}. Committed state stays. "
        f'{another}; or set such results aside, with their reason, and get all others: on_error="dead-letter"'
    )
    error.__cause__ = failing.error
    return error


def refused_result(node: Node, outputs: pa.Table, row: int, error: Exception) -> FailingKey:
    """A row of outputs that a sink can never hold."""
    ((result,),) = json_rows(outputs.slice(row, 1))
    start, end = (outputs[name][row].value if node.state.window else None for name in (START, END))
    key = tuple(readable(outputs[name][row]) for name in key_names(node.task))
    return FailingKey(key, None if start is None or end is None else (start, end), error, result=result.decode())


def not_published(node: Node, refused: FailingKey) -> InvalidPipeline:
    """The error that stops a run."""
    error = InvalidPipeline(
        f"{type(node.task).__name__}: not published: {refused.text(key_names(node.task))}{of_state(node)}. Another "
        "task does not change what has counted: set such results aside, with their reason, and get all others: "
        'on_error="dead-letter"'
    )
    error.__cause__ = refused.error
    return error


@dataclass
class Failures:
    """The keys without a result that were found so far. Without dead letters in the node, the first one raises
    UserCodeError."""

    node: Node
    keys: list[FailingKey] = field(default_factory=list)

    def folding(self, placed: Placed, error: Exception) -> tuple[()]:
        """The fold of a single row raises."""
        self._add(FailingKey(_first_key(placed.rows), _window(self.node, placed.rows), error))
        return ()

    def presenting(self, rows: GroupSums, error: Exception) -> tuple[()]:
        """The value of a single row cannot be presented."""
        encoded = _encoded(self.node.state.monoid, rows)
        self._add(FailingKey(_first_key(rows), _window(self.node, rows), error, encoded))
        return ()

    def _add(self, failing: FailingKey) -> None:
        if not self.node.dead_letters:
            raise no_result(self.node, failing)
        self.keys.append(failing)


def _window(node: Node, rows: GroupSums) -> tuple[int, int] | None:
    """The start and the end of the window of a single row; None without windows."""
    window = node.state.window
    return None if window is None else (int(rows.panes[0]), int(ends_of(window, rows)[0]))


def _first_key(rows: GroupSums) -> tuple[Any, ...]:
    return tuple(readable(column[0]) for column in rows.keys)


def _encoded(monoid: Monoid[Any], rows: GroupSums) -> bytes | None:
    """The element of a row, for its dead letter, by the monoid of its value; None if it cannot be encoded."""
    values = values_of(monoid)
    try:
        return values.encode(values.unpack(result_columns(monoid, rows.columns))[0])
    except Exception:
        return None


def stage_failing_keys(node: Node, attempt: Attempt, failing: Sequence[FailingKey]) -> Staged | None:
    """Write the failing keys as dead letters. A failing key belongs to no record, so no account counts it."""
    if not failing:
        return None
    names, rows = key_names(node.task), len(failing)
    letters = aside_rows(
        rows,
        partition="",
        file="",
        timestamp=[key.window[0] if key.window else None for key in failing],
        reason=[
            f"{'no result for' if key.result is None else 'not published:'} {key.text(names)}{of_state(node)}"
            for key in failing
        ],
        checkpoint=attempt.id,
        data=[_facts(key, names) for key in failing],
    )
    return write_table(node.storage, node.folder, attempt, pa.Table.from_batches([letters]))


def _facts(failing: FailingKey, names: Sequence[str]) -> bytes:
    """The key, the window (ms), the element (hexadecimal) and the refused result as JSON, for programs."""
    start, end = failing.window or (None, None)
    element = None if failing.element is None else failing.element.hex()
    key = dict(zip(names, failing.key))
    facts = to_json({"key": key, "window_start": start, "window_end": end, "element": element})
    if failing.result is not None:
        facts = f'{facts[:-1]},"result":{failing.result}}}'
    return facts.encode("utf-8", "replace")
