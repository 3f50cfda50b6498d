"""Sources provide the records that a job reads."""

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
from persistent.sources.rabbit_pump import QueueEvent
from persistent.sources.rabbit_stream import RabbitStreamSource
from persistent.sources.then import then
from persistent.sources.topic import TopicSource

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
