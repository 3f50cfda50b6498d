"""A loop in a thread of its own answers any thread, in time or not at all."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from persistent.connect.rabbitmq import event_loop
from persistent.connect.rabbitmq.event_loop import EventLoop
from persistent.errors import Stopped
from persistent.time.clock import StopRequest, heard

NAME = "test-loop"


def threads() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


def wait_until(is_so: Callable[[], bool]) -> None:
    for _ in range(2_000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came to be so")


async def echo(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_answers_and_errors_come_to_whoever_asks() -> None:
    """Any thread may, at once."""
    loop = EventLoop(NAME)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda n: loop.run(echo(n), 60), range(50))) == list(range(50))

    async def fails() -> None:
        raise KeyError("mine")

    async def is_late() -> None:
        raise TimeoutError("its own")

    with pytest.raises(KeyError, match="mine"):
        loop.run(fails(), 60)
    with pytest.raises(TimeoutError):
        loop.run(is_late(), 60)
    loop.close()
    wait_until(lambda: threads() == 0)


def test_what_is_not_answered_is_cancelled() -> None:
    """It would go on behind the back of whoever has given up."""
    loop = EventLoop(NAME)
    ended = threading.Event()

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TimeoutError, match="no answer for 0 s"):
        loop.run(forever(), 0.05)
    assert ended.wait(60)
    assert loop.run(echo(5), 60) == 5
    loop.close()


def test_a_loop_that_nobody_has_ends() -> None:
    """With what it was doing; a source that is dropped leaves no thread behind."""
    loop = EventLoop(NAME)
    begun, ended = threading.Event(), threading.Event()

    async def forever() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    loop.spawn(forever())
    assert begun.wait(60)
    # The loop of the test before may still be ending.
    wait_until(lambda: threads() == 1)
    del loop
    gc.collect()
    assert ended.wait(60)
    wait_until(lambda: threads() == 0)


def test_who_is_asked_to_stop_waits_for_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that stands still would hold the run for as long as a call may take."""
    monkeypatch.setattr(event_loop, "_LOOK_SECONDS", 0.01)
    loop, request = EventLoop(NAME), StopRequest()
    request.make()
    with heard(request, 0), pytest.raises(Stopped, match="does not answer"):
        loop.run(asyncio.sleep(3_600), 3_600)
    loop.close()
