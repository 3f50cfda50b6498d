"""A server is a process of ours on free loopback ports, that is killed, paused and started again by its id."""

from __future__ import annotations

import atexit
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

T = TypeVar("T")

START_SECONDS = 240
_POLL_SECONDS = 0.02
_PR_SET_PDEATHSIG = 1
_PORTS = range(12_000, 32_000)
"""Below those that Linux gives to connections."""
_TAKEN: list[socket.socket] = []


def kept(begin: AbstractContextManager[T]) -> T:
    """What ``begin`` gives, until this process ends: so that all tests of a run share one server."""
    owner, stack = os.getpid(), ExitStack()
    # A child that was forked runs this too, when it exits.
    atexit.register(lambda: stack.close() if os.getpid() == owner else None)
    return stack.enter_context(begin)


def missing(what: str, install: str) -> NoReturn:
    """Skip the test, with the command that installs what it lacks. Where ``CI`` is set nothing is skipped: it fails."""
    said = f"{what}: {install}"
    if os.environ.get("CI"):
        pytest.fail(said, pytrace=False)
    pytest.skip(said)


def java() -> str:
    """The program that runs servers in Java."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if not found:
        missing("no Java found (no 'java', no JAVA_HOME)", "apt-get install openjdk-17-jre-headless")
    return found


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, that no connection is given, and that no other call of this function
    gives while this process lives, whoever calls: a server takes seconds to begin, and is killed and begins again."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        with ExitStack() as stack, suppress(OSError):
            # A name without a file, of which the kernel lets one process have one: it goes with that process.
            taken = stack.enter_context(socket.socket(socket.AF_UNIX))
            taken.bind(f"\0a-port-of-tests-{port}")
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
            stack.pop_all()
            _TAKEN.append(taken)
            return port
    raise RuntimeError("of 100 ports of 127.0.0.1 none is free")


class Server:
    """A command that serves ``port`` of 127.0.0.1; what it prints is appended to ``log``.

    It dies with the thread that has started it, so that a test run killed with -9 leaves no server behind.
    """

    def __init__(self, command: Sequence[str], port: int, log: Path, environment: Mapping[str, str] = {}) -> None:
        self.port = port
        self.log = log
        self._command = list(command)
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, f"{self._command[0]} was not started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not killed since."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Begin, without waiting until it serves."""
        assert self._process is None, "it runs already"
        with self.log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._environment,
                preexec_fn=die_with_parent,
            )

    def wait(self) -> None:
        """Return when it takes connections. AssertionError with the end of its log if it does not."""
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            assert self._process is not None, "it was not started"
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{' '.join(self._command)[:200]} does not serve: {self.last_words()}")
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """As when the machine is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop it where it stands: connections are accepted by the kernel, and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]

    def answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False


def die_with_parent() -> None:
    """Before it becomes another program, a child of ours is bound to our end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
