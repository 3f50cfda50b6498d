"""A RabbitMQ of one machine is a node of Debian's package with its own name server (epmd), over a folder of its own;
its ports stay the same when it is started again. Streams are on.

    apt-get install rabbitmq-server            has the programs; its own service is left alone
    python -m tests.servers.rabbit             serves until it is interrupted
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.certificates import certificates
from tests.servers.processes import START_SECONDS, Server, free_port, missing

INSTALL = "apt-get install rabbitmq-server"
_NODE = "tests@localhost"
USER, PASSWORD = "dev", "wh1sper-it"
_FOLDERS = ("/usr/lib/rabbitmq/bin", "/usr/local/lib/rabbitmq/bin")
# Nobody else starts its name server or talks to it; idle schedulers that spin would take the processor from the tests.
_ERLANG = "-start_epmd false -kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none"


def programs() -> tuple[Path, Path] | None:
    """The folder of rabbitmq-server itself, not of the wrapper that refuses all users but its own, and epmd; None if
    they are not installed."""
    epmd = shutil.which("epmd")
    found = [folder for folder in map(Path, _FOLDERS) if (folder / "rabbitmq-server").exists()]
    return (found[0], Path(epmd)) if found and epmd else None


class RabbitServer:
    """A node over ``folder``: AMQP on ``port``, streams on ``stream_port``, both for ``USER`` with ``PASSWORD``, and
    streams with a certificate of ``keys`` on ``stream_tls_port``.

    The messages that it has confirmed outlive ``kill``: it is a process that dies here, not the machine.
    """

    def __init__(self, folder: Path, bin: Path, epmd: Path) -> None:
        self._folder = folder
        self._bin = bin
        self.port, self.stream_port, self.stream_tls_port, dist, names = (free_port() for _ in range(5))
        self.keys = certificates(folder / "keys")
        self._environment = {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": _NODE,
            "RABBITMQ_DIST_PORT": str(dist),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": _ERLANG,
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # The shell becomes the node, so that whoever kills the one kills the other.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        # Its own name server: one that a node starts by itself would outlive it.
        self._names = Server([str(epmd), "-port", str(names), "-address", "127.0.0.1"], names, folder / "epmd.log")
        self.server = Server([str(bin / "rabbitmq-server")], self.port, folder / "log", self._environment)

    def url(self, *, user: str = USER, password: str = PASSWORD, vhost: str = "/", port: int = 0) -> str:
        """The URL of a virtual host."""
        return f"amqp://{user}:{password}@127.0.0.1:{port or self.port}/{quote(vhost, safe='')}"

    def start(self) -> None:
        """Begin with nothing, and wait until it serves."""
        settings = {
            "listeners.tcp.1": f"127.0.0.1:{self.port}",
            "stream.listeners.tcp.1": f"127.0.0.1:{self.stream_port}",
            "stream.listeners.ssl.1": f"127.0.0.1:{self.stream_tls_port}",
            "stream.advertised_host": "127.0.0.1",
            "stream.advertised_tls_port": str(self.stream_tls_port),
            "ssl_options.cacertfile": self.keys.ca,
            "ssl_options.certfile": self.keys.certificate,
            "ssl_options.keyfile": self.keys.key,
            "ssl_options.verify": "verify_none",
            "stream.advertised_port": str(self.stream_port),
            "default_user": USER,
            "default_pass": PASSWORD,
        }
        (self._folder / "rabbitmq.conf").write_text("".join(f"{name} = {said}\n" for name, said in settings.items()))
        (self._folder / "plugins").write_text("[rabbitmq_stream].\n")
        self._names.start()
        self._names.wait()
        self.restart()

    def restart(self) -> None:
        """Start it after it was killed or stopped, and wait until it serves."""
        self.server.start()
        self.wait()

    def wait(self) -> None:
        """Return when it opens a channel, and streams are served too. AssertionError with the end of its log if not."""
        from pika.exceptions import AMQPError

        deadline = time.monotonic() + START_SECONDS
        self.server.wait()
        while not (self._opens_a_channel(AMQPError) and self._takes_streams()):
            if not self.server.is_running or time.monotonic() > deadline:
                raise AssertionError(self.server.last_words())
            time.sleep(0.05)

    def kill(self) -> None:
        """As when the process is lost, at the earliest when it knows all its quorum queues again.

        RabbitMQ 3.10 writes the name of one to its disk a second after it has declared it; killed before, it comes back
        with an empty queue that nobody leads.
        """
        deadline = time.monotonic() + START_SECONDS
        while self.server.is_running and not self._knows_its_quorum_queues() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.server.kill()

    def stop(self) -> None:
        """End it as an operator does: connections are closed with a reason."""
        os.kill(self.server.pid, signal.SIGTERM)
        deadline = time.monotonic() + START_SECONDS
        while self.server.is_running and time.monotonic() < deadline:
            time.sleep(0.05)
        self.server.kill()

    def close(self) -> None:
        """End it and its name server."""
        self.server.kill()
        self._names.kill()

    def pause(self) -> None:
        """Stop it where it stands: nobody answers."""
        self.server.pause()

    def resume(self) -> None:
        """Let it go on."""
        self.server.resume()

    def control(self, *words: str) -> str:
        """What ``rabbitmqctl`` answers; it takes a second or two."""
        done = subprocess.run(
            [str(self._bin / "rabbitmqctl"), "--quiet", *words],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
        assert done.returncode == 0, f"rabbitmqctl {' '.join(words)}: {done.stdout[-1500:]} {done.stderr[-1500:]}"
        return done.stdout

    def connect(self, vhost: str = "/") -> Any:
        """A blocking connection of pika."""
        import pika

        return pika.BlockingConnection(pika.URLParameters(self.url(vhost=vhost)))

    def _opens_a_channel(self, refused: type[Exception]) -> bool:
        try:
            with closing(self.connect()) as connection:
                connection.channel()
            return True
        except (refused, OSError):
            return False

    def _knows_its_quorum_queues(self) -> bool:
        folder = self._folder / "mnesia" / _NODE / "quorum" / _NODE
        known = (folder / "names.dets").read_bytes() if (folder / "names.dets").exists() else b""
        return all(queue.name.encode() in known for queue in folder.glob("*/"))

    def _takes_streams(self) -> bool:
        return Server([], self.stream_port, self._folder / "log").answers()


@contextmanager
def rabbit_server() -> Iterator[RabbitServer]:
    """A node, empty; nothing of it is left afterwards. See ``missing`` where there is none."""
    found = programs()
    if found is None:
        missing("no RabbitMQ found", INSTALL)
    with tempfile.TemporaryDirectory(prefix="rabbit-", ignore_cleanup_errors=True) as folder:
        server = RabbitServer(Path(folder), *found)
        try:
            server.start()
            yield server
        finally:
            server.close()


if __name__ == "__main__":
    with rabbit_server() as served:
        print(served.url(), f"streams on {served.stream_port}", flush=True)
        signal.pause()
