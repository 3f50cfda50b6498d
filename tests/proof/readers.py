"""The section "readers": what a file source gives of drawn files is what a plain reader makes of their bytes.

JSON lines, CSV, Parquet and gzip, each with what its format allows and what breaks it: quotes anywhere, newlines in
fields, CRLF, byte order marks, empty lines, no newline at the end, wide rows, nulls beside empty strings, row groups of
any size, members of gzip one after the other and cut off. Steps, splits and blocks of any size read every record once,
at the offset where it stands.

    python -m tests.proof --only readers [--seed s] [--scale x]
"""

from __future__ import annotations

import gzip
import json
import random
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from persistent.connect.formats import csv_lines, lines, parquet, text
from persistent.connect.formats.csv_dialect import CsvDialect
from persistent.connect.formats.csv_lines import CsvLines
from persistent.connect.formats.json_lines import JsonLines
from persistent.connect.formats.text import Text
from persistent.errors import SourceError
from persistent.sources import Budget, FileSource, SourceState
from tests.proof.result import Result, in_turn

MARK = b"\xef\xbb\xbf"
CASES = 1_000
_FAILURES_MAX = 20
_TEXTS = ["", "a", "é", "日本", "a b", " ", "NA", "null", "nan", "0", "x" * 300, "🦆"]
_QUOTED = ['"', '""', ",", "\n", "\r\n", "\n\n", '5" pipe', "a,b", '",\n"', "\r"]
_STRAY = [b'5" pipe', b'a"b"c', b'"a"b', b'"a"b"', b'""', b'"" x', b'"""', b'"a', b"\xff"]

Row = dict[str, Any]
Found = tuple[list[tuple[int, Row]], list[int]]
"""Records with their offsets, and the offsets of what is none."""


@dataclass(frozen=True)
class Drawn:
    """A file, what a plain reader finds in it, and how to read it. ``breaks``: it ends in bytes that are torn."""

    name: str
    data: bytes
    alive: list[tuple[int, Row]]
    dead: list[int]
    multiline: bool = False
    breaks: bool = False
    delimiter: str = ","


# -- plain readers -------------------------------------------------------------------------------------------------


def plain_json(data: bytes) -> Found:
    """One line after another."""
    alive, dead, offset = [], [], 0
    for number, line in enumerate(data.split(b"\n")):
        start = offset
        offset += len(line) + 1
        if number == 0 and line.startswith(MARK):
            line, start = line[len(MARK) :], start + len(MARK)
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
            if not isinstance(row, dict) or not isinstance(row.get("v"), str | None) or type(row.get("ts")) is not int:
                raise ValueError(line)
            alive.append((start, {"ts": row["ts"], "v": row.get("v")}))
        except ValueError:
            dead.append(start)
    return alive, dead


def plain_csv(data: bytes, multiline: bool) -> Found:
    """One character after another; a field is (bytes, whether a quote began it)."""
    alive, dead = [], []
    records = [record for record in _csv_records(data, multiline) if record[1]]
    for start, _, fields in records[1:]:
        try:
            (ts, _), (v, quoted), *more = fields
            if more:
                raise ValueError(fields)
            alive.append((start, {"ts": int(ts), "v": v.decode() if v or quoted else None}))
        except ValueError:
            dead.append(start)
    return alive, dead


def _csv_records(data: bytes, multiline: bool) -> Iterator[tuple[int, bytes, list[tuple[bytes, bool]]]]:
    """Where each record starts, its bytes and its fields; of one that is none, too many fields."""
    start = 0
    while start < len(data):
        begin = place = start + (len(MARK) if start == 0 and data.startswith(MARK) else 0)
        fields, field, quoted, inside, broken = [], b"", False, False, False
        while place < len(data):
            here = data[place : place + 1]
            if inside and here == b'"':
                if data[place + 1 : place + 2] == b'"':
                    place, field = place + 1, field + b'"'
                else:
                    inside = False
            elif here == b"\n" and not (inside and multiline):
                break
            elif inside:
                field += here
            elif here == b'"' and not field and not quoted:
                inside = quoted = True
            elif here == b",":
                fields.append((field, quoted))
                field, quoted = b"", False
            elif here == b"\r" and data[place + 1 : place + 2] not in (b"\n", b""):
                # To the parser a record ends here; to us, in the middle of a line.
                broken, field, quoted = True, b"", False
            else:
                field += here
            place += 1
        stop = place
        if stop > begin and data[stop - 1 : stop] == b"\r":
            stop, field = stop - 1, field.removesuffix(b"\r")
        fields.append((field, quoted))
        yield begin, data[begin:stop], fields * 9 if inside or broken else fields
        start = place + 1


# -- drawn files ---------------------------------------------------------------------------------------------------


def json_text(drawn: random.Random) -> bytes:
    """Lines, most of them records."""
    rows = [{"ts": drawn.randrange(10**6), "v": drawn.choice([None, *_TEXTS, *_QUOTED])} for _ in range(_count(drawn))]
    pieces = []
    for row in rows:
        if drawn.random() < 0.1:
            pieces.append(drawn.choice([b"", b" ", b"nonsense", b"[1]", b'{"ts":1', b'{"ts":"x"}', b'{"ts":1,"v":2}']))
        if drawn.random() < 0.1:
            row |= {f"wide{n}": n for n in range(drawn.randrange(50))}
        pieces.append(json.dumps(row, ensure_ascii=drawn.random() < 0.5).encode())
    return _lined(drawn, pieces)


def csv_text(drawn: random.Random, multiline: bool) -> bytes:
    """A header and records; some with a quote where none belongs."""
    pieces = [drawn.choice([b"ts,v", b'"ts","v"'])]
    for _ in range(_count(drawn)):
        value = drawn.choice(_TEXTS + _QUOTED * 2)
        if drawn.random() < 0.15:
            field = drawn.choice(_STRAY)
        elif value in _QUOTED or drawn.random() < 0.2:
            value = value if multiline else value.replace("\n", "-").replace("\r", "-")
            field = b'"' + value.replace('"', '""').encode() + b'"'
        else:
            field = value.encode()
        record = b"%d,%s" % (drawn.randrange(10**6), field)
        pieces.append(drawn.choice([b"", b"1", b"1,2,3", b"x,y"]) if drawn.random() < 0.08 else record)
    return _lined(drawn, pieces)


def _count(drawn: random.Random) -> int:
    return drawn.choice([0, 1, 2, 5, 20, 60])


def _lined(drawn: random.Random, pieces: list[bytes]) -> bytes:
    data = b"".join(piece + drawn.choice([b"\n", b"\n", b"\r\n"]) for piece in pieces)
    data = MARK + data if drawn.random() < 0.3 else data
    return data.removesuffix(b"\n").removesuffix(b"\r") if drawn.random() < 0.3 else data


def json_file(drawn: random.Random) -> Drawn:
    data = json_text(drawn)
    return Drawn("a.jsonl", data, *plain_json(data))


def csv_file(drawn: random.Random) -> Drawn:
    multiline = drawn.random() < 0.7
    data = csv_text(drawn, multiline)
    alive, dead = plain_csv(data, multiline)
    # What a comma is to the plain reader, another character is to the source, and that one a comma.
    delimiter = drawn.choice(",,;|\t")
    swap = str.maketrans({",": delimiter, delimiter: ","})
    alive = [(at, {**row, "v": row["v"] and row["v"].translate(swap)}) for at, row in alive]
    data = data.decode("latin-1").translate(swap).encode("latin-1")
    return Drawn("a.csv", data, alive, dead, multiline=multiline, delimiter=delimiter)


def gzip_file(drawn: random.Random) -> Drawn:
    """Text in members of any number, the last of them perhaps cut off."""
    multiline = drawn.random() < 0.5
    is_csv = drawn.random() < 0.5
    data = csv_text(drawn, multiline) if is_csv else json_text(drawn)
    cuts = sorted(drawn.randrange(len(data) + 1) for _ in range(drawn.choice([0, 0, 1, 3])))
    members = [gzip.compress(data[a:b], mtime=0) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    packed = b"".join(members)
    breaks = bool(data) and drawn.random() < 0.3
    if breaks:
        packed = packed[: -drawn.randrange(1, len(members[-1]))]
        assert not zlib.decompressobj(31).eof
    name = "a.csv.gz" if is_csv else "a.jsonl.gz"
    found = plain_csv(data, multiline) if is_csv else plain_json(data)
    return Drawn(name, packed, *found, multiline=is_csv and multiline, breaks=breaks)


def parquet_file(drawn: random.Random) -> Drawn:
    rows = [
        {"ts": drawn.randrange(10**6), "v": drawn.choice([None, *_TEXTS, *_QUOTED])}
        for _ in range(drawn.choice([1, 2, 20, 300]))
    ]
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows, pa.schema([("ts", pa.int64()), ("v", pa.string())]))
    options: dict[str, Any] = {
        "row_group_size": drawn.choice([1, 3, 7, 100, 1_000]),
        "compression": drawn.choice(["none", "zstd", "snappy"]),
        "use_dictionary": drawn.random() < 0.5,
        "write_statistics": drawn.random() < 0.7,
    }
    pq.write_table(table, sink, **options)
    data = sink.getvalue().to_pybytes()
    return Drawn("a.parquet", data, list(enumerate(pq.read_table(pa.BufferReader(data)).to_pylist())), [])


FORMATS: dict[str, Callable[[random.Random], Drawn]] = {
    "JSON lines": json_file,
    "CSV": csv_file,
    "gzip": gzip_file,
    "Parquet": parquet_file,
}


# -- the comparison ------------------------------------------------------------------------------------------------


def case(format: str, seed: object, folder: Path) -> str | None:
    """One drawn file, read in drawn steps; what differs, or None."""
    drawn = random.Random(f"readers {format} {seed}")
    file = FORMATS[format](drawn)
    if not file.alive and not file.dead and not file.breaks:
        return None
    path = folder / file.name
    path.write_bytes(file.data)
    schema = {"ts": "int64", "v": "string"}
    options: dict[str, Any] = {"timestamp": "ts", "timestamp_unit": "ms", "on_bad_file": "dead-letter"}
    dialect = CsvDialect(file.delimiter)
    source = FileSource(path, multiline=file.multiline, schema=schema, **options, **dialect.to_json())
    block = drawn.choice([1, 20, 100, 1 << 24])
    source._formats["json"] = Text(JsonLines(), block)
    source._formats["csv"] = Text(CsvLines(file.multiline, dialect=dialect), block)
    rows, exact, splits = drawn.choice([1, 2, 3, 7, 50, 1_000]), drawn.random() < 0.7, drawn.randint(1, 4)
    how = f"{format} {seed}: steps of {rows}, {'exact, ' if exact else ''}{splits} splits, blocks of {block}"
    try:
        alive, dead = drained(source, rows, exact, splits)
    except SourceError as error:
        return None if file.breaks and not file.alive else f"{how}: {error}"
    if file.breaks:
        # Up to where it is torn; one dead letter stands for all that comes after.
        until = max(dead, default=-1)
        if until < 0:
            return f"{how}: a torn file passes for a whole one"
        dead = dead[:-1]
        file = Drawn(file.name, b"", [a for a in file.alive if a[0] < until], [d for d in file.dead if d < until])
    if (alive, dead) == (file.alive, file.dead):
        return None
    wrong = next((pair for pair in zip(alive, file.alive) if pair[0] != pair[1]), (len(alive), len(file.alive)))
    return f"{how}: first difference {wrong}, dead at {dead[:5]}, not {file.dead[:5]}"


def drained(source: FileSource, rows: int, exact: bool, splits: int) -> Found:
    """Plan and read step after step until nothing is left."""
    state, alive, dead = SourceState({}), [], []
    while (plan := source.plan(state, Budget(rows, exact, splits))).splits:
        for split in plan.splits:
            for records in source.read(split, plan.recorded):
                alive += zip(records.offsets.tolist(), records.batch.to_pylist(), strict=True)
                dead += [record.offset for record in records.dead]
        index = state.index if plan.appended is None else plan.appended
        state = SourceState(plan.end, plan.recorded, index)
    return alive, sorted(dead)


# -- planted defects -----------------------------------------------------------------------------------------------


def _counted_quotes(data: lines.Bytes, of_file: bool, delimiter: str) -> lines.Integers:
    """The first splitter: every other quote closes, wherever it stands."""
    ends = lines.ends_of_lines(data)
    quotes = np.searchsorted(np.flatnonzero(data == ord('"')), ends)
    outside: lines.Integers = ends[quotes % 2 == 0]
    return outside


def _at_commas(data: lines.Bytes, of_file: bool, delimiter: str) -> lines.Integers:
    """A quote after another delimiter would open no field."""
    return lines.ends_outside_quotes(data, of_file)


def _cut_late(read: Any) -> Any:
    def read_columns(file: Any, groups: Any, schema: Any) -> Any:
        table = read(file, groups, schema)
        return table.slice(0, table.num_rows - 1) if table.num_rows == 7 else table

    return read_columns


MUTANTS: dict[str, tuple[str, Any, str, Any]] = {
    "quotes are counted": ("CSV", csv_lines, "ends_outside_quotes", _counted_quotes),
    "an empty field is text": ("CSV", csv_lines.CsvLines, "_with_nulls", lambda self, table, text, names: table),
    "a comma separates whatever is said": ("CSV", csv_lines, "ends_outside_quotes", _at_commas),
    "a cut lands inside a line": ("JSON lines", text, "next_line", lambda file, offset: max(offset, 0)),
    "the last row of a group is lost": ("Parquet", parquet, "_columns", _cut_late(parquet._columns)),
    "a torn member ends the file": ("gzip", lines._Compressed, "_advance", None),
}


@contextmanager
def planted(name: str) -> Iterator[str]:
    """The code with a defect; yields the format that shows it."""
    format, owner, attribute, defect = MUTANTS[name]
    sound = getattr(owner, attribute)
    setattr(owner, attribute, defect or _silent(sound))
    try:
        yield format
    finally:
        setattr(owner, attribute, sound)


def _silent(advance: Any) -> Any:
    def ends(self: Any) -> bool:
        going = bool(advance(self))
        self.broken = None
        return going

    return ends


def is_found(name: str, seed: object = 0, tries: int = 300) -> bool:
    """Whether some case differs with the defect, and not without it."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(tries):
            with planted(name) as format:
                fault = tried(format, f"{seed}/{number}", Path(folder))
            if fault is not None:
                return tried(format, f"{seed}/{number}", Path(folder)) is None
    return False


def tried(format: str, seed: object, folder: Path) -> str | None:
    """A case, of which an error that nobody expects is a difference too."""
    try:
        return case(format, seed, folder)
    except Exception as error:
        return f"{format} {seed}: {type(error).__name__}: {error}"


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """So many files of each format, and the planted defects."""
    began = time.monotonic()
    until = began + (seconds_max or float("inf"))
    failures: list[str] = []
    cases, wanted = 0, max(1, round(CASES * scale))
    found = sum(is_found(name, seed) for name in MUTANTS)
    for format, end in in_turn(list(FORMATS), [1.0] * len(FORMATS), until):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(wanted):
                if time.monotonic() > end or len(failures) >= _FAILURES_MAX:
                    break
                cases += 1
                fault = tried(format, f"{seed}/{number}", Path(folder))
                failures += [fault[:600]] if fault else []
    note = f"{wanted:,} of each format" if cases == wanted * len(FORMATS) else f"stopped, {wanted * 4:,} were planned"
    return Result("readers", cases, tuple(failures), (found, len(MUTANTS)), time.monotonic() - began, note)
