"""A folder of an S3 bucket. Each verb is one request (a large write: one a part), and asks nothing a second time."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from persistent.errors import UnsupportedStore
from persistent.storage.clients import client_of
from persistent.storage.failures import codes_of

_PUT_BYTES_MAX = 256 * 2**20
_PART_BYTES = 64 * 2**20
_PARTS_MAX = 10_000
_DELETED_AT_ONCE = 1_000
_CONNECT_SECONDS_MAX = 5
_READ_SECONDS_MAX = 60


class S3Requests:
    """The requests. The AWS environment and configuration files give credentials, region and endpoint;
    ``FSSPEC_S3_ENDPOINT_URL`` takes precedence over ``AWS_ENDPOINT_URL``."""

    renames = False

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._bucket = parts.netloc
        self._prefix = f"{parts.path.strip('/')}/".lstrip("/")
        if not self._bucket or "@" in self._bucket:
            raise UnsupportedStore(f"{parts.scheme}://{parts.path}: name a bucket, as in s3://bucket/folder")

    def create(self, name: str, data: bytes | pa.Buffer) -> None:
        """One conditional PUT. FileExistsError."""
        self._put(name, data, IfNoneMatch="*")

    def write(self, name: str, data: bytes | pa.Buffer, again: Callable[[Callable[[], Any]], Any]) -> None:
        """One PUT; above 256 MB one for each part."""
        if memoryview(data).nbytes <= _PUT_BYTES_MAX:
            again(lambda: self._put(name, data))
        else:
            self._write_parts(name, memoryview(data).cast("B"), again)

    def read(self, name: str) -> pa.Buffer:
        """One GET. FileNotFoundError."""
        try:
            body = self._call("get_object", Key=self._prefix + name)["Body"]
            return pa.py_buffer(_waited(body.read))
        except FileNotFoundError as error:
            raise _unless_no_bucket(error) from error

    def list(self, folder: str) -> list[str]:
        """One request for each thousand names."""
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        try:
            return [key[len(prefix) :] for key in self._keys(prefix)]
        except FileNotFoundError as error:
            raise _unless_no_bucket(error) from error

    def rename(self, source: str, target: str) -> None:
        """Unsupported: S3 has no rename that refuses to overwrite."""
        raise NotImplementedError

    def delete(self, name: str) -> None:
        """One DELETE, whether the file exists or not."""
        try:
            self._call("delete_object", Key=self._prefix + name)
        except FileNotFoundError as error:
            raise _unless_no_bucket(error) from error

    def delete_all(self, names: Sequence[str]) -> None:
        """One request for each thousand names."""
        for start in range(0, len(names), _DELETED_AT_ONCE):
            keys = [{"Key": self._prefix + name} for name in names[start : start + _DELETED_AT_ONCE]]
            try:
                answer = self._call("delete_objects", Delete={"Objects": keys, "Quiet": True})
            except FileNotFoundError as error:
                raise _unless_no_bucket(error) from error
            for refused in answer.get("Errors", ()):
                raise _NotDeleted(refused)

    def _put(self, name: str, data: Any, **condition: str) -> None:
        try:
            self._call("put_object", Key=self._prefix + name, Body=_Body(data), **condition)
        except FileNotFoundError as error:
            raise _unless_no_bucket(error) from error
        except OSError as error:
            if condition and {"PreconditionFailed", "HTTP412"} & set(codes_of(error)):
                raise FileExistsError(name) from error
            raise

    def _write_parts(self, name: str, view: memoryview, again: Callable[[Callable[[], Any]], Any]) -> None:
        key, size = self._prefix + name, max(_PART_BYTES, -(-view.nbytes // _PARTS_MAX))
        upload = again(lambda: self._call("create_multipart_upload", Key=key))["UploadId"]
        parts: list[dict[str, Any]] = []
        try:
            for start in range(0, view.nbytes, size):
                number, part = len(parts) + 1, view[start : start + size]
                done = again(partial(self._put_part, key, upload, number, part))
                parts.append({"PartNumber": number, "ETag": done["ETag"]})
            again(lambda: self._complete(key, upload, parts, view.nbytes))
        except BaseException:
            # The bucket's lifecycle rules remove anything that this leaves behind.
            with suppress(Exception):
                self._call("abort_multipart_upload", Key=key, UploadId=upload)
            raise

    def _put_part(self, key: str, upload: str, number: int, part: memoryview) -> Any:
        return self._call("upload_part", Key=key, UploadId=upload, PartNumber=number, Body=_Body(part))

    def _complete(self, key: str, upload: str, parts: Sequence[dict[str, Any]], size: int) -> None:
        try:
            self._call("complete_multipart_upload", Key=key, UploadId=upload, MultipartUpload={"Parts": parts})
        except FileNotFoundError:
            # Gone because an earlier try completed it and its answer was lost; otherwise the object is missing.
            if self._call("head_object", Key=key)["ContentLength"] != size:
                raise

    def _keys(self, prefix: str) -> Iterator[str]:
        token: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Prefix=prefix, Delimiter="/", **token)
            yield from (entry["Key"] for entry in page.get("Contents", ()) if entry["Key"] != prefix)
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _call(self, method: str, **arguments: Any) -> Any:
        return _client().call_s3(method, Bucket=self._bucket, **arguments)


class _NotDeleted(OSError):
    """One of many deletions was refused, though the request succeeded; ``response`` is as in a client's errors."""

    def __init__(self, refused: Mapping[str, str]) -> None:
        super().__init__(f"{refused.get('Code')}: {refused.get('Message')}")
        self.response = {"Error": dict(refused)}


class _Body(io.RawIOBase):
    """Bytes as a file, without a copy."""

    def __init__(self, data: Any) -> None:
        self._view = memoryview(data).cast("B")
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._view.nbytes}[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        stop = self._view.nbytes if size is None or size < 0 else self._at + size
        taken = bytes(self._view[self._at : stop])
        self._at += len(taken)
        return taken


def _unless_no_bucket(error: FileNotFoundError) -> OSError:
    """``error``, or another one for a missing bucket: as a missing file, a wrong URL would look like a new job."""
    if "NoSuchBucket" not in codes_of(error):
        return error
    missing = OSError(str(error))
    missing.__cause__ = error
    return missing


def _waited(call: Callable[[], Any]) -> Any:
    """The result of a client's coroutine."""
    from fsspec.asyn import sync

    return sync(_client().loop, call)


def _client() -> Any:
    settings = frozenset(item for item in os.environ.items() if item[0].startswith(("AWS_", "FSSPEC_S3")))
    return _connected(os.getpid(), settings)


@lru_cache(maxsize=4)
def _connected(process: int, settings: frozenset[tuple[str, str]]) -> Any:
    """The client of one process, shared by all its storages, because creating one takes longer than a step.

    The client tries each request once: ``Retrying`` decides how often to repeat it.
    """
    s3fs = client_of("s3")
    config = {
        "retries": {"total_max_attempts": 1},
        "connect_timeout": _CONNECT_SECONDS_MAX,
        "read_timeout": _READ_SECONDS_MAX,
    }
    endpoint = dict(settings).get("FSSPEC_S3_ENDPOINT_URL")
    named = {"endpoint_url": endpoint} if endpoint else {}
    client = s3fs.S3FileSystem(skip_instance_cache=True, config_kwargs=config, **named)
    client.retries = 1
    if "@" in urlsplit(client.s3.meta.endpoint_url).netloc:
        raise UnsupportedStore(
            "the endpoint of S3 contains a user or password, which ends up in logs: remove them, and put "
            "credentials into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or the AWS configuration file"
        )
    return client
