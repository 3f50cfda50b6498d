"""What a store does not answer is asked again, for a bounded time, and told in the end."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import tenacity

from persistent.errors import Stopped, StorageError
from persistent.storage.failures import FAULTS, FaultKind, Patience, Retrying, StoreFailure, failure_of, without_secrets
from persistent.time.clock import StopRequest, heard


class Time:
    """A clock that only sleeping moves."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses.append(seconds)

    def patience(self, **bounds: Any) -> Patience:
        return Patience(sleep=self.sleep, clock=lambda: self.now, **bounds)


def failing(*errors: Exception) -> Callable[[], str]:
    """Raises the errors one after the other, then returns."""
    waiting = list(errors)

    def call() -> str:
        if waiting:
            raise waiting.pop(0)
        return "done"

    return call


def retrying(time: Time, *answers: type[Exception], **bounds: Any) -> Retrying:
    return Retrying("read", "s3://bucket/x", time.patience(**bounds), answers)


def test_a_passing_trouble_is_not_seen() -> None:
    """A busy store would stop a job that has only to wait."""
    time = Time()
    assert retrying(time)(failing(TimeoutError(), ConnectionResetError())) == "done"
    assert len(time.pauses) == 2


def test_a_lasting_trouble_is_told_with_tries_and_seconds(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody could tell a store that is down from a job that hangs."""
    time = Time()
    with (
        caplog.at_level(logging.WARNING, "persistent"),
        pytest.raises(
            StorageError, match=r"cannot read s3://bucket/x: TimeoutError: no answer \(12 tries over \d+ sec"
        ),
    ):
        retrying(time)(failing(*[TimeoutError("no answer")] * 100))
    assert len(time.pauses) == 11 == len(caplog.records)
    assert 10 < time.now < 60
    assert all(later <= 10 for later in time.pauses)


def test_time_is_bounded_whatever_the_tries() -> None:
    """A store that takes its time to fail would hold a step up for ever."""
    time = Time()

    def slow() -> None:
        time.now += 25
        raise TimeoutError("slow")

    with pytest.raises(StorageError, match=r"3 tries over 7[5-9] seconds"):
        retrying(time)(slow)


def test_pauses_grow_and_are_drawn() -> None:
    """Workers that were refused together would come back together."""
    first, second = Time(), Time()
    for time in (first, second):
        retrying(time)(failing(*[TimeoutError()] * 6))
        assert time.pauses[-1] > time.pauses[0]
    assert first.pauses != second.pauses


@pytest.mark.parametrize("error", [PermissionError("no"), ImportError("s3fs"), ValueError("bad")])
def test_what_will_not_change_is_told_at_once(error: Exception) -> None:
    """A wrong credential would be reported a minute late, at every try."""
    time = Time()
    with pytest.raises(StorageError, match=type(error).__name__) as caught:
        retrying(time)(failing(error))
    assert not time.pauses
    assert "tries" not in str(caught.value)


def test_an_answer_is_passed_on() -> None:
    """ "There is none" would be asked for a minute, then called a failure."""
    time = Time()
    with pytest.raises(FileNotFoundError):
        retrying(time, FileNotFoundError)(failing(FileNotFoundError()))
    assert not time.pauses


def test_an_interrupt_is_not_asked_again() -> None:
    """Ctrl-C would take a minute."""
    time = Time()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        retrying(time)(interrupted)
    assert not time.pauses


def drawn(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    """Whatever is drawn lies at this share of the way from the lowest to the highest."""
    monkeypatch.setattr(random, "uniform", lambda low, high: low + share * (high - low))
    monkeypatch.setattr(random, "random", lambda: share)


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.0, [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]), (1.0, [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10])],
)
def test_a_pause_doubles_up_to_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, share: float, expected: list[float]
) -> None:
    """A store that is down would be flooded, or come back long before anybody asks it."""
    drawn(monkeypatch, share)
    time = Time()
    retrying(time)(failing(*[TimeoutError()] * 8))
    assert time.pauses == pytest.approx(expected)


def test_a_try_is_the_last_of_twelve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the bound that users are told another one would hold."""
    drawn(monkeypatch, 0.0)
    time = Time()
    with pytest.raises(StorageError, match="12 tries over 31 seconds"):
        retrying(time)(failing(*[TimeoutError("no answer")] * 100))
    assert retrying(time, tries_max=3)(failing(TimeoutError(), TimeoutError())) == "done"
    with pytest.raises(StorageError, match="2 tries"):
        retrying(time, tries_max=2)(failing(TimeoutError(), TimeoutError()))


@pytest.mark.parametrize(("seconds", "tries"), [(20.0, 4), (20.2, 3), (60.0, 2), (60.5, 1)])
def test_no_try_begins_after_a_minute(seconds: float, tries: int) -> None:
    """A step would be held up for longer than users are told; or give up on a store that has time left."""
    time = Time(now=1000.0)

    def slow() -> None:
        time.now += seconds
        raise TimeoutError("slow")

    how_often = f"{tries} {'try' if tries == 1 else 'tries'} over {tries * seconds:.0f} seconds"
    with pytest.raises(StorageError, match=how_often):
        retrying(time, pause_first_seconds=0.0, pause_max_seconds=0.0)(slow)


def test_a_pause_that_would_end_too_late_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last pause would be waited for nothing."""
    drawn(monkeypatch, 0.0)
    time = Time()
    with pytest.raises(StorageError, match="3 tries over 50 seconds"):
        retrying(time, pause_first_seconds=50.0, pause_max_seconds=50.0)(failing(*[TimeoutError()] * 100))
    assert time.pauses == [25.0, 25.0]


@pytest.mark.parametrize(
    ("tries", "seconds", "expected"),
    [
        (1, 0.9, ""),
        (1, 1.0, " (1 try over 1 seconds)"),
        (2, 0.0, " (2 tries over 0 seconds)"),
        (3, 7.0, " (3 tries over 7 seconds)"),
    ],
)
def test_tries_are_told_where_there_was_a_wait(tries: int, seconds: float, expected: str) -> None:
    """Nobody could tell a store that was asked once from one that was asked for a minute."""
    error = retrying(Time()).error(StoreFailure(FaultKind.BUSY, "SlowDown", "Wait."), tries, seconds)
    assert str(error) == f"cannot read s3://bucket/x: SlowDown{expected}. Wait."


def test_a_pause_before_asking_back_is_short_and_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers that were left without an answer together would come back together; or wait for seconds."""
    time = Time()
    for share in (0.0, 1.0):
        drawn(monkeypatch, share)
        time.patience().pause()
    assert time.pauses == [0.0, 0.2]


def test_who_is_asked_to_stop_tries_no_longer() -> None:
    """A store that is away would hold a run that is asked to stop for a minute, and a database for as long as it may
    be away."""
    request = StopRequest()
    request.make()
    time, tries = Time(), []

    def call() -> None:
        tries.append(1)
        raise TimeoutError("no answer")

    with heard(request, 0), pytest.raises(Stopped, match=r"cannot read s3://bucket/x: TimeoutError: no answer"):
        retrying(time)(call)
    assert len(tries) == 1 and time.pauses == []


def test_without_a_clock_of_the_test_pauses_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy store would be asked a dozen times in a millisecond."""
    pauses: list[float] = []
    monkeypatch.setattr(tenacity.nap, "sleep", pauses.append)
    drawn(monkeypatch, 1.0)
    Patience(pause_first_seconds=0.3).pause()
    Retrying("read", "x", Patience(pause_first_seconds=0.4))(failing(TimeoutError()))
    assert pauses == [0.3, 0.4]


def s3_error(code: str, status: int) -> Exception:
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Put")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (s3_error("SlowDown", 503), FaultKind.BUSY),
        (s3_error("ConditionalRequestConflict", 409), FaultKind.BUSY),
        (s3_error("Unheard", 409), FaultKind.BUSY),
        (s3_error("InternalError", 500), FaultKind.UNANSWERED),
        (s3_error("RequestTimeout", 400), FaultKind.UNANSWERED),
        (s3_error("InternalError", 403), FaultKind.PERMANENT),
        (s3_error("NoSuchBucket", 404), FaultKind.PERMANENT),
        (s3_error("ExpiredToken", 400), FaultKind.PERMANENT),
        (RuntimeError('RPCError("org.apache.hadoop.ipc.StandbyException", "standby")'), FaultKind.BUSY),
        (RuntimeError('RPCError("org.apache.hadoop.security.AccessControlException", "no")'), FaultKind.PERMANENT),
        (OSError("Connection refused (os error 111)"), FaultKind.BUSY),
        (ConnectionResetError(), FaultKind.UNANSWERED),
        (RuntimeError("never heard of"), FaultKind.UNANSWERED),
    ],
)
def test_each_failure_has_its_fault(error: Exception, fault: FaultKind) -> None:
    """A put that may have been done would be taken for one that was not, or a wrong key for a busy store."""
    assert failure_of(error).fault is fault
    assert failure_of(error).remedy.endswith(".")


def test_a_cause_behind_a_cause_is_found() -> None:
    """s3fs wraps what the service said into an OSError that says nothing."""
    error = OSError("busy")
    error.__cause__ = s3_error("SlowDown", 503)
    assert failure_of(error).fault is FaultKind.BUSY
    assert failure_of(error).cause == "SlowDown HTTP503: busy"


def test_a_code_stands_once_in_the_table() -> None:
    """The later of two would silently win."""
    from persistent.storage.failures import _TABLE

    codes = [code for _, _, line in _TABLE for code in line.split()]
    assert len(codes) == len(set(codes)) == len(FAULTS)


def test_a_cause_holds_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs and mails would carry the key to the data."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session/token+1")
    text = "GET http://user:pass@host/x?X-Amz-Signature=abc failed with session/token+1\n\tat java.Frame(1)"
    assert without_secrets(text.partition("\n")[0]) == "GET http://...@host/x?... failed with ..."
    assert failure_of(OSError(text)).cause == "OSError: GET http://...@host/x?... failed with ..."
    assert without_secrets("amqp://me:p@ss@host/x, amqp://host/y") == "amqp://...@host/x, amqp://host/y"
