"""Sinks publish the outputs that a checkpoint names, once."""

from persistent.checkpoint.names import Staged
from persistent.sinks.file import FileSink
from persistent.sinks.memory import MemorySink
from persistent.sinks.protocol import Sink

__all__ = ["FileSink", "MemorySink", "Sink", "Staged"]
