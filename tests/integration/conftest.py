"""What integration tests share: servers, which are started outside the time that a test has, and a seed."""

from __future__ import annotations

import os
import time
import uuid

import pytest

from tests.integration.rounds import proxy_of
from tests.servers.conftest import hdfs_server, kafka, postgres, rabbit, s3_server
from tests.servers.s3 import S3Server

__all__ = ["hdfs_server", "kafka", "postgres", "rabbit", "s3_server"]


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """The URL of a bucket of the test's own."""
    return s3_server.bucket(f"bucket-{uuid.uuid4().hex}")


@pytest.fixture(scope="session")
def seed() -> str:
    """What the rounds are drawn from: ``SEED`` repeats them."""
    return os.environ.get("SEED") or str(int(time.time()))


@pytest.fixture
def server(request: pytest.FixtureRequest) -> str:
    """The server of the cell, which is running."""
    name: str = request.param
    if name and name != "topic":
        proxy_of(name)
    return name
