"""Sources provide the records that a job reads."""

from typing import TYPE_CHECKING

from persistent.on_demand import on_demand
from persistent.sources.then import then

if TYPE_CHECKING:
    from persistent.clients.rabbit_link import QueueEvent
    from persistent.sources.avro import Avro
    from persistent.sources.file import FileSource
    from persistent.sources.kafka import KafkaSource
    from persistent.sources.log import LogSource
    from persistent.sources.memory import MemorySource
    from persistent.sources.protocol import (
        NO_TIMESTAMP,
        Budget,
        DeadRecord,
        Position,
        Positions,
        Records,
        Source,
        SourcePlan,
        SourceState,
        Span,
        Split,
    )
    from persistent.sources.rabbit import RabbitQueueSource
    from persistent.sources.rabbit_stream import RabbitStreamSource
    from persistent.sources.topic import TopicSource
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "persistent.sources.avro": "Avro",
            "persistent.sources.file": "FileSource",
            "persistent.sources.kafka": "KafkaSource",
            "persistent.sources.log": "LogSource",
            "persistent.sources.memory": "MemorySource",
            "persistent.sources.protocol": "NO_TIMESTAMP Budget DeadRecord Position Positions Records Source "
            "SourcePlan SourceState Span Split",
            "persistent.sources.rabbit": "RabbitQueueSource",
            "persistent.clients.rabbit_link": "QueueEvent",
            "persistent.sources.rabbit_stream": "RabbitStreamSource",
            "persistent.sources.topic": "TopicSource",
        },
    )

__all__ = [
    "NO_TIMESTAMP",
    "Avro",
    "Budget",
    "DeadRecord",
    "FileSource",
    "KafkaSource",
    "LogSource",
    "MemorySource",
    "Position",
    "Positions",
    "QueueEvent",
    "RabbitQueueSource",
    "RabbitStreamSource",
    "Records",
    "Source",
    "SourcePlan",
    "SourceState",
    "Span",
    "Split",
    "TopicSource",
    "then",
]
