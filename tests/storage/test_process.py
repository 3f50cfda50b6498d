"""Whether a process certainly lives: to say so of one that has ended blocks its restart, of another is a lie."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from persistent.storage import process
from persistent.storage.process import Process, this_process
from tests.checkpoint.samples import read_back

linux = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="only Linux tells when a process was started")


@linux
def test_a_process_lives_until_it_ends() -> None:
    """Of a driver that was killed nothing but its number is left, and that is soon another's."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    here = this_process()
    found = replace(here, pid=child.pid, started=process._started(child.pid))
    assert here.lives is True and found.lives is True
    assert replace(found, started=str(int(found.started) - 1)).lives is False, "the number is another process's now"
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert 0 <= uptime_s - int(found.started) / os.sysconf("SC_CLK_TCK") < 60, "when it was started, and nothing else"
    child.kill()
    child.poll()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT) if child.returncode is None else None
    assert found.lives is False, "a zombie has ended"
    child.communicate()
    assert found.lives is False


@linux
@pytest.mark.parametrize(
    ("changed", "lives"),
    [
        ({"host": "another"}, None),
        ({"space": "pid:[1]"}, None),
        ({"boot": "before"}, None),
        ({"boot": ""}, None),
        ({"started": ""}, None),
        ({"pid": 2**22 + 1}, False),
    ],
)
def test_what_cannot_be_known_is_not_claimed(changed: dict[str, str], lives: bool | None) -> None:
    """A container of the same host name has other numbers, a machine of the same name another boot; a mark of an
    earlier release says neither boot nor start."""
    assert replace(this_process(), **changed).lives is lives  # type: ignore[arg-type]


@linux
def test_a_process_of_another_user_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not to be allowed to signal it is proof that it is there; and it is asked with signal 0, which harms nobody."""
    asked: list[tuple[int, int]] = []

    def forbidden(pid: int, signal: int) -> None:
        asked.append((pid, signal))
        raise PermissionError("not yours")

    monkeypatch.setattr(os, "kill", forbidden)
    assert this_process().lives is True and asked == [(os.getpid(), 0)]


def test_where_nothing_is_told_nothing_is_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system without /proc the number alone must not count as proof."""
    for name in ("_boot", "_space"):
        monkeypatch.setattr(process, name, lambda: "")
    monkeypatch.setattr(process, "_started", lambda pid: "")
    assert this_process().lives is None


def test_a_system_without_proc_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unknown is written as such, and never taken for the same."""

    def absent(*_: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(process.Path, "read_text", absent)
    monkeypatch.setattr(process.os, "readlink", absent)
    here = this_process()
    assert (here.boot, here.space, here.started) == ("", "", "")
    assert read_back(here) == here


def test_a_process_is_read_as_it_was_written() -> None:
    """What a system does not report is left out."""
    here = this_process()
    assert read_back(here) == here
    assert read_back(Process("h", 7)) == Process("h", 7)
