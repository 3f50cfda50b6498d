"""The formats of files, by their names: what a file source reads, and a proposal tries."""

from __future__ import annotations

from typing import Final

from persistent.sources.csv_dialect import USUAL, CsvDialect
from persistent.sources.csv_lines import CsvLines
from persistent.sources.formats import Format
from persistent.sources.json_lines import JsonLines
from persistent.sources.parquet import Parquet
from persistent.sources.text import Text

FORMATS: Final = ("parquet", "json", "csv")
EMPTY_AS_TEXT: Final = "csv, empty as text"
"""CSV under ``csv_empty="text"``."""


def formats_by_name(
    timestamp: str, timestamp_unit: str | None, multiline: bool, dialect: CsvDialect = USUAL
) -> dict[str, Format]:
    """Each format, with the options that it has.

    >>> list(formats_by_name("ts", None, multiline=False))
    ['parquet', 'json', 'csv', 'csv, empty as text']
    """
    return {
        "parquet": Parquet(timestamp, timestamp_unit),
        "json": Text(JsonLines()),
        "csv": Text(CsvLines(multiline, dialect=dialect)),
        EMPTY_AS_TEXT: Text(CsvLines(multiline, empty_is_text=True, dialect=dialect)),
    }
