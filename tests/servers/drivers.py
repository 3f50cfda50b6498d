"""A driver is a process that runs a job when it is told to, says so at every step, and can be killed at any time.

Embedded ones are forked from one process that has everything imported, so that one costs some milliseconds.
Those on Spark start a Java of their own, and serve many jobs.
"""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from persistent import FileSink, FileSource, Pipeline
from persistent.engines.embedded import Embedded
from persistent.storage.failures import Patience
from persistent.storage.fsspec_storage import FsspecStorage
from tests.crash.worlds import CrashJob

WAIT_SECONDS = 300.0
PATIENCE = Patience(tries_max=10, seconds_max=8.0)
_PRELOADED = ["pandas", "pyarrow.parquet", "s3fs", "hdfs_native", "confluent_kafka", "psycopg", "tests.servers.drivers"]
_CLUSTER: dict[str, bool | float | int | str | None] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.log.level": "ERROR",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Order:
    """A run of ``job`` over the files of ``events``, to its end. A store that does not answer is soon given up."""

    job: CrashJob
    events: str
    checkpoint: str
    sink: str

    @property
    def options(self) -> dict[str, Any]:
        """Of ``run``."""
        return {"end_of_input": self.job.end_of_input}

    @property
    def late(self) -> str:
        """Where late records go, if they have a sink of their own."""
        return f"{self.sink}-late"

    def pipeline(self) -> Pipeline:
        """The job on its stores. Of several states one has the sink."""
        late_sink = FileSink(_store(self.late), format=self.job.format) if self.job.late_sink else None
        sink, taken = FileSink(_store(self.sink), format=self.job.format), getattr(self.job.task, "taken", ())
        return Pipeline(
            source=FileSource(self.events, timestamp="ts", timestamp_unit="ms", ordered=self.job.ordered),
            task=self.job.task(),
            sink=dict.fromkeys(taken, sink) if taken else sink,
            late_sink=late_sink,
            checkpoint=_store(self.checkpoint),
            step_rows=self.job.step_rows,
            on_error="dead-letter",
        )


class Ordered(Protocol):
    """What a driver can be told to run."""

    @property
    def options(self) -> dict[str, Any]: ...

    def pipeline(self) -> Pipeline: ...


def _store(url: str) -> str | FsspecStorage:
    return FsspecStorage(url, patience=PATIENCE) if "://" in url else url


@dataclass(frozen=True)
class Answer:
    """How a run ended: ``error`` is the name of what it raised, "" if it came to its end, "killed" if it died."""

    error: str = ""
    text: str = ""


class Driver:
    """A process of ours. ``engine``: "embedded", "spark" (``local[2]``) or "cluster" (two executors).

    ``environment``: of the process. ``log``: where it and its children print.
    """

    def __init__(self, engine: str, log: Path, environment: Mapping[str, str] = {}) -> None:
        self.engine = engine
        self.log = log
        self.ids: list[int] = []
        self._times: list[float] = []
        self._answer: Answer | None = None
        self._orphans: list[tuple[int, str]] = []
        self._ours, theirs = processes().Pipe()
        arguments = (theirs, engine, str(log), dict(environment), os.getpid())
        self.process = processes().Process(target=_serve, args=arguments)
        self.process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """Its id."""
        assert self.process.pid is not None
        return self.process.pid

    @property
    def step_seconds(self) -> float:
        """How long its last step took, or about so."""
        pairs = list(zip(self._times, self._times[1:]))
        return min(pairs[-1][1] - pairs[-1][0], 5.0) if pairs else 0.02

    def begin(self, order: Ordered) -> None:
        """Run, without waiting."""
        self.ids, self._times, self._answer = [], [], None
        self._ours.send(order)

    def wait_for(self, id: int) -> bool:
        """Wait until it has committed a checkpoint with this id or a higher one (True), or has ended."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self._answer is None and (not self.ids or self.ids[-1] < id):
            self._receive(deadline)
        return bool(self.ids) and self.ids[-1] >= id

    @property
    def is_under_way(self) -> bool:
        """Whether it has not said yet how its run ended."""
        return self._answer is None

    def wait_for_steps(self, count: int) -> None:
        """Wait until this run has committed so many checkpoints, or has ended."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self._answer is None and len(self.ids) < count:
            self._receive(deadline)

    def answer(self, seconds_max: float = WAIT_SECONDS) -> Answer:
        """How the run ended. AssertionError if it does not."""
        deadline = time.monotonic() + seconds_max
        while self._answer is None:
            self._receive(deadline)
        return self._answer

    def run(self, order: Ordered) -> Answer:
        """Run to the end."""
        self.begin(order)
        return self.answer()

    def kill(self) -> None:
        """-9, to it alone; it is gone on return."""
        self._orphans += descendants(self.pid)
        self.process.kill()
        self.process.join()

    def pause(self) -> None:
        """Stop it where it stands."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill it and all its children: nothing is left."""
        if self.process.is_alive():
            kill([self.pid, *(pid for pid, _ in descendants(self.pid))])
        # A number may have been given to another process since.
        kill([pid for pid, command in self._orphans if command and _command(pid) == command])
        self.process.join()
        self._ours.close()

    def _receive(self, deadline: float) -> None:
        if not self._ours.poll(max(deadline - time.monotonic(), 0.0)):
            raise AssertionError(f"{self.engine} driver, at {self.ids[-1:]}, says nothing: {self.last_words()}")
        try:
            said = self._ours.recv()
        except (EOFError, ConnectionResetError):
            said = Answer("killed")
        if isinstance(said, Answer):
            self._answer = said
        else:
            self.ids.append(said)
            self._times.append(time.monotonic())

    def last_words(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


@contextmanager
def driver(engine: str, log: Path, environment: Mapping[str, str] = {}) -> Iterator[Driver]:
    """A driver; nothing of it is left afterwards."""
    made = Driver(engine, log, environment)
    try:
        yield made
    finally:
        made.end()


def descendants(pid: int) -> list[tuple[int, str]]:
    """The children of a process and theirs, each with its command line."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found: list[tuple[int, str]] = []
    waiting = list(children.get(pid, []))
    while waiting:
        child = waiting.pop()
        found.append((child, _command(child)))
        waiting += children.get(child, [])
    return found


def _command(pid: int) -> str:
    """The command line of a process, "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def kill(pids: Sequence[int]) -> None:
    """-9, to each that is still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def processes() -> Any:
    """Processes forked from one that has imported what they need."""
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(_PRELOADED)
    return made


def _serve(orders: Connection, engine: str, log: str, environment: Mapping[str, str], parent: int) -> None:
    """What the process does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.update(environment)
    logging.getLogger("persistent").setLevel(logging.ERROR)
    made = _engine(engine)
    while True:
        try:
            order = orders.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            order.pipeline().run(**made, **order.options, on_step=lambda step: orders.send(step.id))
            answer = Answer()
        except Exception as error:
            answer = Answer(type(error).__name__, str(error))
        orders.send(answer)


def _engine(name: str) -> dict[str, Any]:
    """The engine, as options of ``run``."""
    if name == "embedded":
        return {"engine": Embedded(2)}
    from persistent.engines.spark_session import local_session

    # Executors look there for the module of the task.
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    # Where the name of this machine means another address of it.
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if name == "spark":
        return {"spark": local_session(cores=2, app_name="driver")}
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("driver")
    return {"spark": builder.config(map=_CLUSTER).getOrCreate()}


def spark_home(folder: Path) -> Path:
    """A Spark like the installed one, whose ``work`` folder is not inside the installed one."""
    import pyspark

    home = folder / "spark"
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    return home
