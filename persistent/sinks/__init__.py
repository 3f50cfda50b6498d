"""Sinks publish the outputs that a checkpoint names, once.

protocol.py    the two kinds of sinks, and what is said to them
outlet.py      a sink of either kind, and where its outputs wait
file.py        a folder of Parquet or JSON lines files
memory.py      a list of rows
"""

from persistent.checkpoint.names import Staged
from persistent.sinks.file import FileSink
from persistent.sinks.memory import MemorySink
from persistent.sinks.protocol import BatchSink, Claim, OutputBatch, Promise, Retreat, Sink

__all__ = ["BatchSink", "Claim", "FileSink", "MemorySink", "OutputBatch", "Promise", "Retreat", "Sink", "Staged"]
