"""A field that is no number among numbers is named, with its place, and the remedy is tried on the very input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from persistent import UserCodeError
from tests.connect.formats.test_csv_lines_advice import GOOD, TYPES, read
from tests.visits import Visits, says, visits_of


class InBatches(Visits):
    def process_batch(self, state: Any, batch: Any) -> None:
        state.update_batch(batch.timestamps, {"visits": 1, "total": batch["n"]})


@pytest.mark.parametrize(
    ("odd", "shown"), [(b"1700000002000,c,\\N", r"'\\N'"), (b"ts,page,n", "'n'"), (b"1700000002000,c,-", "'-'")]
)
@pytest.mark.parametrize("task", [Visits(), InBatches()])
def test_an_odd_field_in_a_column_of_numbers(odd: bytes, shown: str, task: Visits, tmp_path: Path) -> None:
    """The error blamed the task for '1', and said nothing of the field that had made its column text."""
    path = tmp_path / "a.csv"
    path.write_bytes(GOOD + odd + b"\n1700000003000,d,4\n")
    with pytest.raises(UserCodeError) as error:
        read(path, task)
    says(
        error,
        f"Column 'n' was inferred to be text, as the record at offset {len(GOOD)} of a.csv has {shown}, which is no",
        "schema=, this one 'int64', and such a record is a dead letter",
    )
    report, pipeline = read(path, task, schema=TYPES)
    assert (report.rows, report.dead, visits_of(pipeline)) == (4, 1, 3)


def test_a_column_of_codes_is_not_the_odd_one(tmp_path: Path) -> None:
    """A column whose error has no value is the one with the most numbers."""
    path = tmp_path / "a.csv"
    rows = ["7,1", "A1,2", "A2,-", "A3,4"]
    path.write_text("ts,page,code,n\n" + "".join(f"170000000000{n},a,{row}\n" for n, row in enumerate(rows)))
    with pytest.raises(UserCodeError, match=r"Column 'n' was inferred to be text, .* has '-', which is no number"):
        read(path, InBatches())


def test_an_odd_field_that_a_worker_does_not_see(tmp_path: Path) -> None:
    """A step may read another part of the file."""
    path = tmp_path / "a.csv"
    path.write_bytes(GOOD + b"1700000002000,c,\\N\n")
    with pytest.raises(UserCodeError, match=r"inferred to be text, as the first lines of the first file have a field"):
        read(path, step_rows=1)


@pytest.mark.parametrize("texts", [("A1", "7"), ("A1", "B2")])
def test_a_column_of_text_is_not_odd(texts: tuple[str, str], tmp_path: Path) -> None:
    """Other errors of a task are not those of its file."""
    path = tmp_path / "a.csv"
    path.write_text("ts,page,n\n" + "".join(f"170000000000{n},{text},1\n" for n, text in enumerate(texts)))

    class Fails(Visits):
        def process_message(self, state: Any, message: Any) -> None:
            raise ValueError("no such page")

    with pytest.raises(UserCodeError) as error:
        read(path, Fails())
    assert "inferred" not in str(error.value)
