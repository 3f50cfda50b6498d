"""Sinks publish the outputs that a checkpoint names, once."""

from persistent.sinks.file import FileSink
from persistent.sinks.memory import MemorySink
from persistent.sinks.protocol import Sink, Staged

__all__ = ["FileSink", "MemorySink", "Sink", "Staged"]
