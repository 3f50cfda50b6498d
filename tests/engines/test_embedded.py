"""The embedded engine, which every other engine is measured by."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from persistent.engines.embedded import Embedded
from persistent.engines.protocol import Engine
from persistent.errors import EngineError, InvalidPipeline, UserCodeError
from persistent.time import clock
from persistent.time.clock import StopRequest, heard
from tests.faults import Killed


@pytest.fixture(params=[1, 2, 4])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    embedded = Embedded(threads=request.param)
    yield embedded
    embedded.stop()


def test_results_come_in_the_order_of_the_items(engine: Engine) -> None:
    """Deltas would be credited to the splits of others."""

    def slow_first(item: int) -> int:
        time.sleep(0.002 * (20 - item) / 20)
        return item * item

    assert engine.map(slow_first, range(20)) == [item * item for item in range(20)]
    assert engine.map(slow_first, []) == []
    assert engine.map(slow_first, [3]) == [9]


def test_errors_of_ours_keep_their_type(engine: Engine) -> None:
    """The user would read of an engine where their own code has failed."""
    failure = UserCodeError("partition events, position (0, 7)")

    def failing(item: int) -> int:
        if item == 1:
            raise failure
        return item

    with pytest.raises(UserCodeError) as caught:
        engine.map(failing, range(3))
    assert caught.value is failure


def test_other_errors_become_engine_errors(engine: Engine) -> None:
    """The same fault would need another ``except`` on each engine."""

    def failing(item: int) -> int:
        raise ZeroDivisionError(f"item {item}")

    with pytest.raises(EngineError, match=r"ZeroDivisionError.*item 0") as caught:
        engine.map(failing, range(3))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_death_is_not_an_error(engine: Engine) -> None:
    """The crash tests would have their kills caught and reported, and never see a crash."""

    def dying(item: int) -> int:
        raise Killed(f"item {item}")

    with pytest.raises(Killed):
        engine.map(dying, range(3))
    assert engine.map(abs, [-1, -2]) == [1, 2]


def test_nothing_runs_on_after_a_failure(engine: Engine) -> None:
    """An attempt of a step given up would write while the next run has begun."""
    running, begun = [0], []
    lock = threading.Lock()

    def work(item: int) -> int:
        with lock:
            running[0] += 1
            begun.append(item)
        try:
            if item == 0:
                raise ValueError("first")
            time.sleep(0.02)
            return item
        finally:
            with lock:
                running[0] -= 1

    with pytest.raises(EngineError, match="first"):
        engine.map(work, range(100))
    assert running[0] == 0
    assert len(begun) < 50


def test_threads_work_at_once() -> None:
    """Two cores would do the work of one."""
    meeting = threading.Barrier(2, timeout=10)
    engine = Embedded(threads=2)
    assert sorted(engine.map(lambda _: meeting.wait(), range(2))) == [0, 1]
    engine.stop()
    assert engine.map(abs, [-1, -2]) == [1, 2]
    engine.stop()


def test_one_thread_is_the_calling_one() -> None:
    """A debugger or a profiler in the calling thread would see nothing."""
    engine = Embedded(threads=1)
    assert engine.map(lambda _: threading.get_ident(), range(2)) == [threading.get_ident()] * 2


def test_what_an_engine_says_of_itself() -> None:
    """The driver plans as many splits as there are workers."""
    assert Embedded().parallelism >= 1
    assert (Embedded(threads=3).parallelism, Embedded(3).in_process, Embedded(3).name) == (3, True, "embedded")
    with pytest.raises(InvalidPipeline, match="at least 1"):
        Embedded(threads=0)


def test_threads_hear_of_a_request_to_stop() -> None:
    """Items that wait for a server would hold a run that is asked to stop for as long as the server may be away."""
    request = StopRequest()
    request.make()
    engine = Embedded(threads=2)
    with heard(request, 0):
        assert engine.map(lambda item: clock.is_over(), [1, 2, 3]) == [True] * 3
    assert engine.map(lambda item: clock.is_over(), [1, 2, 3]) == [False] * 3
    engine.stop()
