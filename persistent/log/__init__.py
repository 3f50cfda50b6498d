"""An embedded segmented log: a broker for users without one, and a journal for sources that cannot replay.

position.py                 the place of a record
frames.py  segments.py      the format of a file, and which part of it is whole
folder.py                   the files of a log, by their names
tails.py  takeover.py       where a writer appends, and how it becomes the only one
writer.py                   group commit, and when it syncs
cursor.py  lookup.py         reading and looking up
segmented.py                the log
reader.py                   a reader whose position is stored
"""

from persistent.log.cursor import LogBatch, grouped
from persistent.log.lookup import LogEnds
from persistent.log.position import BEGINNING, LogPosition
from persistent.log.reader import LogReader
from persistent.log.segmented import SegmentedLog
from persistent.log.writer import LogWriter

__all__ = ["BEGINNING", "LogBatch", "LogEnds", "LogPosition", "LogReader", "LogWriter", "SegmentedLog", "grouped"]
