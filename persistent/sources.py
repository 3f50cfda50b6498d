"""Sources provide the records that a job reads. ``persistent.connect`` has a folder for each system."""

from monoids.on_demand import TYPE_CHECKING, on_demand
from persistent.connect.then import then

if TYPE_CHECKING:
    from persistent.codec.fields import Position, Positions
    from persistent.connect.files.source import FileSource
    from persistent.connect.formats.avro import Avro
    from persistent.connect.kafka.source import KafkaSource
    from persistent.connect.log.source import LogSource
    from persistent.connect.memory import MemorySource
    from persistent.connect.offsets import Kept, OffsetPlans
    from persistent.connect.rabbitmq.link import QueueEvent
    from persistent.connect.rabbitmq.queue_source import RabbitQueueSource
    from persistent.connect.rabbitmq.stream_source import RabbitStreamSource
    from persistent.connect.source import (
        NO_TIMESTAMP,
        Budget,
        DeadRecord,
        Reached,
        Records,
        Source,
        SourcePlan,
        SourceState,
        Span,
        Split,
    )
    from persistent.connect.topic.source import TopicSource
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "persistent.connect.formats.avro": "Avro",
            "persistent.connect.files.source": "FileSource",
            "persistent.connect.kafka.source": "KafkaSource",
            "persistent.connect.log.source": "LogSource",
            "persistent.connect.memory": "MemorySource",
            "persistent.connect.offsets": "Kept OffsetPlans",
            "persistent.codec.fields": "Position Positions",
            "persistent.connect.source": "NO_TIMESTAMP Budget DeadRecord Reached Records Source SourcePlan "
            "SourceState Span Split",
            "persistent.connect.rabbitmq.queue_source": "RabbitQueueSource",
            "persistent.connect.rabbitmq.link": "QueueEvent",
            "persistent.connect.rabbitmq.stream_source": "RabbitStreamSource",
            "persistent.connect.topic.source": "TopicSource",
        },
    )

__all__ = [
    "NO_TIMESTAMP",
    "Avro",
    "Budget",
    "DeadRecord",
    "FileSource",
    "KafkaSource",
    "Kept",
    "LogSource",
    "MemorySource",
    "OffsetPlans",
    "Position",
    "Positions",
    "QueueEvent",
    "RabbitQueueSource",
    "RabbitStreamSource",
    "Reached",
    "Records",
    "Source",
    "SourcePlan",
    "SourceState",
    "Span",
    "Split",
    "TopicSource",
    "then",
]
