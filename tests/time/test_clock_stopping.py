"""Who is asked to stop waits for no server, and who only waits is not disturbed."""

from __future__ import annotations

import pytest

from persistent.errors import Stopped
from persistent.time import clock
from persistent.time.clock import StopRequest, heard, pause, require_waiting


class Time:
    """A clock that only sleeping moves. ``at``: what happens then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.at: dict[int, StopRequest] = {}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for second in [second for second in self.at if second <= self.now]:
            self.at.pop(second).make()

    def request(self, at: int | None = None) -> StopRequest:
        made = StopRequest(self.sleep, lambda: self.now)
        self.at |= {} if at is None else {at: made}
        return made


def test_a_request_ends_a_wait() -> None:
    """A service that has nothing to do would be heard only at its next look."""
    time = Time()
    time.request().wait(60)
    assert time.now == pytest.approx(60)
    request = time.request(at=70)
    request.wait(60)
    assert request.is_made and time.now == pytest.approx(70, abs=0.2)


def test_a_wait_ends_although_a_manual_clock_stands_still() -> None:
    """A test that follows a source with a clock of its own would never look again."""
    slept: list[float] = []
    StopRequest(slept.append, lambda: 7.0).wait(0.25)
    assert slept == pytest.approx([0.1, 0.1, 0.05])


def test_pauses_are_counted_by_the_run_that_waits() -> None:
    """Nobody would see that a run spends its time on asking again."""
    time = Time()
    request, other = time.request(), time.request()
    pause(1, "x", time.sleep)
    with heard(request, 5):
        pause(1, "x", time.sleep)
        pause(0, "x", time.sleep)
    assert (request.pauses, other.pauses) == (2, 0)


def test_a_pause_ends_soon_after_the_request() -> None:
    """A server that is away for minutes would hold a run that is asked to stop for as long."""
    time = Time()
    with heard(time.request(at=7), 5), pytest.raises(Stopped, match="server was away: cannot read x: refused"):
        pause(600, "cannot read x: refused", time.sleep)
    assert time.now == pytest.approx(12, abs=0.2)


def test_the_first_request_counts() -> None:
    """A supervisor that repeats its signal would put the end off, each time."""
    time = Time()
    request = time.request(at=1)
    request.wait(3)
    request.make()
    assert request.is_older(time.now - 1.2) and not request.is_older(time.now)


def test_within_the_grace_a_step_may_end() -> None:
    """A store that is busy for a second would cost a step that is as good as done."""
    time = Time()
    request = time.request()
    request.make()
    with heard(request, 5):
        pause(3, "it is busy", time.sleep)
        require_waiting("it is busy")
        assert not clock.is_over()
        time.now = 5
        assert clock.is_over()
    assert not clock.is_over(), "who runs nothing is asked nothing"


def test_without_a_run_a_pause_is_a_pause() -> None:
    """A command on a checkpoint waits for its store as it always did."""
    pauses: list[float] = []
    pause(7, "it is busy", pauses.append)
    require_waiting("it is busy")
    assert pauses == [7]
