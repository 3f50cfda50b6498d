"""Trips of taxis by borough and hour, as the clocks of New York have them, on the day on which they are set forward.

python examples/trips.py
"""

from __future__ import annotations

import csv
import json
import math
import random
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from monoids import Count, ExactSum, Max, record
from persistent import FileSink, FileSource, PersistentTask, Pipeline, WindowState, calendar

PLACE = ZoneInfo("America/New_York")
NIGHT = 1_710_028_800_000
"""2024-03-10 in UTC: seven hours later the clocks there go from two to three."""
DAY = 86_400_000
BOROUGHS = ("Bronx", "Brooklyn", "Manhattan", "Queens", "Staten Island")


class Trips(PersistentTask):
    """Trips, miles and the dearest fare, per borough and hour of the place."""

    key = "borough"

    def persistent_state(self) -> WindowState:
        values = record(trips=Count(), miles=ExactSum(), dearest=Max(float))
        return WindowState(values, calendar("hour", tz=str(PLACE)))

    def process_message(self, state: Any, message: Any) -> None:
        trip = message.value
        state.update(message.timestamp, {"trips": 1, "miles": trip["miles"], "dearest": trip["fare"]})


def write(folder: Path) -> list[dict[str, Any]]:
    """The trips of two days, as a CSV file for each day; they stand in it by their end, and count by their begin."""
    rng = random.Random(2)
    folder.mkdir()
    found = []
    for number in range(4_000):
        begun = NIGHT + number * 2 * DAY // 4_000
        trip = {
            "pickup": datetime.fromtimestamp(begun / 1000, UTC).isoformat(timespec="seconds"),
            "borough": rng.choice(BOROUGHS),
            "miles": round(rng.expovariate(0.4), 2),
            "fare": round(3 + rng.expovariate(0.08), 2),
        }
        found.append((begun + rng.randrange(3_600_000), trip))
    trips = [trip for _, trip in sorted(found, key=lambda one: one[0])]
    for day in range(2):
        with (folder / f"trips-{day}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, trips[0])
            writer.writeheader()
            writer.writerows(trips[day * 2_000 : (day + 1) * 2_000])
    return trips


def expected(trips: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, float, float]]:
    """Borough and hour to trips, miles and the dearest fare."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for trip in trips:
        there = datetime.fromisoformat(trip["pickup"]).astimezone(PLACE)
        hour = there.replace(minute=0, second=0, microsecond=0).astimezone(UTC)
        groups.setdefault((trip["borough"], hour.isoformat()), []).append(trip)
    return {
        place: (len(of_it), math.fsum(trip["miles"] for trip in of_it), max(trip["fare"] for trip in of_it))
        for place, of_it in groups.items()
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trips = write(folder / "trips")
        sink = FileSink(folder / "by-hour", format="jsonl")
        pipeline = Pipeline(
            source=FileSource(folder / "trips" / "*.csv", timestamp="pickup"),
            task=Trips(),
            sink=sink,
            checkpoint=str(folder / "checkpoint"),
        )
        report = pipeline.run(engine="embedded", end_of_input=True)
        lines = [line for path in sink.published() for line in (folder / "by-hour" / path).read_text().splitlines()]
    rows = sorted(map(json.loads, lines), key=lambda row: (row["borough"], row["window_start"]))
    for row in [row for row in rows if row["borough"] == "Queens"][6:9]:
        there = datetime.fromisoformat(row["window_start"]).astimezone(PLACE)
        print(f"{row['borough']}, {there:%H:%M %Z}: {row['trips']} trips, {row['miles']:.1f} miles")
    print(f"{report.rows} trips, {report.late} late; {len(rows)} rows")
    counted = {
        (row["borough"], datetime.fromisoformat(row["window_start"]).isoformat()): (
            row["trips"],
            row["miles"],
            row["dearest"],
        )
        for row in rows
    }
    if len(counted) != len(rows) or counted != expected(trips):
        raise SystemExit("DIFFERENT from a plain computation")
    print("each row is what a plain computation gives")


if __name__ == "__main__":
    main()
