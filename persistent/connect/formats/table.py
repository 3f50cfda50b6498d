"""The formats of files, by their names: what a file source reads, and a proposal tries."""

from __future__ import annotations

from persistent.connect.formats.csv_dialect import USUAL, CsvDialect
from persistent.connect.formats.csv_lines import CsvLines
from persistent.connect.formats.json_lines import JsonLines
from persistent.connect.formats.parquet import Parquet
from persistent.connect.formats.protocol import Format
from persistent.connect.formats.text import Text


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
