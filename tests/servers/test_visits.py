"""The job of the docs on a cluster, its checkpoint on HDFS: whatever is killed, it is equal to a plain computation."""

from __future__ import annotations

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from persistent.storage import open_storage
from persistent.verify import verify
from tests.few import turn
from tests.servers.cluster import Cluster, python_for_executors
from tests.servers.connect import connect_server
from tests.servers.drivers import descendants, kill
from tests.servers.hdfs import HdfsServer
from tests.servers.processes import die_with_parent

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PAGE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text(encoding="utf-8")
ROWS, MINUTE = 2000, 60_000
EVENTS = [{"ts": n * 200, "page": f"p{n * n % 7}", "millis": n * 37 % 101} for n in range(ROWS)]


def written(hdfs: HdfsServer) -> str:
    """A folder of the test's own, with the events."""
    store = hdfs.url(f"visits-{uuid.uuid4().hex}")
    files = open_storage(f"{store}/events")
    for part in range(2):
        rows = EVENTS[part * 1000 : part * 1000 + 1000]
        files.write(f"{part}.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
    return store


def expected() -> list[tuple[str, int, int]]:
    """The rows of the result, in plain Python: page, visits, slowest."""
    found: dict[tuple[int, str], list[int]] = {}
    for event in EVENTS:
        found.setdefault((event["ts"] // MINUTE, event["page"]), []).append(event["millis"])
    return sorted((page, len(all), max(all)) for (_, page), all in found.items())


def published(store: str) -> list[tuple[str, int, int]]:
    """The rows of the files that a reader of the sink sees."""
    files = open_storage(f"{store}/results")
    names = [name for name in files.list("") if name.endswith(".jsonl")]
    rows = [json.loads(line) for name in names for line in bytes(files.read(name)).splitlines()]
    return sorted((row["page"], row["visits"], row["slowest"]) for row in rows)


class Run:
    """A driver as a user starts it, read line by line."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        # spark-submit prints there what the driver prints as an error.
        self._lines: list[str] = []
        with log.open("ab") as err:
            self._process = subprocess.Popen(
                words, stdout=subprocess.PIPE, stderr=err, env=environment, text=True, preexec_fn=die_with_parent
            )

    def line(self, name: str) -> str:
        """The rest of the next line of this name."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            if line.startswith(f"{name} "):
                return line.removeprefix(f"{name} ").strip()
        raise AssertionError(f"it ended: {self.last_words()}")

    def step(self, after: int) -> int:
        """Wait until it has committed a checkpoint above ``after``; its id."""
        while (id := int(self.line("step"))) <= after:
            pass
        return id

    def ends(self) -> int:
        """Wait until it has ended; its code."""
        assert self._process.stdout is not None
        self._lines += self._process.stdout
        return self._process.wait()

    def kill(self) -> None:
        """-9, to it and what it has started: nothing of it is left."""
        left = [pid for pid, _ in descendants(self._process.pid)]
        self._process.kill()
        kill(left)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def last_words(self) -> str:
        """The end of what it has told."""
        return "".join(self._lines)[-3000:] + self._log.read_text(errors="replace")[-3000:]


@pytest.fixture
def python(tmp_path: Path) -> str:
    """The executors' own."""
    return python_for_executors(tmp_path / "python")


@pytest.fixture
def job(tmp_path: Path) -> str:
    """The file that the docs show."""
    found = re.search(r'^```python title="visits.py"\n(.*?)^```', PAGE, re.M | re.S)
    assert found is not None
    (tmp_path / "visits.py").write_text(found[1])
    return str(tmp_path / "visits.py")


@turn(0, of=2)
def test_submitted_with_an_executor_a_worker_and_the_driver_killed(
    standalone: Cluster, hdfs_server: HdfsServer, python: str, job: str, tmp_path: Path
) -> None:
    """The docs say how a job is submitted and what it survives. The second driver has its executors' Python from an
    archive."""
    store = written(hdfs_server)
    archive = shutil.make_archive(str(tmp_path / "environment"), "gztar", Path(python).parents[1])
    settings = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false"}
    settings["spark.log.level"] = "ERROR"
    settings["spark.executorEnv.HADOOP_USER_NAME"] = getpass.getuser()
    words = [str(standalone.home / "bin" / "spark-submit"), "--master", standalone.url, "--driver-memory", "500m"]
    words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    environment = {**os.environ, **standalone.environment, "PYSPARK_DRIVER_PYTHON": sys.executable}

    def submitted(python: str, *more: str) -> Run:
        log = tmp_path / "driver.log"
        return Run([*words, *more, job, store], {**environment, "PYSPARK_PYTHON": python}, log)

    run = submitted(python)
    try:
        begun = run.step(after=1)
        used = standalone.pythons()
        assert {name for name, _ in used} == {python}
        assert all(f"HADOOP_USER_NAME={getpass.getuser()}\0" in has for _, has in used)
        kill(standalone.executors()[:1])
        after_executor = run.step(after=begun + 1)
        standalone.kill_worker()
        standalone.add_worker()
        after_worker = run.step(after=after_executor + 1)
    finally:
        run.kill()
    run = submitted("./environment/bin/python", "--archives", f"{archive}#environment")
    try:
        assert run.step(after=0) > after_worker, "it began anew"
        assert run.ends() == 0, run.last_words()
    finally:
        run.kill()
    assert published(store) == expected()
    assert verify(open_storage(f"{store}/checkpoint")).ok


@turn(1, of=2)
def test_over_connect_with_an_executor_the_server_and_the_client_killed(
    standalone: Cluster, hdfs_server: HdfsServer, python: str, job: str, tmp_path: Path
) -> None:
    """A server that was lost ended the run with an error of PySpark's, from within the search for what to say."""
    store = written(hdfs_server)
    (tmp_path / "server").mkdir()

    def connected() -> Run:
        environment = {**os.environ, "SPARK_REMOTE": server.url}
        return Run([sys.executable, job, store], environment, tmp_path / "client.log")

    with connect_server(tmp_path / "server", standalone.home, standalone.url, python) as server, ExitStack() as ended:
        first = connected()
        ended.callback(first.kill)
        begun = first.step(after=1)
        assert {name for name, _ in standalone.pythons()} == {python}
        kill(standalone.executors()[:1])
        after_executor = first.step(after=begun + 1)
        server.kill()
        server.start()
        # The first goes on asking for its session for up to a minute.
        second = connected()
        ended.callback(second.kill)
        after_server = second.step(after=0)
        assert after_server > after_executor, "it began anew"
        second.kill()
        third = connected()
        ended.callback(third.kill)
        assert third.step(after=0) > after_server, "it began anew"
        assert third.ends() == 0, third.last_words()
        assert first.ends() == 1
        assert "EngineError" in first.last_words() and "in a new session" in first.last_words(), first.last_words()
    assert published(store) == expected()
    assert verify(open_storage(f"{store}/checkpoint")).ok
