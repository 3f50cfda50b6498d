"""What a reader of committed transactions sees of a topic, by the client alone."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.servers.kafka import KafkaServer
from tests.servers.processes import START_SECONDS


def committed(kafka: KafkaServer, topic: str) -> list[Any]:
    """The messages that a reader of committed transactions sees, once none is open."""
    from confluent_kafka import Consumer, IsolationLevel, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    partitions = [TopicPartition(topic, one) for one in kafka.admin.list_topics(timeout=10).topics[topic].partitions]

    def ends(level: Any) -> dict[int, int]:
        asked = kafka.admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()), isolation_level=level)
        return {one.partition: future.result(10).offset for one, future in asked.items()}

    deadline = time.monotonic() + START_SECONDS
    while (stops := ends(IsolationLevel.READ_COMMITTED)) != ends(IsolationLevel.READ_UNCOMMITTED):
        assert time.monotonic() < deadline, "a transaction stays open"
        time.sleep(0.02)
    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, one, 0) for one in stops])
    found, left = [], {one for one, stop in stops.items() if stop}
    while left:
        message = consumer.poll(START_SECONDS)
        assert message is not None
        if message.error() is None:
            found.append(message)
        elif message.offset() >= stops[message.partition()]:
            left.discard(message.partition())
    consumer.close()
    return found


def json_values(kafka: KafkaServer, topic: str) -> list[dict[str, Any]]:
    """The values of these messages."""
    return [json.loads(message.value()) for message in committed(kafka, topic)]
