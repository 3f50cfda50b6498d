"""A topic as a source: journal writes what a receiver hands out to a log, which source reads."""
