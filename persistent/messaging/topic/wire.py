"""The frames of the topic protocol: a length, a kind, fields of fixed size, and then text or a payload.

 length 4 | kind 1 | fields | rest          little-endian; length counts what follows it

A length beyond the limit of the reader is refused before any of it is kept, and so is a frame that does not fit its
kind. ``Hello`` begins with a magic number and a version, which identify other programs and other releases.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from persistent.messaging.topic.messages import (
    ASK_MAX,
    NUMBER_MAX,
    Ask,
    Gone,
    Have,
    Hello,
    Leave,
    Refusal,
    Sent,
    Spoken,
    Standing,
)

VERSION = 1
PAYLOAD_BYTES_MAX = (16 << 20) - 1_024
"""A journal adds a header, and its records have at most 16 MiB."""
TEXT_BYTES_MAX = 1_024
"""Of a topic name, and of a reason."""
SENDER_HEARS_BYTES_MAX = 2_048
RECEIVER_HEARS_BYTES_MAX = PAYLOAD_BYTES_MAX + 256
_MAGIC = b"PTOP"
_LENGTH = struct.Struct("<I")
_HELLO = struct.Struct("<4sHII")
_STANDING = struct.Struct("<16sQQBBI")
_SENT = struct.Struct("<16sQqB")
_RANGE = struct.Struct("<16sQQ")
_ONE = struct.Struct("<16sQ")


class Garbled(Exception):
    """The received bytes are not of this protocol, or of another version of it. The text is for users."""


def encode(message: Spoken) -> bytes:
    """The frame of a message of the protocol."""
    kind, head, rest = _encoded(message)
    return _LENGTH.pack(1 + len(head) + len(rest)) + bytes([kind]) + head + rest


def _encoded(message: Spoken) -> tuple[int, bytes, bytes]:
    match message:
        case Hello(topic, token, receiver):
            return 1, _HELLO.pack(_MAGIC, VERSION, token, receiver), topic.encode()
        case Standing(session, low, next_, retains, ended, token):
            return 2, _STANDING.pack(bytes.fromhex(session), low, next_, retains, ended, token), b""
        case Sent(session, number, time, payload, again):
            return 3, _SENT.pack(bytes.fromhex(session), number, time, again), payload
        case Gone(session, stop):
            return 4, _ONE.pack(bytes.fromhex(session), stop), b""
        case Ask(session, first, stop):
            return 5, _RANGE.pack(bytes.fromhex(session), first, stop), b""
        case Have(session, next_):
            return 6, _ONE.pack(bytes.fromhex(session), next_), b""
        case Refusal(reason):
            return 7, b"", reason.encode()[:TEXT_BYTES_MAX]
        case Leave():
            return 8, b"", b""


def decode(frame: bytes) -> Spoken:
    """The message in a frame, without its length. Garbled."""
    if not frame or frame[0] not in _DECODERS:
        raise Garbled(f"unknown frame of kind {frame[0] if frame else 'nothing'}")
    head, make = _DECODERS[frame[0]]
    body = frame[1:]
    if len(body) < head.size:
        raise Garbled(f"a frame of kind {frame[0]} has {len(body)} bytes, not at least {head.size}")
    return make(*head.unpack_from(body), body[head.size :])


def _text(rest: bytes) -> str:
    if len(rest) > TEXT_BYTES_MAX:
        raise Garbled(f"a text of {len(rest):,} bytes: the limit is {TEXT_BYTES_MAX:,}")
    try:
        return rest.decode()
    except UnicodeDecodeError as error:
        raise Garbled(f"a text that is not UTF-8: {error}") from error


def _ends(rest: bytes) -> None:
    if rest:
        raise Garbled(f"{len(rest)} bytes too many")


def _number(value: int) -> int:
    if value > NUMBER_MAX:
        raise Garbled(f"number {value}, beyond 63 bits")
    return value


def _hello(magic: bytes, version: int, token: int, receiver: int, rest: bytes) -> Hello:
    if magic != _MAGIC:
        raise Garbled(f"unknown magic number {magic!r}")
    if version != VERSION:
        raise Garbled(
            f"this sender speaks version {VERSION} of the protocol, the receiver {version}: update the older one"
        )
    return Hello(_text(rest), token, receiver)


def _standing(session: bytes, low: int, next_: int, retains: int, ended: int, *more: Any) -> Standing:
    token, rest = more
    _ends(rest)
    if low > next_ or retains > 1 or ended > 1:
        raise Garbled(f"an impossible standing: next message {next_}, retained from {low} on")
    return Standing(session.hex(), low, _number(next_), bool(retains), bool(ended), token)


def _sent(session: bytes, number: int, time: int, again: int, rest: bytes) -> Sent:
    if again > 1 or len(rest) > PAYLOAD_BYTES_MAX:
        raise Garbled("a message that is too large or of an unknown kind")
    return Sent(session.hex(), _number(number), time, rest, bool(again))


def _gone(session: bytes, stop: int, rest: bytes) -> Gone:
    _ends(rest)
    return Gone(session.hex(), _number(stop))


def _ask(session: bytes, first: int, stop: int, rest: bytes) -> Ask:
    _ends(rest)
    if not 0 < _number(stop) - first <= ASK_MAX:
        raise Garbled(f"a request for the messages from {first} to {stop}: at most {ASK_MAX:,} at once")
    return Ask(session.hex(), first, stop)


def _have(session: bytes, next_: int, rest: bytes) -> Have:
    _ends(rest)
    return Have(session.hex(), _number(next_))


def _leave(rest: bytes) -> Leave:
    _ends(rest)
    return Leave()


_NO_FIELDS = struct.Struct("<")
_DECODERS: dict[int, tuple[struct.Struct, Callable[..., Spoken]]] = {
    1: (_HELLO, _hello),
    2: (_STANDING, _standing),
    3: (_SENT, _sent),
    4: (_ONE, _gone),
    5: (_RANGE, _ask),
    6: (_ONE, _have),
    7: (_NO_FIELDS, lambda rest: Refusal(_text(rest))),
    8: (_NO_FIELDS, _leave),
}


class Frames:
    """Cuts received bytes into frames of at most ``bytes_max`` each.

    >>> frames = Frames(SENDER_HEARS_BYTES_MAX)
    >>> data = encode(Hello("clicks"))
    >>> frames.feed(data[:7]), frames.feed(data[7:])
    ([], [Hello(topic='clicks', token=0, receiver=0)])
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """The messages completed by these bytes. Garbled."""
        self._rest += data
        messages, start = [], 0
        while start + _LENGTH.size <= len(self._rest):
            (size,) = _LENGTH.unpack_from(self._rest, start)
            if size > self._bytes_max:
                raise Garbled(f"a frame of {size:,} bytes: the limit is {self._bytes_max:,}")
            stop = start + _LENGTH.size + size
            if stop > len(self._rest):
                break
            messages.append(decode(bytes(self._rest[start + _LENGTH.size : stop])))
            start = stop
        del self._rest[:start]
        return messages
