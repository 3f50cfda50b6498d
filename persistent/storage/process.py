"""A process is identified by its host, the host's boot, its number, and its start."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from persistent.codec.fields import Natural, Part, ShortText

_UNKNOWN, _ENDED = "", "ended"
_STATE, _STARTED = 0, 19
"""Their fields in /proc/PID/stat, counted after the program's name."""


class Process(Part, frozen=True):
    """``boot``: of the machine; ``space``: the namespace of the number (a container has its own); ``started``: in ticks
    since the boot. Each is empty if this system does not report it."""

    host: Annotated[str, Meta(max_length=300)]
    pid: Natural
    boot: ShortText = _UNKNOWN
    space: ShortText = _UNKNOWN
    started: ShortText = _UNKNOWN

    @property
    def lives(self) -> bool | None:
        """True if it certainly runs, False if it certainly does not, None if that cannot be seen from here."""
        here = this_process()
        if self.host != here.host or (self.space and here.space and self.space != here.space):
            return None
        if self.boot and here.boot and self.boot != here.boot:
            # This machine before a reboot, or another one with the same name.
            return None
        if not _is_there(self.pid):
            return False
        started = _started(self.pid)
        if not (self.boot and self.started and started):
            return None
        return self.started == started


def this_process() -> Process:
    """The calling process."""
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
    """The start of that process; ``_ENDED`` if it has ended and its parent has not waited for it."""
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
