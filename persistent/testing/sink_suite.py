"""The contract of a sink, as pytest tests: a subclass creates your sink, and the tests use it as drivers would, in
their worst moments.

    class TestMySink(SinkSuite):
        def make(self, place, step):
            return MySink(place / "results")

        def rows(self, place):
            return read(place / "results")
"""

from __future__ import annotations

import pickle
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from persistent.connect.promises import AT_LEAST_ONCE
from persistent.connect.sink import BatchSink, Sink
from persistent.errors import Fenced, PersistentError, StagedMissing, StorageError
from persistent.storage.memory import MemoryStorage
from persistent.testing.faults import Killed
from persistent.testing.sink_driver import OnOperation, SinkDriver

_BLOCKED_SECONDS = 0.3
_LONG_SECONDS = 60.0
_Action: TypeAlias = Callable[[SinkDriver], None]


class SinkSuite:
    """Tests of one kind of sink. A subclass has ``make`` and ``rows``; also ``place`` if a folder is not enough.

    The outputs have the columns ``page``, ``window_start``, ``window_end`` and ``value``. Tests of optional features
    are skipped if the sink lacks them: ``retract``, and the mark of a batch sink that promises exactly-once.
    """

    kills_one_in = 1
    """A driver is killed at every n-th operation: use more for a server whose operations take a second each."""

    def place(self, folder: Path) -> Any:
        """A new place for results; ``folder`` is empty, and used only for this place."""
        return folder

    def make(self, place: Any, step: OnOperation) -> Sink:
        """A new instance of the sink at ``place``, as another process would create it.

        ``step(text)`` is optional: a sink that calls it before each of its own operations is also killed, and put to
        sleep, between any two of them.
        """
        raise NotImplementedError

    def rows(self, place: Any) -> list[dict[str, Any]]:
        """The rows that a reader sees there."""
        raise NotImplementedError

    def test_what_is_staged_is_invisible(self, tmp_path: Path) -> None:
        """Readers would see results of steps that failed, or that are not committed yet."""
        world = _World(self, tmp_path)
        driver = world.driver()
        driver.stage(1, [1, 2])
        world.expect([])

    def test_a_batch_is_published_once(self, tmp_path: Path) -> None:
        """A crash after publishing repeats it: its rows would appear twice."""
        world = _World(self, tmp_path)
        driver = world.driver()
        staged = driver.stage(1, [1, 2]) + driver.stage(1, [3])
        for again in (driver, driver, world.driver()):
            again.publish(1, 0, staged)
            world.expect([1, 2, 3])
        driver.publish(2, 1, driver.stage(2, [4]))
        world.expect([1, 2, 3, 4])

    def test_two_drivers_publish_a_batch_once(self, tmp_path: Path) -> None:
        """A driver that took over publishes the batch that its predecessor is publishing."""
        world = _World(self, tmp_path)
        drivers = [world.driver(), world.driver(2)]
        staged = drivers[0].stage(1, [1, 2, 3])
        threads = [_Thread(partial(driver.publish, 1, 0, staged)) for driver in drivers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.end()
        world.driver().publish(1, 0, staged)
        world.expect([1, 2, 3])

    def test_a_sweep_takes_what_nobody_publishes(self, tmp_path: Path) -> None:
        """Outputs of failed attempts would stay for ever; or those of a running driver would be deleted."""
        world = _World(self, tmp_path)
        driver = world.driver(2)
        failed, live, under_way = driver.stage(1, [9]), driver.stage(1, [1]), driver.stage(2, [2])
        driver.sweep(live, 1)
        driver.publish(1, 0, live)
        driver.publish(2, 1, under_way)
        world.expect([1, 2])
        if not isinstance(driver.sink, BatchSink):
            _raises(StagedMissing, lambda: driver.publish(3, 2, failed))
            world.expect([1, 2])

    def test_connecting_fences_nobody(self, tmp_path: Path) -> None:
        """A second driver that connects, for instance started by mistake, would end the first."""
        world = _World(self, tmp_path)
        driver = world.driver()
        driver.publish(1, 0, driver.stage(1, [1]))
        staged = driver.stage(2, [2])
        world.driver(2)
        driver.publish(2, 1, staged)
        world.expect([1, 2])

    def test_another_job_is_refused(self, tmp_path: Path) -> None:
        """Its rows would mix with those of the first; or its sweep would delete files that the first has staged."""
        world = _World(self, tmp_path)
        driver = world.driver()
        world.skip_unless(not isinstance(driver.sink, BatchSink) or _marks(driver.sink), "it has no owner")
        driver.publish(1, 0, driver.stage(1, [1]))
        staged = driver.stage(2, [2])
        _raises(StorageError, lambda: world.driver(job="f" * 32))
        driver.publish(2, 1, staged)
        world.expect([1, 2])

    def test_what_is_retracted_is_gone(self, tmp_path: Path) -> None:
        """Results of a branch that a rollback left would stay beside their replacements."""
        world = _World(self, tmp_path)
        driver = world.driver()
        world.skip_unless("retract" in driver.sink.abilities, "it cannot retract")
        for id in (1, 2, 3):
            driver.publish(id, id - 1, driver.stage(id, [id]))
        for again in (world.driver(2), world.driver(2), world.driver(3)):
            again.go_back(2, 4)
            world.expect([1])
        again.publish(5, 4, again.stage(5, [5]))
        world.expect([1, 5])

    def test_what_a_rollback_owes_is_published_before(self, tmp_path: Path) -> None:
        """A batch that was committed but not published, and stays, would be missing, or appear twice."""
        for published in (False, True):
            world = _World(self, tmp_path / str(published))
            driver = world.driver()
            world.skip_unless("retract" in driver.sink.abilities, "it cannot retract")
            driver.publish(1, 0, driver.stage(1, [1]))
            owed = driver.batch(2, 1, driver.stage(2, [2]))
            if published:
                driver.publish(2, 1, owed.staged)
                driver.publish(3, 2, driver.stage(3, [3]))
            for epoch in (2, 3):
                world.driver(epoch).go_back(3, 4, [owed])
                world.expect([1, 2])

    def test_a_driver_that_slept_publishes_nothing_taken_back(self, tmp_path: Path) -> None:
        """A fenced driver that stalls while publishing, and wakes after a rollback, would bring the outputs back."""
        number = 0
        while _sleep_at(self, tmp_path / str(number), number):
            number += 1

    def test_killed_anywhere_and_resumed(self, tmp_path: Path) -> None:
        """A crash between any two operations would lose a batch, double it, or end the job for good."""
        count = _killed_at(self, tmp_path / "calm", None)
        for at in range(0, count, self.kills_one_in):
            _killed_at(self, tmp_path / str(at), at)

    def test_a_batch_follows_the_one_before(self, tmp_path: Path) -> None:
        """An older copy of the table would continue after a gap, and a copy of the checkpoint write a second time."""
        world = _World(self, tmp_path)
        driver = world.driver()
        world.skip_unless(_marks(driver.sink), "it keeps no mark")
        first, second = (driver.batch(number, 0, driver.stage(number, [number])) for number in (1, 2))
        driver.publish(1, 0, first.staged)
        _raises(Fenced, lambda: driver.publish(2, 0, second.staged))
        _raises(StorageError, lambda: driver.publish(9, 3, second.staged))
        world.expect([1])
        driver.publish(3, 1, [])
        driver.publish(4, 3, second.staged)
        world.expect([1, 2])

    def test_the_heir_of_a_savepoint_takes_over(self, tmp_path: Path) -> None:
        """A job started from a savepoint could not continue in the table of the old one; or both would."""
        world = _World(self, tmp_path)
        driver = world.driver()
        world.skip_unless(_marks(driver.sink), "it keeps no mark")
        driver.publish(1, 0, driver.stage(1, [1]))
        driver.publish(2, 1, driver.stage(2, [2]))
        old = driver.batch(3, 2, driver.stage(3, [9]))
        for inherited in (1, 3):
            _raises(StorageError, partial(world.driver, job="e" * 32, heir_of=driver.job, inherited=inherited))
        heir = world.driver(job="e" * 32, heir_of=driver.job, inherited=2)
        _raises(PersistentError, lambda: driver.publish(3, 2, old.staged))
        heir.publish(4, 2, heir.stage(4, [4]))
        _raises(StorageError, lambda: world.driver())
        world.expect([1, 2, 4])

    def test_it_travels_without_a_connection(self, tmp_path: Path) -> None:
        """Workers receive the sink: an open connection cannot be sent."""
        world = _World(self, tmp_path)
        driver = world.driver()
        world.skip_unless(isinstance(driver.sink, BatchSink), "workers stage in it")
        driver.publish(1, 0, driver.stage(1, [1]))
        copy = pickle.loads(pickle.dumps(self.make(world.place, _no_step)))
        moved = world.driver(sink=copy)
        moved.publish(2, 1, moved.stage(2, [2]))
        pickle.dumps(copy)
        world.expect([1, 2])


class _World:
    """A place, the checkpoint beside it, and the successive drivers of one job."""

    def __init__(self, suite: SinkSuite, folder: Path) -> None:
        (folder / "sink").mkdir(parents=True)
        self.suite = suite
        self.place = suite.place(folder / "sink")
        self.storage = MemoryStorage(f"sink-suite-{uuid.uuid4().hex}")
        self.repeats = False

    def driver(
        self, epoch: int = 1, *, step: OnOperation | None = None, sink: Sink | None = None, **claim: Any
    ) -> SinkDriver:
        """A new driver, which has claimed the sink."""
        step = step or _no_step
        driver = SinkDriver(sink or self.suite.make(self.place, step), self.storage, step, epoch, **claim)
        self.repeats = driver.sink.guarantee().level == AT_LEAST_ONCE
        driver.claim()
        return driver

    def expect(self, values: Sequence[int]) -> None:
        """AssertionError unless a reader sees exactly these rows: each once, or more often if the sink repeats rows."""
        visible = sorted(row["value"] for row in self.suite.rows(self.place))
        if self.repeats:
            visible = sorted(set(visible))
        assert visible == sorted(values), f"a reader sees {visible}, but {sorted(values)} were published"

    def skip_unless(self, holds: bool, reason: str) -> None:
        """Skip the test if the sink need not keep its rule."""
        if not holds:
            import pytest

            pytest.skip(reason)


class _Thread(threading.Thread):
    """A thread that a driver's own errors end quietly; ``end`` raises any other error."""

    def __init__(self, run: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._run_it = run
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._run_it()
        except PersistentError:
            pass
        except BaseException as error:
            self._error = error

    def end(self) -> None:
        """Wait for its end. AssertionError if it hangs."""
        self.join(_LONG_SECONDS)
        assert not self.is_alive(), f"a driver hangs for {_LONG_SECONDS:.0f} seconds"
        if self._error is not None:
            raise self._error


def _sleep_at(suite: SinkSuite, folder: Path, number: int) -> bool:
    """Put a driver to sleep at operation ``number`` of publishing, while another goes back; False if publishing has
    fewer operations."""
    world, asleep, awake = _World(suite, folder), threading.Event(), threading.Event()
    publishing, steps = False, 0

    def step(what: str) -> None:
        nonlocal steps
        steps += publishing
        if steps == number + 1 and not asleep.is_set():
            asleep.set()
            awake.wait(_LONG_SECONDS)

    first = world.driver()
    world.skip_unless("retract" in first.sink.abilities, "it cannot retract")
    first.publish(1, 0, first.stage(1, [1]))
    sleeper = world.driver(step=step)
    staged = sleeper.stage(2, [2])
    publishing = True

    def sleep() -> None:
        try:
            sleeper.publish(2, 1, staged)
        finally:
            asleep.set()

    slept, rollback = _Thread(sleep), _Thread(lambda: world.driver(2).go_back(2, 4))
    slept.start()
    asleep.wait(_LONG_SECONDS)
    rollback.start()
    # It may wait for a lock that the sleeper holds: then the sleeper wakes first.
    rollback.join(_BLOCKED_SECONDS)
    awake.set()
    slept.end()
    rollback.end()
    last = world.driver(2)
    last.publish(5, 4, last.stage(5, [5]))
    last.tidy()
    world.expect([1, 5])
    return steps > number


def _killed_at(suite: SinkSuite, folder: Path, at: int | None) -> int:
    """Kill the driver once, at operation ``at``, and let another repeat its unfinished work; returns the number of
    operations."""
    world, count, staged = _World(suite, folder), 0, {}

    def driver() -> SinkDriver:
        dead = False

        def step(what: str) -> None:
            nonlocal count, dead
            count += 1
            dead = dead or count - 1 == at
            if dead:
                raise Killed(f"at operation {at}: {what}")

        return world.driver(step=step)

    def stage(id: int) -> _Action:
        return lambda driver: staged.update({id: [*driver.stage(id, [id]), *driver.stage(id, [10 * id])]})

    def publish(id: int, before: int) -> _Action:
        return lambda driver: driver.publish(id, before, staged[id])

    def sweep(driver: SinkDriver) -> None:
        driver.sweep([], 2)

    actions: list[_Action] = [stage(1), publish(1, 0), stage(2), publish(2, 1), sweep]
    expected = [1, 10, 2, 20, 5, 50]
    if "retract" in suite.make(world.place, _no_step).abilities:
        actions += [lambda driver: driver.go_back(2, 4), stage(5), publish(5, 4)]
        expected = [1, 10, 5, 50]
    else:
        actions += [stage(5), publish(5, 2)]
    alive: SinkDriver | None = None
    while actions:
        try:
            alive = alive or driver()
            actions[0](alive)
            del actions[0]
        except Killed:
            alive = None
    world.expect(expected)
    return count


def _raises(kind: type[Exception], act: Callable[[], object]) -> None:
    try:
        act()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__} was raised")


def _marks(sink: Sink) -> bool:
    return isinstance(sink, BatchSink) and sink.guarantee().level != AT_LEAST_ONCE


def _no_step(what: str) -> None:
    """Do nothing."""
