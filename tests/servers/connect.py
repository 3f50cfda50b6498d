"""A Spark Connect server is a driver of Spark's that a client sends its plans to: a Java process, killed by its id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.cluster import SMALL
from tests.servers.drivers import descendants, kill
from tests.servers.processes import Server, free_port

_SERVICE = "org.apache.spark.sql.connect.service.SparkConnectServer"
_SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
}


class ConnectServer:
    """A server on the Spark that ``master`` names, from ``home``. Its port stays the same when it is started again.

    ``python``: what its workers run. ``environment``: of the server.
    """

    def __init__(self, folder: Path, home: Path, master: str, python: str, environment: Mapping[str, str] = {}) -> None:
        port = free_port()
        self.url = f"sc://127.0.0.1:{port}"
        settings = {**_SETTINGS, "spark.connect.grpc.binding.port": str(port)}
        words = [str(home / "bin" / "spark-submit"), "--class", _SERVICE, "--master", master]
        words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        # Spark takes its memory for that of a daemon.
        own = {**SMALL, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "600m"}
        self._server = Server(words, port, folder / "connect.log", {**environment, **own, "PYSPARK_PYTHON": python})

    def start(self) -> None:
        """Return when it takes connections."""
        self._server.start()
        self._server.wait()

    def kill(self) -> None:
        """-9, and its Python workers after it."""
        if self._server.is_running:
            left = [pid for pid, _ in descendants(self._server.pid)]
            self._server.kill()
            kill(left)

    def last_words(self) -> str:
        """The end of its log."""
        return self._server.last_words()


@contextmanager
def connect_server(
    folder: Path, home: Path, master: str, python: str, environment: Mapping[str, str] = {}
) -> Iterator[ConnectServer]:
    """A server that serves; nothing of it is left afterwards."""
    made = ConnectServer(folder, home, master, python, environment)
    try:
        made.start()
        yield made
    finally:
        made.kill()
