"""The reason of a dead letter names the column, what was found there, what was expected, and what to do."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monoids import Count
from persistent import FileSource, MemorySource, NonWindowState, PersistentTask, Pipeline
from persistent.connect import remedies
from persistent.connect.source import Source


class Counts(PersistentTask):
    key = "id"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def reasons(source: Source) -> list[str]:
    """Why the records that are dead letters are."""
    pipeline = Pipeline(source=source, task=Counts(), checkpoint=f"memory://{uuid.uuid4()}")
    pipeline.run(engine="embedded")
    return [str(letter["reason"]) for letter in pipeline.dead_letters().to_pylist()]


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


ISO = "2024-05-01T10:00:00Z"
FRESH = "Another timestamp= or timestamp_unit= needs a new checkpoint and sink"


@pytest.mark.parametrize(
    ("time", "unit", "reason"),
    [
        (
            ISO,
            "s",
            f"timestamp unreadable: column 'when' holds {ISO!r} (string), where timestamp_unit='s' expects digits: "
            f"give timestamp_unit=None, if these are ISO 8601 times. {FRESH}",
        ),
        (
            "2024/05/01 10:00",
            None,
            "timestamp unreadable: column 'when' holds '2024/05/01 10:00' (string), where ISO 8601 is expected, as in "
            f"{ISO!r}: correct it where it is written, or give timestamp= with another column. {FRESH}",
        ),
        (
            "1714557600",
            None,
            "timestamp unreadable: column 'when' holds '1714557600' (string), where ISO 8601 is expected, as in "
            f"{ISO!r}: give its unit, timestamp_unit='s', 'ms', 'us' or 'ns'. {FRESH}",
        ),
        (None, None, "timestamp missing: column 'when' (string) is null"),
        (
            "x" * 10_000,
            None,
            f"timestamp unreadable: column 'when' holds '{'x' * 40}...' (string), where ISO 8601 is "
            f"expected, as in {ISO!r}: correct it where it is written, or give timestamp= with another column. {FRESH}",
        ),
    ],
)
def test_a_timestamp_that_cannot_be_read_is_told(time: Any, unit: str | None, reason: str, tmp_path: Path) -> None:
    """All records are dead, and 'missing or unreadable' says neither which column nor that the unit is to blame."""
    good = {"when": "1" if unit else ISO, "id": "a"}
    path = lines(tmp_path / "a.jsonl", good, {"when": time, "id": "b"})
    assert reasons(FileSource(path, timestamp="when", timestamp_unit=unit)) == [reason]
    assert reasons(MemorySource([good, {"when": time, "id": "b"}], timestamp="when", timestamp_unit=unit)) == [reason]


def test_an_integer_that_no_clock_holds_is_told(tmp_path: Path) -> None:
    """A count of nanoseconds taken for seconds is no null; its statistics ended every run with an OverflowError."""
    pq.write_table(pa.table({"when": [2**62], "id": ["a"]}), tmp_path / "a.parquet")
    (reason,) = reasons(FileSource(tmp_path, timestamp="when", timestamp_unit="s"))
    assert reason.startswith(
        f"timestamp unreadable: column 'when' holds {2**62} (int64), too many for timestamp_unit='s'"
    )


def test_a_time_of_a_folder_is_told(tmp_path: Path) -> None:
    """There the column is in no file."""
    (tmp_path / "day=soon").mkdir()
    lines(tmp_path / "day=soon" / "a.jsonl", {"id": "a"})
    (reason,) = reasons(FileSource(tmp_path, timestamp="day"))
    assert reason.startswith("timestamp unreadable: column 'day' holds 'soon' (string)")


def test_a_decimal_where_the_first_file_had_integers_hints_at_the_schema(tmp_path: Path) -> None:
    """The file is right and the guess was wrong: without the hint she mends the file."""
    hint = ". If the value is right, give all columns their types with schema=, which applies to later records"
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "a.csv").write_text(f"when,id,amount\n{ISO},a,1\n")
    (tmp_path / "csv" / "b.csv").write_text(f"when,id,amount\n{ISO},a,1.5\n")
    assert reasons(FileSource(tmp_path / "csv", timestamp="when")) == [
        f"column 'amount': CSV conversion error to int64: invalid value '1.5'{hint}"
    ]
    (tmp_path / "json").mkdir()
    lines(tmp_path / "json" / "a.jsonl", {"when": ISO, "id": "a", "amount": 1})
    lines(tmp_path / "json" / "b.jsonl", {"when": ISO, "amount": 1.5}, {"when": ISO, "amount": "x", "more": 1.5})
    decimal, text = reasons(FileSource(tmp_path / "json", timestamp="when"))
    assert decimal == f"column 'amount': Failed to convert JSON to int64, couldn't parse:1.5{hint}"
    assert "amount" in text and text.endswith(hint)
    types = {"when": "string", "id": "string", "amount": "double"}
    for folder in ("csv", "json"):
        read = reasons(FileSource(tmp_path / folder, timestamp="when", schema=types))
        assert all("1.5" not in reason for reason in read), "the remedy that it names is one"


def test_a_line_that_is_no_json_says_nothing_of_the_schema(tmp_path: Path) -> None:
    """No schema mends it."""
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"when": ISO, "id": "a"}) + '\n{"when": nonsense}\n')
    (reason,) = reasons(FileSource(path, timestamp="when"))
    assert "schema=" not in reason


def test_a_date_or_a_decimal_that_does_not_fit_names_its_column(tmp_path: Path) -> None:
    """The reasons had neither column nor remedy."""
    schema = {"when": "string", "id": "string", "day": "date32", "price": pa.decimal128(5, 2)}
    good = {"when": ISO, "id": "a", "day": "2024-05-01", "price": "1.50"}
    bad = [{**good, "day": "soon"}, {**good, "price": "1.234"}]
    path = lines(tmp_path / "a.jsonl", good, *bad)
    csv = tmp_path / "a.csv"
    csv.write_text("".join(",".join(map(str, row)) + "\n" for row in (good, *(one.values() for one in (good, *bad)))))
    for source in (FileSource(path, timestamp="when", schema=schema), FileSource(csv, timestamp="when", schema=schema)):
        day, price = sorted(reasons(source))
        assert day.startswith("column 'day': ") and price.startswith("column 'price': ")
        assert day.endswith(remedies.TYPES) and price.endswith(remedies.TYPES)
