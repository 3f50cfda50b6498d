"""A dialect of CSV: the delimiter of its fields, and the encoding of its characters.

Records are cut out of a file by its bytes, before they are decoded. So only encodings are accepted in which a newline,
a quote and the delimiter are the bytes that they are in ASCII, and no part of another character.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from persistent.errors import InvalidPipeline

COMMA: Final = ","
UTF_8: Final = "utf-8"
_MULTIBYTE: Final = frozenset(
    {"big5", "cp932", "cp949", "cp950", "euc_jp", "euc_kr", "gb18030", "gb2312", "gbk", "shift_jis"}
)
_TRAILING: Final = frozenset(range(0x30, 0x7F)) - {0x3A, 0x3B}
"""The ASCII bytes that can end a character in one of these encodings."""
_NO_DELIMITER: Final = frozenset('"\r\n\0')


@dataclass(frozen=True)
class CsvDialect:
    """``encoding``: by the name that Python gives it."""

    delimiter: str = COMMA
    encoding: str = UTF_8

    @staticmethod
    def of(record: Mapping[str, Any]) -> CsvDialect:
        """The dialect in the record of a source."""
        return CsvDialect(record.get("delimiter", COMMA), record.get("encoding", UTF_8))

    def to_json(self) -> dict[str, Any]:
        """What a record holds: the fields that differ from ``USUAL``, the dialect that every release reads."""
        return {name: value for name, value in self.__dict__.items() if value != getattr(USUAL, name)}

    def utf8(self, text: memoryview | bytes, errors: str = "strict") -> memoryview | bytes:
        """The text in UTF-8; ``ValueError`` if it is invalid in this encoding. The parser checks UTF-8 itself."""
        if self.encoding == UTF_8:
            return text
        try:
            return bytes(text).decode(self.encoding, errors).encode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"invalid {self.encoding} data: bytes {error.object[error.start : error.end].hex(' ')} are no character"
            ) from error


USUAL: Final = CsvDialect()
"""Fields separated by commas, in UTF-8."""


def checked_dialect(delimiter: Any, encoding: Any) -> CsvDialect:
    """The dialect of these options. InvalidPipeline unless lines and fields can be told by their bytes.

    >>> checked_dialect(";", "latin-1")
    CsvDialect(delimiter=';', encoding='iso8859-1')
    """
    if not _separates(delimiter):
        raise InvalidPipeline(
            f"delimiter={delimiter!r} does not separate fields: it is one ASCII character, and neither a quote, a "
            "letter, a digit nor a line break: give for example delimiter=';'"
        )
    name = _name_of(encoding)
    if name in _MULTIBYTE and ord(delimiter) in _TRAILING:
        raise InvalidPipeline(
            f"delimiter={delimiter!r}: its byte is part of other characters in encoding={encoding!r}, so fields cannot "
            "be told apart: write the files as UTF-8, as with iconv -t UTF-8, or with another delimiter"
        )
    return CsvDialect(delimiter, name)


def _separates(delimiter: Any) -> bool:
    is_one = isinstance(delimiter, str) and len(delimiter) == 1 and delimiter.isascii()
    return is_one and delimiter not in _NO_DELIMITER and not delimiter.isalnum()


def _name_of(encoding: Any) -> str:
    try:
        name = codecs.lookup(encoding).name
        is_text = isinstance("".encode(name), bytes)
    except (LookupError, TypeError, ValueError) as error:
        raise InvalidPipeline(
            f"encoding={encoding!r} is not known: give the name that Python has for it, as 'cp1252' or 'utf-8'"
        ) from error
    if name in (UTF_8, "utf-8-sig"):
        return UTF_8
    if not is_text or not (name in _MULTIBYTE or _is_one_byte(name)):
        raise InvalidPipeline(
            f"encoding={encoding!r}: lines and quotes cannot be told by their bytes in it, and files are cut at the "
            f"ends of lines: write them as UTF-8, as with iconv -f {str(encoding).upper()} -t UTF-8"
        )
    return name


def _is_one_byte(name: str) -> bool:
    """Whether each byte is one character: a byte of ASCII its ASCII character, and no other byte one of ASCII."""
    try:
        table = import_module(f"encodings.{name.replace('-', '_')}").decoding_table
    except (ImportError, AttributeError):
        return name == "ascii"
    return bool(table[:128] == bytes(range(128)).decode() and not any(map(str.isascii, table[128:])))
