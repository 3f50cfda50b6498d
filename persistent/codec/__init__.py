"""A codec turns state rows and manifests into bytes that prove themselves, and refuses anything it did not write.

    documents.py   manifests, plans, headers: canonical JSON with its SHA-256, bounded before it is parsed
    declared.py    documents that a class declares: one spelling, the newest format that it uses in front
    sealed.py      a file of record batches with an index that verifies every byte; tables (listings, late rows, dead
                   letters) in such a file
    runs.py        state rows in such a file
    key_types.py   the types of key columns, by name
    decimals.py    decimals from text, exact or refused
    recognised.py  bytes that were proven before, recognised by a shorter hash

Reading any bytes returns what was written or raises ``CorruptCheckpoint``, in memory that is a small multiple of their
size, and never runs or unpickles anything.
"""

from persistent.codec.documents import (
    DOCUMENT_BYTES_MAX,
    DOCUMENT_DEPTH_MAX,
    DOCUMENT_MARKS_MAX,
    INTEGER_DIGITS_MAX,
    canonical_json,
    decode_document,
    encode_document,
)
from persistent.codec.key_types import common_key_types, type_of
from persistent.codec.runs import (
    KEY_GROUPS,
    Run,
    decode_panes,
    decode_run,
    encode_run,
    find_in_run,
    groups_of,
    is_wide,
    of_hashes,
)
from persistent.codec.sealed import BATCH_ROWS_MAX, decode_table, encode_table

__all__ = [
    "BATCH_ROWS_MAX",
    "DOCUMENT_BYTES_MAX",
    "DOCUMENT_DEPTH_MAX",
    "DOCUMENT_MARKS_MAX",
    "INTEGER_DIGITS_MAX",
    "KEY_GROUPS",
    "Run",
    "canonical_json",
    "common_key_types",
    "decode_document",
    "decode_panes",
    "decode_run",
    "decode_table",
    "encode_document",
    "encode_run",
    "encode_table",
    "find_in_run",
    "groups_of",
    "is_wide",
    "of_hashes",
    "type_of",
]
