"""The list of a checkpoint names the files that a file sink has published for it, and is put once.

    <url>/_published/<id>.json   {"id": <id>, "files": [{"name": ..., "rows": ...}, ...], "rows": ...}

A list and its files do not change. A look finds those that did. For a batch that a kept checkpoint knows, it compares
size and SHA-256; for an earlier batch, the names and rows of the list, and what a reader of the file would notice.
Files may be removed once they are listed; lists may not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from monoids.monoid import canonical_json
from persistent.connect.sink import Known, Looked
from persistent.errors import PersistentError
from persistent.names import Staged, is_retracted, list_name, published_id, published_name, retractions
from persistent.storage.protocol import Storage

PUBLISHED: Final = "_published"
RETRACTED: Final = "_retracted"

_THREADS: Final = 4
_AT_ONCE: Final = 64
UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError)
"""Errors of reading damaged bytes."""


def list_path(id: int) -> str:
    """The name of the list of a checkpoint, in the folder of the sink."""
    return f"{PUBLISHED}/{list_name(id)}"


def list_of(id: int, staged: Sequence[Staged]) -> bytes:
    """The list of a checkpoint, independent of the order of its files."""
    files = sorted((published_name(id, file.name), file.rows) for file in staged)
    listed = [{"name": name, "rows": rows} for name, rows in files]
    rows = sum(file.rows for file in staged)
    return (canonical_json({"id": id, "files": listed, "rows": rows}) + "\n").encode()


def no_list(id: int) -> bytes:
    """The list of a checkpoint that was taken back."""
    return (canonical_json({"id": id, "files": [], "rows": 0, "retracted": True}) + "\n").encode()


def look_at_lists(storage: Storage, known: Known, on_progress: Callable[[int, int], None]) -> Iterator[Looked]:
    """Look at the lists up to the newest checkpoint, and at the files that they name. ``on_progress`` receives the
    number of lists looked at, and of all. The job can run meanwhile."""
    # Listed before the lists: otherwise a file whose list was put in between would count as unlisted.
    there = frozenset(storage.list(""))
    names = set(storage.list(PUBLISHED))
    ids = sorted(id for id in map(published_id, names) if 0 <= id <= known.newest and list_name(id) in names)
    folder = _Folder(storage, known, there)
    counting = folder.counting(ids)
    yield from folder.missing_lists(ids)
    yield from folder.owed([id for id in known.owed if id not in ids])
    named: dict[str, bool] = {}
    unread = {*known.published} - {*ids}
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="look") as pool:
        for start in range(0, len(counting), _AT_ONCE):
            for listing in pool.map(folder.look_at, counting[start : start + _AT_ONCE]):
                yield from (look for look in listing.found if not look.fault or folder.counting([listing.id]))
                named |= listing.files
                unread |= set() if listing.is_read else {listing.id}
            on_progress(min(start + _AT_ONCE, len(counting)), len(counting))
    yield from folder.gone(named)
    yield from folder.unlisted(named, unread)


@dataclass(frozen=True)
class _List:
    """A list that was looked at. ``files``: whether each file that it names exists."""

    id: int
    found: tuple[Looked, ...]
    files: Mapping[str, bool]
    is_read: bool = True


@dataclass(frozen=True)
class _Folder:
    """The folder of a sink. ``there``: the files in it when the look began."""

    storage: Storage
    known: Known
    there: Collection[str]

    def counting(self, ids: Sequence[int]) -> list[int]:
        """The ids that no rollback has taken back by now."""
        marks = retractions(self.storage.list(RETRACTED)) if ids else ()
        return [id for id in ids if not is_retracted(list_name(id), marks)]

    def missing_lists(self, ids: Sequence[int]) -> Iterator[Looked]:
        """The missing lists: the list of the newest batch must exist, and every list after the oldest one."""
        published = self.known.published
        for id in self.counting([number for number in published if number not in ids]):
            if id == published[-1] or id > min(ids, default=id):
                text = (
                    f"missing: the files of checkpoint {id} are published, but count no longer. Restore it from a copy"
                )
                yield Looked(self._url(list_path(id)), fault=text)
            else:
                text = f"missing, like all before it: removed, or checkpoint {id} has published to another folder"
                yield Looked(self._url(list_path(id)), note=text)

    def owed(self, ids: Sequence[int]) -> Iterator[Looked]:
        """The batches that have no list yet: their files must be staged or published."""
        for id in ids:
            for file in self.known.batches.get(id, ()):
                # A file that is being published has one of these names.
                look = self._look_at_file(file.name, file.rows, file) or self._look_at_file(
                    published_name(id, file.name), file.rows, file
                )
                if look is None and list_name(id) not in self.storage.list(PUBLISHED) and self.counting([id]):
                    text = (
                        f"neither staged nor published, so no run can publish checkpoint {id}. Restore it from a copy"
                    )
                    yield Looked(self._url(file.name), fault=text)
                elif look is not None:
                    text = f"not listed yet: the job that runs, or the next run, publishes checkpoint {id}"
                    yield look if look.fault else replace(look, note=text)

    def look_at(self, id: int) -> _List:
        """Look at a list, and at its files."""
        place, staged = list_path(id), self.known.batches.get(id)
        try:
            data = bytes(self.storage.read(place))
            files = _files_of(id, data)
        except FileNotFoundError:
            return _List(id, (), {}, is_read=False)
        except (PersistentError, *UNREADABLE) as error:
            text = f"is not the list of what checkpoint {id} has published ({error}). Restore it from a copy"
            return _List(id, (Looked(self._url(place), fault=text),), {}, is_read=False)
        faults, expected = [], {}
        if staged is not None:
            expected = {published_name(id, file.name): file for file in staged}
            if data != list_of(id, staged):
                text = (
                    f"names {_names(files)}, but checkpoint {id} has published {_names(expected)}. It is damaged, or "
                    "the list of another job: restore it from a copy"
                )
                faults.append(Looked(self._url(place), fault=text))
        moves = id in self.known.owed or id in self.known.open
        there = {name for name in files if moves or name in self.there}
        looked = {
            name: self._look_at_file(name, files[name], expected.get(name)) if name in there else None for name in files
        }
        faults += [look for look in looked.values() if look is not None]
        return _List(id, tuple(faults), {name: look is not None for name, look in looked.items()})

    def gone(self, named: Mapping[str, bool]) -> Iterator[Looked]:
        """The listed files that do not exist: who reads them may remove them, usually the oldest first."""
        oldest = min((name for name, exists in named.items() if exists), default=None)
        gone = sorted(name for name, exists in named.items() if not exists)
        first = [name for name in gone if oldest is None or name < oldest]
        if first:
            yield Looked(self._several(first), note="listed, and removed since, as whoever reads it may")
        if gone[len(first) :]:
            text = "listed, but gone, while older files exist: lost, unless whoever reads it has removed it"
            yield Looked(self._several(gone[len(first) :]), warning=text)

    def unlisted(self, named: Collection[str], unread: Collection[int]) -> Iterator[Looked]:
        """The files that no list names. ``unread``: the ids of lists that are missing or cannot be read."""
        moving, newest = {*self.known.owed, *self.known.open, *unread}, self.known.newest
        marks = retractions(self.storage.list(RETRACTED))
        names = [name for name in sorted(self.there) if name not in named and not is_retracted(name, marks)]
        names = [name for name in names if published_id(name) <= newest and published_id(name) not in moving]
        if names:
            text = "no list names it, so it does not count; but whoever reads the whole folder reads it too"
            yield Looked(self._several(names), warning=text)

    def _several(self, names: Sequence[str]) -> str:
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        return f"{self._url(names[0])}{more}"

    def _look_at_file(self, name: str, rows: int, staged: Staged | None) -> Looked | None:
        """None if it does not exist."""
        try:
            data = self.storage.read(name)
            fault = _fault_of(data, name, rows, staged)
            return Looked(self._url(name), data.size, rows, fault=f"{fault}. Restore it from a copy" if fault else "")
        except FileNotFoundError:
            return None
        except PersistentError as error:
            return Looked(self._url(name), fault=str(error))

    def _url(self, name: str) -> str:
        return f"{self.storage.url}/{name}"


def _files_of(id: int, data: bytes) -> dict[str, int]:
    """The files in a list, with their rows. ValueError, KeyError or TypeError if it is another list."""
    body = json.loads(data)
    files = {str(file["name"]): int(file["rows"]) for file in body["files"]}
    if body["id"] != id or any(published_id(name) != id for name in files):
        raise ValueError(f"it is of checkpoint {body['id']}")
    if sum(files.values()) != body["rows"] or len(files) != len(body["files"]):
        raise ValueError("its files do not add up")
    return files


def _fault_of(data: pa.Buffer, name: str, rows: int, staged: Staged | None) -> str:
    """How a file differs from what was published; empty if it does not, as far as is known."""
    if staged is not None and data.size != staged.bytes:
        return f"has {data.size:,} bytes, but {staged.bytes:,} were published"
    if staged is not None and staged.sha256:
        differs = sha256(data).hexdigest() != staged.sha256
        return "its bytes are not those that were published: SHA-256 differs" if differs else ""
    try:
        count = _json_lines_in(data) if name.endswith(".jsonl") else _parquet_rows_in(data)
    except UNREADABLE as error:
        return f"cannot be read: {error}"
    return "" if count == rows else f"has {count:,} rows, but {rows:,} were published"


def _json_lines_in(data: pa.Buffer) -> int:
    rows = 0
    for line in BytesIO(data):
        rows += 1
        if not line.endswith(b"\n"):
            raise ValueError("its last line has no end")
        json.loads(line)
    return rows


def _parquet_rows_in(data: pa.Buffer) -> int:
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    return sum(batch.num_rows for batch in file.iter_batches())


def _names(files: Collection[str]) -> str:
    return ", ".join(sorted(files)) or "nothing"
