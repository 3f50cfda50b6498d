"""A job whose result says of every record how often it was counted, over files of one format, good and bad."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

from monoids import Count
from persistent import FileSource, NonWindowState, PersistentTask, Pipeline
from persistent.checkpoint.log import Log
from persistent.connect.files import listing
from persistent.connect.formats import parquet, protocol
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage, Put, Storage
from persistent.testing.running import ManualClock
from tests.proof.inputs import Inputs, patience

EDGE_BYTES = 64
"""So few that most files have a middle."""

FORMATS = {"jsonl": "lines", "csv": "lines", "jsonl.gz": "gz", "parquet": "parquet"}


class Counts(PersistentTask):
    """How often each record was counted."""

    key = "id"

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def encoded(ending: str, ids: range, mark: str = "x") -> bytes:
    """Records of these ids as a file of a format. ``mark`` is in every record."""
    records = [{"id": number, "ts": 1_000 + number, "mark": mark * 12} for number in ids]
    if ending == "parquet":
        target = io.BytesIO()
        options: Any = {"row_group_size": 8, "write_page_checksum": True, "use_dictionary": False}
        pq.write_table(pa.Table.from_pylist(records), target, compression="none", **options)
        return target.getvalue()
    if ending == "csv":
        lines = ["id,ts,mark", *(",".join(map(str, record.values())) for record in records)]
    else:
        lines = [json.dumps(record) for record in records]
    data = "".join(line + "\n" for line in lines).encode()
    return gzip.compress(data, mtime=0) if ending.endswith(".gz") else data


def sample(ending: str) -> dict[str, bytes]:
    """Good files, and one of the sort of bad that the format knows."""
    good = {f"in/{name}.{ending}": encoded(ending, ids) for name, ids in _GOOD.items()}
    bad = encoded(ending, range(100, 118))
    if ending == "parquet":
        chunk = pq.read_metadata(io.BytesIO(bad)).row_group(1).column(0)
        bad = bad[: chunk.data_page_offset] + b"\xff" * 12 + bad[chunk.data_page_offset + 12 :]
    elif ending.endswith(".gz"):
        bad = bad[: len(bad) * 2 // 3]
    else:
        bad = bad[:-1] + b'\n{"id": 1\n' if ending == "jsonl" else bad[:-1] + b"\n118,9\n"
    return {**good, f"in/bad.{ending}": bad}


_GOOD = {"a": range(22), "b": range(22, 35), "c": range(35, 38)}


@dataclass(frozen=True)
class Outcome:
    """``counted``: how often each record was; ``dead``: file, offset and reason of each dead letter; ``account``."""

    counted: Mapping[int, int]
    dead: tuple[tuple[str, int, str], ...]
    account: Any


class Job:
    """One checkpoint over these inputs, run as often as one likes, each time by a new process."""

    def __init__(self, inputs: Inputs, root: str, clock: ManualClock, *, lenient: bool = True) -> None:
        self._inputs = inputs
        self._root = root
        self._clock = clock
        self.lenient = lenient
        self._storage = MemoryStorage("inputs of the proof")
        self._storage.clear()

    def run(self, before_put: Callable[[str], None] | None = None) -> None:
        """Run to the end; ``before_put`` is told of each manifest and plan that is about to be put."""
        self._pipeline(before_put).run(engine=Embedded(threads=1))

    def outcome(self) -> Outcome:
        pipeline = self._pipeline()
        counted = {row["id"]: row["value"] for row in pipeline.state().to_pylist()}
        dead = sorted((row["file"], row["offset"], row["reason"]) for row in pipeline.dead_letters().to_pylist())
        manifest = Log(pipeline.storage).newest().manifest  # type: ignore[union-attr]
        return Outcome(counted, tuple(dead), manifest.accounts)

    def _pipeline(self, before_put: Callable[[str], None] | None = None) -> Pipeline:
        source = FileSource(
            self._root,
            timestamp="ts",
            timestamp_unit="ms",
            ordered=True,
            schema={"id": "int64", "ts": "int64", "mark": "string"},
            on_bad_file="dead-letter" if self.lenient else "raise",
        )
        source._files.patience = patience(self._clock)
        return Pipeline(source=source, task=Counts(), checkpoint=_Told(self._storage, before_put), step_rows=19)


class _Told:
    """``inner``; tells of every put before it is done."""

    def __init__(self, inner: Storage, before_put: Callable[[str], None] | None) -> None:
        self._inner = inner
        self._before_put = before_put

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        if self._before_put is not None:
            self._before_put(name)
        return self._inner.put_if_absent(name, data)


@contextmanager
def small_edges() -> Iterator[None]:
    """While inside, files have a middle from 128 bytes on, and Parquet of less than 2 kB is read at once."""
    with (
        mock.patch.object(listing, "EDGE_BYTES", EDGE_BYTES),
        mock.patch.object(protocol, "EDGE_BYTES", EDGE_BYTES),
        mock.patch.object(parquet, "_SMALL_BYTES", 2_000),
    ):
        yield
