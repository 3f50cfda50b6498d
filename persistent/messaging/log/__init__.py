"""An embedded segmented log: a broker for users without one, and a journal for sources that cannot replay.

frames.py  segments.py      the format of a file, which part of it is whole, and the place of a record
folder.py                   the files of a log, by their names
tails.py  takeover.py       where a writer appends, and how it becomes the only one
writer.py                   group commit, and when it syncs
cursor.py  lookup.py         reading and looking up
segmented.py                the log
reader.py                   a reader whose position is stored
"""
