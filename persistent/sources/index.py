"""The index of a file source is every file it ever listed, in the order of listing: a file's ordinal is its place here.

An index is an Arrow table: ordinal, path (relative to the root), size, fingerprint, rows (null: unknown), estimate (of
rows), smallest (timestamp in ms; null: no record has one; -1: unknown) and fault (null, or why the file as a whole
cannot be read).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from persistent.sources.files import Files, Gone, Listed, changed
from persistent.sources.formats import UNKNOWN, Facts, InputFile, Unreadable

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
    ]
)
_THREADS = 16
_FEW = 32
_ENTRIES_AT_ONCE = 256


@dataclass(frozen=True)
class Entry:
    """One row of the index, and the file it describes."""

    ordinal: int
    file: InputFile
    fault: str | None


class Index:
    """What was listed before, and what this plan appends."""

    def __init__(self, files: Files, table: pa.Table | None) -> None:
        self._files = files
        self._known = SCHEMA.empty_table() if table is None else table
        self.appended: pa.Table | None = None

    def __len__(self) -> int:
        return int(self._known.num_rows) + (0 if self.appended is None else int(self.appended.num_rows))

    @property
    def _all(self) -> pa.Table:
        return self._known if self.appended is None else pa.concat_tables([self._known, self.appended])

    def entry(self, ordinal: int) -> Entry:
        row = self._all.slice(ordinal, 1).to_pylist()[0]
        return self._entry(row)

    def entries(self, ordinal: int) -> Iterator[Entry]:
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
        """The files of a listing that are not in the index. ``SourceChanged`` if one that is has another size."""
        known = self._all
        sizes = dict(zip(known.column("path").to_pylist(), known.column("size").to_pylist()))
        for listed in listing:
            size = sizes.get(listed.path, listed.size)
            if size != listed.size:
                where = self._files.where(listed.path)
                raise changed(where, f"it had {size:,} bytes when it was first listed, now it has {listed.size:,}")
        return [listed for listed in listing if listed.path not in sizes]

    def append(self, listing: Sequence[Listed], inspect: Callable[[InputFile], Facts]) -> None:
        """Put these files at the end of the index, each after a look at it; those that are gone by now are left out."""

        def look(listed: Listed) -> dict[str, Any] | None:
            try:
                return _described(InputFile(self._files, listed.path, listed.size), inspect)
            except Gone:
                return None

        if self._files.local or len(listing) <= _FEW:
            found = [look(listed) for listed in listing]
        else:
            with ThreadPoolExecutor(_THREADS) as threads:
                found = list(threads.map(look, listing))
        there = [row for row in found if row is not None]
        rows = [{"ordinal": ordinal, **row} for ordinal, row in enumerate(there, len(self))]
        added = pa.Table.from_pylist(rows, SCHEMA)
        self.appended = added if self.appended is None else pa.concat_tables([self.appended, added])

    def _entry(self, row: dict[str, Any]) -> Entry:
        file = InputFile(self._files, row["path"], row["size"], row["fingerprint"], row["rows"], row["estimate"])
        return Entry(row["ordinal"], file, row["fault"])


def _described(file: InputFile, inspect: Callable[[InputFile], Facts]) -> dict[str, Any]:
    fault = None
    facts = Facts(0, 0, None)
    if file.size:
        try:
            facts = inspect(file)
        except Unreadable as error:
            facts, fault = Facts(1, 1, None), str(error)
    return {
        "path": file.path,
        "size": file.size,
        "fingerprint": file.fingerprint_now() if file.size else "",
        "rows": facts.rows,
        "estimate": facts.estimate,
        "smallest": None if facts.smallest is None else max(facts.smallest, UNKNOWN),
        "fault": fault,
    }
