"""The section "peers": drawn files are read as pandas, Polars and DuckDB read them, where those agree.

One to three files of CSV, JSON lines or Parquet, whose columns may change from file to file. Each cell that a source
reads must be what at least two of the others read and none denies; a number must be what stands in the text, and a
cell of Parquet what was written. A record that is not read is a dead letter, and every record is one or the other.

    python -m tests.proof --only peers [--seed s] [--scale x]
    python -m tests.proof.peers csv 0/17            one case, made small, with its files
"""

from __future__ import annotations

import itertools
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from persistent import FileSource
from persistent.errors import PersistentError
from persistent.sources import Budget, SourceState
from tests.connect.draining import after
from tests.proof.peers_files import Sheet, csv_bytes, csv_sheets, json_bytes, json_sheets, parquet_file, parquet_sheets
from tests.proof.peers_jobs import digests, through_a_job
from tests.proof.peers_mutants import MUTANTS, planted
from tests.proof.peers_readers import View, csv_readers, instant, json_readers, parquet_readers, views
from tests.proof.peers_values import UNSURE, Plain, agreed, fits, is_scalar, is_time, means, plain_column, within
from tests.proof.result import Result, in_turn

FILES = 2_000
_FAILURES_MAX = 20
_TYPES: Mapping[str, Sequence[Any]] = {
    "count": ["int64"],
    "whole": ["int64", "double", "int32", "uint64", pa.decimal128(38, 6), pa.decimal128(38, 37)],
    "beyond": ["int64", "uint64", "double", pa.decimal128(38, 0)],
    "real": ["double", "float", pa.decimal128(38, 20)],
    "real and whole": ["double", pa.decimal128(38, 10)],
    "odd number": ["double", "int64"],
    "date": ["date32", "timestamp[us]", "timestamp[s]"],
    "time": ["timestamp[s]", "timestamp[ms]", "timestamp[us]", "timestamp[ns]", pa.timestamp("us", "UTC")],
    "code": ["int64", "double", pa.decimal128(12, 4)],
    "flag": ["bool"],
    "decimal": [pa.decimal128(38, 4), pa.decimal128(10, 2), "double"],
}
"""Besides "string", the types that may be declared of a column of each kind."""


@dataclass(frozen=True)
class Case:
    """Sheets of one format, with the options of the source, and how it is read."""

    format: str
    sheets: tuple[Sheet, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 1_000_000
    exact: bool = False
    splits: int = 1
    through_a_job: bool = False

    def written(self, folder: Path) -> list[Path]:
        """Its files, in a folder that holds nothing else."""
        paths = []
        for number, sheet in enumerate(self.sheets):
            name = f"{number}.{ENDINGS[self.format]}{sheet.style.get('packed', '')}"
            (folder / name).write_bytes(self.bytes_of(sheet))
            paths.append(folder / name)
        return paths

    def bytes_of(self, sheet: Sheet) -> bytes:
        if self.format == "csv":
            encoding = sheet.style.get("encoding", self.options.get("encoding", "utf-8"))
            return csv_bytes(sheet, self.options.get("delimiter", ","), encoding)
        return json_bytes(sheet) if self.format == "json" else parquet_file(sheet)


ENDINGS = {"csv": "csv", "json": "jsonl", "parquet": "parquet"}


def drawn_case(format: str, seed: object) -> Case:
    """The case of a seed."""
    drawn = random.Random(f"peers {format} {seed}")
    sheets = {"csv": csv_sheets, "json": json_sheets, "parquet": parquet_sheets}[format](drawn)
    options: dict[str, Any] = {}
    if format == "csv":
        options = _csv_options(drawn, sheets)
        if "encoding" in options:
            sheets = [_encodable(sheet, options["encoding"]) for sheet in sheets]
        if drawn.random() < 0.02:
            sheets = [replace(sheet, style={**sheet.style, "encoding": "utf-16"}) for sheet in sheets]
    if _counts(sheets):
        options["timestamp_unit"] = "ms"
    if format != "parquet" and drawn.random() < 0.5:
        options["schema"] = _declared(drawn, format, sheets[0])
    rows = drawn.choice([1, 2, 3, 7, 1_000_000])
    return Case(format, tuple(sheets), options, rows, drawn.random() < 0.7, drawn.randint(1, 4), drawn.random() < 0.1)


def _csv_options(drawn: random.Random, sheets: Sequence[Sheet]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if drawn.random() < 0.4:
        options["delimiter"] = drawn.choice(";|\t")
    if drawn.random() < 0.15:
        options["encoding"] = drawn.choice(
            ["cp1252", "iso8859-1", "gbk"] if "|" not in options.values() else ["cp1252"]
        )
    cells = (cell for sheet in sheets for _, column in sheet.columns for cell in column)
    if any("\n" in cell for cell in cells) or drawn.random() < 0.2:
        options["multiline"] = True
    return options


def _encodable(sheet: Sheet, encoding: str) -> Sheet:
    def made(text: str) -> str:
        return text.encode(encoding, "replace").decode(encoding)

    columns = ((name, list(map(made, cells))) for name, cells in sheet.columns if made(name) == name)
    return replace(sheet, columns=tuple(columns))


def _declared(drawn: random.Random, format: str, sheet: Sheet) -> dict[str, Any]:
    """All columns as text, which JSON has not for numbers; or a type that fits, or nearly."""
    as_text = format == "csv" and drawn.random() < 0.4
    kinds = sheet.style["kinds"]
    fitting = {name: [] if as_text else _TYPES.get(kinds[name], []) for name in sheet.names}
    return {name: drawn.choice(types or ["string"]) for name, types in fitting.items()}


# -- what the source reads -----------------------------------------------------------------------------------------


@dataclass
class Read:
    """What a source makes of files. ``schema``: of the records; ``rows``: by file, in order: its cells, or why it is a
    dead letter;
    ``whole``: why a file is one dead letter; ``refused``: the error that ended it."""

    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    rows: dict[str, list[tuple[int, list[Plain] | str, int]]] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    refused: str = ""
    batches: list[tuple[pa.RecordBatch, Any]] = field(default_factory=list)


def source_of(case: Case, folder: Path) -> FileSource:
    return FileSource(folder, timestamp="ts", on_bad_file="dead-letter", **case.options)


def _counts(sheets: Sequence[Sheet]) -> bool:
    """Whether the time of a record is a number."""
    if "kinds" in sheets[0].style:
        return bool(sheets[0].style["kinds"]["ts"] == "count")
    return not any(pa.types.is_temporal(dict(sheet.columns)["ts"].type) for sheet in sheets)


def read(case: Case, folder: Path) -> Read:
    """Plan and read step after step until nothing is left."""
    source, found, state = source_of(case, folder), Read(), SourceState({})
    try:
        while (plan := source.plan(state, Budget(case.rows, case.exact, case.splits))).splits:
            for split in plan.splits:
                files = {span.ordinal: span.at for span in split.spans}
                for records in source.read(split, plan.recorded):
                    _keep(found, files[records.ordinal], records)
            found.schema = source.schema(plan.recorded)
            state = after(state, plan)
    except PersistentError as error:
        found.refused = f"{type(error).__name__}: {error}"
    return found


def _keep(found: Read, file: Mapping[str, Any], records: Any) -> None:
    if "fault" in file:
        found.whole[file["path"]] = records.dead[0].reason
        return
    rows = found.rows.setdefault(file["path"], [])
    columns = [plain_column(column) for column in records.batch.columns]
    cells = [list(row) for row in zip(*columns, strict=True)]
    found.batches.append((records.batch, records.timestamps))
    rows += zip(records.offsets.tolist(), cells, records.timestamps.tolist(), strict=True)
    rows += [(dead.offset, dead.reason, 0) for dead in records.dead]
    rows.sort(key=lambda row: row[0])


# -- the comparison ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """Where a source and its peers differ. ``fault``: what kind it is, in words."""

    fault: str
    file: int
    row: int = -1
    column: str = ""
    written: Any = None
    ours: Any = None
    theirs: Any = UNSURE

    def __str__(self) -> str:
        cell = f", row {self.row}, column {self.column!r}: written {self.written!r:.80}, read {self.ours!r:.80}"
        theirs = "" if self.theirs is UNSURE else f", peers {self.theirs!r:.80}"
        return f"{self.fault}: file {self.file}{cell if self.column else f': {self.ours}'}{theirs}"


def differences(case: Case, folder: Path, tally: Counter[str]) -> list[Difference]:
    """All differences of a case. ``tally`` counts why records are not read."""
    paths = case.written(folder)
    found = read(case, folder)
    if found.refused:
        return _of_refusal(found.refused, folder, tally)
    different: list[Difference] = []
    for number, (path, sheet) in enumerate(zip(paths, case.sheets, strict=True)):
        different += _of_file(case, found, number, path, sheet, tally)
    return different + (_of_job(case, folder, found) if case.through_a_job else [])


def _of_job(case: Case, folder: Path, found: Read) -> list[Difference]:
    """What a whole pipeline makes of the files, beside what the source alone does."""
    wanted = [digest for batch, timestamps in found.batches for digest in digests(batch, timestamps)]
    alive = Counter(digest for digest in wanted if digest is not None)
    apart = sum(isinstance(row[1], str) for rows in found.rows.values() for row in rows) + len(found.whole)
    dead = len(wanted) - alive.total() + apart
    counted, job = through_a_job(partial(source_of, case, folder), random.Random(str(case.options)))
    accounts = list(job.run(engine="embedded").ledger.values())
    read = sum(account.read for account in accounts)
    fates = (alive.total(), dead, alive.total() + dead)
    ours = (sum(account.processed for account in accounts), sum(account.dead for account in accounts), read)
    if ours != fates or job.dead_letters().num_rows != dead:
        return [Difference("another account", -1, ours=(*ours, job.dead_letters().num_rows), theirs=fates)]
    return (
        []
        if counted == alive
        else [Difference("other records in the state", -1, ours=counted - alive, theirs=alive - counted)]
    )


def _of_refusal(text: str, folder: Path, tally: Counter[str]) -> list[Difference]:
    tally[_kind_of(text)] += 1
    lacks = [what for what, says in {"a file": str(folder) in text, "a remedy": has_remedy(text)}.items() if not says]
    return [Difference(f"an error names no {what}", -1, ours=text) for what in lacks[:1]]


_REMEDY = re.compile(r"\b(give|write|correct|repair|run with|rename|check|omit|narrow|use|put|need)", re.IGNORECASE)


def has_remedy(text: str) -> bool:
    return _REMEDY.search(text) is not None


def _kind_of(text: str) -> str:
    """A reason without what is particular to a case.

    >>> _kind_of("column 'a': conversion error to int64: invalid value 'x'")
    "column '': conversion error to int: invalid value ''"
    """
    plain = re.sub(r"'[^']*'|/\S+|\"[^\"]*\"", "''", text)
    return re.sub(r"\d[\d,.]*", "", plain)[:160]


def _of_file(case: Case, found: Read, number: int, path: Path, sheet: Sheet, tally: Counter[str]) -> list[Difference]:
    if path.name in found.whole:
        whole = found.whole[path.name]
        if case.format == "parquet" and _has_columns(path, found.schema):
            return [Difference("a file that fits is refused", number, ours=whole)]
        return [replace(one, file=number) for one in _of_refusal(f"{path}: {whole}", path, tally)]
    rows = found.rows.get(path.name, [])
    typed, texts = _peers(case, path, sheet)
    counts = {len(view[0]) for view in typed + texts}
    if len(counts) == 1 and counts != {len(rows)}:
        return [Difference("another number of records", number, ours=len(rows), theirs=counts.pop())]
    if counts != {len(rows)} or not rows:
        return []
    is_first = path.name == next(iter(found.rows)) and "schema" not in case.options
    # A column of CSV without a name is left out.
    lost = [name for name in sheet.names if name and name not in found.schema.names]
    if is_first and lost and case.format != "json":
        return [Difference("a column is not read", number, ours=found.schema.names, theirs=lost)]
    one = _Compared(case, found.schema, number, sheet, typed, texts, is_first)
    return [difference for row, cells in enumerate(rows) for difference in one.of_row(row, *cells[1:], tally)]


def _has_columns(path: Path, schema: pa.Schema) -> bool:
    """Whether a file of Parquet has all these columns, of the same types."""
    kinds = {field.name: field.type for field in pq.read_schema(path)}
    return all(kinds.get(field.name) == field.type for field in schema)


def _peers(case: Case, path: Path, sheet: Sheet) -> tuple[list[View], list[View]]:
    """What the others read, by type and as text."""
    columns = len(sheet.columns)
    if case.format == "csv":
        typed, texts = (csv_readers(path, case.options, as_text=as_text) for as_text in (False, True))
        return views(typed, columns), views(texts, columns)
    readers = json_readers(path, sheet.names) if case.format == "json" else parquet_readers(path)
    return views(readers, columns), []


@dataclass(frozen=True)
class _Compared:
    """One file beside what its peers read. ``is_first``: the columns are inferred from it."""

    case: Case
    schema: pa.Schema
    number: int
    sheet: Sheet
    typed: Sequence[View]
    texts: Sequence[View]
    is_first: bool

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.sheet.names)}

    @cached_property
    def _written(self) -> list[list[Plain]]:
        """What stands in the file: of text, without quotes."""
        return [
            plain_column(cells)
            if isinstance(cells, pa.Array)
            else [_unquoted(self.case.format, cell) for cell in cells]
            for _, cells in self.sheet.columns
        ]

    def of_row(self, row: int, cells: list[Plain] | str, timestamp: int, tally: Counter[str]) -> Iterator[Difference]:
        different = partial(Difference, file=self.number, row=row)
        if isinstance(cells, str):
            tally[_kind_of(cells)] += 1
            if not has_remedy(cells):
                yield different("a dead letter names no remedy", column="-", ours=cells)
            if self._fits(row):
                stands = [column[row] for column in self._written]
                yield different("a record that fits is a dead letter", column="-", ours=cells, written=stands)
            return
        for column, ours in zip(self.schema, cells, strict=True):
            place = self._places.get(column.name)
            if place is None:
                if ours is not None:
                    yield different("a missing column has a value", column=column.name, ours=ours)
                continue
            told = [within(view[place][row], column.type) for view in self.typed]
            stands, theirs = self._written[place][row], agreed(told)
            text = agreed([view[place][row] for view in self.texts])
            if text is not UNSURE and text != stands:
                yield different("the peers read another text", column=column.name, written=stands, theirs=text)
            elif fault := self._fault(column.name, ours, stands, told, theirs):
                yield different(fault, column=column.name, written=stands, ours=ours, theirs=theirs)
            if column.name == "ts" and not _is_time(timestamp, instant(stands) if isinstance(stands, str) else theirs):
                yield different("another time", column=column.name, written=stands, ours=timestamp, theirs=theirs)

    def _fits(self, row: int) -> bool:
        """Whether a line of text certainly fits the columns."""
        if self.case.format == "parquet":
            return False
        declared = "schema" in self.case.options
        for column in self.schema:
            place = self._places.get(column.name)
            if place is None:
                continue
            text = self._written[place][row]
            is_text = self.sheet.columns[place][1][row].startswith('"')
            if self.case.format == "json" and text is not None and is_text != pa.types.is_string(column.type):
                return False
            if not fits(text, column.type, declared=declared):
                return False
        return True

    def _fault(self, name: str, ours: Plain, stands: Any, told: Sequence[Plain], theirs: Plain) -> str | None:
        """What is wrong with a cell; None if nothing is."""
        if self.case.format == "parquet":
            if stands in [cell for cell in told if cell is not UNSURE]:
                return None if ours == stands else "not what was written"
            return None if theirs is UNSURE or ours == theirs else "not what the peers read"
        if self.case.format == "csv":
            # In a column of another type than text an empty field is null, quoted or not.
            is_null = ours is None and stands == "" and not pa.types.is_string(self.schema.field(name).type)
            if ours == stands or is_null:
                return None
            if isinstance(ours, str) or stands is None:
                return "not the text"
        declared = str(self.case.options.get("schema", {}).get(name, ""))
        if declared in ("double", "float"):
            # Who declares a type of floats has them rounded.
            is_near = not isinstance(ours, float) or ours == _nearest(stands, declared)
            return None if is_near else "not the nearest float"
        if is_scalar(ours):
            return None if means(str(stands), ours) else "not the number in the text"
        if is_time(ours):
            return None if instant(stands) in (UNSURE, ours) else "not the time in the text"
        if theirs is UNSURE or ours == theirs:
            return None
        return "not what the peers read"


def _is_time(timestamp: int, theirs: Plain) -> bool:
    """Whether the milliseconds of a record are its time, as its peers read that."""
    if is_time(theirs):
        return bool(timestamp == theirs[1] // 10**6)
    return not isinstance(theirs, int) or timestamp == theirs


def _unquoted(format: str, cell: str) -> str | None:
    """A field without its quotes; None if it is null."""
    if not cell.startswith('"'):
        return None if cell == ("null" if format == "json" else "") else cell
    return str(json.loads(cell)) if format == "json" else cell[1:-1].replace('""', '"')


def _nearest(text: str, kind: str) -> float:
    return float(np.float32(text) if kind == "float" else np.float64(text))


def tried(format: str, seed: object, tally: Counter[str] | None = None) -> str | None:
    """What is wrong with a case, as a line; an error that nobody expects is a difference too."""
    case = drawn_case(format, seed)
    fault = _told(case, tally)
    return f"{format} {seed}: {fault}" if fault else None


def _told(case: Case, tally: Counter[str] | None = None) -> str | None:
    """The first difference that is not known. ``tally`` counts the others, and why records are not read."""
    tally = Counter() if tally is None else tally
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = differences(case, Path(folder), tally)
        except Exception as error:
            found = [Difference(f"{type(error).__name__}: {error}", -1)]
    for difference in found:
        known = [name for name, is_known in KNOWN.items() if is_known(case, difference)]
        if not known:
            return str(difference)
        tally["known: " + known[0]] += 1
    return None


KNOWN: dict[str, Callable[[Case, Difference], bool]] = {}
"""Faults that are not mended yet, by what shows them."""


# -- smaller cases -------------------------------------------------------------------------------------------------


def smaller(case: Case, is_wrong: Callable[[Case], bool]) -> Case:
    """The case with no more files, columns and rows than it needs to be wrong."""
    for rows in (case.rows, 1_000_000):
        plain = replace(case, rows=rows, exact=False, splits=1)
        case = plain if is_wrong(plain) else case
    again = True
    while again:
        again = False
        for less in _less(case):
            if is_wrong(less):
                case, again = less, True
                break
    return case


def _less(case: Case) -> Iterator[Case]:
    sheets = case.sheets
    for place, sheet in enumerate(sheets):
        if len(sheets) > 1:
            yield replace(case, sheets=sheets[:place] + sheets[place + 1 :])
        put = partial(_put, case, place)
        for column in range(len(sheet.columns)):
            if sheet.names[column] != "ts":
                yield put(sheet.without_column(column))
        for part in (2, 4, 8, 40):
            size = max(len(sheet) // part, 1)
            for start in range(0, len(sheet), size):
                yield put(sheet.without(start, start + size))
        for name in sheet.style:
            if name != "kinds" and sheet.style[name]:
                yield put(replace(sheet, style={key: value for key, value in sheet.style.items() if key != name}))


def _put(case: Case, place: int, sheet: Sheet) -> Case:
    schema = case.options.get("schema")
    names = {name for other in [*case.sheets[:place], sheet, *case.sheets[place + 1 :]] for name in other.names}
    kept = {"schema": {name: kind for name, kind in schema.items() if name in names}} if schema else {}
    return replace(
        case, sheets=(*case.sheets[:place], sheet, *case.sheets[place + 1 :]), options={**case.options, **kept}
    )


def shown(format: str, seed: object) -> str:
    """One case made small: what is wrong, its options, its files."""
    case = drawn_case(format, seed)
    first = _told(case)
    if first is None:
        return "nothing differs"
    kind = first.split(":")[0]
    small = smaller(case, lambda one: (_told(one) or "").split(":")[0] == kind)
    lines = [_told(small) or "", f"options {dict(small.options)}", f"steps of {small.rows}, {small.splits} splits"]
    for sheet in small.sheets:
        data: Any = small.bytes_of(sheet)
        plain = (
            [(name, cells.type, cells.to_pylist()) for name, cells in sheet.columns] if format == "parquet" else data
        )
        lines.append(f"{plain!r:.1500} {sheet.style if format == 'parquet' else ''}")
    return "\n".join(lines)


def is_found(name: str, seed: object = 0, tries: int = 300) -> bool:
    """Whether some case differs with the defect, and not without it."""
    for number in range(tries):
        with planted(name) as format:
            fault = tried(format, f"{seed}/{number}")
        if fault is not None:
            return tried(format, f"{seed}/{number}") is None
    return False


# -- the section ---------------------------------------------------------------------------------------------------


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """So many files of each format, and the planted defects."""
    began = time.monotonic()
    until = began + (seconds_max or float("inf"))
    failures: list[str] = []
    files, wanted = 0, max(1, round(FILES * scale))
    tally: Counter[str] = Counter()
    found = sum(is_found(name, seed) for name in MUTANTS)
    for format, end in in_turn(list(ENDINGS), [1.0] * len(ENDINGS), until):
        count = 0
        for number in itertools.count():
            if count >= wanted or time.monotonic() > end or len(failures) >= _FAILURES_MAX:
                break
            count += len(drawn_case(format, f"{seed}/{number}").sheets)
            fault = tried(format, f"{seed}/{number}", tally)
            failures += [f"{fault[:600]}: python -m tests.proof.peers {format} {seed}/{number}"] if fault else []
        files += count
    known = sum(count for name, count in tally.items() if name.startswith("known"))
    note = (
        f"{wanted:,} files of each format"
        if files >= wanted * len(ENDINGS)
        else f"stopped, {wanted * 3:,} were planned"
    )
    note += f", {known:,} known differences" if known else ""
    return Result("peers", files, tuple(failures), (found, len(MUTANTS)), time.monotonic() - began, note)


if __name__ == "__main__":
    print(shown(*sys.argv[1:]))
