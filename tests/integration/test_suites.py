"""Our sources and sinks pass, on their real servers, the suites that a user's own have to pass."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from persistent import FileSource, FunctionSink, TopicSource
from persistent.connect.source import Source
from persistent.storage import Storage, open_storage
from persistent.testing import SinkSuite, SourceSuite
from persistent.testing.sink_driver import OnOperation
from persistent.topic import JoinOptions, Retain, TopicSender
from tests.connect.places import FileSuite, SqliteSuite
from tests.few import turn
from tests.servers.hdfs import HdfsServer
from tests.servers.suites import (
    KafkaSinkSuite,
    KafkaSourceSuite,
    PostgresSuite,
    RabbitStreamSinkSuite,
    RabbitStreamSourceSuite,
)


class TestKafkaSource(KafkaSourceSuite):
    """KafkaSource."""


class TestRabbitStreamSource(RabbitStreamSourceSuite):
    """RabbitStreamSource."""


class TestRabbitStreamSink(RabbitStreamSinkSuite):
    """RabbitStreamSink."""


class TestKafkaSink(KafkaSinkSuite):
    """KafkaSink."""

    kills_one_in = 7


@turn(0, of=2)
class TestPostgresAppend(PostgresSuite):
    """PostgresSink, rows are added; a death at every statement is in tests/servers/test_postgres.py."""

    kills_one_in = 3


@turn(1, of=2)
class TestPostgresUpsert(PostgresSuite):
    """PostgresSink, rows are replaced."""

    kills_one_in = 3
    mode = "upsert"


@turn(1, of=2)
class TestSqliteAppend(SqliteSuite):
    """SqliteSink, rows are added."""


@turn(0, of=2)
class TestSqliteUpsert(SqliteSuite):
    """SqliteSink, rows are replaced."""

    mode = "upsert"


class TestFunction(SinkSuite):
    """FunctionSink, over a list of what it was given: it has no mark and no owner, and takes nothing back."""

    test_another_job_is_refused = None  # type: ignore[assignment]
    test_what_is_retracted_is_gone = None  # type: ignore[assignment]
    test_what_a_rollback_owes_is_published_before = None  # type: ignore[assignment]
    test_a_driver_that_slept_publishes_nothing_taken_back = None  # type: ignore[assignment]
    test_a_batch_follows_the_one_before = None  # type: ignore[assignment]
    test_the_heir_of_a_savepoint_takes_over = None  # type: ignore[assignment]
    test_it_travels_without_a_connection = None  # type: ignore[assignment]

    def place(self, folder: Path) -> list[dict[str, Any]]:
        return []

    def make(self, place: list[dict[str, Any]], step: OnOperation) -> FunctionSink:
        def note(table: pa.Table, id: int) -> None:
            step("the function")
            place.extend(table.to_pylist())

        return FunctionSink(note)

    def rows(self, place: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return place


class OnStore(SourceSuite):
    """FileSource over Parquet files on a store."""

    folder: str

    def source(self) -> Source:
        return FileSource(f"{self.folder}/*", timestamp="ts", timestamp_unit="ms")

    def append(self) -> None:
        self.add("b")

    def add(self, name: str) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"ts": [5, 3, 9, 4], "page": ["a", "b", "c", name]}), sink, row_group_size=2)
        files, path = fsspec.core.url_to_fs(self.folder, skip_instance_cache=True)
        files.makedirs(path, exist_ok=True)
        files.pipe_file(f"{path}/{name}.parquet", sink.getvalue().to_pybytes())


class TestTopicSource(SourceSuite):
    """TopicSource: each source of a test takes the journal over from the one before."""

    @pytest.fixture(autouse=True)
    def _topic(self, tmp_path: Path) -> Iterator[None]:
        self.folder, self.made = tmp_path / "journal", list[TopicSource]()
        with TopicSender("numbers", retain=Retain("1 h")) as self.sender:
            self.append()
            self.append()
            yield
            for one in self.made:
                one.close()

    def source(self) -> Source:
        join = JoinOptions(discovery="200 ms", attempts=100_000)
        times = {"timestamp": "ts", "timestamp_unit": "ms", "schema": {"n": "int64", "ts": "int64"}}
        self.made.append(TopicSource(self.sender.address, "numbers", journal=self.folder, join=join, **times))
        return self.made[-1]

    def append(self) -> None:
        for number in range(8):
            self.sender.publish(b'{"n":%d,"ts":%d}' % (number, 1_000 + number))


@turn(1, of=2)
class TestFilesOnS3(OnStore):
    """S3."""

    @pytest.fixture(autouse=True)
    def _files(self, s3_bucket: str) -> None:
        self.folder = f"{s3_bucket}/in"
        for name in ("a0", "a1", "a2"):
            self.add(name)


@turn(0, of=2)
class TestFilesOnHdfs(OnStore):
    """HDFS."""

    @pytest.fixture(autouse=True)
    def _files(self, hdfs_server: HdfsServer) -> None:
        self.folder = hdfs_server.url(f"suite-{uuid.uuid4().hex}")
        for name in ("a0", "a1", "a2"):
            self.add(name)


@turn(0, of=2)
class TestFileSinkOnS3(FileSuite):
    """FileSink on S3: what the lists name is what a reader sees."""

    kills_one_in = 7

    @pytest.fixture(autouse=True)
    def _bucket(self, s3_bucket: str) -> None:
        self.bucket = s3_bucket

    def place(self, folder: Path) -> Storage:
        return open_storage(f"{self.bucket}/{uuid.uuid4().hex}")


@turn(1, of=2)
class TestFileSinkOnHdfs(FileSuite):
    """FileSink on HDFS."""

    kills_one_in = 17

    @pytest.fixture(autouse=True)
    def _server(self, hdfs_server: HdfsServer) -> None:
        self.server = hdfs_server

    def place(self, folder: Path) -> Storage:
        return open_storage(self.server.url(f"suite-{uuid.uuid4().hex}"))
