"""An embedded segmented log: a broker for who has none, and a journal for what cannot replay.

position.py                 the place of a record
frames.py  segments.py      the format: what is in a file, and what of it is whole
folder.py                   what there is, by its names
tails.py  takeover.py       where a writer adds, and how it becomes the only one
writer.py  sync.py          group commit, and when it syncs
cursor.py  segmented.py     reading on, and looking up
reader.py                   a reader whose position is stored
"""

from persistent.log.cursor import LogBatch
from persistent.log.position import BEGINNING, LogPosition
from persistent.log.reader import LogReader
from persistent.log.segmented import LogEnds, SegmentedLog
from persistent.log.writer import LogWriter

__all__ = ["BEGINNING", "LogBatch", "LogEnds", "LogPosition", "LogReader", "LogWriter", "SegmentedLog"]
