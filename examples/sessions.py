"""Visits of a shop: each lasts until its user has been silent for half an hour, and says what was looked at and bought.

python examples/sessions.py
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from monoids import Count, SetUnion, Sum, record
from persistent import MemorySink, MemorySource, PersistentTask, Pipeline, WindowState, session

MINUTE = 60_000
MORNING = 1_714_982_400_000
"""2024-05-06, eight o'clock."""
USERS = ("ann", "bob", "cyd", "dan")


class Visits(PersistentTask):
    """Clicks, pages and cents spent, per user and visit."""

    key = "user"

    def persistent_state(self) -> WindowState:
        return WindowState(record(clicks=Count(), pages=SetUnion(str), cents=Sum()), session("30 min"))

    def process_message(self, state: Any, message: Any) -> None:
        click = message.value
        state.update(message.timestamp, {"clicks": 1, "pages": click["page"], "cents": click["cents"]})


def clicks() -> list[dict[str, Any]]:
    """The clicks of a day, as they come in: up to ten minutes out of order. They end before midnight in UTC, where each
    session would end."""
    rng = random.Random(7)
    found = []
    for user in USERS:
        time = MORNING
        for _ in range(45):
            time += rng.choice([1, 2, 3, 5, 8, 29, 30, 45]) * MINUTE
            page = rng.choice(["/home", "/shoes", "/hats", "/cart"])
            found.append({"ts": time, "user": user, "page": page, "cents": 1_990 if page == "/cart" else 0})
    return sorted(found, key=lambda click: click["ts"] + rng.randrange(10 * MINUTE))


def expected(found: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, list[str], int]]:
    """User and begin of the visit to clicks, pages and cents, by looking at the clicks of one user after the other."""
    visits: dict[tuple[str, int], tuple[int, list[str], int]] = {}
    for user in USERS:
        begun, last = 0, -(10**15)
        for click in sorted((one for one in found if one["user"] == user), key=lambda one: one["ts"]):
            begun = begun if click["ts"] - last < 30 * MINUTE else click["ts"]
            last = click["ts"]
            count, pages, cents = visits.get((user, begun), (0, [], 0))
            visits[user, begun] = count + 1, sorted({*pages, click["page"]}), cents + click["cents"]
    return visits


def pipeline(found: list[dict[str, Any]], sink: MemorySink, checkpoint: str) -> Pipeline:
    """In steps of twenty clicks. The clock waits ten minutes for clicks that come out of order: none is late."""
    source = MemorySource(found, timestamp="ts", ordered=True, max_out_of_orderness="10 min")
    return Pipeline(source=source, task=Visits(), sink=sink, checkpoint=checkpoint, step_rows=20)


def main() -> None:
    found, sink = clicks(), MemorySink()
    with tempfile.TemporaryDirectory() as folder:
        report = pipeline(found, sink, str(Path(folder) / "checkpoint")).run(engine="embedded", end_of_input=True)
    rows = sorted(sink.rows(), key=lambda row: (row["user"], row["window_start"]))
    for row in rows[:3]:
        ended = f"{row['window_start']:%H:%M} to {row['window_end']:%H:%M}"
        print(f"{row['user']}, {ended}: {row['clicks']} clicks on {', '.join(row['pages'])}; {row['cents']} cents")
    print(f"{report.rows} clicks in {len(rows)} visits, {report.late} late")
    visits = {
        (row["user"], round(row["window_start"].timestamp() * 1000)): (
            row["clicks"],
            sorted(row["pages"]),
            row["cents"],
        )
        for row in rows
    }
    if len(visits) != len(rows) or visits != expected(found):
        raise SystemExit("DIFFERENT from a plain computation")
    print("each visit is what a plain computation gives")


if __name__ == "__main__":
    main()
