"""A result is what one section of the proof came to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """``cases``: how many were tried. ``failures``: a line for each that went wrong, with what reproduces it.
    ``mutants``: (found, planted) defects; None where the section plants none."""

    section: str
    cases: int
    failures: tuple[str, ...]
    mutants: tuple[int, int] | None
    seconds: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """Nothing failed, something was tried, and every planted defect was found."""
        return not self.failures and self.cases > 0 and (self.mutants is None or self.mutants[0] == self.mutants[1])

    def __add__(self, later: Result) -> Result:
        """Both rounds of a section together.

        >>> Result("disk", 2, (), (1, 1), 3.0) + Result("disk", 1, ("lost",), (2, 2), 1.0)
        Result(section='disk', cases=3, failures=('lost',), mutants=(3, 3), seconds=4.0, note='')
        """
        pairs = [one.mutants for one in (self, later) if one.mutants is not None]
        mutants = (sum(found for found, _ in pairs), sum(planted for _, planted in pairs)) if pairs else None
        return replace(
            later,
            cases=self.cases + later.cases,
            failures=self.failures + later.failures,
            mutants=mutants,
            seconds=self.seconds + later.seconds,
        )


def table(results: list[Result], wall_seconds: float | None = None) -> str:
    """The results, a line each; with ``wall_seconds`` also how many cases an hour of the section's time covers.

    >>> print(table([Result("disk", 50_000, (), (4, 4), 401.26, "seed 0")]))
    section          cases  failures  mutants  seconds  note
    disk            50,000         0      4/4    401.3  seed 0
    """
    hourly = wall_seconds is not None
    head = f"{'section':<11} {'cases':>10} {'failures':>9} {'mutants':>8} {'seconds':>8}"
    lines = [head + (f" {'an hour':>12}" if hourly else "") + "  note"]
    for result in results:
        found = f"{result.mutants[0]}/{result.mutants[1]}" if result.mutants else "-"
        line = f"{result.section:<11} {result.cases:>10,} {len(result.failures):>9,} {found:>8} {result.seconds:>8,.1f}"
        if hourly:
            line += f" {result.cases / max(result.seconds, 1e-9) * 3600:>12,.0f}"
        lines.append(f"{line}  {result.note}".rstrip())
    return "\n".join(lines)


def in_turn(parts: Sequence[T], weights: Sequence[float], until: float) -> Iterator[tuple[T, float]]:
    """The parts of a section, one after the other, each with when it must end: what one leaves of its time, the
    others have.

    >>> [part for part, end in in_turn(["a", "b"], [1, 2], float("inf"))]
    ['a', 'b']
    """
    for number, part in enumerate(parts):
        now = time.monotonic()
        yield part, now + (until - now) * weights[number] / sum(weights[number:])
