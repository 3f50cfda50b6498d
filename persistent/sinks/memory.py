"""A memory sink is a list of published rows in this process, for tests and for inspecting results."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from persistent.checkpoint.names import Staged, garbage, published_id, published_name, published_stem
from persistent.errors import InvalidPipeline, SinkMismatch, StagedMissing
from persistent.promises import EXACTLY_ONCE, Promise
from persistent.text.readable import readable_list


class MemorySink:
    """Publishes into ``table``. Works on the embedded engine only.

    >>> sink = MemorySink()
    >>> sink.publish(7, [sink.stage(pa.table({"page": ["a"], "visits": [2]}), 7, "e1-c7-0f8fad5b")])
    >>> sink.rows()
    [{'page': 'a', 'visits': 2}]
    """

    shared = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._job: str | None = None
        self._staged: dict[str, pa.Table] = {}
        self._published: dict[str, pa.Table] = {}

    def __repr__(self) -> str:
        return "MemorySink()"

    def __reduce__(self) -> Any:
        raise InvalidPipeline(
            "MemorySink lives in one process and works on the embedded engine only: other processes cannot "
            "reach it. Use FileSink, or engine=Embedded()."
        )

    def guarantee(self) -> Promise:
        """Exactly-once while this process lives."""
        return Promise(EXACTLY_ONCE, "rows are shown once, while this process lives")

    @property
    def table(self) -> pa.Table | None:
        """All published rows, by checkpoint; None before anything is published."""
        with self._lock:
            tables = [self._published[name] for name in sorted(self._published)]
        return pa.concat_tables(tables, promote_options="permissive") if tables else None

    def rows(self) -> list[dict[str, Any]]:
        """All published rows as dictionaries. A time for which Python has no value is ISO 8601, as ``10000-01-01``."""
        table = self.table
        return [] if table is None else readable_list(table)

    def claim(self, job: str) -> None:
        """Reserve the sink for one job. SinkMismatch if it belongs to another job."""
        with self._lock:
            if self._job not in (None, job):
                raise SinkMismatch(
                    f"this MemorySink holds the results of job {self._job}, but this checkpoint is of job {job}. Two "
                    "jobs, or one with a new checkpoint, write here: give each its own MemorySink()."
                )
            self._job = job

    def stage(self, outputs: pa.Table, staging_id: int, attempt: str) -> Staged:
        """Keep ``outputs`` out of sight. ValueError if ``attempt`` is malformed."""
        published_stem(staging_id, attempt)
        with self._lock:
            if attempt in self._staged:
                raise ValueError(f"attempt {attempt} was staged before; each needs a new uuid")
            self._staged[attempt] = outputs
        return Staged(name=attempt, rows=outputs.num_rows, bytes=outputs.nbytes)

    def publish(self, staging_id: int, staged: Sequence[Staged]) -> None:
        """Show the staged rows; rows that are shown already stay. StagedMissing, StorageError."""
        with self._lock:
            listed = {published_name(staging_id, file.name) for file in staged}
            published = {name for name in self._published if published_id(name) == staging_id}
            if staged and not published <= listed:
                raise SinkMismatch(
                    f"MemorySink: checkpoint {staging_id} was published here with other rows. Two checkpoints write "
                    "here: give each its own MemorySink()."
                )
            for file in staged:
                final = published_name(staging_id, file.name)
                if final in self._published:
                    continue
                if file.name not in self._staged:
                    raise StagedMissing(
                        f"MemorySink: {file.name} is neither staged nor published here: it is in another MemorySink, "
                        "or was in that of a process that has ended. A checkpoint continues with the sink it began "
                        "with: give it the same MemorySink; or, if that is gone, start a new checkpoint, with a "
                        'FileSink("results", format="jsonl") if other processes continue it'
                    )
                self._published[final] = self._staged.pop(file.name)

    def retract(self, first: int, stop: int) -> None:
        """Delete what was published under the ids ``first <= id < stop``."""
        with self._lock:
            for name in [name for name in self._published if first <= published_id(name) < stop]:
                del self._published[name]

    def newest(self) -> int:
        """The highest id under which anything is published; -1 if none."""
        with self._lock:
            return max(map(published_id, self._published), default=-1)

    def staged(self, job: str) -> list[str]:
        """The names of the staged outputs of this job. SinkMismatch if the sink belongs to another job."""
        self.claim(job)
        with self._lock:
            return sorted(self._staged)

    def sweep(self, live: Collection[str], epoch: int, id: int) -> None:
        """Delete the staged rows that no driver will publish."""
        with self._lock:
            for name in garbage(self._staged, live, epoch, id):
                del self._staged[name]
