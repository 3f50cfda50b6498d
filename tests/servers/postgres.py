"""A PostgreSQL of one machine is a server of Debian's package over a folder of its own; its port stays the same when it
is started again.

    apt-get install postgresql                 has the programs; its own service is left alone
    python -m tests.servers.postgres           serves until it is interrupted
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.certificates import Certificates
from tests.servers.processes import START_SECONDS, Server, free_port, missing

INSTALL = "apt-get install postgresql"
USER, PASSWORD = "dev", "wh1sper-it"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    # What is killed here are processes: the memory of the machine stays.
    "fsync": "off",
    "max_connections": "40",
    "shared_buffers": "64MB",
    "log_min_messages": "fatal",
}


@cache
def programs() -> Path | None:
    """The folder of initdb and postgres, of the newest version; None if they are not installed."""
    found = [Path(path) for name in ("initdb", "postgres") if (path := shutil.which(name))]
    folders = [path.parent for path in found] + sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version)
    whole = [folder for folder in folders if all((folder / name).exists() for name in ("initdb", "postgres"))]
    return whole[-1] if whole else None


def _version(folder: Path) -> float:
    return float(folder.parent.name) if folder.parent.name.replace(".", "").isdigit() else 0.0


class PostgresServer:
    """A server over ``folder``, with a user and a password."""

    def __init__(self, folder: Path, bin: Path) -> None:
        self._folder = folder
        self._bin = bin
        self.port = free_port()
        options = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [*_unprivileged(), str(bin / "postgres"), "-D", str(folder / "data"), "-p", str(self.port), *options]
        self.server = Server([*command, "-c", f"unix_socket_directories={folder}"], self.port, folder / "log")

    def url(self, *, user: str = USER, password: str = PASSWORD, database: str = "postgres", port: int = 0) -> str:
        """The URL of a database."""
        return f"postgresql://{user}:{password}@127.0.0.1:{port or self.port}/{database}"

    def start(self) -> None:
        """Make the database, and wait until it answers."""
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for path in (self._folder, secret):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        words = [
            "-D",
            str(self._folder / "data"),
            "-U",
            USER,
            "--auth=scram-sha-256",
            f"--pwfile={secret}",
            "--no-sync",
        ]
        command = [*_unprivileged(), str(self._bin / "initdb"), *words, "--locale=C.UTF-8", "--encoding=UTF8"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
        assert done.returncode == 0, done.stderr[-3000:]
        self.server.start()
        self.wait()

    def demand_tls(self, keys: Certificates, *, encrypted: str, certified: str) -> None:
        """Turn TLS on. New databases: ``encrypted`` takes nothing else, ``certified`` wants the certificate of app."""
        data = self._folder / "data"
        for source, name in ((keys.ca, "root.crt"), (keys.certificate, "server.crt"), (keys.key, "server.key")):
            target = data / name
            target.write_bytes(Path(source).read_bytes())
            target.chmod(0o600)
            if os.getuid() == 0:
                nobody = pwd.getpwnam("nobody")
                os.chown(target, nobody.pw_uid, nobody.pw_gid)
        rules = data / "pg_hba.conf"
        own = f"hostssl {encrypted} all all scram-sha-256\nhost {encrypted} all all reject\n"
        rules.write_text(f"{own}hostssl {certified} all all cert\n{rules.read_text()}")
        for statement in (
            f"CREATE DATABASE {encrypted}",
            "CREATE ROLE app LOGIN",
            f"CREATE DATABASE {certified} OWNER app",
            "ALTER SYSTEM SET ssl = on",
            "ALTER SYSTEM SET ssl_ca_file = 'root.crt'",
        ):
            self.ask(statement)
        self.kill()
        self.restart()

    def wait(self) -> None:
        """Return when it answers a statement."""
        import psycopg

        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.ask("SELECT 1")
                return
            except psycopg.OperationalError:
                if not self.server.is_running or time.monotonic() > deadline:
                    raise AssertionError(self.server.last_words()) from None
                time.sleep(0.05)

    def kill(self) -> None:
        """As when the machine is lost, with all that served a connection."""
        children = self._children()
        self.server.kill()
        for child in children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        while any(map(_lives, children)):
            time.sleep(0.01)

    def pause(self) -> None:
        """Stop it where it stands, with all that serves a connection: nobody answers."""
        self.server.pause()
        for child in self._children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        for child in self._children():
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGCONT)
        self.server.resume()

    def _children(self) -> list[int]:
        pid = self.server.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def restart(self) -> None:
        """Start it after it was killed, and wait until it answers."""
        self.server.start()
        self.wait()

    def ask(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of a statement; none if it gives none."""
        import psycopg

        with closing(psycopg.connect(self.url(database=database), autocommit=True, connect_timeout=5)) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []


def _lives(pid: int) -> bool:
    """Whether a process still holds anything: a dead one may wait for ever for somebody to ask after it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _unprivileged() -> list[str]:
    """What runs a command as somebody: the server refuses root. The command dies with us."""
    if os.getuid() != 0:
        return []
    nobody = pwd.getpwnam("nobody")
    ids = [f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, "--pdeathsig=KILL"]


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A server, empty; nothing of it is left afterwards. See ``missing`` where there is none."""
    bin = programs()
    if bin is None:
        missing("no PostgreSQL found", INSTALL)
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(Path(folder), bin)
        try:
            server.start()
            yield server
        finally:
            if server.server.is_running:
                server.kill()


if __name__ == "__main__":
    with postgres_server() as served:
        print(served.url(), flush=True)
        signal.pause()
