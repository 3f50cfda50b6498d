"""A fault is said without the remedies of a source."""

from __future__ import annotations

import pyarrow as pa
import pytest

from persistent.connect import remedies
from persistent.connect.formats.text import mistyped
from persistent.connect.formats.timestamps import why_none
from persistent.connect.remedies import fault_of


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        (
            mistyped("CSV conversion error to int64: invalid value 'x'"),
            "CSV conversion error to int64: invalid value 'x'",
        ),
        (why_none(pa.array(["7"]), "ts", None, 0), "where ISO 8601 is expected, as in '2024-05-01T10:00:00Z'"),
        (why_none(pa.array(["soon"]), "ts", "s", 0), "where timestamp_unit='s' expects digits"),
        (f"A CSV file is UTF-8: {remedies.ENCODING}write it so", "A CSV file is UTF-8: write it so"),
        ("The names seem to be separated by ';': give delimiter=';'. More", "The names seem to be separated by ';'"),
        ("a; b: c.", "a; b: c"),
    ],
)
def test_what_is_left_is_the_fault(said: str, fault: str) -> None:
    """The remedy of another command would be taken for one of this."""
    assert fault_of(said).endswith(fault)
