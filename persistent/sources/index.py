"""The index of a file source lists every file it ever saw, in order of listing; a file's ordinal is its place here.

An index is an Arrow table: ordinal, path (relative to the root), size, fingerprint, rows (null: unknown), estimate (of
rows), smallest (timestamp in ms; null: no record has one; -1: unknown), fault (null, or why the file as a whole
cannot be read) and hint (the store's attributes at listing).

A file is listed once it has content. Indexed files must not change: if a file's hint differs from before, its
fingerprint is taken again, once for each hint and run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from monoids.groupby.sorting import Integers
from persistent.errors import InputGone
from persistent.sources.formats import UNKNOWN, Facts, InputFile, attempted
from persistent.sources.listing import Files
from persistent.sources.protocol import Reached
from persistent.sources.reader import Unreadable
from persistent.sources.walk import Listed

SCHEMA = pa.schema(
    [
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("rows", pa.int64()),
        pa.field("estimate", pa.int64(), nullable=False),
        pa.field("smallest", pa.int64()),
        pa.field("fault", pa.string()),
        pa.field("hint", pa.string()),
    ]
)
_ENTRIES_AT_ONCE = 256
_NO_SUMS: Integers = np.zeros(1, np.int64)


@dataclass(frozen=True)
class ListedFile:
    """One row of the index, and the file it describes. ``lost``: the file is certainly gone."""

    ordinal: int
    file: InputFile
    fault: str | None
    lost: bool = False


class Index:
    """The files listed before, and those this plan appends."""

    def __init__(self, files: Files, table: pa.Table | None) -> None:
        self._files = files
        self._known = SCHEMA.empty_table() if table is None else table
        self.appended: pa.Table | None = None

    def __len__(self) -> int:
        return int(self._known.num_rows) + (0 if self.appended is None else int(self.appended.num_rows))

    @property
    def _all(self) -> pa.Table:
        return self._known if self.appended is None else pa.concat_tables([self._known, self.appended])

    def entry(self, ordinal: int) -> ListedFile:
        row = self._all.slice(ordinal, 1).to_pylist()[0]
        return self._entry(row)

    def entries(self, ordinal: int) -> Iterator[ListedFile]:
        """The entries from ``ordinal`` on."""
        table = self._all
        for start in range(ordinal, table.num_rows, _ENTRIES_AT_ONCE):
            for row in table.slice(start, _ENTRIES_AT_ONCE).to_pylist():
                yield self._entry(row)

    def smallest_from(self, ordinal: int) -> int | None:
        """The smallest timestamp in files from ``ordinal`` on; None if there is none."""
        least: int | None = pc.min(self._all.column("smallest").slice(ordinal)).as_py()
        return least

    def new(self, listing: Sequence[Listed]) -> list[Listed]:
        """The files of a listing that are not in the index. ``SourceChanged`` if an indexed one has changed."""
        table = self._all
        known = table.filter(pc.greater(table.column("size"), 0))
        columns = (known.column(name).to_pylist() for name in ("path", "size", "hint", "fingerprint"))
        by_path = {path: facts for path, *facts in zip(*columns)}
        doubtful = []
        for listed in listing:
            if listed.path not in by_path:
                continue
            size, hint, _ = by_path[listed.path]
            where = self._files.where(listed.path)
            believed = self._files.believed.setdefault(where, hint)
            if size != listed.size or believed != listed.hint:
                doubtful.append(listed)

        def require_unchanged(listed: Listed) -> None:
            size, _, mark = by_path[listed.path]
            try:
                InputFile(self._files, listed.path, size, mark).require_unchanged()
            except InputGone:
                return
            self._files.believed[self._files.where(listed.path)] = listed.hint

        self._files.each(require_unchanged, doubtful)
        return [listed for listed in listing if listed.size and listed.path not in by_path]

    def append(self, listing: Sequence[Listed], inspect: Callable[[InputFile], Facts]) -> None:
        """Inspect these files and append them to the index; files that no longer exist are skipped."""

        def row_of(listed: Listed) -> dict[str, Any] | None:
            try:
                return _described(InputFile(self._files, listed.path, listed.size), listed.hint, inspect)
            except InputGone:
                if listed.path in self._files.gone([listed.path]):
                    return None
                raise

        there = [row for row in self._files.each(row_of, listing) if row is not None]
        rows = [{"ordinal": ordinal, **row} for ordinal, row in enumerate(there, len(self))]
        added = pa.Table.from_pylist(rows, SCHEMA)
        self.appended = added if self.appended is None else pa.concat_tables([self.appended, added])

    def _entry(self, row: dict[str, Any]) -> ListedFile:
        file = InputFile(self._files, row["path"], row["size"], row["fingerprint"], row["rows"], row["estimate"])
        return ListedFile(row["ordinal"], file, row["fault"])


class IndexMeasure:
    """Measures how far an index has been read: within a file in rows, or else in bytes. The sums over all files are
    computed once an index, and not at every step."""

    def __init__(self) -> None:
        self._of: Any = None
        self._sums = _NO_SUMS, _NO_SUMS

    def reached(self, table: pa.Table | None, ordinal: int, offset: int) -> Reached:
        if table is None or not table.num_rows:
            return Reached(0, 0, "bytes")
        if self._of is not table:
            is_empty = table.column("rows").to_numpy() == 0
            sizes = np.where(is_empty, 0, table.column("size").to_numpy())
            self._of = table
            self._sums = np.append(_NO_SUMS, sizes.cumsum()), np.append(_NO_SUMS, is_empty.cumsum())
        (sizes_before, empty_before), files = self._sums, min(ordinal, table.num_rows)
        done = int(sizes_before[files])
        if offset and ordinal < table.num_rows:
            size, known = int(table.column("size")[ordinal].as_py()), table.column("rows")[ordinal].as_py()
            done += size * min(offset, known) // known if known else min(offset, size)
        passed = int(empty_before[-1] - empty_before[files])
        return Reached(done, int(sizes_before[-1]), "bytes", ordinal + passed, table.num_rows)

    def __reduce__(self) -> tuple[Any, ...]:
        """A worker has no use for the index."""
        return IndexMeasure, ()


def _described(file: InputFile, hint: str, inspect: Callable[[InputFile], Facts]) -> dict[str, Any]:
    """A row of the index; facts and fingerprint come from the same reading."""

    mark, fault = "", None

    def fingerprint_and_inspect(file: InputFile) -> Facts:
        nonlocal mark
        mark = file.fingerprint_now()
        return inspect(file)

    try:
        facts = attempted(file, fingerprint_and_inspect)
    except Unreadable as error:
        facts, fault = Facts(1, 1, None), str(error)
    return {
        "path": file.path,
        "size": file.size,
        "fingerprint": mark,
        "rows": facts.rows,
        "estimate": facts.estimate,
        "smallest": None if facts.smallest is None else max(facts.smallest, UNKNOWN),
        "fault": fault,
        "hint": hint,
    }
