"""A codec turns state rows and manifests into bytes that prove themselves, and refuses anything it did not write.

    documents.py   manifests, plans, headers: canonical JSON with its SHA-256, bounded before it is parsed; parts, in
                   one spelling, with the newest format that they use in front
    fields.py      a part of a document, and what its fields can be: positions by codecs, types of key columns by names;
                   Run, by which a document names a file of rows
    sealed.py      a file of record batches with an index that verifies every byte; tables (listings, late rows, dead
                   letters) in such a file
    runs.py        state rows in such a file
    decimals.py    decimals from text, exact or refused
    lru_cache.py   the most recently used values, up to a number of them

Reading any bytes returns what was written or raises ``CorruptCheckpoint``, in memory that is a small multiple of their
size, and never runs or unpickles anything.
"""
