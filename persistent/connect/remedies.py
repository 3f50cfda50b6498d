"""What to do about a record or a file that a source cannot read, where an option of the source is the remedy.

The error of a source is a fault and one of these remedies. A correction reads a file that no source has listed, and has
no such options: its error is the same fault, with another remedy.
"""

from __future__ import annotations

from typing import Final

TYPES: Final = "If the value is right, give all columns their types with schema=, which applies to later records"
ZONES: Final = 'Give this column as "string" with schema=: so times are read with a zone and without one (UTC)'
OTHER_COLUMNS: Final = "give the columns with schema="
COMMON: Final = "give schema= with only those columns that every file has"
COLUMNS: Final = "give all columns their types with schema="
FILE: Final = "Repair or remove the file, or count such files as dead letters with on_bad_file='dead-letter'"
LISTED: Final = (
    "The file is listed, so it can be neither repaired in its place nor just removed. Run with "
    "on_bad_file='dead-letter': the unreadable part becomes one dead letter, which names the offset where it begins; "
    "and put the missing records into a file with a new name"
)
SKIPPED: Final = "To count the missing records, put them, corrected, into a file with a new name"
NO_FILE: Final = "check the path, or run with follow=True to wait for files"
FORMAT: Final = "give format=, or narrow the path"
ENCODING: Final = "give another encoding=, as in encoding='cp1252', or "
COLUMN: Final = "Give timestamp= with one of them"
OTHER_COLUMN: Final = "correct it where it is written, or give timestamp= with another column"
UNIT: Final = "give its unit"
ISO: Final = "give timestamp_unit=None, if these are ISO 8601 times"
MULTILINE: Final = "fields of several lines need multiline=True"
UNIT_IS_WRONG: Final = "or timestamp_unit= is wrong"

_OF_OPTIONS = (
    COMMON,
    OTHER_COLUMNS,
    TYPES,
    ZONES,
    FILE,
    LISTED,
    SKIPPED,
    NO_FILE,
    FORMAT,
    COLUMN,
    OTHER_COLUMN,
    UNIT,
    ISO,
    MULTILINE,
    UNIT_IS_WRONG,
)


def fault_of(text: str) -> str:
    """The error of a source, without its remedy.

    >>> fault_of(f"a.csv: it is torn. {FILE}"), fault_of("a.csv: it is torn")
    ('a.csv: it is torn', 'a.csv: it is torn')
    """
    for remedy in (*_OF_OPTIONS, "give delimiter="):
        text = text.partition(remedy)[0]
    return text.replace(ENCODING, "").rstrip(" .,;:")
