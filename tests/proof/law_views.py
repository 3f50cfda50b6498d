"""A view is what a state has to show at a checkpoint, by a plain computation.

Of a manifest only what ``Facts`` names is read: positions, clocks, and which checkpoint was published last.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pyarrow as pa

from monoids import Count, Max, Monoid, Sum
from persistent.checkpoint.log import Log
from persistent.worker.output_tables import marks_of
from tests.proof.emission import Emission, Place, Sums, drawn_emission

TASK = "Visits"
CAP = 30
"""Beyond this total a fold raises, where folds may."""
TENTHS = 10

Counted = tuple[tuple[Place, int, int], ...]
"""The updates that counted: their place, number and time."""
Published = tuple[Counted, int]
"""The updates that had counted at a publication, and the clock up to which windows were closed, or lives ended."""


@dataclass(frozen=True)
class Facts:
    """What is read of a manifest. ``closed``, ``final`` and ``is_published`` by state."""

    kind: str
    target: int
    read: Mapping[str, int]
    watermark: int
    closed: Mapping[str, int]
    final: Mapping[str, int]
    is_published: Mapping[str, bool]


def facts(log: Log, id: int, states: Mapping[str, Any]) -> Facts:
    """The facts of one manifest. This function alone knows what a manifest looks like."""
    manifest = log.read(id).manifest
    nodes = {state: manifest.nodes[f"{TASK}/{state}"] for state in states}
    return Facts(
        manifest.kind,
        manifest.id if manifest.target is None else manifest.target,
        {name: sum(read for _, read in source.positions.values()) for name, source in manifest.sources.items()},
        manifest.clock.watermark,
        {state: node.clock.closed for state, node in nodes.items()},
        {state: node.final for state, node in nodes.items()},
        {state: node.published == id for state, node in nodes.items()},
    )


class Capped(Monoid[int]):
    """The sum of numbers that are not negative; raises beyond ``CAP``, in whatever order they are added up."""

    identity = 0
    commutative = True
    output_type = pa.int64()

    def combine(self, a: int, b: int) -> int:
        if a + b > CAP:
            raise ValueError(f"{a} and {b} are too much")
        return a + b


@dataclass(frozen=True)
class Folding(Emission):
    """``folds``: "exact"; "inexact" if the order of a fold shows in the last digit of its total; or "raising" if a
    total above ``CAP`` has no value."""

    folds: str = "exact"

    def state(self, **options: Any) -> Any:
        """The state of a task; of totals with its history, so that a restart finds a clock."""
        return super().state(**({"interval_ms": 1, "history": 1_000} if self.window is None else {}), **options)

    @property
    def monoids(self) -> tuple[Monoid[Any], ...]:
        total: Monoid[Any] = {"exact": Sum(), "inexact": Sum(float), "raising": Capped()}[self.folds]
        return Count(), total, Max(), Count()

    @property
    def has_signs(self) -> bool:
        """Whether rows say that they are taken back."""
        return any(field.name == "retracted" for field in marks_of(self.state(), 0))

    def evolved(self) -> Folding:
        """With a new column, which holds nothing."""
        return replace(self, names=(*self.names, "more"))

    def values(self, n: int) -> dict[str, Any]:
        return {**super().values(n), "total": n / TENTHS} if self.folds == "inexact" else super().values(n)

    def row(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return super().row({**row, "total": round(row["total"] * TENTHS)} if self.folds == "inexact" else row)

    def valued(self, rows: Mapping[Place, Sums]) -> dict[Place, Sums]:
        """The rows that have a value."""
        return {place: sums for place, sums in rows.items() if self.folds != "raising" or sums[1] <= CAP}


def drawn_state(drawn: random.Random) -> Folding:
    """A state of any kind that obeys the law."""
    while True:
        window = drawn.choice(((10, 10, 0), (15, 5, 0), None))
        emission = drawn_emission(drawn, window)
        folds = drawn.choice(("exact", "exact", "exact", "inexact", "raising"))
        if emission.window != "days":
            return Folding(*(getattr(emission, each.name) for each in fields(emission)), folds)


@dataclass(frozen=True)
class View:
    """The updates that ``counted`` in a state, up to where its windows are ``closed`` and ``final``, and what was
    ``published`` last, where not every step publishes."""

    counted: Counted = ()
    closed: int = 0
    final: int = 0
    published: Published = ((), 0)

    def rows(self, emission: Folding) -> dict[Place, Sums]:
        """The view, and the rows that were settled before."""
        return emission.valued(self._folded(emission))

    def _folded(self, emission: Folding) -> dict[Place, Sums]:
        if emission.of_changes or not emission.has_windows:
            counted, closed = self.published
            return emission.table_of(_pairs(counted), closed)
        summed = emission.summed(_pairs(self.counted))
        return {place: sums for place, sums in summed.items() if emission.end(place[1]) <= self.closed}

    def settled(self, emission: Folding) -> set[Place]:
        """The places of which nothing is published to a sink that joins now."""
        if not emission.has_windows:
            return set()
        bound = self.final if emission.of_changes or emission.allowed else self.closed
        return {place for place in emission.summed(_pairs(self.counted)) if emission.end(place[1]) <= bound}

    def places(self, emission: Folding) -> set[Place]:
        """Where rows may have been published."""
        if emission.has_lives:
            return {(page, None) for (page, _), _, _ in self.counted}
        return set(emission.summed(_pairs(self.counted)))

    def lasting(self, emission: Folding, row: Mapping[str, Any]) -> list[Any]:
        """The life that takes a corrected record of a time within one of its key that has not ended."""
        if not emission.has_lives:
            return []
        lives = [life for page, life in emission.summed(_pairs(self.counted)) if page == row["page"]]
        is_within = any(start <= row["ts"] < end and end > self.closed for start, end in lives)
        return list(emission.starts(row["ts"])) if is_within else []

    def before(self, clock: int, closed: int, final: int) -> View:
        """The view as of a clock, with windows closed and final up to these."""
        return replace(
            self, counted=tuple(update for update in self.counted if update[2] < clock), closed=closed, final=final
        )


def _pairs(counted: Counted) -> list[tuple[Place, int]]:
    return [(place, n) for place, n, _ in counted]


@dataclass(frozen=True)
class Moment:
    """A checkpoint of the plain computation. ``read``: by source. ``since``: records of sources that were read before a
    restart count from this clock on."""

    read: Mapping[str, int] = field(default_factory=dict)
    watermark: int = 0
    views: Mapping[str, View] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)

    def evolved(self, found: Facts) -> Moment:
        """With the windows final that an evolution has made final."""
        return replace(
            self, views={state: replace(view, final=found.final[state]) for state, view in self.views.items()}
        )

    def added(self, other: Moment, found: Facts) -> Moment:
        """Both jobs, merged: nothing is published of the new one."""
        views = {
            state: View((*view.counted, *other.views[state].counted), found.closed[state], found.final[state])
            for state, view in self.views.items()
        }
        return Moment({**self.read, **other.read}, found.watermark, views, self.since)


def kind_of(emission: Folding) -> str:
    """A few words for the states that publish alike."""
    window = "sessions" if emission.has_sessions else "lives" if emission.has_lives else "windows"
    window = window if emission.has_windows or emission.has_lives else "totals"
    words = [window, emission.emit, f"late={emission.late}" * bool(emission.late), f"changes={emission.changes}"]
    folds = "" if emission.folds == "exact" else emission.folds
    return " ".join(filter(None, [*words, "lateness" * bool(emission.allowed), "early" * bool(emission.early), folds]))


def differing(held: Counter[tuple[Place, Sums]], expected: Mapping[Place, Sums]) -> Iterator[tuple[Place, Sums, int]]:
    """Each row that is there too often (more than 0 times) or not often enough (less)."""
    wanted = Counter(expected.items())
    for place, sums in {*held, *wanted}:
        times = held[place, sums] - wanted[place, sums]
        if times:
            yield place, sums, times
