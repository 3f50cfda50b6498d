"""The servers that all tests of a process share, begun with the first test that wants them.

A module of its own: pytest imports a conftest under two names, and then there would be two of each.
"""

from __future__ import annotations

from functools import cache

from tests.servers.cluster import Cluster, cluster
from tests.servers.hdfs import HdfsServer, hdfs_server
from tests.servers.kafka import KafkaServer, kafka_server
from tests.servers.postgres import PostgresServer, postgres_server
from tests.servers.processes import kept
from tests.servers.rabbit import RabbitServer, rabbit_server
from tests.servers.s3 import S3Server, s3_server


@cache
def shared_hdfs() -> HdfsServer:
    """A NameNode and a DataNode; a test that kills one starts it again."""
    return kept(hdfs_server())


@cache
def shared_s3() -> S3Server:
    """A moto server behind our front."""
    return kept(s3_server())


@cache
def shared_kafka() -> KafkaServer:
    """A broker; a test that kills it starts it again."""
    return kept(kafka_server())


@cache
def shared_postgres() -> PostgresServer:
    """A server; a test that kills it starts it again."""
    return kept(postgres_server())


@cache
def shared_rabbit() -> RabbitServer:
    """A node; a test that kills it starts it again."""
    return kept(rabbit_server())


@cache
def shared_cluster() -> Cluster:
    """A master and two workers, whose executors are clients of the shared S3; a test that kills a worker adds one."""
    return kept(cluster(shared_s3().environment))
