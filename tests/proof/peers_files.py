"""Drawn files: sheets of columns, and how a sheet becomes the bytes of a file.

A sheet is data, apart from its bytes: without some of its rows or columns it is still a sheet. So a case that differs
is made smaller by taking away what does not matter.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from tests.proof.peers_arrow import parquet_bytes, parquet_columns

MARK = b"\xef\xbb\xbf"
ABSENT = None
"""The cell of a JSON line without the field."""
Cells = Any
"""The cells of a column: what stands in the text of a file; of Parquet, an Arrow array."""


@dataclass(frozen=True)
class Sheet:
    """One file before it is bytes: ``columns`` of (name, cells), the time first; ``style``: how it is written."""

    columns: tuple[tuple[str, Cells], ...]
    style: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]

    def __len__(self) -> int:
        return len(self.columns[0][1])

    def without(self, start: int, stop: int) -> Sheet:
        """The sheet without some rows."""
        kept = [row for row in range(len(self)) if not start <= row < stop]
        return replace(self, columns=tuple((name, _taken(cells, kept)) for name, cells in self.columns))

    def without_column(self, place: int) -> Sheet:
        return replace(self, columns=self.columns[:place] + self.columns[place + 1 :])


def _taken(cells: Cells, rows: Sequence[int]) -> Cells:
    if isinstance(cells, pa.Array):
        return pa.concat_arrays([cells[:0], *(cells[row : row + 1] for row in rows)])
    return [cells[row] for row in rows]


# -- cells of text -------------------------------------------------------------------------------------------------

_WHOLE = [0, 1, -1, 7, 2**31, 2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63)]
_BEYOND = [2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**30]
_REAL = ["0.5", "-0.0", "1e3", "1E-3", "5e-324", "2.2250738585072011e-308", "1.7976931348623157e308", "0.1", "1e22"]
_REAL_MORE = ["123456789.123456789", "9007199254740993.5", "0.30000000000000004", "1.10", "3.0", "1e400", "1e-400"]
_TEXTS = [
    "",
    "",
    "a",
    "é",
    "日本",
    "🦆",
    "a b",
    " ",
    " a ",
    "NA",
    "null",
    "None",
    "nan",
    "true",
    "0",
    "-",
    "\\N",
    "#",
    "'",
]
_TEXTS_MORE = [
    "x" * 300,
    "é" * 70_000,
    "a\tb",
    "a;b",
    "a|b",
    "a,b",
    '5" pipe',
    '"',
    '""',
    "\\",
    "\\n",
    "e\u0301",
    "\u00a0",
]
_LINES = ["a\nb", "\n", "a\r\nb", "\n\n", '",\n"']
_DATES = ["2024-02-29", "1970-01-01", "1969-12-31", "0001-01-01", "9999-12-31", "2024-02-30", "1582-10-10"]
_TIMES = [
    "2024-05-01T10:00:00Z", "2024-05-01 10:00:00", "2024-05-01T10:00:00.123456789Z", "2024-05-01T10:00:00+05:30",
    "2024-05-01T10:00:00.5", "1969-12-31T23:59:59.999999Z", "2262-04-11T23:47:17Z", "9999-12-31T23:59:59.999999Z",
    "0001-01-01T00:00:00Z", "2024-05-01T24:00:00Z", "2024-05-01T10:00Z", "2024-12-31T23:59:60Z",
]  # fmt: skip
_CODES = ["007", "1.10", "1.1", "12E4", "120000", "0x7", "+7", "00"]
_ODD_NUMBERS = ["inf", "-inf", "nan", "NaN", "Infinity", " 7", "7 ", "+5", "1.", ".5", "1_000"]
_FLAGS = ["true", "false", "True", "FALSE", "1", "0"]
_DECIMALS = ["12.34", "0.10", "-0.01", "99999999999999999999.99", "1234567890123456.78", "7"]

Draw = Callable[[random.Random], Any]


def _one_of(*pools: Sequence[Any]) -> Draw:
    return lambda drawn: drawn.choice(drawn.choice(pools))


_NUMBERS = [str(number) for number in _WHOLE]
CSV_KINDS: dict[str, Draw] = {
    "whole": _one_of(["1", "2", "30"], _NUMBERS),
    "beyond": _one_of(["1", "2"], _NUMBERS, [str(number) for number in _BEYOND]),
    "real": _one_of(_REAL, _REAL_MORE),
    "real and whole": _one_of(_REAL, _NUMBERS),
    "odd number": _one_of(["1", "0.5"], _ODD_NUMBERS),
    "text": _one_of(_TEXTS, _TEXTS_MORE),
    "lines": _one_of(_TEXTS, _LINES),
    "date": _one_of(_DATES[:2], _DATES),
    "time": _one_of(_TIMES[:2], _TIMES),
    "code": _one_of(_CODES),
    "flag": _one_of(_FLAGS),
    "decimal": _one_of(_DECIMALS),
}


def _json_text(text: str) -> Draw:
    return lambda drawn: json.dumps(text, ensure_ascii=drawn.random() < 0.5)


def _quoted(draw: Draw) -> Draw:
    return lambda drawn: _json_text(draw(drawn))(drawn)


def _json_list(draw: Draw) -> Draw:
    return lambda drawn: f"[{', '.join(_or_null(drawn, draw) for _ in range(drawn.choice([0, 1, 3])))}]"


def _json_object(draws: dict[str, Draw]) -> Draw:
    def draw(drawn: random.Random) -> str:
        chosen = [name for name in draws if drawn.random() < 0.8]
        return "{" + ",".join(f"{json.dumps(name)}:{_or_null(drawn, draws[name])}" for name in chosen) + "}"

    return draw


def _or_null(drawn: random.Random, draw: Draw) -> str:
    return "null" if drawn.random() < 0.1 else draw(drawn)


_JSON_PLAIN: dict[str, Draw] = {
    "whole": CSV_KINDS["whole"],
    "beyond": CSV_KINDS["beyond"],
    "real": CSV_KINDS["real"],
    "real and whole": CSV_KINDS["real and whole"],
    "text": _quoted(_one_of(_TEXTS, _TEXTS_MORE, _LINES, ["\u0000", "\u2028", "\x1f"])),
    "date": _quoted(CSV_KINDS["date"]),
    "time": _quoted(CSV_KINDS["time"]),
    "code": _quoted(CSV_KINDS["code"]),
    "flag": _one_of(["true", "false"]),
    "null": lambda drawn: "null",
}
_PART = {"x": _JSON_PLAIN["whole"], "y": _JSON_PLAIN["text"], "é": _JSON_PLAIN["real and whole"]}
JSON_KINDS: dict[str, Draw] = {
    **_JSON_PLAIN,
    "list": _json_list(_JSON_PLAIN["whole"]),
    "list of text": _json_list(_JSON_PLAIN["text"]),
    "list of both": _json_list(_JSON_PLAIN["real and whole"]),
    "struct": _json_object(_PART),
    "deep": _json_object({"a": _json_list(_json_object(_PART)), "b": _json_object(_PART)}),
}

NAMES = ["a", "", "b c", "é", "日本", "A", "x.y", "q'", "count", "ts2", "_", "a,b", 'a"b', "🦆"]


# -- sheets of text ------------------------------------------------------------------------------------------------


def csv_sheets(drawn: random.Random) -> list[Sheet]:
    return _text_sheets(drawn, CSV_KINDS, lambda text: _csv_field(drawn, text), "")


def json_sheets(drawn: random.Random) -> list[Sheet]:
    return _text_sheets(drawn, JSON_KINDS, lambda text: text, "null")


def _csv_field(drawn: random.Random, text: str) -> str:
    """A field as it stands in a file, quoted where it must be and at times where it need not."""
    must = any(mark in text for mark in '",;|\t\r\n') or (text == "" and drawn.random() < 0.5)
    return '"' + text.replace('"', '""') + '"' if must or drawn.random() < 0.15 else text


def _text_sheets(drawn: random.Random, kinds: dict[str, Draw], spelled: Callable[[str], str], null: str) -> list[Sheet]:
    """One to three files of the same columns, but for those that change."""
    columns = {name: drawn.choice(list(kinds)) for name in drawn.sample(NAMES, drawn.randint(1, 5))}
    nulls = {name: drawn.choice([0, 0, 0.2, 0.9, 1]) for name in columns}
    style: dict[str, Any] = {
        "end": drawn.choice(["\n", "\n", "\r\n"]),
        "mark": drawn.random() < 0.15,
        "last": drawn.random() < 0.7,
        "blank": drawn.random() < 0.1,
        "packed": drawn.choice(["", "", "", ".gz", ".zst"]),
        "spaced": drawn.random() < 0.3,
        "missing": 0.1 if drawn.random() < 0.3 else 0.0,
        "void": drawn.random() < 0.1,
        "kinds": dict(columns),
    }
    style["kinds"]["ts"] = drawn.choice(["count", "count", "count", "time", "date"])
    clock = kinds.get(style["kinds"]["ts"], lambda drawn: drawn.randrange(10**6))
    sheets = []
    for number in range(drawn.choice([1, 1, 2, 3])):
        if number:
            columns = _changed(drawn, columns, list(kinds))
        rows = drawn.choice([0, 1, 2, 8, 30])
        cells = [
            (
                name,
                [
                    null if drawn.random() < nulls.get(name, 0.1) else spelled(str(kinds[kind](drawn)))
                    for _ in range(rows)
                ],
            )
            for name, kind in columns.items()
        ]
        place = 0 if number or drawn.random() < 0.8 else len(cells)
        cells.insert(place, ("ts", [spelled(str(clock(drawn))) for _ in range(rows)]))
        sheets.append(Sheet(tuple(cells), style))
    return sheets


def _changed(drawn: random.Random, columns: dict[str, str], kinds: list[str]) -> dict[str, str]:
    """The columns of a later file: in another order, of another kind, without one, with one more."""
    columns = {name: drawn.choice(kinds) if drawn.random() < 0.1 else kind for name, kind in columns.items()}
    names = list(columns)
    if drawn.random() < 0.2:
        drawn.shuffle(names)
    if drawn.random() < 0.1:
        names = names[1:]
    if drawn.random() < 0.1:
        columns.setdefault("more", drawn.choice(kinds))
        names.append("more")
    return {name: columns[name] for name in names}


# -- bytes ---------------------------------------------------------------------------------------------------------


def csv_bytes(sheet: Sheet, delimiter: str, encoding: str) -> bytes:
    if not len(sheet) and sheet.style.get("void"):
        return b""
    header = [_name(name) for name in sheet.names]
    rows = zip(*(cells for _, cells in sheet.columns), strict=True)
    return _packed(sheet, [delimiter.join(row) for row in [header, *rows]], encoding)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if set(name) & set('",;|\t') else name


def json_bytes(sheet: Sheet) -> bytes:
    drawn = random.Random(len(sheet))
    colon, comma = (": ", ", ") if sheet.style.get("spaced") else (":", ",")
    lines = []
    for row in range(len(sheet)):
        fields = [(name, cells[row]) for name, cells in sheet.columns]
        kept = [one for one in fields if one[0] == "ts" or drawn.random() >= sheet.style.get("missing", 0)]
        lines.append("{" + comma.join(f"{json.dumps(name)}{colon}{cell}" for name, cell in kept) + "}")
    return _packed(sheet, lines, "utf-8")


def _packed(sheet: Sheet, lines: Sequence[str], encoding: str) -> bytes:
    style = sheet.style
    end = style.get("end", "\n") * (2 if style.get("blank") else 1)
    text = end.join(lines) + (end if style.get("last", True) and lines else "")
    data = (MARK if style.get("mark") and encoding == "utf-8" else b"") + text.encode(encoding, "replace")
    if style.get("packed") == ".gz":
        half = len(data) // 2
        return gzip.compress(data[:half], mtime=0) + gzip.compress(data[half:], mtime=0)
    return bytes(pa.Codec("zstd").compress(data, asbytes=True)) if style.get("packed") == ".zst" else data


# -- Parquet -------------------------------------------------------------------------------------------------------


def parquet_sheets(drawn: random.Random) -> list[Sheet]:
    return [Sheet(tuple(columns), style) for columns, style in parquet_columns(drawn)]


def parquet_file(sheet: Sheet) -> bytes:
    return parquet_bytes(sheet.columns, sheet.style)
