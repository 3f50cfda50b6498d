"""A Spark cluster of this machine is a standalone master and two workers, each of one core, from the installed PySpark.

Its executors are processes of the workers, killed one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.drivers import descendants, spark_home
from tests.servers.processes import Server, free_port


class Cluster:
    """A master and two workers over ``folder``; ``environment``: of the workers, and so of the executors."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        home = spark_home(folder)
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self.environment = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "200m"}
        words = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        words += ["--port", str(port), "--webui-port", str(free_port())]
        self.master = Server(words, port, folder / "master.log", self.environment)
        self.workers = [self._worker(home, folder / f"worker-{n}", {**self.environment, **environment}) for n in (1, 2)]

    def _worker(self, home: Path, folder: Path, environment: Mapping[str, str]) -> Server:
        port = free_port()
        words = [str(home / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
        words += ["--port", str(port), "--webui-port", str(free_port()), "--cores", "1", "--memory", "700m"]
        words += ["--work-dir", str(folder), self.url]
        return Server(words, port, folder.with_suffix(".log"), environment)

    def start(self) -> None:
        """Return when all three take connections; the workers find the master by themselves."""
        for server in (self.master, *self.workers):
            server.start()
        for server in (self.master, *self.workers):
            server.wait()

    def executors(self) -> list[int]:
        """The processes of the executors there are now."""
        found = [child for worker in self.workers for child in descendants(worker.pid)]
        return [pid for pid, command in found if "CoarseGrainedExecutorBackend" in command]

    def stop(self) -> None:
        """End all three, and the executors."""
        left = self.executors()
        for server in (*self.workers, self.master):
            server.kill()
        for pid in left:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue


@contextmanager
def cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """A cluster that serves; nothing of it is left afterwards."""
    made = Cluster(folder, environment)
    try:
        made.start()
        yield made
    finally:
        made.stop()
