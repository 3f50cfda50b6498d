"""An outcome is everything a run has produced, without the names and ids that differ between runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from persistent.checkpoint.log import Log
from persistent.driver.same_job import chosen_node
from persistent.names import STATE
from persistent.pipeline import Pipeline
from persistent.task.task import key_names
from persistent.text.readable import readable_list
from persistent.worker.output_tables import END, RETRACTED, REVISION, START

OutputRow = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_MAX = 600


@dataclass(frozen=True)
class Slot:
    """The place of a value: ``part`` of the outcome, key, and window (start and end in ms) if it has one."""

    part: str
    key: tuple[Any, ...] = ()
    window: tuple[int, int] | None = None


@dataclass(frozen=True)
class Outcome:
    """``rows``: the list of values at each place, so that duplicates are visible."""

    key_names: tuple[str, ...]
    rows: Mapping[Slot, list[OutputRow]]

    def at(self, part: str) -> Iterator[tuple[Slot, list[OutputRow]]]:
        """The places of one part."""
        return ((place, rows) for place, rows in self.rows.items() if place.part == part)


@dataclass(frozen=True)
class Difference:
    """A place where two outcomes differ, and the two values. ``field``: None if a whole row is missing."""

    place: Slot
    key_names: tuple[str, ...]
    field: str | None
    expected: Any
    found: Any

    @property
    def key(self) -> Any:
        """The key: a scalar for one column, a tuple for several, None for none."""
        key = self.place.key
        return key[0] if len(key) == 1 else key or None

    def where(self) -> list[str]:
        """The place, in lines."""
        lines = [] if self.place.part in ("state", "outputs") else [f"in: {self.place.part}"]
        if self.place.key:
            named = zip(self.key_names, self.place.key)
            lines.append("key: " + ", ".join(f"{name}={value!r}" for name, value in named))
        if self.place.window:
            lines.append("window: [{}, {})".format(*self.place.window))
        return lines

    def values(self, expected: str, found: str) -> list[str]:
        """A named line for each side."""
        what = f"{self.field}, " if self.field else ""
        return [f"{what}{expected}: {_shown(self.expected)}", f"{what}{found}: {_shown(self.found)}"]


@dataclass(frozen=True)
class Said:
    """Text in place of a value."""

    words: str

    def __repr__(self) -> str:
        return self.words


NOTHING = Said("nothing")
ENDED = Said("ends")


@dataclass(frozen=True)
class Raised:
    """The error of a failed run, in place of its value."""

    error: str

    def __repr__(self) -> str:
        return f"raises {self.error}"


def outcome_of(
    pipeline: Pipeline, published: Iterable[OutputRow], *, positions: bool = False, state: str = STATE
) -> Outcome:
    """All visible results: the state, the rows of the sink, late rows and dead letters, and the account.

    ``positions``: also the positions of records, for runs that read the same records. ``state``: of a task with several
    states, which one.
    """
    names = key_names(pipeline.task)
    rows: dict[Slot, list[OutputRow]] = {}
    node = chosen_node(pipeline.job(), state)
    outputs = _newest(names, published)
    outputs = [
        {name: row[name] for name in row if name != RETRACTED} for row in outputs if not row.get(RETRACTED, False)
    ]
    for part, part_rows in (("state", readable_list(pipeline.state(name=node.name))), ("outputs", outputs)):
        for row in part_rows:
            place, values = _placed(part, names, row)
            rows.setdefault(place, []).append(values)
    for part, table in (("late", pipeline.late()), ("dead letters", pipeline.dead_letters())):
        if len(table):
            apart = {"checkpoint"} if positions else {"checkpoint", "partition", "file", "ordinal", "offset"}
            rows[Slot(part)] = [
                {name: value for name, value in row.items() if name not in apart} for row in readable_list(table)
            ]
    newest = Log(pipeline.storage).newest()
    accounts = newest.manifest.accounts.items() if newest else ()
    for partition, account in accounts:
        counted = {name: value for name, value in structs.asdict(account).items() if positions or name != "mix"}
        rows[Slot(f"ledger of {partition}")] = [counted]
    return Outcome(
        names, {place: sorted(group, key=lambda row: repr(sorted(row.items()))) for place, group in rows.items()}
    )


def all_outputs(outcomes: Sequence[Outcome]) -> Outcome:
    """The outcome of a pipeline with several sinks, from one outcome for each: the outputs of each sink become a part
    of their own, so that a row missing from a sink is visible."""
    if len(outcomes) == 1:
        return outcomes[0]
    rows = {place: group for place, group in outcomes[0].rows.items() if place.part != "outputs"}
    for number, outcome in enumerate(outcomes, 1):
        rows |= {replace(place, part=f"outputs of sink {number}"): group for place, group in outcome.at("outputs")}
    return Outcome(outcomes[0].key_names, rows)


def all_states(outcomes: Mapping[str, Outcome]) -> Outcome:
    """The outcome of a task with several states, from one outcome for each: its state and its outputs become parts of
    their own."""
    if outcomes.keys() == {STATE}:
        return outcomes[STATE]
    (first, *_), rows = outcomes.values(), dict[Slot, list[OutputRow]]()
    for name, outcome in outcomes.items():
        for place, group in outcome.rows.items():
            is_own = place.part == "state" or place.part.startswith("outputs")
            rows[replace(place, part=part_of(place.part, name)) if is_own else place] = group
    return Outcome(first.key_names, rows)


def part_of(part: str, state: str) -> str:
    """The name of a part of the outcome that belongs to one state."""
    return part if state == STATE else f"{part} of {state}"


def first_difference(expected: Outcome, found: Outcome, tolerance: float | None) -> Difference | None:
    """The first difference, by part, window and key; None if the outcomes are equal.

    ``tolerance``: None compares exactly; otherwise it is the allowed relative difference between numbers.
    """
    parts = {"outputs": 0, "state": 1, "late": 2, "dead letters": 3}
    places = {**expected.rows, **found.rows}
    for place in sorted(places, key=lambda slot: (parts.get(slot.part, 4), slot.window or (0, 0), repr(slot.key))):
        left, right = expected.rows.get(place, []), found.rows.get(place, [])
        differing = _rows_differ(left, right, tolerance)
        if differing is not None:
            return Difference(place, expected.key_names, *differing)
    return None


def same(a: Any, b: Any, tolerance: float | None = None) -> bool:
    """Whether two values are equal. NaN equals NaN; bool, int and float differ.

    >>> same([1.0, {"x": float("nan")}], [1.0, {"x": float("nan")}]), same(1, True), same(1.0, 1.0 + 1e-12, 1e-9)
    (True, False, True)
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[name], b[name], tolerance) for name in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        if tolerance is not None and math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance):
            return True
        return a == b or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and bool(a == b)


def _rows_differ(
    left: list[OutputRow], right: list[OutputRow], tolerance: float | None
) -> tuple[str | None, Any, Any] | None:
    if len(left) == len(right) == 1:
        for name in dict.fromkeys([*left[0], *right[0]]):
            a, b = left[0].get(name, NOTHING), right[0].get(name, NOTHING)
            if not same(a, b, tolerance):
                return name, a, b
        return None
    return None if same(left, right, tolerance) else (None, _one(left), _one(right))


def _one(rows: list[OutputRow]) -> Any:
    return NOTHING if not rows else dict(rows[0]) if len(rows) == 1 else [dict(row) for row in rows]


def _newest(names: Sequence[str], rows: Iterable[OutputRow]) -> list[OutputRow]:
    """The rows of the largest revision for each key and window, which readers use."""
    outputs = list(rows)
    # A key can have that name where no output has a revision.
    if REVISION in names or not any(REVISION in row for row in outputs):
        return outputs
    newest: dict[Slot, int] = {}
    for row in outputs:
        place, _ = _placed("outputs", names, row)
        newest[place] = max(row[REVISION], newest.get(place, -1))
    return [row for row in outputs if row[REVISION] == newest[_placed("outputs", names, row)[0]]]


def _placed(part: str, names: Sequence[str], row: OutputRow) -> tuple[Slot, OutputRow]:
    window = None if row.get(START) is None else (_ms(row[START]), _ms(row[END]))
    apart = {*names, START, END, REVISION}
    values = {name: value for name, value in row.items() if name not in apart}
    return Slot(part, tuple(_plain(row[name]) for name in names), window), values


def _plain(value: Any) -> Any:
    """A key value that equals itself: NaN becomes text."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _ms(time: Any) -> int:
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    if isinstance(time, datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        difference = aware - _EPOCH
        return (difference.days * 86_400 + difference.seconds) * 1_000 + difference.microseconds // 1_000
    return int(time)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX // 2]} ... {text[-_SHOWN_MAX // 2 :]}"
