"""The worlds of the proof: tiny jobs with their twins, on a simulated disk."""

from __future__ import annotations

import random
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

from persistent import FileSink, FileSource, MemorySource, PersistentTask, Pipeline
from persistent.driver.report import RunReport
from persistent.engines.embedded import Embedded
from persistent.storage import LocalStorage, Put, Storage
from tests.crash.worlds import write_files
from tests.proof.borders import Gap, Life
from tests.proof.disk import CHANGES, Before, SimulatedDisk, SimulatedFiles
from tests.proof.emission import DAYS, SHIFTS, Emission
from tests.proof.oracle import CHECKPOINT, LATE, SINK, Acknowledged, Oracle
from tests.proof.twin import Twin


class Visits(PersistentTask):
    """Count and sum by page; raises on a negative number."""

    key = "page"

    def __init__(self, emission: Emission) -> None:
        self.emission = emission

    def persistent_state(self) -> Any:
        return self.emission.state()

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["n"] < 0:
            raise ValueError("negative")
        state.update(message.timestamp, self.emission.values(message.value["n"]))


TUMBLING, FOR_EVER = Emission((10, 10, 0)), Emission()


@dataclass(frozen=True, repr=False)
class DiskJob:
    """A job and its twin. ``files``: rows stand in that many JSON files. ``share``: of the cases of a sweep. ``lag``:
    how far the clock stays behind. ``late_sink``: late rows have a folder of their own. The times of the ``ticks`` are
    those of the emission."""

    name: str
    ticks: tuple[Any, ...]
    step_rows: int
    emission: Emission = TUMBLING
    files: int = 0
    end_of_input: bool = True
    share: float = 0.0
    lag: int = 0
    late_sink: bool = False

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def rows(self) -> tuple[Any, ...]:
        return tuple({**row, "ts": self.emission.at(row["ts"])} for row in self.ticks)

    @cached_property
    def twin(self) -> Twin:
        return Twin(self.rows, self.step_rows, self.emission, self.end_of_input, self.lag)

    def oracle(self) -> Oracle:
        return Oracle(self.twin.steps(), self.emission, late_sink=self.late_sink)


def _rows(*rows: tuple[int, str | None, int]) -> tuple[Any, ...]:
    return tuple({"id": number, "ts": ts, "page": page, "n": n} for number, (ts, page, n) in enumerate(rows))


ROWS = _rows(
    (3, "a", 1),
    (14, "b", 2),
    (12, "a", 3),
    (21, None, 4),
    (4, "a", 5),  # late, where the clock is that of the rows before
    (-7, "a", 6),  # dead: before 1970
    (22, "b", -1),  # dead: the task raises
    (36, "é", 8),
    (13, "b", 9),
    (37, "a", 10),
)
LONG_ROWS = _rows(*((4 * i, "ab"[i % 2], i) for i in range(13)))

LATE_ROWS = (
    *ROWS[:6],
    *_rows((16, "b", 3), (15, "a", 4), (17, "b", -1)),
    *ROWS[6:],
    *_rows((25, "b", 3), (30, "a", 2), (28, "b", 1), (29, "a", 4), (9, "b", 7)),
)
LATE_ROWS = tuple({**row, "id": number} for number, row in enumerate(LATE_ROWS))
"""Some of which correct what is published, where windows take late rows, or come where nothing was."""

SESSION_ROWS = _rows(
    (3, "a", 1),
    (4, "b", 2),
    (11, "a", 3),
    (7, "a", 4),  # the bridge between 3 and 11, which came in the step before
    (2, "a", 5),  # late, by one: its session is open
    (12, "b", 5),
    (8, "b", 7),  # the bridge between 4 and 12, which came in two steps
    (-7, "a", 6),
    (23, "b", -1),
    (19, "a", 1),
    (27, "b", 8),
    (31, "b", 9),  # beyond the cut
    (24, "b", 2),  # begins what 27 goes on with
    (15, "b", 3),  # late: what it goes on with has closed
    (36, None, 2),
    (38, "b", 1),
)
"""Messages without which two sessions are not one, late ones among them."""

JOINING_ROWS = (
    *SESSION_ROWS,
    *_rows(
        (44, "b", 2),
        (22, "a", 3),  # what 19 had closed goes on
        (50, "a", 1),
        (35, "b", 6),  # joins 31 and 38, of which the first is published
        (28, "b", 4),  # between the cut and 31
        (57, "b", 1),
        (46, "a", 2),  # opens what had closed again
        (41, "b", 3),  # joins all that "b" has since the cut
        (58, "a", 7),
        (33, "b", -1),
        (62, "b", 1),
        (30, "b", 5),  # late, by the lateness
    ),
)
JOINING_ROWS = tuple({**row, "id": number} for number, row in enumerate(JOINING_ROWS))
"""Messages that change sessions which are published, where these take late ones."""

LIFE_ROWS = _rows(
    (3, "a", 1),
    (4, "b", 2),
    (11, "a", 3),
    (20, "b", 5),  # begins another life
    (13, "b", 7),  # the bridge between both, which came in the step before
    (-7, "a", 6),
    (32, "c", 4),
    (25, "b", -1),
    (24, "a", 2),  # begins another life
    (19, "a", 1),  # late: it would have ended
    (20, "a", 2),  # brings the life of 11 back, that has ended, and joins it to that of 24
    (60, "a", 6),
    (62, "d", 2),
    (55, None, 2),
    (72, "d", 1),  # at the very end of a life
    (63, "a", 5),
)
"""Messages without which two lives are not one, late ones among them."""

VISITS = DiskJob("visits", ROWS, 4, share=0.15)
TOTALS = DiskJob("totals", ROWS, 4, FOR_EVER, share=0.13)
OPEN = DiskJob("open", ROWS, 3, end_of_input=False, share=0.1)
FILES = DiskJob("files", ROWS, 4, files=3, share=0.06)
LONG = DiskJob("long", LONG_ROWS, 1, share=0.08)
"""So many steps that the first checkpoints are deleted before the last is made."""
EMITTING = (
    DiskJob("accumulated", LATE_ROWS, 3, Emission((10, 10, 0), 15, "accumulate"), share=0.07),
    DiskJob("taken back", LATE_ROWS, 3, Emission((10, 10, 0), 25, "retract"), share=0.05),
    DiskJob("final", LATE_ROWS, 3, Emission((10, 10, 0), 15, emit="final"), share=0.03),
    DiskJob("days", LATE_ROWS, 3, Emission(DAYS, 25, "retract"), share=0.02),
    DiskJob("changing", LATE_ROWS, 3, Emission((10, 10, 0), 15, emit="change", changes="retract"), share=0.04),
    DiskJob("updated", ROWS, 4, Emission(emit="change"), share=0.02),
    DiskJob("changed", ROWS, 4, Emission(emit="change", changes="retract"), share=0.02),
    DiskJob("sessions", SESSION_ROWS, 3, Emission(Gap(5, 30)), share=0.03, lag=8),
    DiskJob("joining", JOINING_ROWS, 3, Emission(Gap(5, 30), 18, "retract"), share=0.02, lag=2),
    DiskJob("growing", JOINING_ROWS, 3, Emission(Gap(5, 30), 18, None, "change", "retract"), share=0.02, lag=2),
    DiskJob("growing early", JOINING_ROWS, 3, Emission(Gap(5, 30), 18, "retract", early=9), share=0.02, lag=2),
    DiskJob("shifts", LATE_ROWS, 3, Emission(SHIFTS, 15, "retract"), share=0.02),
    DiskJob("lives", LIFE_ROWS, 3, Emission(Life(10), emit="change", changes="retract"), share=0.04, lag=3),
    DiskJob("expired", LIFE_ROWS, 3, Emission(Life(10)), share=0.02, lag=3, late_sink=True),
    DiskJob("early lives", LIFE_ROWS, 2, Emission(Life(10), changes="retract", early=17), share=0.02, lag=3),
    DiskJob("apart", LATE_ROWS, 3, share=0.01, late_sink=True),
    DiskJob("early", LATE_ROWS, 3, Emission((10, 10, 0), 15, "retract", early=7), share=0.03),
)

JOBS = (VISITS, TOTALS, OPEN, FILES, LONG, *EMITTING)


@dataclass(frozen=True)
class Moment:
    """A disk just before an operation, and the manifests acknowledged by then."""

    verb: str
    path: str
    data: bytes
    disk: SimulatedDisk
    acknowledged: Acknowledged


class Enough(Exception):
    """As many steps were made as were asked for."""


OnCommit = Callable[[str, bytes, Put], None]


class Watched:
    """``inner``; told of the answer of every put-if-absent. Whatever else a storage can do, it can."""

    def __init__(self, inner: Storage, answered: OnCommit) -> None:
        self._inner = inner
        self._answered = answered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_if_absent(self, name: str, data: bytes) -> Put:
        answer = self._inner.put_if_absent(name, data)
        self._answered(name, data, answer)
        return answer


@dataclass
class Process:
    """One driver on a disk. ``before`` is asked at each of its operations; ``changed`` makes another of a storage."""

    job: DiskJob
    oracle: Oracle
    disk: SimulatedDisk
    acknowledged: Acknowledged = ()
    before: Before | None = None
    files: Callable[[SimulatedDisk, Before | None], SimulatedFiles] = SimulatedFiles
    changed: Callable[[Storage], Storage] = lambda storage: storage
    moments: list[Moment] = field(default_factory=list)
    alone: bool = True

    def run(self, *, steps_max: int | None = None) -> RunReport | None:
        """Run to the end, or until that many steps are made (None). The oracle speaks at every commit."""
        made = 0

        def enough(_: object) -> None:
            nonlocal made
            made += 1
            if made == steps_max:
                raise Enough

        try:
            return self.pipeline().run(engine=Embedded(threads=1), end_of_input=self.job.end_of_input, on_step=enough)
        except Enough:
            return None

    def record(self, verb: str, path: str, data: bytes) -> None:
        """A ``before`` that keeps the moment before every operation that changes the disk."""
        if verb in CHANGES:
            self.moments.append(Moment(verb, path, data, self.disk.copy(), self.acknowledged))

    def storages(self) -> tuple[Storage, Storage]:
        """The storages of checkpoint and sink, as a new process opens them."""
        files = self.files(self.disk, self.before)
        return LocalStorage(CHECKPOINT, disk=files), LocalStorage(SINK, private=False, disk=files)

    def pipeline(self) -> Pipeline:
        checkpoint, sink = self.storages()
        return Pipeline(
            source=source_of(self.job),
            task=Visits(self.job.emission),
            sink=FileSink(self.changed(sink), format="jsonl"),
            late_sink=self._late_sink(),
            checkpoint=Watched(self.changed(checkpoint), self._answered),
            step_rows=self.job.step_rows,
            on_error="dead-letter",
        )

    def _late_sink(self) -> FileSink | None:
        if not self.job.late_sink:
            return None
        storage = LocalStorage(LATE, private=False, disk=self.files(self.disk, self.before))
        return FileSink(self.changed(storage), format="jsonl")

    def _answered(self, name: str, data: bytes, answer: Put) -> None:
        if answer is Put.WON and name.startswith("m/"):
            name = name.removeprefix("m/")
            self.acknowledged = self.oracle.at_commit(self.disk, name, data, self.acknowledged, alone=self.alone)


_FOLDERS: dict[tuple[str, int], tempfile.TemporaryDirectory[str]] = {}


def source_of(job: DiskJob) -> Any:
    """The input of the job; files lie on a real disk, once for each process."""
    if not job.files:
        return MemorySource(list(job.rows), timestamp="ts", ordered=True, max_out_of_orderness=job.lag)
    place = (job.name, job.files)
    if place not in _FOLDERS:
        shared_memory = Path("/dev/shm")
        _FOLDERS[place] = tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None)
        write_files(Path(_FOLDERS[place].name) / "input", job.rows, job.files)
    pattern = f"{_FOLDERS[place].name}/input/*.jsonl"
    return FileSource(pattern, timestamp="ts", timestamp_unit="ms", ordered=True)


@contextmanager
def drawn_names(seed: object) -> Iterator[None]:
    """Unique names are drawn from ``seed``, so that equal seeds give equal runs."""
    drawn = random.Random(repr(seed))
    with mock.patch.object(uuid, "uuid4", lambda: uuid.UUID(int=drawn.getrandbits(128), version=4)):
        yield


def named(jobs: Sequence[DiskJob]) -> dict[str, DiskJob]:
    """The jobs by name."""
    return {job.name: job for job in jobs}
