"""A file sink is a folder of Parquet or JSON lines files. A list, put once, publishes the files of a checkpoint."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256

import pyarrow as pa
import pyarrow.parquet as pq

from persistent.connect.files.lists import PUBLISHED, RETRACTED, list_of, list_path, look_at_lists, no_list
from persistent.connect.formats.json_rows import encode_json_lines
from persistent.connect.promises import EXACTLY_ONCE, Promise
from persistent.connect.sink import Known, Looked, StagingSink
from persistent.errors import CorruptCheckpoint, InvalidPipeline, SinkMismatch, StagedMissing
from persistent.names import (
    Staged,
    attempt_name,
    attempt_of,
    garbage,
    is_retracted,
    published_id,
    published_name,
    published_stem,
    retraction_name,
    retractions,
)
from persistent.storage.opening import open_storage
from persistent.storage.protocol import Storage, delete_all, put_once
from persistent.text.figures import shell_word
from persistent.text.spelling import spelled

_FORMATS = {"parquet": "parquet", "jsonl": "jsonl", "json": "jsonl", "ndjson": "jsonl"}
"""Each format, which is the ending of its files, by its names."""
_STAGED = "_staged"
_OWNER = f"{PUBLISHED}/JOB"
_JOB = re.compile(rb"[\w.-]+\n")


class FileSink(StagingSink):
    """Publishes to ``url`` (any place that ``open_storage`` takes, or a storage), as ``format`` "parquet" or "jsonl"
    (or "json", "ndjson").

        <url>/_staged/e<epoch>-c<id>-<uuid>.<ext>      invisible: readers skip names that begin with "_"
        <url>/<id>-<uuid>.<ext>                        published, one file after the other
        <url>/_published/<id>.json                     put once all files of a checkpoint are there
        <url>/_published/JOB                           put first: the id of the job that owns the folder
        <url>/_retracted/<first>-<stop>                put by a rollback: lists of these ids no longer count

    A reader that must see all files of a checkpoint or none reads only files in the lists of ``_published``;
    ``published`` names them. On a store without rename every reader must, because there a file may appear that belongs
    to no checkpoint. The list of a checkpoint that was taken back is empty. A file may be removed once it is listed;
    the list must stay.

    >>> sink = FileSink("memory://visits", format="jsonl")
    >>> staged = sink.stage(pa.table({"page": ["a"], "visits": [2]}), 7, "e1-c7-0f8fad5b")
    >>> sink.publish(7, [staged])
    >>> open_storage("memory://visits").list("")
    ['00000000000000000007-0f8fad5b.jsonl']
    """

    abilities = frozenset({"holder", "look", "mark", "newest", "retract", "staged", "tidy"})

    @spelled
    def __init__(self, url: str | os.PathLike[str] | Storage, *, format: str = "parquet") -> None:
        if format not in tuple(_FORMATS):
            raise InvalidPipeline(f"FileSink format {format!r}: choose one of {', '.join(_FORMATS)}")
        self.storage: Storage = open_storage(url, private=False)
        self.format = _FORMATS[format]
        self.shared, self.url = self.storage.shared, self.storage.url
        self.address = f"folder {os.path.realpath(self.url) if self.storage.local else self.url}"

    def __repr__(self) -> str:
        return f"FileSink({self.storage.url!r}, format={self.format!r})"

    def guarantee(self) -> Promise:
        """Exactly-once, for readers that use the lists; with them, all of a checkpoint or nothing."""
        return Promise(EXACTLY_ONCE, "a file is published by a rename, or on a store without one by its list, once")

    def names(self) -> tuple[str, ...]:
        """Patterns of the names of published files."""
        return (published_name(0, f"{attempt_name(0, 0, '0')}.{self.format}"),)

    def claim(self, job: str) -> None:
        """Record the job that owns the folder. SinkMismatch if it belongs to another job."""
        self._check_owner(put_once(self.storage, _OWNER, f"{job}\n".encode()), job)

    def holder(self) -> str | None:
        """The id of the job that owns the folder; None while it has no owner."""
        owner = self._read_if_exists(_OWNER)
        return None if owner is None else _as_text(owner)

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str) -> Staged:
        """Write ``outputs`` durably, out of sight. ValueError if ``attempt`` is malformed, StorageError."""
        published_stem(staging_id, attempt)
        data = self._encoded(outputs)
        name = f"{_STAGED}/{attempt}.{self.format}"
        self.storage.write(name, data)
        return Staged(name=name, rows=outputs.num_rows, bytes=data.size, sha256=sha256(data).hexdigest())

    def check(self, outputs: pa.Table, key: tuple[str, ...]) -> None:
        """ArrowException, without rows, for columns that a Parquet file cannot have."""
        if not outputs.num_rows:
            self._encoded(outputs)

    def damaged(self, staged: Sequence[Staged]) -> str | None:
        """The place of a file that is still staged, with other bytes than ``stage`` wrote; None if there is none."""
        for file in staged:
            data = self._read_if_exists(file.name)
            if data is not None and sha256(data).hexdigest() != file.sha256:
                return f"{self.url}/{file.name}"
        return None

    def publish(self, staging_id: int, staged: Sequence[Staged]) -> None:
        """Rename every staged file to its final name, then list them. Completed work is not repeated.
        StagedMissing, StorageError."""
        if not staged:
            return
        name, listed = list_path(staging_id), list_of(staging_id, staged)
        stored = self._read_if_exists(name)
        if stored is None:
            stored = self._published_all(staging_id, staged) or put_once(self.storage, name, listed)
        if stored == no_list(staging_id):
            raise StagedMissing(
                f"{self.url}: a rollback has taken back what checkpoint {staging_id} published (says {name}), so it "
                "cannot be published again. If the checkpoint is a copy from before that rollback, give it another "
                "folder."
            )
        if stored != listed and not _is_document(stored):
            raise SinkMismatch(
                f"{self.url}/{name} is damaged: delete it, and run again, which lists the files of checkpoint "
                f"{staging_id} anew"
            )
        if stored != listed:
            raise SinkMismatch(
                f"{self.url}/{name} is {_as_text(stored)}, but checkpoint {staging_id} publishes {_as_text(listed)}. "
                "Two checkpoints write here: give each its own folder."
            )

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        """Delete the staged files that no driver will publish."""
        kept = [name.rpartition("/")[2] for name in live]
        for name in garbage(self.storage.list(_STAGED), kept, epoch, id):
            self.storage.delete(f"{_STAGED}/{name}")

    def staged(self, job: str) -> list[str]:
        """The names of the staged files of this job. SinkMismatch if the folder belongs to another job."""
        self._check_owner(self._read_if_exists(_OWNER) or f"{job}\n".encode(), job)
        return [f"{_STAGED}/{name}" for name in self.storage.list(_STAGED)]

    def mark(self, first: int, stop: int) -> None:
        """Discount everything published under the ids ``first <= id < stop``: existing lists, and lists that a stalled
        driver has yet to put."""
        name = retraction_name(first, stop)
        put_once(self.storage, f"{RETRACTED}/{name}", f"{name}\n".encode())
        # In this order a file that is being renamed is seen under one of its names.
        ids = {attempt[1] for name in self.storage.list(_STAGED) if (attempt := attempt_of(name))}
        ids |= {published_id(name) for folder in ("", PUBLISHED) for name in self.storage.list(folder)}
        for id in sorted(ids):
            if first <= id < stop:
                self._empty_list(id)

    def retract(self, first: int, stop: int) -> None:
        """Take back what was published under the ids ``first <= id < stop``: the lists first, then the files."""
        self.mark(first, stop)
        self._delete_published([range(first, stop)])

    def tidy(self) -> None:
        """Delete files that were published after they had been taken back."""
        marks = retractions(self.storage.list(RETRACTED))
        if marks:
            for name in self._delete_published(marks):
                self._empty_list(published_id(name))

    def published(self) -> list[str]:
        """The names of the files that exist and count: the files in every list that was not taken back.

        A reader that removes files once they are listed must remember their names: on a store without rename, a driver
        that stalls while publishing may put such a file again. CorruptCheckpoint if a list cannot be read.
        """
        names = [name for name in self.storage.list(PUBLISHED) if published_id(name) >= 0]
        listed = {name: self._read_if_exists(f"{PUBLISHED}/{name}") for name in names}
        there = set(self.storage.list(""))
        # Read last: files that were taken back in the meantime do not count.
        marks = retractions(self.storage.list(RETRACTED))
        counts = [
            self._files(name, data)
            for name, data in listed.items()
            if data is not None and not is_retracted(name, marks)
        ]
        return sorted(there & {file for files in counts for file in files})

    def _files(self, name: str, data: bytes) -> list[str]:
        """The file names in a list."""
        try:
            return [str(file["name"]) for file in json.loads(data)["files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint(
                f"{self.url}/{PUBLISHED}/{name}: not a list of what a checkpoint published, so it is unknown "
                "which files count. Restore it from a copy of the folder"
            ) from error

    def newest(self) -> int:
        """The highest id under which a file is or was published; -1 if none."""
        marks = retractions(self.storage.list(RETRACTED))
        names = (*self.storage.list(PUBLISHED), *self.storage.list(""))
        return max((published_id(name) for name in names if not is_retracted(name, marks)), default=-1)

    def look(self, known: Known, on_progress: Callable[[int, int], None]) -> Iterator[Looked]:
        """Look at every list that counts, and at every file that it names. SinkMismatch, StorageError."""
        owner = self._read_if_exists(_OWNER)
        if owner is not None:
            self._check_owner(owner, known.job)
        elif known.published:
            text = "missing: this is another folder, or results were deleted. Give the sink the folder that it had"
            yield Looked(f"{self.url}/{_OWNER}", fault=f"{text}, or restore it from a copy")
            return
        yield from look_at_lists(self.storage, known, on_progress)

    def _published_all(self, staging_id: int, staged: Sequence[Staged]) -> bytes | None:
        """Give every file its final name. If some are gone and a list exists, return that list instead."""
        try:
            for file in staged:
                self._publish_one(file.name, published_name(staging_id, file.name))
        except StagedMissing:
            # Another driver may have published it all, and a reader removed it.
            stored = self._read_if_exists(list_path(staging_id))
            if stored is None:
                raise
            return stored
        return None

    def _empty_list(self, id: int) -> None:
        """Make the list of a checkpoint name nothing, so that no other list can be put."""
        while put_once(self.storage, list_path(id), no_list(id)) != no_list(id):
            self.storage.delete(list_path(id))

    def _delete_published(self, marks: Sequence[range]) -> list[str]:
        names = [name for name in self.storage.list("") if is_retracted(name, marks)]
        delete_all(self.storage, names)
        return names

    def _encoded(self, outputs: pa.Table) -> pa.Buffer:
        return _parquet(outputs) if self.format == "parquet" else encode_json_lines(outputs)

    def _read_if_exists(self, name: str) -> bytes | None:
        try:
            return bytes(self.storage.read(name))
        except FileNotFoundError:
            return None

    def _check_owner(self, owner: bytes, job: str) -> None:
        if not _JOB.fullmatch(owner):
            place = f"{self.url}/{_OWNER}"
            raise SinkMismatch(
                f"{place} is damaged, so nobody knows whose results are here. If they are those of this checkpoint, "
                f"write it again, as by 'echo {job} > {shell_word(place)}'. Otherwise give the sink another folder"
            )
        if _as_text(owner) != job:
            raise SinkMismatch(
                f"{self.url} holds the results of job {_as_text(owner)} (says {_OWNER}), but this checkpoint is of job "
                f"{job}. Two jobs write here: give each its own folder. If this is the same pipeline with a new "
                "checkpoint, choose another folder, or delete this one with the results of the old checkpoint."
            )

    def _publish_one(self, name: str, final: str) -> None:
        try:
            self.storage.rename(name, final)
        except FileExistsError as error:
            # As in a copy of the folder made between the two halves of a rename: two files, the same rows.
            if not self.storage.read(final).equals(self.storage.read(name)):
                raise SinkMismatch(
                    f"{self.url}: {final} differs from {name}, though its name is unique to that file. Something "
                    "else writes here: move the file away, then run again."
                ) from error
        except FileNotFoundError as error:
            if final not in self.storage.list(""):
                raise StagedMissing(
                    f"{self.url}: {name} is neither staged nor published as {final}. If the sink was another folder "
                    "before, use that; if the file was deleted, only the source can provide its rows again."
                ) from error


def _is_document(data: bytes) -> bool:
    """Whether a list is whole, of whatever checkpoint."""
    try:
        return data.endswith(b"}\n") and isinstance(json.loads(data), dict)
    except ValueError:
        return False


def _as_text(data: bytes) -> str:
    return data.decode(errors="replace").strip()


def _parquet(outputs: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    # A dictionary pays off for columns with few values; for keys and sums, building it dominates the time.
    repeated = [f.name for f in outputs.schema if not (pa.types.is_integer(f.type) or pa.types.is_floating(f.type))]
    pq.write_table(
        outputs, out, compression="snappy", use_dictionary=repeated, write_statistics=True, write_page_checksum=True
    )
    return out.getvalue()
