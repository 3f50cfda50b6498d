"""A declared document is a part, written as JSON with its format in front, and sealed as every document is.

    {"format":4,"id":7,...}       the fields of the part, sorted, without spaces; those with their defaults left out
    SHA-256

``format`` is the newest that the document uses: it is computed, and read first and alone. A document is read only if
writing it again gives the same bytes. So it has one spelling: no key occurs twice, and no default is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec
import pyarrow as pa

from persistent.codec.documents import proven, sealed_document
from persistent.errors import CorruptCheckpoint, LawBroken, NewerFormat, Refused
from persistent.fields import Free, Part, Since, check_facts

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
        check_facts(facts)
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
            check_facts(facts)
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
