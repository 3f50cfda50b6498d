"""Projects of every kind, and what each must come to."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

from persistent.tools.cli.init import write
from persistent.tools.project import Answers, Field, files_of, sink_of, source_of, window_of

KEYS = (Field("user", "str"), Field("number", "int"), Field("is_new", "bool"), None)
WINDOWS = ("hour", "15 min", "session", "none", "day", "session 3 min")
VALUES = ((Field("millis", "int"),), (Field("price", "float"), Field("count", "int")), ())
RUN = ("files", "sqlite")
SERVED = ("postgres:postgresql://me@localhost/shop", "kafka:localhost:9092/totals")
TYPES = {"time": "string", "user": "string", "number": "int64", "is_new": "bool", "millis": "int64"} | {
    "price": "double",
    "count": "int64",
}


def rows() -> Iterator[dict[str, Any]]:
    """Records with a field of each type, two hours and a half of them, with pauses."""
    for number in range(60):
        minute = number // 20 * 70 + number % 20 * (1 + number % 2 * 4) % 40
        yield {
            "time": f"2024-05-06T{8 + minute // 60:02}:{minute % 60:02}:{number:02}Z",
            "user": "abc"[number * number % 3],
            "number": number % 4,
            "is_new": "true" if number % 5 else "false",
            "millis": number * 37 % 101,
            "price": number / 4,
            "count": 1_000_000 - number,
        }


def write_rows(path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, TYPES)
        writer.writeheader()
        writer.writerows(rows())


def answers(
    key: Field | None, window: str, values: tuple[Field, ...], sink: str = "files", source: str = "files:rows.csv"
) -> Answers:
    read = dict.fromkeys(["time", *([key.name] if key else []), *(field.name for field in values)])
    schema = {name: TYPES[name] for name in read} if source.startswith("files") else {}
    return Answers(source_of(source), "time", None, key, values, window_of(window), sink_of(sink), schema)


def project(folder: Path, made: Answers) -> Path:
    """The folder of the project, in one with the records."""
    write_rows(folder / "rows.csv")
    write(folder / "totals", files_of(made, folder / "totals"))
    return folder / "totals"


ALL = list(product(KEYS, WINDOWS, VALUES, RUN))


def expected(made: Answers) -> dict[Any, dict[str, Any]]:
    """By key and start of the window, by a plain computation."""
    found: dict[Any, list[dict[str, Any]]] = {}
    begun: dict[Any, tuple[int, int]] = {}
    for row in sorted(rows(), key=lambda row: str(row["time"])):
        time = round(datetime.fromisoformat(str(row["time"])).timestamp() * 1000)
        key = None if made.key is None else row["is_new"] == "true" if made.key.name == "is_new" else row[made.key.name]
        start: int | None = time // made.window.ms * made.window.ms
        if made.window.kind == "session":
            start, last = begun.get(key, (time, time))
            start = start if time - last < made.window.ms else time
            begun[key] = start, time
        place = key, None if made.window.kind == "none" else start
        found.setdefault(place, []).append(row)
    return {place: totals(made, there) for place, there in found.items()}


def totals(made: Answers, there: list[dict[str, Any]]) -> dict[str, Any]:
    value: dict[str, Any] = {"count": len(there)}
    for field in made.values:
        value[f"{field.name}_sum"] = sum(row[field.name] for row in there)
        value[f"{field.name}_max"] = max(row[field.name] for row in there)
    return value


def published(folder: Path, made: Answers) -> dict[Any, dict[str, Any]]:
    """The same of what is in the sink, each place once."""
    if made.sink.kind == "sqlite":
        with closing(sqlite3.connect(folder / "results.db")) as database:
            cursor = database.execute("SELECT * FROM totals")
            names = [column[0] for column in cursor.description]
            lines = [dict(zip(names, row)) for row in cursor]
    else:
        lines = [json.loads(line) for path in (folder / "results").glob("*.jsonl") for line in path.open()]
    found = {}
    for line in lines:
        start = line.get("window_start")
        time = None if start is None else round(datetime.fromisoformat(start).timestamp() * 1000)
        place = None if made.key is None else line[made.key.name], time
        assert place not in found, f"{place} is there twice"
        found[place] = {name: line[name] for name in totals(made, list(rows())[:1])}
    return found
