"""What is asked of S3, call by call, over a client that notes the calls and answers what it is told to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from mmap import mmap
from typing import Any

import fsspec.asyn
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError

from persistent.errors import UnsupportedStore
from persistent.storage import s3
from persistent.storage.failures import FaultKind, failure_of
from persistent.storage.s3 import S3Requests, _Body


class Answered:
    """The body of an answer, as the client has it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self) -> bytes:
        return self._data


class Client:
    """Answers each method by the next of its ``answers``, the last one again and again; raises what is an error."""

    loop = fsspec.asyn.get_loop()

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, list[Any]] = {"create_multipart_upload": [{"UploadId": "upload"}]}
        self.is_read = True

    def call_s3(self, method: str, **arguments: Any) -> Any:
        if self.is_read and "Body" in arguments:
            arguments["Body"] = arguments["Body"].read()
        self.calls.append((method, arguments))
        if method == "upload_part" and method not in self.answers:
            return {"ETag": f"tag {arguments['PartNumber']}"}
        waiting = self.answers.get(method) or [{}]
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def taken(self) -> list[tuple[str, dict[str, Any]]]:
        calls, self.calls = self.calls, []
        return calls

    def methods(self) -> list[str]:
        return [method for method, _ in self.taken()]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """The client of this process."""
    client = Client()
    monkeypatch.setattr(s3, "_client", lambda: client)
    return client


REQUESTS = S3Requests("s3://bucket/a/b/")


def once(call: Callable[[], Any]) -> Any:
    return call()


def refused(code: str, status: int, kind: type[OSError] = OSError) -> OSError:
    """What the client raises: an error of Python, whose cause is what the service said."""
    error = kind(code)
    error.__cause__ = ClientError(
        {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": {"HTTPStatusCode": status}}, "Call"
    )
    return error


def no_bucket() -> OSError:
    return refused("NoSuchBucket", 404, FileNotFoundError)


def no_key() -> OSError:
    return refused("NoSuchKey", 404, FileNotFoundError)


def test_names_are_keys_below_the_folder(client: Client) -> None:
    """Another job of the bucket would find our files, or we its."""
    client.answers["get_object"] = [{"Body": Answered(b"data")}]
    assert REQUESTS.read("m/1").to_pybytes() == b"data"
    REQUESTS.create("m/1", b"data")
    REQUESTS.write("d/run", b"run", once)
    REQUESTS.delete("m/1")
    S3Requests("s3://bucket").delete("m/1")
    assert client.taken() == [
        ("get_object", {"Bucket": "bucket", "Key": "a/b/m/1"}),
        ("put_object", {"Bucket": "bucket", "Key": "a/b/m/1", "Body": b"data", "IfNoneMatch": "*"}),
        ("put_object", {"Bucket": "bucket", "Key": "a/b/d/run", "Body": b"run"}),
        ("delete_object", {"Bucket": "bucket", "Key": "a/b/m/1"}),
        ("delete_object", {"Bucket": "bucket", "Key": "m/1"}),
    ]


def test_a_file_is_created_and_not_renamed() -> None:
    """S3 has no rename: a checkpoint would never be committed."""
    assert REQUESTS.renames is False
    with pytest.raises(NotImplementedError):
        REQUESTS.rename("a", "b")


@pytest.mark.parametrize("url", ["s3:///folder", "s3://hidden@bucket/folder"])
def test_a_url_without_a_bucket_is_refused(url: str) -> None:
    """The first request would fail with words that name no cause; or a user would stand in every log."""
    with pytest.raises(UnsupportedStore, match=r"s3:///folder: name a bucket") as caught:
        S3Requests(url)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("code", ["PreconditionFailed", "Odd"])
def test_a_create_that_is_refused_by_its_condition_has_lost(client: Client, code: str) -> None:
    """A driver that has lost would call it a failure, or one that failed would believe to have lost."""
    client.answers["put_object"] = [refused(code, 412)]
    with pytest.raises(FileExistsError):
        REQUESTS.create("m/1", b"")
    with pytest.raises(OSError, match=code) as caught:
        REQUESTS.write("m/1", b"", once)
    assert not isinstance(caught.value, FileExistsError)
    client.answers["put_object"] = [error := refused("AccessDenied", 403)]
    with pytest.raises(OSError, match="AccessDenied") as caught:
        REQUESTS.create("m/1", b"")
    assert caught.value is error


def test_a_missing_bucket_is_no_missing_file(client: Client) -> None:
    """A mistyped URL would look like a job that has not begun."""
    verbs: tuple[tuple[str, Callable[[], object]], ...] = (
        ("get_object", lambda: REQUESTS.read("a")),
        ("put_object", lambda: REQUESTS.create("a", b"")),
        ("put_object", lambda: REQUESTS.write("a", b"", once)),
        ("list_objects_v2", lambda: REQUESTS.list("")),
        ("delete_object", lambda: REQUESTS.delete("a")),
        ("delete_objects", lambda: REQUESTS.delete_all(["a", "b"])),
    )
    for method, verb in verbs:
        client.answers[method] = [no_bucket()]
        with pytest.raises(OSError, match="NoSuchBucket") as caught:
            verb()
        assert type(caught.value) is OSError
        client.answers[method] = [no_key()]
        with pytest.raises(FileNotFoundError, match="NoSuchKey"):
            verb()


def test_a_list_goes_on_until_the_last_page(client: Client) -> None:
    """The ids after the first page would be missing: an old checkpoint would be taken for the newest."""
    client.answers["list_objects_v2"] = [
        {"Contents": [{"Key": "a/b/m/"}, {"Key": "a/b/m/1"}], "IsTruncated": True, "NextContinuationToken": "next"},
        {"IsTruncated": True, "NextContinuationToken": "last"},
        {"Contents": [{"Key": "a/b/m/2"}], "IsTruncated": False},
    ]
    assert REQUESTS.list("m") == ["1", "2"]
    same = {"Bucket": "bucket", "Prefix": "a/b/m/", "Delimiter": "/"}
    assert [arguments for _, arguments in client.taken()] == [
        same,
        {**same, "ContinuationToken": "next"},
        {**same, "ContinuationToken": "last"},
    ]
    client.answers["list_objects_v2"] = [{"Contents": [{"Key": "a/b/FORMAT"}]}]
    assert REQUESTS.list("") == ["FORMAT"]
    assert client.taken()[0][1]["Prefix"] == "a/b/"


def test_a_put_holds_256_megabytes_and_a_part_64(client: Client) -> None:
    """A store takes no put above 5 GB; a part that fails would send all of it again."""
    client.is_read = False
    with mmap(-1, 256 << 20) as most, memoryview(most) as view:
        REQUESTS.write("d/run", view, once)
        assert client.methods() == ["put_object"]
        client.calls.clear()
    sizes = []
    with mmap(-1, (256 << 20) + 1) as more, memoryview(more) as view:
        REQUESTS.write("d/run", view, once)
        for method, arguments in client.taken():
            if method == "upload_part":
                sizes.append(arguments["Body"].seek(0, os.SEEK_END))
                arguments["Body"]._view.release()
    assert sizes == [64 << 20] * 4 + [1]


def test_parts_are_put_together_in_their_order(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run would be torn, and found corrupt when it is read."""
    monkeypatch.setattr(s3, "_PUT_BYTES_MAX", 4)
    monkeypatch.setattr(s3, "_PART_BYTES", 4)
    tries = []

    def noted(call: Callable[[], Any]) -> Any:
        tries.append(call)
        return call()

    REQUESTS.write("d/run", pa.py_buffer(b"0123456789"), noted)
    upload = {"Bucket": "bucket", "Key": "a/b/d/run", "UploadId": "upload"}
    parts = [{"PartNumber": number, "ETag": f"tag {number}"} for number in (1, 2, 3)]
    assert client.taken() == [
        ("create_multipart_upload", {"Bucket": "bucket", "Key": "a/b/d/run"}),
        *(
            ("upload_part", {**upload, "PartNumber": number, "Body": body})
            for number, body in ((1, b"0123"), (2, b"4567"), (3, b"89"))
        ),
        ("complete_multipart_upload", {**upload, "MultipartUpload": {"Parts": parts}}),
    ]
    assert len(tries) == 5, "each of the requests is to be tried again by itself"


def test_there_are_ten_thousand_parts_at_most(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """S3 refuses more, after hours of sending."""
    monkeypatch.setattr(s3, "_PUT_BYTES_MAX", 1)
    monkeypatch.setattr(s3, "_PART_BYTES", 1)
    client.is_read = False
    for size, count in ((10_000, 10_000), (20_001, 6_667)):
        REQUESTS.write("d/run", bytes(size), once)
        assert client.methods().count("upload_part") == count


@pytest.mark.parametrize("ailing", ["upload_part", "complete_multipart_upload"])
def test_an_upload_that_fails_is_aborted(client: Client, monkeypatch: pytest.MonkeyPatch, ailing: str) -> None:
    """Parts of uploads that were never finished are paid for, and no list shows them."""
    monkeypatch.setattr(s3, "_PUT_BYTES_MAX", 1)
    client.answers[ailing] = [refused("AccessDenied", 403)]
    for answers in ([{}], [refused("InternalError", 500)]):
        client.answers["abort_multipart_upload"] = answers
        with pytest.raises(OSError, match="AccessDenied"):
            REQUESTS.write("d/run", b"run", once)
        assert client.taken()[-1] == (
            "abort_multipart_upload",
            {"Bucket": "bucket", "Key": "a/b/d/run", "UploadId": "upload"},
        )


def test_an_upload_that_is_gone_was_completed_if_the_file_is_whole(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer that was lost would fail the step; or a file that is not there would count as written."""
    monkeypatch.setattr(s3, "_PUT_BYTES_MAX", 1)
    client.answers["complete_multipart_upload"] = [refused("NoSuchUpload", 404, FileNotFoundError)]
    client.answers["head_object"] = [{"ContentLength": 3}]
    REQUESTS.write("d/run", b"run", once)
    assert client.taken()[-1] == ("head_object", {"Bucket": "bucket", "Key": "a/b/d/run"})
    for answer in ({"ContentLength": 2}, no_key()):
        client.answers["head_object"] = [answer]
        with pytest.raises(FileNotFoundError):
            REQUESTS.write("d/run", b"run", once)


def test_a_thousand_are_deleted_at_once(client: Client) -> None:
    """S3 refuses a request of more than a thousand: the garbage would stay."""
    names = [f"d/{number}" for number in range(2001)]
    REQUESTS.delete_all(names)
    calls = client.taken()
    assert [method for method, _ in calls] == ["delete_objects"] * 3
    deleted = [arguments["Delete"]["Objects"] for _, arguments in calls]
    assert [len(keys) for keys in deleted] == [1000, 1000, 1]
    assert [key["Key"] for keys in deleted for key in keys] == [f"a/b/{name}" for name in names]
    assert all(arguments["Bucket"] == "bucket" for _, arguments in calls)
    assert all(arguments["Delete"]["Quiet"] is True for _, arguments in calls), "else each name comes back"


def test_a_delete_that_is_refused_in_the_answer_is_told(client: Client) -> None:
    """S3 says 200 and names what it has not deleted: files that must go would stay, without a word."""
    entry = {"Key": "a/b/d/2", "Code": "AccessDenied", "Message": "Access Denied"}
    client.answers["delete_objects"] = [{"Errors": [entry]}]
    with pytest.raises(OSError, match="AccessDenied: Access Denied") as caught:
        REQUESTS.delete_all(["d/1", "d/2"])
    failure = failure_of(caught.value)
    assert failure.fault is FaultKind.PERMANENT and "rights" in failure.remedy, "another try would not do better"
    client.answers["delete_objects"] = [{"Errors": []}]
    REQUESTS.delete_all(["d/1", "d/2"])


def test_a_body_is_read_as_a_file() -> None:
    """The client reads it to sign, goes back, and reads it to send: a part left out would be a torn file."""
    body = _Body(pa.py_buffer(b"0123456789"))
    assert body.readable() is True and body.seekable() is True
    assert (body.tell(), body.read(0), body.read(4), body.tell()) == (0, b"", b"0123", 4)
    assert (body.read(), body.tell(), body.read(), body.read(3)) == (b"456789", 10, b"", b"")
    assert (body.seek(0), body.read(None)) == (0, b"0123456789")
    assert (body.seek(-3, os.SEEK_END), body.tell(), body.read(-1)) == (7, 7, b"789")
    assert (body.seek(1, os.SEEK_SET), body.seek(2, os.SEEK_CUR), body.read(2)) == (1, 3, b"34")
    assert body.read(100) == b"56789"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The settings of a user, who is nobody."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "FSSPEC_"))]:
        monkeypatch.delenv(name)
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "nobody"),
        ("AWS_SECRET_ACCESS_KEY", "nothing"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_CONFIG_FILE", os.devnull),
        ("AWS_SHARED_CREDENTIALS_FILE", os.devnull),
        ("AWS_EC2_METADATA_DISABLED", "true"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9"),
    ):
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_client_asks_once_and_not_for_ever(environment: pytest.MonkeyPatch) -> None:
    """The client has patience of its own: a store that is away would hold a step up for many minutes."""
    client = s3._client()
    settings = client.s3.meta.config
    assert (settings.connect_timeout, settings.read_timeout) == (5, 60)
    assert settings.retries["total_max_attempts"] == 1
    assert client.retries == 1


def test_a_client_belongs_to_its_settings(environment: pytest.MonkeyPatch) -> None:
    """A job that was given another endpoint or key would go on with the old one."""
    client = s3._client()
    assert client.s3.meta.endpoint_url == "http://127.0.0.1:9"
    environment.setenv("UNRELATED", "1")
    assert s3._client() is client
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:10")
    other = s3._client()
    assert other is not client
    assert other.s3.meta.endpoint_url == "http://127.0.0.1:10"
    environment.setenv("FSSPEC_S3_ENDPOINT_URL", "http://127.0.0.1:11")
    assert s3._client().s3.meta.endpoint_url == "http://127.0.0.1:11"


def test_an_endpoint_with_a_password_is_refused(environment: pytest.MonkeyPatch) -> None:
    """It would stand in every error of the client."""
    environment.setenv("AWS_ENDPOINT_URL", "http://me:hidden@127.0.0.1:9")
    with pytest.raises(UnsupportedStore, match="remove them") as caught:
        s3._client()
    assert "hidden" not in str(caught.value)


def test_a_missing_client_is_told_with_what_to_install(environment: pytest.MonkeyPatch) -> None:
    """The user would see an import that fails somewhere inside."""
    environment.setitem(sys.modules, "s3fs", None)
    environment.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:12")
    with pytest.raises(UnsupportedStore, match="pip install s3fs"):
        s3._client()
