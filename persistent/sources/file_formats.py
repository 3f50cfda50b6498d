"""The formats of files, by their names: what a file source reads, and a proposal tries."""

from __future__ import annotations

from persistent.sources.csv_dialect import USUAL, CsvDialect
from persistent.sources.csv_lines import CsvLines
from persistent.sources.formats import Format
from persistent.sources.json_lines import JsonLines
from persistent.sources.parquet import Parquet
from persistent.sources.text import Text


def formats_by_name(
    timestamp: str, timestamp_unit: str | None, multiline: bool, dialect: CsvDialect = USUAL, *, infers: bool = True
) -> dict[str, Format]:
    """Each format, with the options that it has. ``infers``: no types are declared.

    >>> list(formats_by_name("ts", None, multiline=False))
    ['parquet', 'json', 'csv']
    """
    return {
        "parquet": Parquet(timestamp, timestamp_unit, infers),
        "json": Text(JsonLines()),
        "csv": Text(CsvLines(multiline, dialect=dialect)),
    }
