"""Sinks publish the outputs that a checkpoint names, once.

protocol.py                the two kinds of sinks, and their arguments
outlet.py                  a sink of either kind, and the place where its outputs wait
file.py  json_lines.py     a folder of Parquet or JSON lines files; file_lists.py: which files are published
memory.py                  a list of rows
function.py                a function of the user
marks.py                   the moves of the mark of a batch sink
sqlite*.py  sql.py         a table in a SQLite file
log.py                     a segmented log
kafka.py  kafka_place.py   a Kafka topic
rabbit_stream.py           a RabbitMQ stream
postgres*.py  sql.py       a table in a PostgreSQL database; column_limits.py: which values a database holds
rabbit.py                  a RabbitMQ queue or exchange
"""

from typing import TYPE_CHECKING

from persistent.on_demand import on_demand

if TYPE_CHECKING:
    from persistent.checkpoint.names import Staged
    from persistent.promises import Promise
    from persistent.sinks.file import FileSink
    from persistent.sinks.function import FunctionSink
    from persistent.sinks.kafka import KafkaSink
    from persistent.sinks.log import LogSink
    from persistent.sinks.memory import MemorySink
    from persistent.sinks.postgres import PostgresSink
    from persistent.sinks.protocol import BatchSink, Claim, OutputBatch, Retreat, Sink
    from persistent.sinks.rabbit import RabbitQueueSink
    from persistent.sinks.rabbit_stream import RabbitStreamSink
    from persistent.sinks.sqlite import SqliteSink
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "persistent.checkpoint.names": "Staged",
            "persistent.promises": "Promise",
            "persistent.sinks.file": "FileSink",
            "persistent.sinks.function": "FunctionSink",
            "persistent.sinks.kafka": "KafkaSink",
            "persistent.sinks.log": "LogSink",
            "persistent.sinks.memory": "MemorySink",
            "persistent.sinks.postgres": "PostgresSink",
            "persistent.sinks.protocol": "BatchSink Claim OutputBatch Retreat Sink",
            "persistent.sinks.rabbit": "RabbitQueueSink",
            "persistent.sinks.rabbit_stream": "RabbitStreamSink",
            "persistent.sinks.sqlite": "SqliteSink",
        },
    )

__all__ = [
    "BatchSink",
    "Claim",
    "FileSink",
    "FunctionSink",
    "KafkaSink",
    "LogSink",
    "MemorySink",
    "OutputBatch",
    "PostgresSink",
    "Promise",
    "RabbitQueueSink",
    "RabbitStreamSink",
    "Retreat",
    "Sink",
    "SqliteSink",
    "Staged",
]
