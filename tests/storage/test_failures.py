"""A failure is told with place, cause and remedy, and without a secret."""

from __future__ import annotations

import errno
import os

import pytest

from persistent.errors import StorageError
from persistent.storage.failures import FaultKind, codes_of, disk_failures, failure_of, without_secrets


def s3_error(code: str, status: int) -> Exception:
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Put")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.EPERM, "Operation not permitted"), "Operation not permitted. Let this user write there, on a"),
        (OSError(errno.ENODEV, "No such device"), "No such device. Check the cause, then run again"),
        (OSError("no number"), "OSError: no number. Check the cause"),
        (ValueError("bad"), "ValueError: bad. Check the cause"),
    ],
)
def test_a_failure_of_a_disk_is_told(error: Exception, told: str) -> None:
    """The remedy of another illness would be given, or the failure swallowed: a file lost without a word."""
    with pytest.raises(StorageError) as caught, disk_failures("write", "/data/run"):
        raise error
    assert str(caught.value).startswith(f"cannot write /data/run: {told}")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", [FileExistsError("there"), StorageError("told before")])
def test_an_answer_of_a_disk_is_passed_on(error: Exception) -> None:
    """Whoever asks whether a file is there would get a failure; one that is told already would be told twice."""
    with pytest.raises(type(error)) as caught, disk_failures("write", "/data/run", FileExistsError):
        raise error
    assert caught.value is error


def test_a_code_that_says_more_than_its_status_goes_first() -> None:
    """A user whose token has expired would be told to ask for rights."""
    failure = failure_of(s3_error("ExpiredToken", 403))
    assert failure.cause.startswith("ExpiredToken HTTP403: ")
    assert failure.remedy.startswith("Give valid credentials")
    assert list(codes_of(s3_error("InternalError", 403)))[:2] == ["HTTP403", "InternalError"]
    assert failure_of(s3_error("InternalError", 500)).cause.startswith("InternalError HTTP500: ")


def test_an_answer_without_a_code_is_told_by_its_class() -> None:
    """A client that answers half would end the job by an error in our own telling of it."""
    error = OSError("odd")
    error.response = {}  # type: ignore[attr-defined]
    assert failure_of(error).cause == "OSError: odd"
    error.response = "text"  # type: ignore[attr-defined]
    assert failure_of(error).cause == "OSError: odd"


def test_causes_that_go_round_are_told_once() -> None:
    """The telling of the failure would never end."""
    first, second = OSError("first"), OSError("second")
    first.__cause__, second.__cause__ = second, first
    assert failure_of(first).cause == "OSError: first"


def test_only_secrets_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret would stay in; or every message would lose the words that a harmless variable holds."""
    for name in list(os.environ):
        monkeypatch.delenv(name)
    for name, value in (("API_KEY", "abcdef"), ("DB_PASSWORD", "short"), ("EDITOR", "editorial"), ("token", "lower-1")):
        monkeypatch.setenv(name, value)
    assert without_secrets("abcdef short editorial lower-1") == "... short editorial ..."


def test_a_client_that_memory_does_not_suffice_for_is_not_asked_again() -> None:
    """An import would be tried for a minute, and its remedy would be another package."""
    short = failure_of(ImportError("a.so: failed to map segment from shared object"))
    assert short.fault is FaultKind.PERMANENT and "memory" in short.remedy
    assert failure_of(MemoryError()).remedy != short.remedy
