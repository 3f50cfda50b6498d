"""Real kills: whatever process is ended with -9 or stopped, what is left is what a calm run leaves.

A case is one job over files, on a store (a local disk, a real HDFS, an S3 server) and an engine. When a drawn
checkpoint id has been committed, and a drawn part of a step later, it happens:

    driver        the driver is killed, once or twice; another goes on
    takeover      the driver is stopped, another comes to the end, the first goes on: it must end with ``Fenced``
    workers       Spark's Python workers are killed; the run goes on by itself
    java          Spark's Java is killed; the run ends with an error, another driver goes on
    everything    the driver, its Java and all workers at once
    executor      one executor of two is killed; the run goes on by itself
    name-node     the NameNode of HDFS is killed and started again; the run goes on, or ends with ``StorageError``
    data-node     the DataNode of HDFS is killed and started again; the same
    no name-node  the NameNode is killed: the run must end with ``StorageError``; it is started, another goes on
    no data-node  the same with the DataNode
    away          the S3 server does not answer for a while
    ailing        the S3 server answers 503, loses answers and closes connections

Afterwards state, outputs, late rows, dead letters and ledger are those of a calm run in memory, what a reader of
revisions holds is what a plain computation says, ``verify`` finds no fault, the laws of the log hold and nothing lies
there that no manifest names.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

from persistent.storage import open_storage
from persistent.verify import verify
from tests.crash.worlds import Beside, CrashJob, Outcome, Peaks, Totals, Visits, World, check_invariants, write_files
from tests.proof import worlds
from tests.proof.borders import Gap, Life
from tests.proof.emission import DAYS, SHIFTS, Emission
from tests.proof.result import Result
from tests.proof.twin import Twin
from tests.servers.drivers import Driver, Order, descendants, driver, kill, spark_home
from tests.servers.hdfs import HdfsServer, hdfs_server
from tests.servers.s3 import Fault, S3Server, client_environment, s3_server

STEPS = 10


def revision_of(row: Mapping[str, Any]) -> int:
    """The revision of a row; those of sessions without lateness have none, and are never published again."""
    return int(row.get("revision", 0))


_STEP_ROWS = 12
_FILES = 7
_AWAY_SECONDS_MAX = 2.0

PLAN: tuple[tuple[str, str, str, int], ...] = (
    ("embedded", "disk", "driver", 8),
    ("embedded", "disk", "takeover", 6),
    ("embedded", "hdfs", "driver", 6),
    ("embedded", "hdfs", "takeover", 4),
    ("embedded", "s3", "driver", 6),
    ("embedded", "s3", "takeover", 4),
    ("embedded", "s3", "away", 2),
    ("embedded", "s3", "ailing", 3),
    ("embedded", "hdfs", "name-node", 2),
    ("embedded", "hdfs", "data-node", 2),
    ("embedded", "hdfs", "no name-node", 1),
    ("embedded", "hdfs", "no data-node", 1),
    ("spark", "disk", "workers", 3),
    ("spark", "hdfs", "workers", 1),
    ("spark", "s3", "workers", 1),
    ("spark", "disk", "driver", 2),
    ("spark", "s3", "takeover", 1),
    ("spark", "disk", "java", 1),
    ("spark", "hdfs", "everything", 1),
    ("spark", "disk", "everything", 1),
    ("cluster", "disk", "executor", 2),
    ("cluster", "hdfs", "executor", 1),
    ("cluster", "disk", "everything", 1),
)
"""(engine, store, what happens, how often): 60 cases."""

EMISSIONS = {
    "corrected": Emission((10, 10, 0), 100, "retract"),
    "days": Emission(DAYS, 100, "accumulate"),
    "changing": Emission((10, 10, 0), 100, emit="change"),
    "running": Emission(emit="change", changes="retract"),
    "sessions": Emission(Gap(40, 300)),
    "joining": Emission(Gap(12, 300), 150, "retract"),
    "growing": Emission(Gap(12, 300), 150, emit="change", changes="retract"),
    "shifts": Emission(SHIFTS, 100, "accumulate"),
    "early": Emission((10, 10, 0), 100, "retract", early=70),
    "lives": Emission(Life(60), emit="change", changes="retract"),
    "expired": Emission(Life(60)),
}
"""Jobs of sessions or an assigner's windows, or of keys that expire; that take late records, or publish what
changes."""
LATE_SINKS = ("visits", "days", "expired")
"""The jobs whose late records have a sink of their own."""
JOBS = {
    "visits": (Visits, True, "parquet"),
    "peaks": (Peaks, False, "jsonl"),
    "totals": (Totals, True, "jsonl"),
    "beside": (Beside, True, "parquet"),
    **{name: (partial(worlds.Visits, emission), True, "parquet") for name, emission in EMISSIONS.items()},
}
"""Task, whether rows come in order (and some are late), format of the results."""


@dataclass(frozen=True)
class Case:
    """One run that is disturbed. Its number and the seed draw everything."""

    number: int
    seed: int
    engine: str
    store: str
    kind: str

    def __str__(self) -> str:
        return f"case {self.number} of seed {self.seed} ({self.engine}, {self.store}, {self.kind})"


def prove(seconds_max: float | None, seed: int = 0, scale: float = 1.0) -> Result:
    """All cases; with ``scale`` below 1 that share of each kind, at least one of those of the embedded engine."""
    began = time.monotonic()
    # A case that has begun goes on, and servers take their time to end.
    until = None if seconds_max is None else began + 0.75 * seconds_max
    wanted = cases(seed, scale)
    failures: list[str] = []
    done = 0
    with places(wanted) as place, ThreadPoolExecutor(len(LANES)) as lanes:
        lane_of = {name: [case for case in wanted if _lane(case) == name] for name in LANES}
        ended = [lanes.submit(_lane_of_cases, place, lane_of[name], until) for name in LANES]
        for one in ended:
            number, found = one.result()
            done += number
            failures += found
    note = f"seed {seed}" if done == len(wanted) else f"seed {seed}; stopped early, {len(wanted) - done} cases left out"
    return Result("kills", done, tuple(failures), None, time.monotonic() - began, note)


def cases(seed: int, scale: float) -> list[Case]:
    """What is to be tried."""
    found: list[Case] = []
    for engine, store, kind, times in PLAN:
        count = max(round(times * scale), 1 if engine == "embedded" else 0)
        found += [Case(len(found) + number, seed, engine, store, kind) for number in range(count)]
    return found


LANES = ("disk and s3", "hdfs", "hdfs too", "nodes", "spark")
"""What runs side by side: a client of HDFS often waits half a second for a file, so its lanes take hardly any time."""


def _lane(case: Case) -> str:
    if case.engine != "embedded":
        return "spark"
    if case.kind.endswith("-node"):
        return "nodes"
    if case.store == "hdfs":
        return ("hdfs", "hdfs too")[case.number % 2]
    return "disk and s3"


def _lane_of_cases(place: Place, wanted: Sequence[Case], until: float | None) -> tuple[int, list[str]]:
    """How many cases were tried, and what went wrong."""
    failures: list[str] = []
    with ExitStack() as sessions:
        kept: dict[str, Driver] = {}
        for number, case in enumerate(wanted):
            if until is not None and time.monotonic() > until:
                return number, failures
            try:
                Trial(case, place, sessions, kept).run()
            except Exception as error:
                failures.append(f"{case}: {type(error).__name__}: {error}")
    return len(wanted), failures


# -- where ------------------------------------------------------------------------------------------------------------


@dataclass
class Place:
    """The stores. ``hdfs`` is not disturbed, ``weak`` is the HDFS whose nodes are killed."""

    folder: Path
    s3: S3Server | None = None
    hdfs: HdfsServer | None = None
    weak: HdfsServer | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def url(self, case: Case) -> str:
        """A folder of the case's own."""
        name = f"case-{case.seed}-{case.number}"
        if case.store == "disk":
            return str(self.folder / name)
        if case.store == "s3":
            return f"s3://kills/{name}"
        server = self.weak if _lane(case) == "nodes" else self.hdfs
        assert server is not None
        return server.url(name)


@contextmanager
def places(wanted: Sequence[Case]) -> Iterator[Place]:
    """The stores that the cases want; this process is a client of all of them."""
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder, ExitStack() as servers:
        place = Place(Path(folder))
        if any(case.store == "s3" for case in wanted):
            place.s3 = servers.enter_context(s3_server())
            servers.enter_context(client_environment(place.s3))
            place.s3.bucket("kills")
            place.environment |= place.s3.environment
        if any(case.store == "hdfs" and _lane(case) != "nodes" for case in wanted):
            place.hdfs = servers.enter_context(hdfs_server())
        if any(_lane(case) == "nodes" for case in wanted):
            place.weak = servers.enter_context(hdfs_server())
            place.environment |= place.weak.environment
        if any(case.engine == "cluster" for case in wanted):
            place.environment["SPARK_HOME"] = str(spark_home(place.folder))
        for job in JOBS:
            write_files(place.folder / "events" / job, job_of(job).rows, _FILES)
            calm(job)
        yield place


# -- what -------------------------------------------------------------------------------------------------------------


@cache
def job_of(name: str) -> CrashJob:
    """Rows with disorder; where they are late, or negative, some are set aside."""
    task, ordered, format = JOBS[name]
    rng = random.Random(f"kills {name}")
    # A step has windows of the one before to close: what corrects them is far behind.
    share, far = (0.4, 150) if name in EMISSIONS else (0.15, 60)
    rows = []
    for number in range(STEPS * _STEP_ROWS):
        behind = rng.randrange(far) if rng.random() < share else rng.randrange(8)
        ts = -7 if rng.random() < 0.02 else max(4 * number - behind, 0)
        rows.append({"ts": ts, "page": rng.choice(["a", "b", "é", None]), "n": rng.randrange(-1, 30)})
    if task not in (Visits, Beside):
        rows = [{**row, "n": abs(row["n"])} for row in rows]
    if name in EMISSIONS:
        rows = [{**row, "ts": EMISSIONS[name].at(row["ts"])} for row in rows]
    return CrashJob(
        f"kills-{name}",
        task,
        tuple(rows),
        _STEP_ROWS,
        ordered,
        files=_FILES,
        format=format,
        late_sink="folder" * (name in LATE_SINKS),
    )


@cache
def calm(name: str) -> Outcome:
    """What a run in memory, undisturbed, comes to."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(job_of(name), Path(folder))
        world.run()
        outcome = world.outcome()
        check_table(name, world)
        world.close()
    assert outcome.published and any(account.dead for account in outcome.ledger.values())
    return outcome


@cache
def table(name: str) -> dict[Any, Any]:
    """What a reader must hold at the end: a plain computation."""
    job = job_of(name)
    return dict(list(Twin(job.rows, job.step_rows, EMISSIONS[name]).steps().values())[-1].table)


def check_table(name: str, world: World) -> None:
    """The largest revision, with what was taken back gone, is the plain one."""
    if name in EMISSIONS:
        emission = EMISSIONS[name]
        rows = sorted((row for row in world.published() if "late" not in row), key=revision_of)
        held = emission.table(map(emission.row, some) for _, some in groupby(rows, revision_of))
        assert held == table(name), f"a reader holds {held}, not {table(name)}"


class Trial:
    """One case at work. ``kept`` are the drivers on Spark that serve several cases."""

    def __init__(self, case: Case, place: Place, sessions: ExitStack, kept: dict[str, Driver]) -> None:
        self.case = case
        self.place = place
        self.sessions = sessions
        self.kept = kept
        self.rng = random.Random(f"{case.seed} {case.number}")
        self.job = self.rng.choice(sorted(JOBS))
        url = place.url(case)
        events = str(place.folder / "events" / self.job / "*.jsonl")
        self.order = Order(job_of(self.job), events, f"{url}/checkpoint", f"{url}/results")

    def run(self) -> None:
        """Disturb, finish, check."""
        happen: dict[str, Callable[[], None]] = {
            "driver": self._driver,
            "takeover": self._takeover,
            "workers": lambda: self._unnoticed("pyspark.daemon"),
            "executor": lambda: self._unnoticed("CoarseGrainedExecutorBackend", 1),
            "java": self._java,
            "everything": self._everything,
            "name-node": lambda: self._node("name_node", waits=False),
            "data-node": lambda: self._node("data_node", waits=False),
            "no name-node": lambda: self._node("name_node", waits=True),
            "no data-node": lambda: self._node("data_node", waits=True),
            "away": self._away,
            "ailing": self._ailing,
        }
        happen[self.case.kind]()
        self.check()

    # -- kinds -----------------------------------------------------------------------------------------------------

    def _driver(self) -> None:
        first = self.rng.randint(2, STEPS - 4)
        # Some steps are left, or it may have ended before it is killed.
        drawn = [first, self.rng.randint(first + 3, STEPS - 1)] if self.case.engine == "embedded" else [first]
        for id in drawn[: self.rng.randint(1, 2)]:
            with self._new(self.case.engine) as doomed:
                self._reach(doomed, id)
                doomed.kill()
                assert doomed.answer().error == "killed", f"it had ended before it was killed: {doomed.answer()}"
        self.finish()

    def _takeover(self) -> None:
        with self._new(self.case.engine) as stopped:
            self._reach(stopped, self.rng.randint(2, STEPS - 2))
            stopped.pause()
            try:
                self.finish()
                self.check()
            finally:
                stopped.resume()
            answer = stopped.answer()
        assert answer.error == "Fenced", f"the driver that was stopped ended with {answer}"
        self._sweep_allowed = True

    def _unnoticed(self, command: str, count: int | None = None) -> None:
        """Kill processes that Spark replaces; the run goes on by itself."""
        shared = self._shared(self.case.engine)
        self._reach(shared, self.rng.randint(2, STEPS - 3))
        found = [pid for pid, line in descendants(shared.pid) if command in line]
        assert found, f"no {command} under the driver"
        kill(found[:count])
        answer = shared.answer()
        assert not answer.error, f"the run did not survive: {answer}"
        self._sweep_allowed = True

    def _java(self) -> None:
        with self._new(self.case.engine) as doomed:
            self._reach(doomed, self.rng.randint(2, STEPS - 3))
            kill([pid for pid, line in descendants(doomed.pid) if "java" in line.split(" ")[0]])
            answer = doomed.answer()
        assert answer.error not in ("", "Fenced"), f"without its Java the driver ended with {answer}"
        self.finish()

    def _everything(self) -> None:
        with self._new(self.case.engine) as doomed:
            self._reach(doomed, self.rng.randint(2, STEPS - 3))
            doomed.end()
        self.finish()

    def _node(self, name: str, *, waits: bool) -> None:
        server = self.place.weak
        assert server is not None
        node = getattr(server, name)
        with self._new("embedded") as running:
            self._reach(running, self.rng.randint(2, STEPS - 3))
            node.kill()
            try:
                if waits:
                    error = running.answer()
                    said = error.error == "StorageError" and self.order.checkpoint.partition("/case")[0] in error.text
                    assert said, f"without a {name} the driver ended with {error}"
            finally:
                server.restart(node)
            answer = running.answer()
            assert answer.error in ("", "StorageError"), f"after the {name} came back the driver ended with {answer}"
        self.finish()

    def _away(self) -> None:
        server = self.place.s3
        assert server is not None
        with self._new("embedded") as running:
            self._reach(running, self.rng.randint(2, STEPS - 3))
            server.server.pause()
            try:
                time.sleep(self.rng.uniform(0, _AWAY_SECONDS_MAX))
            finally:
                server.server.resume()
            answer = running.answer()
            assert not answer.error, f"after the server came back the driver ended with {answer}"

    def _ailing(self) -> None:
        server = self.place.s3
        assert server is not None
        path = f"/case-{self.case.seed}-{self.case.number}/"
        with self._new("embedded") as running:
            self._reach(running, self.rng.randint(2, STEPS - 5))
            server.fail(*self._faults(path))
            try:
                answer = running.answer()
            finally:
                server.fail()
            assert answer.error in ("", "StorageError"), f"with an ailing server the driver ended with {answer}"
        self.finish()

    def _faults(self, path: str) -> Iterator[Fault]:
        for method in self.rng.choices(["PUT", "GET", "DELETE"], [3, 1, 1], k=6):
            status, performed = self.rng.choice([503, 500, 0]), method != "GET" and self.rng.random() < 0.6
            yield Fault(method, path, status, performed, times=self.rng.randint(1, 2), after=self.rng.randrange(4))

    # -- how -----------------------------------------------------------------------------------------------------------

    def _new(self, engine: str) -> Any:
        log = self.place.folder / f"driver-{self.case.seed}-{self.case.number}-{self.rng.getrandbits(32)}.log"
        return driver(engine, log, self.place.environment)

    def _shared(self, engine: str) -> Driver:
        """The driver on this engine that serves all cases that leave it alive."""
        if engine not in self.kept:
            self.kept[engine] = self.sessions.enter_context(self._new(engine))
        return self.kept[engine]

    def _reach(self, running: Driver, id: int) -> None:
        """Begin, and return a drawn part of a step after ``id`` was committed."""
        running.begin(self.order)
        assert running.wait_for(id), f"it ended before checkpoint {id}: {running.answer()}"
        time.sleep(self.rng.uniform(0, running.step_seconds))

    def finish(self) -> None:
        """Another driver comes to the end; where Spark is running already, half of the time on Spark."""
        if self.case.engine in self.kept and self.rng.random() < 0.5:
            answer = self.kept[self.case.engine].run(self.order)
        else:
            with self._new("embedded") as other:
                answer = other.run(self.order)
        assert not answer.error, f"the driver that went on ended with {answer}"

    def check(self) -> None:
        world = World(self.order.job, self.place.folder / "events")
        world.checkpoint, world.sink = open_storage(self.order.checkpoint), open_storage(self.order.sink)
        world.second = open_storage(self.order.late)  # type: ignore[assignment]
        expected, found = calm(self.job), world.outcome()
        for part in fields(Outcome):
            before, after = getattr(expected, part.name), getattr(found, part.name)
            assert before == after, f"{part.name} differ from those of a calm run: {_difference(before, after)}"
        check_table(self.job, world)
        check_invariants(world)
        verified = verify(world.checkpoint)
        assert verified.ok, f"verify found {verified.findings}"
        left = world.leftovers()
        assert not left or self._swept_later(left), f"nothing names {left}"

    _sweep_allowed = False

    def _swept_later(self, left: Sequence[str]) -> bool:
        """Whether all that is left are attempts of a driver that was fenced, or of workers that were killed while
        their driver went on: the next driver that takes over collects them."""
        return self._sweep_allowed and all("/e1-" in name or name.startswith("p/") for name in left)


def _difference(expected: Any, found: Any) -> str:
    if isinstance(expected, list) and isinstance(found, list):
        missing, extra = [row for row in expected if row not in found], [row for row in found if row not in expected]
        return f"{len(expected)} and {len(found)}; missing {missing[:3]}, extra {extra[:3]}"
    return f"{expected} and {found}"


if __name__ == "__main__":
    print(prove(None))
