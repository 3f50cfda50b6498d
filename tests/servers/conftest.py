"""What tests of real servers share: one HDFS, one S3 and one cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.cluster import Cluster
from tests.servers.hdfs import HdfsServer
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer
from tests.servers.rabbit import RabbitServer
from tests.servers.s3 import S3Server, client_environment
from tests.servers.shared import shared_cluster, shared_hdfs, shared_kafka, shared_postgres, shared_rabbit, shared_s3


@pytest.fixture
def hdfs_server() -> HdfsServer:
    """A NameNode and a DataNode; a test that kills one starts it again."""
    return shared_hdfs()


@pytest.fixture
def s3_server() -> Iterator[S3Server]:
    """A moto server that ails with nothing, and this process its client while the test lasts."""
    server = shared_s3()
    server.fail()
    with client_environment(server):
        yield server


@pytest.fixture
def kafka() -> KafkaServer:
    """A broker; a test that kills it starts it again."""
    return shared_kafka()


@pytest.fixture
def postgres() -> PostgresServer:
    """A server; a test that kills it starts it again."""
    return shared_postgres()


@pytest.fixture
def rabbit() -> RabbitServer:
    """A node; a test that kills it starts it again."""
    return shared_rabbit()


@pytest.fixture
def standalone() -> Cluster:
    """A master and two workers."""
    return shared_cluster()
