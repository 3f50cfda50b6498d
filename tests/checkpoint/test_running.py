"""A mark tells people who drives; a wrong one must mislead nobody, and none may stay for ever."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from msgspec.structs import replace

from persistent.checkpoint.running import Mark, check_none_runs, marks, put_mark, sweep_dead_marks, sweep_marks
from persistent.codec.documents import encode_document, no_laws, write
from persistent.errors import StillRunning
from persistent.storage import MemoryStorage, Storage
from persistent.storage.process import Process, this_process

NONCE = "0123456789abcdef" * 2


@pytest.fixture
def storage(request: pytest.FixtureRequest) -> Storage:
    return MemoryStorage(request.node.name)


def put(storage: Storage, epoch: int, host: str, pid: int) -> str:
    mark = Mark(epoch, NONCE, Process(host, pid), 5)
    storage.put_if_absent(mark.name, write(mark, "a mark", no_laws))
    return mark.name


def ended_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_mark_says_who_runs(storage: Storage) -> None:
    """An operator asks which machine to look at."""
    name = put_mark(storage, 3, NONCE)
    (mark,) = marks(storage)
    assert (mark.name, mark.epoch, mark.process) == (name, 3, this_process())
    assert name == f"r/e3-{NONCE}.json" and mark.started_ms > 0 and mark.may_run


def test_only_a_process_of_this_machine_is_known_to_have_ended(storage: Storage) -> None:
    """A running driver taken for dead is one that an operator restarts beside."""
    here, ended = socket.gethostname(), ended_pid()
    assert not Mark(1, NONCE, Process(here, ended), 0).may_run
    assert Mark(1, NONCE, Process(here + "-other", ended), 0).may_run
    dead, far = put(storage, 1, here, ended), put(storage, 2, here + "-other", ended)
    assert {mark.name for mark in marks(storage)} == {dead, far}
    sweep_dead_marks(storage)
    assert [mark.name for mark in marks(storage)] == [far]


def test_only_a_process_that_is_seen_is_known_to_run() -> None:
    """A changed task would be taken beside a driver of the old one, or be refused for the mark of a killed one."""
    here = this_process()
    assert Mark(1, NONCE, here, 0).runs
    for process in (Process(here.host, ended_pid()), Process(here.host + "-other", here.pid)):
        assert not Mark(1, NONCE, process, 0).runs


def test_only_a_driver_that_runs_and_is_not_fenced_is_in_the_way(storage: Storage) -> None:
    """One that is fenced commits nothing more, and one of another machine may be gone."""
    put(storage, 7, socket.gethostname() + "-other", 1)
    put_mark(storage, 3, NONCE)
    check_none_runs(storage, 4)
    with pytest.raises(StillRunning, match="a driver runs: "):
        check_none_runs(storage, 3)


def test_a_mark_that_cannot_be_read_is_left_out(storage: Storage) -> None:
    """A driver killed while it put its mark must not stop the commands that list the others."""
    storage.put_if_absent("r/e1-torn.json", b"{")
    storage.put_if_absent("r/e2-empty.json", encode_document({}))
    name = put(storage, 3, "host", 1)
    storage.put_if_absent("r/e4-0.json", storage.read(name).to_pybytes())
    assert [mark.name for mark in marks(storage)] == [name]


def test_a_driver_sweeps_the_marks_of_lower_epochs(storage: Storage) -> None:
    """They would be shown for ever. One of a higher epoch is of a driver that has fenced us: without its mark a
    rollback would be let in beside it."""
    for epoch in (1, 3, 31):
        put(storage, epoch, "host", 1)
    put(storage, 2, socket.gethostname(), ended_pid())
    assert [mark.epoch for mark in sweep_marks(storage, 3)] == [1]
    assert storage.list("r") == [f"e3-{NONCE}.json", f"e31-{NONCE}.json"]


def test_after_a_reboot_nobody_needs_a_flag_to_run(storage: Storage) -> None:
    """A machine that was started again must go on by itself: what may have died is no hindrance to a run."""
    process = replace(this_process(), boot="before")
    mark = Mark(1, NONCE, process, 0)
    assert mark.may_run and not mark.runs
