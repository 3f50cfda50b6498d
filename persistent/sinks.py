"""Sinks publish the outputs that a checkpoint names, once. ``persistent.connect`` has a folder for each system."""

from monoids.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from persistent.connect.files.sink import FileSink
    from persistent.connect.function import FunctionSink
    from persistent.connect.kafka.sink import KafkaSink
    from persistent.connect.log.sink import LogSink
    from persistent.connect.marked import SinkMark, claimed, has_retreated, is_published, is_settled
    from persistent.connect.memory import MemorySink
    from persistent.connect.postgres.sink import PostgresSink
    from persistent.connect.promises import Promise
    from persistent.connect.rabbitmq.queue_sink import RabbitQueueSink
    from persistent.connect.rabbitmq.stream_sink import RabbitStreamSink
    from persistent.connect.sink import BatchSink, Claim, Known, Looked, OutputBatch, Retreat, Sink, StagingSink
    from persistent.connect.sqlite.sink import SqliteSink
    from persistent.names import Staged
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "persistent.names": "Staged",
            "persistent.connect.promises": "Promise",
            "persistent.connect.files.sink": "FileSink",
            "persistent.connect.function": "FunctionSink",
            "persistent.connect.kafka.sink": "KafkaSink",
            "persistent.connect.log.sink": "LogSink",
            "persistent.connect.marked": "SinkMark claimed has_retreated is_published is_settled",
            "persistent.connect.memory": "MemorySink",
            "persistent.connect.postgres.sink": "PostgresSink",
            "persistent.connect.sink": "BatchSink Claim Known Looked OutputBatch Retreat Sink StagingSink",
            "persistent.connect.rabbitmq.queue_sink": "RabbitQueueSink",
            "persistent.connect.rabbitmq.stream_sink": "RabbitStreamSink",
            "persistent.connect.sqlite.sink": "SqliteSink",
        },
    )

__all__ = [
    "BatchSink",
    "Claim",
    "FileSink",
    "FunctionSink",
    "KafkaSink",
    "Known",
    "LogSink",
    "Looked",
    "MemorySink",
    "OutputBatch",
    "PostgresSink",
    "Promise",
    "RabbitQueueSink",
    "RabbitStreamSink",
    "Retreat",
    "Sink",
    "SinkMark",
    "SqliteSink",
    "Staged",
    "StagingSink",
    "claimed",
    "has_retreated",
    "is_published",
    "is_settled",
]
