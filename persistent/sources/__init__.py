"""Sources provide the records that a job reads.

protocol.py                the source, its plans, its records; options.py: what is recorded
memory.py                  a list of rows: the shortest source
file.py                    files: listing, walk, roots: which there are; index, layout, splits: which are read next
formats.py                 the protocol of their formats; file_formats.py: by name
lines.py  text.py          lines, with their offsets; json_lines, csv_lines, csv_dialect: their fields
parquet.py                 columns
kafka.py  rabbit_stream.py   partitions of a broker, by offsets.py
rabbit.py  topic.py        through a journal; that of a queue: rabbit_pump, _journal, _frames, _messages
log.py                     a segmented log
then.py  halves.py         a history, then a live source
message_columns.py         the columns of messages; values, avro, avro_schemas: formats of their values
schemas.py  conversion.py  timestamps.py    the columns of a source, their types, and the event time
reader.py  remedies.py     how files are read, and what to do if not; lru_cache.py: what is kept in memory"""

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
