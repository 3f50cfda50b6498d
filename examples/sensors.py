"""Sensors that lose their connection: what they send later corrects what was published; what is too late is kept apart.

python examples/sensors.py
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from monoids import Count, Max, Min, record
from persistent import FileSink, MemorySource, PersistentTask, Pipeline, SqliteSink, WindowState, tumbling

SECOND, MINUTE = 1_000, 60_000
NOON = 1_714_996_800_000
"""2024-05-06, twelve o'clock."""
SENSORS = ("boiler", "roof", "cellar")


class Temperatures(PersistentTask):
    """Readings, and the coldest and the warmest of them, per sensor and five minutes. A window takes readings for a
    quarter of an hour after its end, and is published anew if one of them has changed it."""

    key = "sensor"

    def persistent_state(self) -> WindowState:
        values = record(readings=Count(), coldest=Min(float), warmest=Max(float))
        return WindowState(values, tumbling("5 min"), allowed_lateness="15 min", late="accumulate")

    def process_message(self, state: Any, message: Any) -> None:
        degrees = message.value["degrees"]
        state.update(message.timestamp, {"readings": 1, "coldest": degrees, "warmest": degrees})


def readings() -> list[dict[str, Any]]:
    """A reading every ten seconds for two hours. The roof is cut off twice, for eight minutes and for forty, and sends
    what it has measured once it is back."""
    rng = random.Random(11)
    found = []
    for number in range(720):
        for sensor in SENSORS:
            time = NOON + number * 10 * SECOND
            reading = {"ts": time, "sensor": sensor, "degrees": round(rng.gauss(20, 5), 1)}
            minute = number / 6
            back = 30 if 22 <= minute < 30 else 100 if 60 <= minute < 100 else minute
            arrives = back if sensor == "roof" else minute
            found.append((arrives, number, reading))
    return [reading for *_, reading in sorted(found, key=lambda one: one[:2])]


def expected(found: list[dict[str, Any]], too_late: list[int]) -> dict[tuple[str, int], tuple[int, float, float]]:
    """Sensor and window to readings, coldest and warmest, of all readings but those at these places."""
    left = {*range(len(found))} - {*too_late}
    groups: dict[tuple[str, int], list[float]] = {}
    for place in sorted(left):
        one = found[place]
        groups.setdefault((one["sensor"], one["ts"] // (5 * MINUTE) * 5 * MINUTE), []).append(one["degrees"])
    return {window: (len(values), min(values), max(values)) for window, values in groups.items()}


def are_too_late(found: list[dict[str, Any]], step_rows: int) -> list[int]:
    """The places of the readings whose window was final: its end lay more than 15 minutes before the clock of the step
    before."""
    late = []
    for place, one in enumerate(found):
        before = found[: place // step_rows * step_rows]
        clock = max((other["ts"] for other in before), default=0)
        if one["ts"] // (5 * MINUTE) * 5 * MINUTE + 20 * MINUTE <= clock:
            late.append(place)
    return late


def pipeline(found: list[dict[str, Any]], folder: Path) -> Pipeline:
    return Pipeline(
        source=MemorySource(found, timestamp="ts", ordered=True),
        task=Temperatures(),
        sink=SqliteSink(folder / "temperatures.db", "temperatures", mode="upsert"),
        late_sink=FileSink(folder / "too-late", format="jsonl"),
        checkpoint=str(folder / "checkpoint"),
        step_rows=30,
    )


def main() -> None:
    found = readings()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        report = pipeline(found, folder).run(engine="embedded", end_of_input=True)
        database = sqlite3.connect(folder / "temperatures.db")
        rows = database.execute("SELECT sensor, window_start, readings, coldest, warmest FROM temperatures").fetchall()
        database.close()
        apart = [line for path in (folder / "too-late").glob("*.jsonl") for line in path.read_text().splitlines()]
    for sensor, start, count, coldest, warmest in sorted(rows)[:3]:
        print(f"{sensor}, {start[11:16]}: {count} readings, {coldest} to {warmest} degrees")
    print(f"{report.rows} readings; {len(rows)} windows; {report.corrected} published anew, {len(apart)} too late")
    table = {
        (sensor, round(datetime.fromisoformat(start).timestamp() * 1000)): (count, coldest, warmest)
        for sensor, start, count, coldest, warmest in rows
    }
    too_late = are_too_late(found, 30)
    if len(apart) != len(too_late) or len(table) != len(rows) or table != expected(found, too_late):
        raise SystemExit("DIFFERENT from a plain computation")
    print("each window, and what was too late, is what a plain computation gives")


if __name__ == "__main__":
    main()
