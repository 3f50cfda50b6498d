"""Exactly-once stateful stream processing in Python: state is a sum, so a checkpoint is its next term.

    source --Message--> task --update--> state --delta--> checkpoint --manifest--> sink
       ^                                                      |
       +------------------------ positions <------------------+

Subclass ``PersistentTask``, choose the monoid of its state, and run a ``Pipeline``.
"""

from monoids.on_demand import TYPE_CHECKING, on_demand

if TYPE_CHECKING:
    from persistent.checkpoint.manifest import Retention
    from persistent.checkpoint.output_parts import Correction
    from persistent.connect.rabbitmq.topology import Binding, Exchange, Queue, Topology
    from persistent.connect.then import then
    from persistent.driver.evolution import Evolution
    from persistent.driver.report import RunReport, StepReport
    from persistent.engines.embedded import Embedded
    from persistent.errors import (
        AssignerFailed,
        CorruptCheckpoint,
        CorruptLog,
        EngineError,
        Fenced,
        FingerprintChanged,
        InvalidPipeline,
        NewerFormat,
        NoCheckpoint,
        OtherJob,
        PersistentError,
        Refused,
        RetentionGap,
        SinkMismatch,
        SourceChanged,
        SourceError,
        StagedMissing,
        StillRunning,
        Stopped,
        StorageError,
        UnknownCheckpoint,
        UnsupportedStore,
        UserCodeError,
    )
    from persistent.messaging.log.frames import LogPosition
    from persistent.messaging.log.segmented import SegmentedLog
    from persistent.messaging.offsets import LevelDbOffsets, SqliteOffsets, StoredOffsets
    from persistent.metrics import OtelMetrics, PrometheusMetrics
    from persistent.pipeline import Pipeline
    from persistent.requests import PostgresRequestLog, SqliteRequestLog
    from persistent.sinks import (
        FileSink,
        FunctionSink,
        KafkaSink,
        LogSink,
        MemorySink,
        PostgresSink,
        RabbitQueueSink,
        RabbitStreamSink,
        SqliteSink,
    )
    from persistent.sources import (
        Avro,
        FileSource,
        KafkaSource,
        LogSource,
        MemorySource,
        QueueEvent,
        RabbitQueueSource,
        RabbitStreamSource,
        TopicSource,
    )
    from persistent.state.state import NonWindowState, PersistentState, WindowState
    from persistent.task.dedupe import Dedupe
    from persistent.task.message import Batch, Message
    from persistent.task.task import PersistentTask, State
    from persistent.time.assigned_window import Assigner, assigned
    from persistent.time.calendar_window import calendar
    from persistent.time.session_window import session
    from persistent.time.window import Window, sliding, tumbling
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "persistent.checkpoint.output_parts": "Correction",
            "persistent.checkpoint.manifest": "Retention",
            "persistent.connect.rabbitmq.topology": "Binding Exchange Queue Topology",
            "persistent.connect.then": "then",
            "persistent.driver.evolution": "Evolution",
            "persistent.driver.report": "RunReport StepReport",
            "persistent.engines.embedded": "Embedded",
            "persistent.errors": "AssignerFailed CorruptCheckpoint CorruptLog EngineError Fenced FingerprintChanged "
            "InvalidPipeline NewerFormat NoCheckpoint OtherJob PersistentError Refused RetentionGap "
            "SinkMismatch SourceChanged SourceError StagedMissing StillRunning Stopped StorageError "
            "UnknownCheckpoint UnsupportedStore UserCodeError",
            "persistent.messaging.log.frames": "LogPosition",
            "persistent.messaging.log.segmented": "SegmentedLog",
            "persistent.messaging.offsets": "LevelDbOffsets SqliteOffsets StoredOffsets",
            "persistent.metrics": "OtelMetrics PrometheusMetrics",
            "persistent.pipeline": "Pipeline",
            "persistent.requests": "PostgresRequestLog SqliteRequestLog",
            "persistent.sinks": "FileSink FunctionSink KafkaSink LogSink MemorySink PostgresSink RabbitQueueSink "
            "RabbitStreamSink SqliteSink",
            "persistent.sources": "Avro FileSource KafkaSource LogSource MemorySource QueueEvent RabbitQueueSource "
            "RabbitStreamSource TopicSource",
            "persistent.state.state": "NonWindowState PersistentState WindowState",
            "persistent.task.dedupe": "Dedupe",
            "persistent.task.message": "Batch Message",
            "persistent.task.task": "PersistentTask State",
            "persistent.time.assigned_window": "Assigner assigned",
            "persistent.time.calendar_window": "calendar",
            "persistent.time.session_window": "session",
            "persistent.time.window": "Window sliding tumbling",
        },
    )

__version__ = "0.1.0"

__all__ = [
    "Assigner",
    "AssignerFailed",
    "Avro",
    "Batch",
    "Binding",
    "Correction",
    "CorruptCheckpoint",
    "CorruptLog",
    "Dedupe",
    "Embedded",
    "EngineError",
    "Evolution",
    "Exchange",
    "Fenced",
    "FileSink",
    "FileSource",
    "FingerprintChanged",
    "FunctionSink",
    "InvalidPipeline",
    "KafkaSink",
    "KafkaSource",
    "LevelDbOffsets",
    "LogPosition",
    "LogSink",
    "LogSource",
    "MemorySink",
    "MemorySource",
    "Message",
    "NewerFormat",
    "NoCheckpoint",
    "NonWindowState",
    "OtelMetrics",
    "OtherJob",
    "PersistentError",
    "PersistentState",
    "PersistentTask",
    "Pipeline",
    "PostgresRequestLog",
    "PostgresSink",
    "PrometheusMetrics",
    "Queue",
    "QueueEvent",
    "RabbitQueueSink",
    "RabbitQueueSource",
    "RabbitStreamSink",
    "RabbitStreamSource",
    "Refused",
    "Retention",
    "RetentionGap",
    "RunReport",
    "SegmentedLog",
    "SinkMismatch",
    "SourceChanged",
    "SourceError",
    "SqliteOffsets",
    "SqliteRequestLog",
    "SqliteSink",
    "StagedMissing",
    "State",
    "StepReport",
    "StillRunning",
    "Stopped",
    "StorageError",
    "StoredOffsets",
    "TopicSource",
    "Topology",
    "UnknownCheckpoint",
    "UnsupportedStore",
    "UserCodeError",
    "Window",
    "WindowState",
    "assigned",
    "calendar",
    "session",
    "sliding",
    "then",
    "tumbling",
]
