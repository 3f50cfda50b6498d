"""Tests of storages share one HDFS and one S3, begun with the first test that wants them."""

from __future__ import annotations

import uuid

import pytest

from tests.servers.conftest import hdfs_server, s3_server
from tests.servers.s3 import S3Server

__all__ = ["hdfs_server", "s3_server"]


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """The URL of a bucket of the test's own, on a server that ails with nothing."""
    s3_server.fail()
    return s3_server.bucket(f"bucket-{uuid.uuid4().hex}")
