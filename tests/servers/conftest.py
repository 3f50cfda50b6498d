"""What tests of real servers share: one HDFS and one S3, begun with the first test that wants them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

from tests.servers.hdfs import HdfsServer
from tests.servers.hdfs import hdfs_server as started_hdfs
from tests.servers.processes import kept
from tests.servers.s3 import S3Server, client_environment
from tests.servers.s3 import s3_server as started_s3


@cache
def _hdfs() -> HdfsServer:
    return kept(started_hdfs())


@cache
def _s3() -> S3Server:
    return kept(started_s3())


@pytest.fixture(scope="session")
def hdfs_server() -> HdfsServer:
    """A NameNode and a DataNode; a test that kills one starts it again."""
    return _hdfs()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A moto server behind our front, and this process its client."""
    server = _s3()
    with client_environment(server):
        yield server
