"""A process is told apart from every other by its host, the boot of that, its number, and when it was started."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_UNKNOWN, _ENDED = "", "ended"
_STATE, _STARTED = 0, 19
"""Where in /proc/PID/stat, behind the name of the program, these two stand."""


@dataclass(frozen=True)
class Process:
    """``boot``: of the machine; ``space``: in which the number counts (a container has its own); ``started``: in ticks
    since the boot. Each of them empty where this system does not tell."""

    host: str
    pid: int
    boot: str = _UNKNOWN
    space: str = _UNKNOWN
    started: str = _UNKNOWN

    @property
    def lives(self) -> bool | None:
        """True where it certainly does, False where it certainly does not, None where nobody can tell from here."""
        here = this_process()
        if self.host != here.host or (self.space and here.space and self.space != here.space):
            return None
        if self.boot and here.boot and self.boot != here.boot:
            # This machine before it was started again; or another of the same name.
            return None
        if not _is_there(self.pid):
            return False
        started = _started(self.pid)
        if not (self.boot and self.started and started):
            return None
        return self.started == started

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(body: dict[str, Any]) -> Process:
        """What one that knew less has written is unknown."""
        return Process(
            str(body["host"]),
            int(body["pid"]),
            *(str(body.get(name, _UNKNOWN)) for name in ("boot", "space", "started")),
        )


def this_process() -> Process:
    """The one that asks."""
    pid = os.getpid()
    return Process(socket.gethostname(), pid, _boot(), _space(), _started(pid))


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return _UNKNOWN


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return _UNKNOWN


def _started(pid: int) -> str:
    """When that process was started; of one that has ended, and whose parent has not asked how, only that."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _UNKNOWN
    return _ENDED if fields[_STATE] in "ZX" else fields[_STARTED]


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
