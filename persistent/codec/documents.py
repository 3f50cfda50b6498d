"""A document is canonical JSON in one line, followed by a line with its SHA-256.

Reading checks its size and SHA-256 first, then the number of its values and their nesting depth, and only then
parses it. Writing refuses whatever reading refuses.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa

from persistent.errors import CorruptCheckpoint, StorageError

DOCUMENT_BYTES_MAX = 1 << 26
"""64 MiB: about 200,000 runs in one manifest."""

DOCUMENT_MARKS_MAX = 1 << 22
"""The limit of quotes, commas and opening brackets: each costs at most some 80 bytes once parsed, 350 MB together."""

DOCUMENT_DEPTH_MAX = 100
"""The nesting limit of lists and mappings: far deeper than records of records need."""

INTEGER_DIGITS_MAX = 1_000
"""Parsing a number takes time quadratic in its digits."""

_BRACKETS = b"[]{}"
_NOT_MARKS = bytes(set(range(256)) - set(b'"' + _BRACKETS))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def canonical_json(value: Any) -> str:
    """JSON in one spelling: sorted keys, no spaces, no floats, ASCII. ValueError for values that could not be read
    back."""
    _check_value(value, 0)
    return spelled(value)


def encode_document(value: Any) -> bytes:
    """A JSON value that proves itself. StorageError if it is too large to be read back.

    >>> encode_document({"b": 1, "a": [2]}).split(b"\\n")[0]
    b'{"a":[2],"b":1}'
    """
    return sealed_document(canonical_json(value).encode())


def sealed_document(body: bytes) -> bytes:
    """A document of these bytes, with their SHA-256. StorageError if it is too large to be read back."""
    data = body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"
    for size, limit, unit in ((len(data), DOCUMENT_BYTES_MAX, "bytes"), (_marks(body), DOCUMENT_MARKS_MAX, "marks")):
        if size > limit:
            raise StorageError(
                f"a manifest, plan or header of {size} {unit} was not written: above {limit} it cannot be read. "
                "Nothing was committed; take smaller steps (step_rows=), or fewer partitions or columns"
            )
    return data


def decode_document(data: bytes | pa.Buffer, place: str) -> Any:
    """The inverse of ``encode_document``. CorruptCheckpoint unless every byte is as written."""
    body = proven(data, place)
    try:
        return _parsed(body)
    except ValueError as error:
        raise CorruptCheckpoint(f"{place}: {error}") from error


def proven(data: bytes | pa.Buffer, place: str) -> bytes:
    """What a document holds, bounded and proven by its SHA-256, and not yet parsed. CorruptCheckpoint."""
    size = memoryview(data).nbytes
    if size > DOCUMENT_BYTES_MAX:
        raise CorruptCheckpoint(f"{place}: {size} bytes; a manifest has at most {DOCUMENT_BYTES_MAX}")
    body, newline, trailer = bytes(data).partition(b"\n")
    if not newline or trailer != hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise CorruptCheckpoint(f"{place}: SHA-256 differs from its trailer")
    marks = _marks(body)
    if marks > DOCUMENT_MARKS_MAX:
        raise CorruptCheckpoint(f"{place}: {marks} marks, the limit is {DOCUMENT_MARKS_MAX}")
    if _depth(body) > DOCUMENT_DEPTH_MAX:
        raise CorruptCheckpoint(f"{place}: it is nested deeper than {DOCUMENT_DEPTH_MAX}")
    return body


def spelled(value: Any) -> str:
    """Canonical JSON of a value that is known to hold only whole numbers and text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parsed(body: bytes) -> Any:
    value = json.loads(
        body.decode("ascii"),
        object_pairs_hook=_unique,
        parse_int=_integer,
        parse_float=_no_integer,
        parse_constant=_no_integer,
    )
    if b"\\ud" in body or b"\\uD" in body:
        json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError for a lone surrogate, which no name has
    return value


def _marks(body: bytes) -> int:
    """An upper bound for the number of values and keys."""
    return sum(map(body.count, (b'"', b",", b"[", b"{")))


def _depth(body: bytes) -> int:
    """The nesting depth of the brackets outside of texts."""
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(plain.translate(None, _NOT_MARKS), np.uint8)
    in_text = np.cumsum(marks == ord('"'), dtype=np.uint8) & 1
    depths = np.cumsum(np.where(in_text, 0, _STEPS[marks]), dtype=np.int32)
    return int(depths.max(initial=0))


def _check_value(value: Any, depth: int) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif value is None or isinstance(value, bool):
        return
    elif isinstance(value, int):
        if not -_INTEGER_LIMIT < value < _INTEGER_LIMIT:
            raise ValueError(
                f"an integer of more than {INTEGER_DIGITS_MAX} digits, which a checkpoint cannot hold: write it as text"
            )
    elif isinstance(value, dict):
        _check_depth(depth)
        for name, inner in value.items():
            if not isinstance(name, str):
                raise ValueError(f"the name {name!r} is not text")
            _check_text(name)
            _check_value(inner, depth + 1)
    elif isinstance(value, list | tuple):
        _check_depth(depth)
        for inner in value:
            _check_value(inner, depth + 1)
    elif isinstance(value, float):
        raise ValueError(f"{value!r} is a float, which a checkpoint cannot hold: write it as an integer or as text")


def _check_depth(depth: int) -> None:
    if depth >= DOCUMENT_DEPTH_MAX:
        raise ValueError(f"a value is nested deeper than {DOCUMENT_DEPTH_MAX}, which a checkpoint cannot hold")


_INTEGER_LIMIT = 10**INTEGER_DIGITS_MAX


def _check_text(text: str) -> None:
    """UnicodeEncodeError, which is a ValueError, for a lone surrogate."""
    if not text.isascii():
        text.encode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key occurs twice")
    return mapping


def _integer(text: str) -> int:
    if len(text) > INTEGER_DIGITS_MAX + text.startswith("-"):
        raise ValueError(f"an integer of more than {INTEGER_DIGITS_MAX} digits")
    return int(text)


def _no_integer(text: str) -> Any:
    raise ValueError(f"{text:.40} is not an integer")
