"""A document is canonical JSON in one line, followed by a line with its SHA-256.

Reading checks its size and SHA-256 first, then the number of its values and their nesting depth, and only then
parses it. Writing refuses whatever reading refuses.

A declared document is a part, written as JSON with its format in front, and sealed as every document is.

    {"format":4,"id":7,...}       the fields of the part, sorted, without spaces; those with their defaults left out
    SHA-256

``format`` is the newest that the document uses: it is computed, and read first and alone. A document is read only if
writing it again gives the same bytes. So it has one spelling: no key occurs twice, and no default is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import repeat
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
import pyarrow as pa

from persistent.codec.fields import Free, Part, Since
from persistent.errors import CorruptCheckpoint, LawBroken, NewerFormat, Refused, StorageError

DOCUMENT_BYTES_MAX = 1 << 26
"""64 MiB: about 200,000 runs in one manifest."""

DOCUMENT_MARKS_MAX = 1 << 22
"""The limit of quotes, commas and opening brackets: each costs at most some 80 bytes once parsed, 350 MB together."""

DOCUMENT_DEPTH_MAX = 100
"""The nesting limit of lists and mappings: far deeper than records of records need."""

FACTS_DEPTH_MAX = 90
"""The nesting limit of free facts, which lie within a document."""

INTEGER_DIGITS_MAX = 1_000
"""Parsing a number takes time quadratic in its digits."""
_INTEGER_LIMIT = 10**INTEGER_DIGITS_MAX

_BRACKETS = b"[]{}"
_NOT_MARKS = bytes(set(range(256)) - set(b'"' + _BRACKETS))
_STEPS = np.zeros(256, np.int8)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def canonical_json(value: Any) -> str:
    """JSON in one spelling: sorted keys, no spaces, no floats, ASCII. ValueError for values that could not be read
    back."""
    check_value(value)
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


def check_value(value: Any, depth_max: int = DOCUMENT_DEPTH_MAX) -> None:
    """ValueError for a value that could not be read back as it is."""
    unchecked: list[tuple[Any, int]] = [(value, 0)]
    while unchecked:
        inner, depth = unchecked.pop()
        if isinstance(inner, str):
            if not inner.isascii():
                inner.encode()  # UnicodeEncodeError, which is a ValueError, for a lone surrogate.
        elif inner is None or isinstance(inner, bool):
            continue
        elif isinstance(inner, int):
            if abs(inner) >= _INTEGER_LIMIT:
                raise ValueError(
                    f"an integer of more than {INTEGER_DIGITS_MAX} digits, which a checkpoint cannot hold: write it as "
                    "text"
                )
        elif isinstance(inner, dict | list | tuple):
            if depth >= depth_max:
                raise ValueError(f"a value is nested deeper than {depth_max}, which a checkpoint cannot hold")
            unchecked += zip(inner, repeat(depth + 1))
            if isinstance(inner, dict):
                for name in inner:
                    if not isinstance(name, str):
                        raise ValueError(f"the name {name!r} is not text")
                unchecked += zip(inner.values(), repeat(depth + 1))
        elif isinstance(inner, float):
            raise ValueError(f"{inner!r} is a float, which a checkpoint cannot hold: write it as an integer or as text")
        else:
            raise ValueError(f"{inner!r:.60} is a {type(inner).__name__}, which a checkpoint cannot hold")


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


FORMAT = 4
"""The newest format that this release reads and writes."""
FIRST_FORMAT = 4
"""The format of all fields without ``Since``. Trees before the first release wrote 1 to 3."""

P = TypeVar("P", bound=Part)


class _Head(msgspec.Struct):
    format: int


_ENCODER = msgspec.json.Encoder(order="sorted")
_FRONT = re.compile(rb'\{"format":[0-9]+(,|(?=\}))')
_HEADS = msgspec.json.Decoder(_Head)


def write(part: P, what: str, laws: Callable[[P], None]) -> bytes:
    """The bytes of a document. LawBroken if they could not be read back."""
    for facts in _marked(part, Free):
        check_value(facts, FACTS_DEPTH_MAX)
    if (number := format_of(part)) > FORMAT:
        raise LawBroken(f"{what} needs format {number}, but FORMAT is {FORMAT}; it was not committed")
    try:
        # As read back: a value that is equal to a default may be another object, and is written.
        return sealed_document(_spelled(_part_of(type(part), _spelled(part), laws)))
    except (msgspec.ValidationError, TypeError, Misfit, NewerFormat) as error:
        raise LawBroken(f"{what} could not be read back ({error}); it was not committed") from error


def read(kind: type[P], data: bytes | pa.Buffer, place: str, what: str, laws: Callable[[P], None]) -> P:
    """The part in these bytes. CorruptCheckpoint, naming ``place``, unless they are exactly as ``write`` gives them;
    NewerFormat if a newer release wrote them; Refused if a tree before the first release did."""
    body = proven(data, place)
    check_format(body, place)
    try:
        part = _part_of(kind, body, laws)
        for facts in _marked(part, Free):
            check_value(facts, FACTS_DEPTH_MAX)
        if _spelled(part) != body:
            raise Misfit("it is not in the one spelling that a document has")
    except NewerFormat as error:
        raise NewerFormat(f"{place}: {error}") from error
    except ValueError as error:
        raise CorruptCheckpoint(f"{place}: not {what} ({error})") from error
    return part


def check_format(body: bytes, place: str) -> None:
    """Refuse a document of a format that this release does not know."""
    try:
        number = _HEADS.decode(body).format
    except ValueError as error:
        raise CorruptCheckpoint(
            f"{place}: is not a document of a checkpoint: check the url, or restore the file from a copy"
        ) from error
    if number > FORMAT:
        raise NewerFormat(f"{place}: format {number}, but this release reads {FORMAT}: use a newer release")
    if number < FIRST_FORMAT:
        raise Refused(
            f"{place}: format {number} is that of a tree before the first release, which nothing reads: start anew, "
            "with another url"
        )


class Misfit(ValueError):
    """A document whose parts do not agree, or that is spelled in another way."""


def no_laws(part: Part) -> None:
    """The laws of a document whose fields need no agreement: none."""


def format_of(part: Part) -> int:
    """The newest format that a part uses."""
    return max(_marked(part, Since), default=FIRST_FORMAT)


def _part_of(kind: type[P], body: bytes, laws: Callable[[P], None]) -> P:
    """The part that a document holds."""
    front = _FRONT.match(body)
    if front is None:
        raise Misfit("its format is not in front")
    part: P = _decoder(kind).decode(b"{" + body[front.end() :])
    laws(part)
    return part


def _spelled(part: Part) -> bytes:
    fields = _ENCODER.encode(part)[1:]
    return b'{"format":%d' % format_of(part) + (fields if fields == b"}" else b"," + fields)


@cache
def _decoder(kind: type[Part]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _marked(part: Part, mark: type) -> list[Any]:
    """For each field with a mark of this type, unless it has its default: the value of a free field, or the format that
    the field needs."""
    entries: list[Any] = []
    within: list[Any] = [part]
    while within:
        value = within.pop()
        if isinstance(value, Part):
            for name, marks, has_parts, default in _marked_fields(type(value), mark):
                inner = getattr(value, name)
                for annotation in marks if inner != default else ():
                    if isinstance(annotation, Free):
                        entries.append(inner)
                    elif not annotation.words or _holds(inner, annotation.words):
                        entries.append(annotation.format)
                if has_parts:
                    within.append(inner)
        elif isinstance(value, dict | tuple):
            within += value.values() if isinstance(value, dict) else value
    return entries


def _holds(value: Any, words: tuple[str, ...]) -> bool:
    """Whether a value is one of these words, or holds one."""
    if isinstance(value, dict | tuple):
        return any(_holds(inner, words) for inner in (value.values() if isinstance(value, dict) else value))
    return value in words


@cache
def _marked_fields(kind: type[Part], mark: type) -> tuple[tuple[str, tuple[Any, ...], bool, Any], ...]:
    """Name, marks, whether it holds marked parts, and default: of each field of a part that has such a mark, or holds
    such parts."""
    marked_fields = []
    for field in _fields(kind):
        within = list(terms(field.type))
        marks = tuple(term for term in within if isinstance(term, mark))
        inner = any(_marked_fields(term, mark) for term in within if isinstance(term, type) and issubclass(term, Part))
        if marks or inner:
            made = field.default_factory
            marked_fields.append((field.name, marks, inner, field.default if made is msgspec.NODEFAULT else made()))
    return tuple(marked_fields)


@cache
def _fields(kind: type[Part]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def terms(hint: Any) -> Iterator[Any]:
    """A type, and the types and annotations within it."""
    yield hint
    for inner in get_args(hint):
        yield from terms(inner)
