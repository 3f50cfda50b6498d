"""A Kafka of one machine is a broker that is its own controller: one process, killed with -9 and started again.

Its jars come from Maven Central, once, and are kept in ``~/.cache/persistent-tests`` (``XDG_CACHE_HOME`` says
otherwise).

    python -m tests.servers.kafka        fetches the jars and serves until it is interrupted
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.certificates import Certificates, certificates
from tests.servers import maven
from tests.servers.processes import START_SECONDS, Server, free_port, java
from tests.servers.proxy import Proxy

VERSION = "4.4.0"
_CLUSTER = "4L6g3nShT-eMCtK--X86sw"
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # A broker that was killed is taken back at once, not when its old session is over.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}


def jars() -> Path:
    """The folder of the jars, fetched if this is the first time."""
    return maven.jars(
        f"kafka-{VERSION}",
        f"org.apache.kafka:kafka_2.13:{VERSION}",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5",
    )


PASSWORD = "hunter2-of-the-app"
_PROTOCOLS = "PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT"
_LOGIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_app="{PASSWORD}";'


def _tls(keys: Certificates, keystore: Path) -> dict[str, str]:
    """The settings of listeners with TLS; key and certificate are one file."""
    keystore.write_text(Path(keys.key).read_text() + Path(keys.certificate).read_text())
    store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(keystore)}
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": keys.ca}
    return {**store, **trust, "listener.name.mutual.ssl.client.auth": "required"}


class KafkaServer:
    """A broker in ``folder``. ``bootstrap``: where clients find it; ``guarded``: where "app" needs its
    password; ``proxied``: where every connection is one through ``proxy``. ``tls``: where it has a certificate of
    ``keys``; ``mutual``: where clients need one too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, behind, controller = (free_port() for _ in range(3))
        self.proxy = Proxy(behind)
        self.bootstrap, self.proxied = f"127.0.0.1:{port}", f"127.0.0.1:{self.proxy.port}"
        self.guarded, self.tls, self.mutual = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.keys = certificates(folder / "keys")
        open = f"PLAINTEXT://{self.bootstrap},GUARDED://{self.guarded},TLS://{self.tls},MUTUAL://{self.mutual}"
        settings = {
            **_SETTINGS,
            "listeners": f"{open},PROXIED://127.0.0.1:{behind},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"{open},PROXIED://{self.proxied}",
            "listener.security.protocol.map": f"{_PROTOCOLS},TLS:SSL,MUTUAL:SSL",
            **_tls(self.keys, folder / "keystore.pem"),
            "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.guarded.plain.sasl.jaas.config": _LOGIN,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(folder / "data"),
        }
        self._config = folder / "server.properties"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.broker = Server([*self._java(), "kafka.Kafka", str(self._config)], port, folder / "broker.log")

    def start(self) -> None:
        """Make its log, and wait until it serves."""
        command = [*self._java(), "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=START_SECONDS)
        assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
        self.restart()

    def restart(self) -> None:
        """Start it, after a kill too, and wait until it answers."""
        self.broker.start()
        self.broker.wait()
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.admin.list_topics(timeout=5)
                return
            except Exception:
                if time.monotonic() > deadline or not self.broker.is_running:
                    raise
                time.sleep(0.1)

    def kill(self) -> None:
        """As when the machine is lost."""
        self.broker.kill()

    @cached_property
    def admin(self) -> Any:
        """The client for topics; a result of one that is collected never comes."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create(self, partitions: int = 1, name: str | None = None, **settings: str) -> str:
        """A new topic, which keeps records of any time; its name."""
        from confluent_kafka.admin import NewTopic

        name = name or f"t-{uuid.uuid4().hex[:12]}"
        config = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)}
        config |= {key.replace("_", "."): value for key, value in settings.items()}
        (made,) = self.admin.create_topics([NewTopic(name, partitions, 1, config=config)]).values()
        made.result(START_SECONDS)
        self._settle(lambda topics: name in topics and len(topics[name].partitions) == partitions)
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        from confluent_kafka.admin import NewPartitions

        (made,) = self.admin.create_partitions([NewPartitions(topic, partitions)]).values()
        made.result(START_SECONDS)
        self._settle(lambda topics: len(topics[topic].partitions) == partitions)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        (gone,) = self.admin.delete_topics([topic]).values()
        gone.result(START_SECONDS)
        self._settle(lambda topics: topic not in topics)

    def truncate(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition before an offset, as retention does."""
        from confluent_kafka import TopicPartition

        (gone,) = self.admin.delete_records([TopicPartition(topic, partition, before)]).values()
        gone.result(START_SECONDS)

    def transact(self, topic: str, batches: Sequence[tuple[bool, Sequence[tuple[int, bytes]]]]) -> None:
        """Append batches of records (partition, value), each in a transaction of one producer: committed, or not."""
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0}
        producer = Producer({**settings, "log_level": 0})
        producer.init_transactions(START_SECONDS)
        for committed, records in batches:
            producer.begin_transaction()
            for partition, value in records:
                producer.produce(topic, value, partition=partition)
            assert producer.flush(START_SECONDS) == 0
            (producer.commit_transaction if committed else producer.abort_transaction)(START_SECONDS)
        self._show(topic)

    def produce(
        self,
        topic: str,
        records: Sequence[tuple[int, bytes | None]] | Sequence[tuple[int, bytes | None, Mapping[str, Any]]],
        *,
        transaction: str | None = None,
        abort: bool = False,
    ) -> None:
        """Append records (partition, value, more of ``produce``), in a transaction if it has an id."""
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 0, "log_level": 0}
        producer = Producer(settings | ({"transactional.id": transaction} if transaction else {}))
        if transaction:
            producer.init_transactions(START_SECONDS)
            producer.begin_transaction()
        for partition, value, *more in records:
            producer.produce(topic, value, partition=partition, **(more[0] if more else {}))
            producer.poll(0)
        assert producer.flush(START_SECONDS) == 0
        if transaction and abort:
            producer.abort_transaction(START_SECONDS)
        elif transaction:
            producer.commit_transaction(START_SECONDS)
        if transaction:
            self._show(topic)

    def _show(self, topic: str) -> None:
        """Wait until readers see the end of the topic, which is a moment after the broker has answered the commit; or
        for two seconds, as a transaction of somebody else may hold it back."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        partitions = self.admin.list_topics(topic, timeout=10).topics[topic].partitions
        wanted = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
        until = time.monotonic() + 2

        def ends(level: IsolationLevel) -> list[int]:
            answers = self.admin.list_offsets(wanted, isolation_level=level, request_timeout=10)
            return [answer.result().offset for answer in answers.values()]

        while ends(IsolationLevel.READ_COMMITTED) != ends(IsolationLevel.READ_UNCOMMITTED):
            if time.monotonic() > until:
                return
            time.sleep(0.01)

    def _settle(self, is_so: Any) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not is_so(self.admin.list_topics(timeout=10).topics):
            assert time.monotonic() < deadline, "the broker does not do as it was asked"
            time.sleep(0.05)

    def _java(self) -> list[str]:
        small = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN"]
        return [java(), *small, "-cp", f"{jars()}/*"]


@contextmanager
def kafka_server() -> Iterator[KafkaServer]:
    """A Kafka that serves, empty; nothing of it is left afterwards."""
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as folder:
        server = KafkaServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.kill()


if __name__ == "__main__":
    with kafka_server() as served:
        print(served.bootstrap, flush=True)
        signal.pause()
