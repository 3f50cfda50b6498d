"""No artefact of a run holds a credential: planted ones are looked for in all of them."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest

from persistent import FileSink, MemorySource, Pipeline
from persistent.errors import StorageError
from persistent.storage import FsspecStorage, s3
from persistent.storage.failures import Patience
from tests.crash.worlds import ROWS, Visits
from tests.servers.s3 import Fault, S3Server

SECRETS = ("PLANTEDACCESSKEYID", "planted+secret/access/key", "planted-session-token", "planted-password")
QUICK = Patience(tries_max=2, pause_first_seconds=0.01)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """The environment of a user who has credentials."""
    for name, value in zip(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"), SECRETS):
        monkeypatch.setenv(name, value)
    return SECRETS


def holds_secret(data: bytes | str) -> list[str]:
    text = data if isinstance(data, str) else data.decode("latin-1")
    return [secret for secret in SECRETS if secret in text]


def pipeline(bucket: str) -> Pipeline:
    return Pipeline(
        source=MemorySource(list(ROWS), timestamp="ts", ordered=True),
        task=Visits(),
        sink=FileSink(f"{bucket}/sink", format="jsonl"),
        checkpoint=f"{bucket}/checkpoint",
        step_rows=4,
        on_error="dead-letter",
    )


def objects(bucket: str) -> Iterator[tuple[str, bytes]]:
    """Every object of a bucket, past our own storage."""
    client = s3._client()
    for name in client.find(bucket):
        yield name, client.cat_file(name)


def test_a_run_leaves_no_secret(
    planted: tuple[str, ...], s3_bucket: str, s3_server: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever may read results, logs or a closure in a Spark event log would have the keys to the data."""
    job = pipeline(s3_bucket)
    with caplog.at_level(logging.DEBUG, "persistent"):
        s3_server.fail(Fault(status=503), Fault(path="checkpoint/m", status=500, performed=True))
        job.run(engine="embedded", end_of_input=True)
    found = dict(objects(s3_bucket))
    assert any("/checkpoint/m/" in name for name in found) and any("/sink/" in name for name in found)
    assert any("/checkpoint/d/" in name for name in found) and any("/checkpoint/dead/" in name for name in found)
    assert not [name for name, data in found.items() if holds_secret(data) or holds_secret(name)]
    assert caplog.records, "the failures were to be told"
    assert not holds_secret(caplog.text)
    for thing in (job, job.storage, job.sink, job.job(), job.task):
        assert not holds_secret(cloudpickle.dumps(thing))
        assert not holds_secret(repr(thing))
    assert not holds_secret(pickle.dumps(job.storage))


def broken_bucket(bucket: str, monkeypatch: pytest.MonkeyPatch) -> FsspecStorage:
    return FsspecStorage("s3://bucket-of-nobody/x", patience=QUICK)


def broken_connection(bucket: str, monkeypatch: pytest.MonkeyPatch) -> FsspecStorage:
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", "http://127.0.0.1:9")
    return FsspecStorage(f"{bucket}/x", patience=QUICK)


def password_in_endpoint(bucket: str, monkeypatch: pytest.MonkeyPatch) -> FsspecStorage:
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", "http://planted-user:planted-password@127.0.0.1:9")
    return FsspecStorage(f"{bucket}/x", patience=QUICK)


def forbidden(bucket: str, monkeypatch: pytest.MonkeyPatch) -> FsspecStorage:
    return FsspecStorage(f"{bucket}/forbidden", patience=QUICK)


@pytest.mark.parametrize("broken", [broken_bucket, broken_connection, password_in_endpoint, forbidden])
def test_a_failure_tells_no_secret(
    planted: tuple[str, ...],
    s3_bucket: str,
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    broken: Callable[[str, pytest.MonkeyPatch], FsspecStorage],
) -> None:
    """Tracebacks are pasted into tickets, with all that stands behind "the above exception was the cause"."""
    if broken is forbidden:
        s3_server.fail(*(Fault(method=method, status=403, times=99) for method in ("GET", "PUT", "DELETE")))
    storage = broken(s3_bucket, monkeypatch)
    verbs: tuple[Callable[[], Any], ...] = (
        lambda: storage.put_if_absent("a", b""),
        lambda: storage.write("a", b""),
        lambda: storage.read("a"),
        lambda: storage.list(""),
        lambda: storage.rename("a", "b"),
        lambda: storage.delete("a"),
    )
    with caplog.at_level(logging.DEBUG, "persistent"):
        for verb in verbs:
            with pytest.raises(StorageError) as caught:
                verb()
            assert not holds_secret("".join(traceback.format_exception(caught.value)))
            assert not holds_secret(repr(vars(caught.value)) + repr(caught.value.args))
    assert not holds_secret(caplog.text)


@pytest.mark.spark
def test_the_configuration_of_spark_holds_no_secret(planted: tuple[str, ...], spark: Any, s3_bucket: str) -> None:
    """Spark shows its configuration on a page that asks for no password."""
    from persistent.engines.spark import Spark

    job = pipeline(s3_bucket)
    Spark(spark).check([job.storage, job.sink.storage])  # type: ignore[list-item, union-attr]
    settings = {**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll}
    assert settings
    assert not holds_secret(repr(settings))
    assert not [name for name in settings if ("fs.s3" in name and "vectored" not in name) or "aws" in name.lower()]
