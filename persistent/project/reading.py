"""A reading is the options by which a source reads files as they are: what separates the fields of a CSV file, how its
characters are written, and whether its fields have several lines. The first records show it.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, Final

from persistent.errors import SourceError
from persistent.sources.csv_dialect import COMMA, UTF_8, checked_dialect
from persistent.sources.csv_lines import CsvLines
from persistent.sources.formats import InputFile, format_of
from persistent.sources.lines import open_text
from persistent.sources.listing import Files
from persistent.sources.text import Text
from persistent.sources.timestamps import separator_in
from persistent.sources.walk import Listed

_TEXT_ENDINGS: Final = (".txt", ".tsv", ".tab")
"""Of files that are CSV if they have records at all."""
_SAMPLE_BYTES: Final = 64 * 1024
_WINDOWS: Final = "cp1252"
_LATIN: Final = "iso8859-1"
"""In which every byte is a character."""
NAMED_DELIMITERS: Final = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|", "space": " "}
"""As a shell can say them."""


def format_name(files: Files, listed: Listed) -> str:
    """The format of a file by its name, of which a text is CSV. SourceError for another name."""
    plain = listed.path.removesuffix(".gz").removesuffix(".zst").lower()
    if plain.endswith(_TEXT_ENDINGS):
        return "csv"
    try:
        return format_of(files, listed)
    except SourceError as error:
        raise SourceError(
            f"{files.where(listed.path)}: its name does not show its format: let it end in .csv, .jsonl or .parquet, "
            "or give a pattern of the files that do"
        ) from error


def options_of(file: InputFile, given: Mapping[str, str]) -> dict[str, Any]:
    """The options of a source with which a CSV file is read, those of the usual left out. ``given`` are kept."""
    found: dict[str, Any] = {}
    if not file.path.removesuffix(".gz").removesuffix(".zst").lower().endswith(".csv"):
        found["format"] = "csv"
    encoding = given.get("encoding") or _encoding_of(_beginning(file))
    delimiter = given.get("delimiter", "")
    delimiter = NAMED_DELIMITERS.get(delimiter, delimiter)
    if not delimiter:
        names, _ = CsvLines(False, dialect=checked_dialect(COMMA, encoding)).header(file)
        delimiter = separator_in(names) or COMMA
    dialect = checked_dialect(delimiter, encoding)
    return found | dialect.to_json()


def csv_text(options: Mapping[str, Any]) -> Text:
    """CSV with these options of a source."""
    dialect = checked_dialect(options.get("delimiter", COMMA), options.get("encoding", UTF_8))
    return Text(CsvLines(options.get("multiline", False), dialect=dialect), warns=False)


def _beginning(file: InputFile) -> bytes:
    buffer = memoryview(bytearray(_SAMPLE_BYTES))
    with open_text(file, 0) as stream:
        return bytes(buffer[: stream.fill(buffer)])


def _encoding_of(text: bytes) -> str:
    """UTF-8 if it may be; else that of Windows, if each byte is a character there, or Latin-1. UTF-16 is told by the
    header."""
    if text[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return UTF_8
    for encoding in (UTF_8, _WINDOWS):
        try:
            # The last character may be cut.
            codecs.getincrementaldecoder(encoding)().decode(text)
        except UnicodeDecodeError:
            continue
        return encoding
    return _LATIN
