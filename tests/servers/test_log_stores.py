"""A log on real stores: what was acknowledged is there, one writer at a time, and positions of readers are kept."""

from __future__ import annotations

import uuid

import pytest

from persistent.connect.log.source import LogSource
from persistent.connect.source import Budget, SourceState
from persistent.errors import Fenced, RetentionGap
from persistent.log import BEGINNING, SegmentedLog
from tests.servers.hdfs import HdfsServer
from tests.servers.s3 import S3Server

pytestmark = [pytest.mark.check, pytest.mark.timeout(240)]


@pytest.fixture(params=["hdfs", "s3"])
def url(request: pytest.FixtureRequest) -> str:
    """A folder of the test's own on a real server."""
    name = f"log-{uuid.uuid4().hex}"
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        return server.bucket(name)
    hdfs: HdfsServer = request.getfixturevalue("hdfs_server")
    return hdfs.url(name)


def values(log: SegmentedLog) -> list[bytes]:
    return [record for batch in log.read() for record in batch.records.to_pylist()]


def test_a_log_lives_on_a_store(url: str) -> None:
    """Nothing grows there: each entry is put where none is."""
    log = SegmentedLog(f"{url}/log")
    first = log.writer()
    first.append_many([b'{"n": 0}', b'{"n": 1}'], [1, 2])
    second = SegmentedLog(f"{url}/log").writer()
    second.append(b'{"n": 2}', time=3)
    with pytest.raises(Fenced):
        first.append(b"lost", time=4)
    assert values(log) == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']
    source = LogSource(log)
    plan = source.plan(SourceState({}), Budget(10))
    read = [row["n"] for records in source.read(plan.splits[0], plan.recorded) for row in records.batch.to_pylist()]
    assert read == [0, 1, 2]
    with log.reader("one", f"{url}/offsets") as reading:
        assert sum(len(batch) for batch in reading.read()) == 3
    log.truncate(log.position_of(2))
    with pytest.raises(RetentionGap):
        list(log.read(BEGINNING))
    second.end()
    assert [batch.number for batch in log.follow()] == [2]
    assert not list(log.reader("one", f"{url}/offsets").read())
