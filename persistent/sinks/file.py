"""A file sink is a folder of Parquet or JSON lines files, each published by one rename."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from monoids.monoid import canonical_json
from persistent.errors import InvalidPipeline, StagedMissing, StorageError
from persistent.sinks.json_lines import encode_json_lines
from persistent.sinks.protocol import Staged
from persistent.sinks.staging import final_stem, published_id, swept
from persistent.storage import Put, Storage, open_storage

_EXTENSIONS = {"parquet": "parquet", "jsonl": "jsonl"}
_STAGED = "_staged"
_PUBLISHED = "_published"
_OWNER = f"{_PUBLISHED}/JOB"
_TRIES = 3


class FileSink:
    """Publishes to ``url`` (any that ``open_storage`` takes, or a storage), as ``format`` "parquet" or
    "jsonl".

        <url>/_staged/e<epoch>-c<id>-<uuid>.<ext>      invisible: readers skip names that begin with "_"
        <url>/<id>-<uuid>.<ext>                        published, one file after the other
        <url>/_published/<id>.json                     put when all files of a checkpoint are there
        <url>/_published/JOB                           put first: the id of the job whose folder this is

    Who must see all files of a checkpoint or none reads only those that ``_published`` lists. A file may be
    taken away once it is listed; the list must stay.

    >>> sink = FileSink("memory://visits", format="jsonl")
    >>> staged = sink.stage(pa.table({"page": ["a"], "visits": [2]}), 7, "e1-c7-0f8fad5b")
    >>> sink.publish(7, [staged])
    >>> open_storage("memory://visits").list("")
    ['00000000000000000007-0f8fad5b.jsonl']
    """

    def __init__(self, url: str | os.PathLike[str] | Storage, *, format: str = "parquet") -> None:
        if format not in _EXTENSIONS:
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
        return (f"{0:020d}-0.{_EXTENSIONS[self.format]}",)

    def claim(self, job: str) -> None:
        """Note in the folder whose it is. StorageError if it is another job's."""
        found = _shown(self._offer(_OWNER, f"{job}\n".encode()))
        if found != job:
            raise StorageError(
                f"{self.url} holds the results of job {found} (says {_OWNER}), this checkpoint is of job {job}. Two "
                "jobs write here: give each its own folder. If this is the same pipeline with a new checkpoint: "
                "choose another folder, or delete this one with the results of the old checkpoint."
            )

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str) -> Staged:
        """Write ``outputs`` out of sight, durably. ValueError if ``attempt`` is none, StorageError."""
        final_stem(staging_id, attempt)
        data = _parquet(outputs) if self.format == "parquet" else encode_json_lines(outputs)
        name = f"{_STAGED}/{attempt}.{_EXTENSIONS[self.format]}"
        self.storage.write(name, data)
        return Staged(name=name, rows=outputs.num_rows, bytes=data.size)

    def publish(self, staging_id: int, staged: Sequence[Staged]) -> None:
        """Rename every staged file to its final name; what is listed, or there, already is done. StagedMissing,
        StorageError."""
        if not staged:
            return
        name, listed = f"{_PUBLISHED}/{staging_id:020d}.json", _list_of(staging_id, staged)
        try:
            found = bytes(self.storage.read(name))
        except FileNotFoundError:
            for file in staged:
                self._publish_one(file.name, _final_name(staging_id, file.name))
            found = self._offer(name, listed)
        if found != listed:
            raise StorageError(
                f"{self.url}/{name} is {_shown(found)}, but checkpoint {staging_id} publishes {_shown(listed)}. "
                "Two checkpoints write here: give each its own folder."
            )

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        """Delete the staged files that nobody will publish."""
        kept = [name.rpartition("/")[2] for name in live]
        for name in swept(self.storage.list(_STAGED), kept, epoch, id):
            self.storage.delete(f"{_STAGED}/{name}")

    def retract(self, first: int, stop: int) -> None:
        """Take back what was published under the ids from ``first`` up to ``stop``: the lists first, then the files."""
        for folder in (_PUBLISHED, ""):
            for name in self.storage.list(folder):
                if first <= published_id(name) < stop:
                    self.storage.delete(f"{folder}/{name}".lstrip("/"))

    def newest(self) -> int:
        """The highest id under which a file is published, or was; -1 if none."""
        names = (*self.storage.list(_PUBLISHED), *self.storage.list(""))
        return max(map(published_id, names), default=-1)

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

    def _offer(self, name: str, data: bytes) -> bytes:
        """What ``name`` holds for good: ``data``, or what was there before."""
        for _ in range(_TRIES):
            if self.storage.put_if_absent(name, data) is Put.WON:
                return data
            try:
                return bytes(self.storage.read(name))
            except FileNotFoundError:
                continue
        raise StorageError(f"cannot create {self.url}/{name}: the store gave no answer {_TRIES} times. Run again.")


def _list_of(staging_id: int, staged: Sequence[Staged]) -> bytes:
    """What ``_published`` says of a checkpoint, whatever the order of its files."""
    files = sorted((_final_name(staging_id, file.name), file.rows) for file in staged)
    listed = [{"name": name, "rows": rows} for name, rows in files]
    rows = sum(file.rows for file in staged)
    return (canonical_json({"id": staging_id, "files": listed, "rows": rows}) + "\n").encode()


def _shown(data: bytes) -> str:
    return data.decode(errors="replace").strip()


def _parquet(outputs: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    # A dictionary pays for columns of few values; for keys and sums building it takes longer than all else.
    repeated = [f.name for f in outputs.schema if not (pa.types.is_integer(f.type) or pa.types.is_floating(f.type))]
    pq.write_table(outputs, out, compression="snappy", use_dictionary=repeated, write_statistics=True)
    return out.getvalue()


def _final_name(staging_id: int, name: str) -> str:
    attempt, _, extension = name.rpartition("/")[2].partition(".")
    return f"{final_stem(staging_id, attempt)}.{extension}"
