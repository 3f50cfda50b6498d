"""Files: which there are, which are read next, and where outputs are published.

source             the file source
listing, walk      the files that a path, folder or pattern names
roots              the folder that recorded paths are relative to
layout             the options that fix what a file means
index              every file ever listed; the pieces of files that a step reads
reader             the bytes of a file
sink, lists        a folder of published files; the list that publishes those of a checkpoint
"""
