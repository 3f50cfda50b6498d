"""A Spark cluster of this machine is a standalone master and two workers, each of one core, from the installed PySpark.

Its executors are processes of the workers; executors and workers are killed one by one.
"""

from __future__ import annotations

import sysconfig
import tempfile
import uuid
import venv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.servers.drivers import descendants, kill, spark_home
from tests.servers.processes import Server, free_port

_ROOT = Path(__file__).parents[2]
SMALL = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For a Java that lives for a minute: half of its time would go into making itself fast."""


class Cluster:
    """A master and two workers over ``folder``; ``environment``: of the workers, and so of the executors."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self.home = spark_home(folder)
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.environment = {"SPARK_HOME": str(self.home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "200m"}
        self.environment |= SMALL
        # What the tests import is not there for executors.
        self._environment = {**self.environment, "PYTHONPATH": "", **environment}
        words = [str(self.home / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        words += ["--port", str(port), "--webui-port", str(free_port())]
        self.master = Server(words, port, folder / "master.log", self.environment)
        self.workers: list[Server] = []

    def add_worker(self) -> Server:
        """Begin one more, without waiting until it has found the master."""
        port, folder = free_port(), self._folder / f"worker-{uuid.uuid4().hex}"
        words = [str(self.home / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
        words += ["--port", str(port), "--webui-port", str(free_port()), "--cores", "1", "--memory", "700m"]
        words += ["--work-dir", str(folder), self.url]
        worker = Server(words, port, folder.with_suffix(".log"), self._environment)
        worker.start()
        self.workers.append(worker)
        return worker

    def start(self) -> None:
        """Return when all three take connections; the workers find the master by themselves."""
        self.master.start()
        for server in (self.master, self.add_worker(), self.add_worker()):
            server.wait()

    def executors(self) -> list[int]:
        """The processes of the executors there are now."""
        found = [child for worker in self.workers for child in descendants(worker.pid)]
        return [pid for pid, command in found if "CoarseGrainedExecutorBackend" in command]

    def pythons(self) -> list[tuple[str, str]]:
        """Of the executors' Python processes: the interpreter, and the environment it has."""
        found = [child for worker in self.workers for child in descendants(worker.pid)]
        daemons = [(pid, command.partition(" ")[0]) for pid, command in found if "pyspark.daemon" in command]
        return [(python, Path(f"/proc/{pid}/environ").read_text(errors="replace")) for pid, python in daemons]

    def kill_worker(self) -> None:
        """As when the machine of the oldest is lost: it and all that it has started are gone."""
        worker = self.workers.pop(0)
        left = [pid for pid, _ in descendants(worker.pid)]
        worker.kill()
        kill(left)

    def stop(self) -> None:
        """End all of them, and the executors."""
        while self.workers:
            self.kill_worker()
        self.master.kill()


@contextmanager
def cluster(environment: Mapping[str, str]) -> Iterator[Cluster]:
    """A cluster that serves; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="cluster-", ignore_cleanup_errors=True) as folder:
        made = Cluster(Path(folder), environment)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def python_for_executors(folder: Path) -> str:
    """A Python that has what ``pip install persistent-monoids[hdfs]`` installs, and nothing else."""
    venv.create(folder, with_pip=False)
    python = str(folder / "bin" / "python")
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    for package in (_ROOT / "persistent", _ROOT / "monoids"):
        (Path(packages) / package.name).symlink_to(package)
    for name in _required("persistent-monoids", "hdfs", set()):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (Path(packages) / top).symlink_to(Path(str(found.locate_file(top))))
    return python


def _required(name: str, extra: str, seen: set[str]) -> set[str]:
    """The distributions that one requires, and those that they require."""
    for line in distribution(name).requires or ():
        required = Requirement(line)
        wanted = required.marker is None or required.marker.evaluate({"extra": extra})
        if wanted and required.name not in seen:
            seen.add(required.name)
            _required(required.name, ",".join(required.extras), seen)
    return seen
