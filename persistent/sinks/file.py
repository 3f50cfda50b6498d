"""A file sink is a folder of Parquet or JSON lines files, published by lists of them that are put once."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from monoids.monoid import canonical_json
from persistent.checkpoint.garbage import garbage
from persistent.checkpoint.names import (
    attempt_name,
    attempt_of,
    is_retracted,
    list_name,
    published_id,
    published_name,
    published_stem,
    retraction_name,
    retractions,
)
from persistent.errors import CorruptCheckpoint, InvalidPipeline, StagedMissing, StorageError
from persistent.sinks.json_lines import encode_json_lines
from persistent.sinks.protocol import Staged
from persistent.storage import Storage, delete_all, open_storage, put_once
from persistent.text.spelling import spelled

_EXTENSIONS = {"parquet": "parquet", "jsonl": "jsonl"}
_STAGED = "_staged"
_PUBLISHED = "_published"
_OWNER = f"{_PUBLISHED}/JOB"
_RETRACTED = "_retracted"


class FileSink:
    """Publishes to ``url`` (any that ``open_storage`` takes, or a storage), as ``format`` "parquet" or
    "jsonl".

        <url>/_staged/e<epoch>-c<id>-<uuid>.<ext>      invisible: readers skip names that begin with "_"
        <url>/<id>-<uuid>.<ext>                        published, one file after the other
        <url>/_published/<id>.json                     put when all files of a checkpoint are there
        <url>/_published/JOB                           put first: the id of the job whose folder this is
        <url>/_retracted/<first>-<stop>                put by a rollback: lists of these ids do not count any more

    Who must see all files of a checkpoint or none reads only those that ``_published`` lists (``published`` names
    them); on a store without rename everybody does, for there a file may be seen that is of no checkpoint. The list of
    a checkpoint that was taken back is empty. A file may be taken away once it is listed; the list must stay.

    >>> sink = FileSink("memory://visits", format="jsonl")
    >>> staged = sink.stage(pa.table({"page": ["a"], "visits": [2]}), 7, "e1-c7-0f8fad5b")
    >>> sink.publish(7, [staged])
    >>> open_storage("memory://visits").list("")
    ['00000000000000000007-0f8fad5b.jsonl']
    """

    @spelled
    def __init__(self, url: str | os.PathLike[str] | Storage, *, format: str = "parquet") -> None:
        if format not in tuple(_EXTENSIONS):
            raise InvalidPipeline(f"FileSink format {format!r}: choose one of {', '.join(_EXTENSIONS)}")
        self.storage = open_storage(url, private=False)
        self.format = format
        self.shared = self.storage.shared

    def __repr__(self) -> str:
        return f"FileSink({self.storage.url!r}, format={self.format!r})"

    @property
    def url(self) -> str:
        """Where the files appear."""
        return self.storage.url

    def names(self) -> tuple[str, ...]:
        """A name as those of the files that are published."""
        return (published_name(0, f"{attempt_name(0, 0, '0')}.{_EXTENSIONS[self.format]}"),)

    def claim(self, job: str) -> None:
        """Note in the folder whose it is. StorageError if it is another job's."""
        self._check_owner(put_once(self.storage, _OWNER, f"{job}\n".encode()), job)

    def holder(self) -> str | None:
        """The id of the job whose folder this is; None as long as it is nobody's."""
        found = self._found(_OWNER)
        return None if found is None else _shown(found)

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str) -> Staged:
        """Write ``outputs`` out of sight, durably. ValueError if ``attempt`` is none, StorageError."""
        published_stem(staging_id, attempt)
        data = _parquet(outputs) if self.format == "parquet" else encode_json_lines(outputs)
        name = f"{_STAGED}/{attempt}.{_EXTENSIONS[self.format]}"
        self.storage.write(name, data)
        return Staged(name=name, rows=outputs.num_rows, bytes=data.size)

    def publish(self, staging_id: int, staged: Sequence[Staged]) -> None:
        """Rename every staged file to its final name, then list them; what is listed, or there, already is done.
        StagedMissing, StorageError."""
        if not staged:
            return
        name, listed = _list_name(staging_id), _list_of(staging_id, staged)
        found = self._found(name)
        if found is None:
            found = self._published_all(staging_id, staged) or put_once(self.storage, name, listed)
        if found == _no_list(staging_id):
            raise StagedMissing(
                f"{self.url}: a rollback has taken back what checkpoint {staging_id} published (says {name}), so it "
                "cannot be published again. Where the checkpoint is a copy from before that rollback: give it another "
                "folder."
            )
        if found != listed:
            raise StorageError(
                f"{self.url}/{name} is {_shown(found)}, but checkpoint {staging_id} publishes {_shown(listed)}. "
                "Two checkpoints write here: give each its own folder."
            )

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        """Delete the staged files that nobody will publish."""
        kept = [name.rpartition("/")[2] for name in live]
        for name in garbage(self.storage.list(_STAGED), kept, epoch, id):
            self.storage.delete(f"{_STAGED}/{name}")

    def staged(self, job: str) -> list[str]:
        """The names of what is staged, in a folder of this job. StorageError if it is another's."""
        self._check_owner(self._found(_OWNER) or f"{job}\n".encode(), job)
        return [f"{_STAGED}/{name}" for name in self.storage.list(_STAGED)]

    def mark(self, first: int, stop: int) -> None:
        """From here on nothing published under the ids from ``first`` up to ``stop`` counts: no list of theirs that is
        there, and none that a driver still puts, which slept meanwhile."""
        name = retraction_name(first, stop)
        put_once(self.storage, f"{_RETRACTED}/{name}", f"{name}\n".encode())
        # In this order a file on its way from one name to the other is seen.
        ids = {attempt[1] for name in self.storage.list(_STAGED) if (attempt := attempt_of(name))}
        ids |= {published_id(name) for folder in ("", _PUBLISHED) for name in self.storage.list(folder)}
        for id in sorted(ids):
            if first <= id < stop:
                self._empty_list(id)

    def retract(self, first: int, stop: int) -> None:
        """Take back what was published under the ids from ``first`` up to ``stop``: the lists first, then the files."""
        self.mark(first, stop)
        self._delete_published([range(first, stop)])

    def tidy(self) -> None:
        """Delete the files that were published after they had been taken back."""
        marks = retractions(self.storage.list(_RETRACTED))
        if marks:
            for name in self._delete_published(marks):
                self._empty_list(published_id(name))

    def published(self) -> list[str]:
        """The names of the files that count, and are there: those of every list that was not taken back.

        Who takes files away once they are listed remembers the names it has had: on a store without rename a driver
        that slept in a publication may put such a file once more. CorruptCheckpoint where a list cannot be read.
        """
        names = [name for name in self.storage.list(_PUBLISHED) if published_id(name) >= 0]
        listed = {name: self._found(f"{_PUBLISHED}/{name}") for name in names}
        there = set(self.storage.list(""))
        # Last: what was taken back while we looked does not count.
        marks = retractions(self.storage.list(_RETRACTED))
        counts = [
            self._files(name, data)
            for name, data in listed.items()
            if data is not None and not is_retracted(name, marks)
        ]
        return sorted(there & {file for files in counts for file in files})

    def _files(self, name: str, data: bytes) -> list[str]:
        """The names of the files that a list names."""
        try:
            return [str(file["name"]) for file in json.loads(data)["files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptCheckpoint(
                f"{self.url}/{_PUBLISHED}/{name}: is no list of what a checkpoint has published, so nobody can say "
                "which files count. Restore it from a copy of the folder"
            ) from error

    def newest(self) -> int:
        """The highest id under which a file is published, or was; -1 if none."""
        marks = retractions(self.storage.list(_RETRACTED))
        names = (*self.storage.list(_PUBLISHED), *self.storage.list(""))
        return max((published_id(name) for name in names if not is_retracted(name, marks)), default=-1)

    def _published_all(self, staging_id: int, staged: Sequence[Staged]) -> bytes | None:
        """Every file has its final name; or there is a list that says more than what we see, which is returned."""
        try:
            for file in staged:
                self._publish_one(file.name, published_name(staging_id, file.name))
        except StagedMissing:
            # Another driver may have published it all, and a reader have taken it away.
            found = self._found(_list_name(staging_id))
            if found is None:
                raise
            return found
        return None

    def _empty_list(self, id: int) -> None:
        """See to it that the list of a checkpoint names nothing, and that none can be put any more."""
        while put_once(self.storage, _list_name(id), _no_list(id)) != _no_list(id):
            self.storage.delete(_list_name(id))

    def _delete_published(self, marks: Sequence[range]) -> list[str]:
        names = [name for name in self.storage.list("") if is_retracted(name, marks)]
        delete_all(self.storage, names)
        return names

    def _found(self, name: str) -> bytes | None:
        try:
            return bytes(self.storage.read(name))
        except FileNotFoundError:
            return None

    def _check_owner(self, found: bytes, job: str) -> None:
        if _shown(found) != job:
            raise StorageError(
                f"{self.url} holds the results of job {_shown(found)} (says {_OWNER}), this checkpoint is of job "
                f"{job}. Two jobs write here: give each its own folder. If this is the same pipeline with a new "
                "checkpoint: choose another folder, or delete this one with the results of the old checkpoint."
            )

    def _publish_one(self, name: str, final: str) -> None:
        try:
            self.storage.rename(name, final)
        except FileExistsError as error:
            # As in a copy of the folder made between the two halves of a rename: two files, the same rows.
            if not self.storage.read(final).equals(self.storage.read(name)):
                raise StorageError(
                    f"{self.url}: {final} is not what {name} holds, though its name is unique to that. Something "
                    "else writes here: move the file away, then run again."
                ) from error
        except FileNotFoundError as error:
            if final not in self.storage.list(""):
                raise StagedMissing(
                    f"{self.url}: {name} is neither staged nor published as {final}. If the sink was another folder "
                    "before, give it that; if the file was deleted, its rows can be had again only from the source."
                ) from error


def _list_of(staging_id: int, staged: Sequence[Staged]) -> bytes:
    """What ``_published`` says of a checkpoint, whatever the order of its files."""
    files = sorted((published_name(staging_id, file.name), file.rows) for file in staged)
    listed = [{"name": name, "rows": rows} for name, rows in files]
    rows = sum(file.rows for file in staged)
    return (canonical_json({"id": staging_id, "files": listed, "rows": rows}) + "\n").encode()


def _list_name(id: int) -> str:
    return f"{_PUBLISHED}/{list_name(id)}"


def _no_list(id: int) -> bytes:
    """What ``_published`` says of a checkpoint that was taken back."""
    return (canonical_json({"id": id, "files": [], "rows": 0, "retracted": True}) + "\n").encode()


def _shown(data: bytes) -> str:
    return data.decode(errors="replace").strip()


def _parquet(outputs: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    # A dictionary pays for columns of few values; for keys and sums building it takes longer than all else.
    repeated = [f.name for f in outputs.schema if not (pa.types.is_integer(f.type) or pa.types.is_floating(f.type))]
    pq.write_table(outputs, out, compression="snappy", use_dictionary=repeated, write_statistics=True)
    return out.getvalue()
