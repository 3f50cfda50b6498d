"""An embedded segmented log: a broker for users without one, and a journal for sources that cannot replay."""

from persistent.messaging.log.cursor import LogBatch, LogEnds, grouped
from persistent.messaging.log.frames import BEGINNING, LogPosition
from persistent.messaging.log.reader import LogReader
from persistent.messaging.log.segmented import SegmentedLog
from persistent.messaging.log.writer import LogWriter

__all__ = ["BEGINNING", "LogBatch", "LogEnds", "LogPosition", "LogReader", "LogWriter", "SegmentedLog", "grouped"]
