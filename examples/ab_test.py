"""Which of two pages sells more? Visitors and sales of each variant, and whether the difference can be chance.

python examples/ab_test.py
"""

from __future__ import annotations

import math
import random
import tempfile
from pathlib import Path
from typing import Any

from monoids import CountIf, HyperLogLog, Moments, exact_until, record
from persistent import MemorySource, NonWindowState, PersistentTask, Pipeline

SURE = 1.96
"""Standard errors, within which 95 of 100 results lie by chance."""


class Variants(PersistentTask):
    """Distinct visitors, sales and the amounts of them, per variant."""

    key = "variant"

    def persistent_state(self) -> NonWindowState:
        visitors = exact_until(100_000, HyperLogLog(14))
        return NonWindowState(record(visitors=visitors, sales=CountIf(), amounts=Moments()))

    def process_message(self, state: Any, message: Any) -> None:
        view = message.value
        state.update(
            message.timestamp,
            {"visitors": view["visitor"], "sales": view["cents"] > 0, "amounts": view["cents"] or None},
        )


def views() -> list[dict[str, Any]]:
    """A view for each of 12,000 visitors, and a second one for some. Of variant B more buy."""
    rng = random.Random(3)
    found: list[dict[str, Any]] = []
    for visitor in range(12_000):
        variant = "AB"[visitor % 2]
        for _ in range(1 + (rng.random() < 0.3)):
            buys = rng.random() < (0.05 if variant == "A" else 0.065)
            cents = round(rng.lognormvariate(8, 0.5)) if buys else 0
            found.append({"ts": 1_000 * len(found), "variant": variant, "visitor": visitor, "cents": cents})
    return found


def expected(found: list[dict[str, Any]]) -> dict[str, tuple[int, int, float]]:
    """Variant to distinct visitors, sales and the mean of the amounts."""
    result = {}
    for variant in "AB":
        of_it = [view for view in found if view["variant"] == variant]
        amounts = [view["cents"] for view in of_it if view["cents"]]
        result[variant] = len({view["visitor"] for view in of_it}), len(amounts), math.fsum(amounts) / len(amounts)
    return result


def interval(sales: int, visitors: int) -> tuple[float, float]:
    """The rates of sale that are likely, by Wilson's score."""
    rate, square = sales / visitors, SURE**2 / visitors
    middle = (rate + square / 2) / (1 + square)
    wide = SURE * math.sqrt(rate * (1 - rate) / visitors + square / (4 * visitors)) / (1 + square)
    return middle - wide, middle + wide


def main() -> None:
    found = views()
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Pipeline(
            source=MemorySource(found, timestamp="ts"),
            task=Variants(),
            checkpoint=str(Path(folder) / "checkpoint"),
            step_rows=1_000,
        )
        pipeline.run(engine="embedded")
        rows = {row["variant"]: row for row in pipeline.state().to_pylist()}
    counted = {}
    for variant, row in sorted(rows.items()):
        low, high = interval(row["sales"], row["visitors"])
        mean = row["amounts"]["mean"]
        counted[variant] = row["visitors"], row["sales"], mean
        print(
            f"{variant}: {row['sales']} sales to {row['visitors']} visitors, {low:.1%} to {high:.1%}, {mean:.0f} cents"
        )
    (visitors, sales, _), (others, theirs, _) = counted["A"], counted["B"]
    rate = (sales + theirs) / (visitors + others)
    errors = (theirs / others - sales / visitors) / math.sqrt(rate * (1 - rate) * (1 / visitors + 1 / others))
    verdict = "no mere chance" if abs(errors) > SURE else "perhaps chance"
    print(f"the difference is {errors:.1f} standard errors: {verdict}")
    plain = expected(found)
    same = counted.keys() == plain.keys() and all(
        counted[variant][:2] == plain[variant][:2] and math.isclose(counted[variant][2], plain[variant][2])
        for variant in plain
    )
    if not same:
        raise SystemExit("DIFFERENT from a plain computation")
    print("both variants are what a plain computation gives")


if __name__ == "__main__":
    main()
