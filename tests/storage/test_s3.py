"""What S3 is asked, and what becomes of its failures, over a real server that counts and fails."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest

from persistent.checkpoint.log import Log
from persistent.errors import StorageError
from persistent.storage import FsspecStorage, Put, s3
from persistent.storage.failures import Patience
from tests.checkpoint.samples import manifest
from tests.servers.s3 import Fault, S3Server

QUICK = Patience(tries_max=4, seconds_max=30, pause_first_seconds=0.01, pause_max_seconds=0.02)


@pytest.fixture
def storage(s3_bucket: str, s3_server: S3Server) -> FsspecStorage:
    """An empty folder of a bucket, connected."""
    storage = FsspecStorage(f"{s3_bucket}/folder", patience=QUICK)
    storage.list("")
    s3_server.requests()
    return storage


def test_a_verb_is_one_request(storage: FsspecStorage, s3_server: S3Server) -> None:
    """Each request costs tens of milliseconds and money: a step would take twice as long for nothing."""
    assert storage.put_if_absent("m/1", b"data") is Put.WON
    assert storage.put_if_absent("m/1", b"data") is Put.LOST
    storage.write("d/run", b"data" * 1000)
    storage.write("d/empty", b"")
    assert storage.read("m/1").to_pybytes() == b"data"
    assert storage.list("m") == ["1"]
    assert storage.list("none") == []
    with pytest.raises(FileNotFoundError):
        storage.read("none")
    storage.delete("d/run")
    verbs = [line.split()[0] for line in s3_server.requests()]
    assert verbs == ["PUT", "PUT", "PUT", "PUT", "GET", "GET", "GET", "GET", "DELETE"]
    storage.rename("m/1", "m/2")
    assert [line.split()[0] for line in s3_server.requests()] == ["GET", "PUT", "DELETE"]


def test_a_list_is_one_request_for_each_thousand(storage: FsspecStorage, s3_server: S3Server) -> None:
    """The ids after the first page would be missing: an old checkpoint would be taken for the newest."""
    for number in range(1003):
        storage.write(f"m/{number:04d}", b"")
    s3_server.requests()
    assert storage.list("m") == [f"{number:04d}" for number in range(1003)]
    assert len(s3_server.requests()) == 2


def test_a_thousand_are_deleted_with_one_request(storage: FsspecStorage, s3_server: S3Server) -> None:
    """Garbage collection would cost ten thousand requests, or stop at the one that S3 refuses for its length."""
    names = [f"d/{number:04d}" for number in range(1003)]
    for name in (names[0], names[999], names[1000], names[-1], "d/other"):
        storage.write(name, b"")
    s3_server.requests()
    storage.delete_all(names)
    assert [line.split()[0] for line in s3_server.requests()] == ["POST", "POST"]
    assert storage.list("d") == ["other"]
    s3_server.fail(Fault(method="POST", status=503))
    storage.delete_all(["d/other", "d/none"])
    assert storage.list("d") == []


def test_a_large_run_goes_in_parts(
    storage: FsspecStorage, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 takes no put above 5 GB; a part that fails would send all of it again."""
    monkeypatch.setattr(s3, "_PUT_BYTES_MAX", 5 << 20)
    monkeypatch.setattr(s3, "_PART_BYTES", 5 << 20)
    data = pa.py_buffer(os.urandom((11 << 20) + 7))
    s3_server.fail(Fault(method="PUT", path="large", status=503, after=1))
    storage.write("large", data)
    assert [line.split()[0] for line in s3_server.requests()] == ["POST", "PUT", "PUT", "PUT", "PUT", "POST"]
    assert storage.read("large").equals(data)
    storage.write("small", data.slice(0, 5 << 20))
    assert [line.split()[0] for line in s3_server.requests()] == ["GET", "PUT"]


def test_a_large_run_that_fails_leaves_no_parts(
    storage: FsspecStorage, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of uploads that were never finished are paid for, and no list shows them."""
    monkeypatch.setattr(s3, "_PUT_BYTES_MAX", 5 << 20)
    s3_server.fail(Fault(method="PUT", path="large", status=403, times=100))
    with pytest.raises(StorageError, match="HTTP403"):
        storage.write("large", b"x" * (6 << 20))
    assert s3_server.requests()[-1].startswith("DELETE")
    assert storage.list("") == []


@pytest.mark.parametrize("status", [503, 409])
def test_a_busy_store_is_asked_again(storage: FsspecStorage, s3_server: S3Server, status: int) -> None:
    """An overloaded bucket, or two puts at once, would stop the job."""
    s3_server.fail(Fault(status=status, times=2))
    assert storage.put_if_absent("a", b"a") is Put.WON
    for method, verb in (
        ("PUT", lambda: storage.write("b", b"b")),
        ("GET", lambda: storage.read("b")),
        ("GET", lambda: storage.list("")),
        ("DELETE", lambda: storage.delete("b")),
    ):
        s3_server.fail(Fault(method=method, status=status, times=2))
        verb()
    assert storage.list("") == ["a"]


@pytest.mark.parametrize("performed", [True, False], ids=["done", "not done"])
@pytest.mark.parametrize("status", [500, 502, 503, 504, 409, 0])
def test_a_lost_answer_never_makes_a_winner_lose(
    storage: FsspecStorage, s3_server: S3Server, status: int, performed: bool
) -> None:
    """A driver whose commit was taken, and who believes it was not, stops; or commits twice."""
    s3_server.fail(Fault(status=status, performed=performed))
    log = Log(storage)
    entry = log.put(manifest(1))
    assert log.read(1).sha256 == entry.sha256


@pytest.mark.parametrize("status", [500, 504])
def test_an_unanswered_put_is_not_repeated_here(storage: FsspecStorage, s3_server: S3Server, status: int) -> None:
    """A second put would be refused because of the first, and look lost: the caller reads back instead."""
    s3_server.fail(Fault(status=status, performed=True))
    assert storage.put_if_absent("a", b"a") is Put.UNKNOWN
    assert len(s3_server.requests()) == 1
    assert storage.read("a").to_pybytes() == b"a"


def test_a_rename_cut_off_is_finished(storage: FsspecStorage, s3_server: S3Server) -> None:
    """An output that is published and still staged would stop the next run."""
    storage.write("_staged/a", b"a")
    s3_server.fail(Fault(method="DELETE", status=403, times=100))
    with pytest.raises(StorageError, match="HTTP403"):
        storage.rename("_staged/a", "a")
    s3_server.fail()
    storage.rename("_staged/a", "a")
    assert storage.list("_staged") == []
    assert storage.list("") == ["a"]


def test_a_store_that_stays_away_is_told(storage: FsspecStorage, s3_server: S3Server) -> None:
    """A job that asks for ever looks like one that works."""
    s3_server.fail(Fault(method="GET", status=503, times=1000))
    with pytest.raises(StorageError, match=r"cannot read s3://.*/folder/a: SlowDown HTTP503.*4 tries over .*run again"):
        storage.read("a")
    assert len(s3_server.requests()) == 4


def test_a_wrong_bucket_is_no_empty_folder(s3_server: S3Server) -> None:
    """A mistyped URL would look like a job that has not begun, and begin it again."""
    s3_server.fail()
    storage = FsspecStorage("s3://bucket-of-nobody/x", patience=QUICK)
    verbs: tuple[Any, ...] = (
        lambda: storage.list(""),
        lambda: storage.read("a"),
        lambda: storage.put_if_absent("a", b""),
        lambda: storage.write("a", b""),
        lambda: storage.delete("a"),
        lambda: storage.delete_all(["a", "b"]),
    )
    s3_server.requests()
    for verb in verbs:
        with pytest.raises(StorageError, match=r"NoSuchBucket.*Correct the bucket"):
            verb()
    assert len(s3_server.requests()) == len(verbs)


def test_no_permission_is_told_at_once(storage: FsspecStorage, s3_server: S3Server) -> None:
    """A missing right would be tried for a minute and then called a network failure."""
    s3_server.fail(Fault(status=403, times=100), Fault(method="GET", status=403, times=100))
    for verb in (lambda: storage.write("a", b""), lambda: storage.read("a"), lambda: storage.put_if_absent("a", b"")):
        s3_server.requests()
        with pytest.raises(StorageError, match=r"HTTP403.*rights"):
            verb()
        assert len(s3_server.requests()) == 1


def test_a_refused_connection_is_told(monkeypatch: pytest.MonkeyPatch, s3_server: S3Server) -> None:
    """The likeliest wrong setting: the endpoint."""
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", "http://127.0.0.1:9")
    storage = FsspecStorage("s3://bucket/x", patience=QUICK)
    with pytest.raises(StorageError, match=r"EndpointConnectionError.*4 tries.*Check the endpoint"):
        storage.list("")
