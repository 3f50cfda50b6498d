"""A message never ends a run by its headers: what no column holds is left out, and what cannot be decoded says so."""

from __future__ import annotations

import math
import struct
from typing import Any

import pika
import pytest
from pika.frame import Body, Header, decode_frame

from persistent.connect.rabbitmq.frames import Undecodable, decode_headers, read_frame

YEAR_55840 = struct.pack(">Q", 1_700_000_000_000)


def header(name: bytes, kind: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + kind + value


def sized(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def decoded(*headers: bytes) -> dict[str, Any]:
    """The headers of a table in the middle of other bytes."""
    table = sized(b"".join(headers))
    found, end = decode_headers(b"before" + table + b"behind", 6)
    assert end == 6 + len(table)
    return found


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (b"t", b"\x01", True),
        (b"b", b"\xff", -1),
        (b"B", b"\xff", 255),
        (b"U", b"\xff\xfe", -2),
        (b"s", b"\xff\xfe", -2),
        (b"u", b"\xff\xfe", 65_534),
        (b"I", struct.pack(">i", -7), -7),
        (b"i", b"\xff\xff\xff\xff", (1 << 32) - 1),
        (b"L", struct.pack(">q", -(1 << 40)), -(1 << 40)),
        (b"l", struct.pack(">q", 1 << 40), 1 << 40),
        (b"f", struct.pack(">f", 0.5), 0.5),
        (b"d", struct.pack(">d", 1.75), 1.75),
        (b"d", struct.pack(">d", math.inf), math.inf),
        (b"S", sized("é".encode()), "é"),
        (b"S", sized(b"caf\xe9"), b"caf\xe9"),
        (b"x", sized(b"ab"), b"ab"),
        (b"D", b"\x02\x00\x00\x00\x0f", None),
        (b"T", YEAR_55840, None),
        (b"T", b"\xff" * 8, None),
        (b"A", sized(b"T" + YEAR_55840), None),
        (b"F", sized(header(b"when", b"T", YEAR_55840)), None),
        (b"V", b"", None),
    ],
)
def test_every_type_of_the_protocol(kind: bytes, value: bytes, expected: Any) -> None:
    """The client cuts 1.75 down to 1, and loses its connection over a timestamp in milliseconds."""
    found = decoded(header(b"a", kind, value), header(b"next", b"t", b"\x00"))
    assert found == {"a": expected, "next": False}
    assert type(found["a"]) is type(expected)


def test_a_name_that_is_not_utf8_is_left_out() -> None:
    """No column can have it as its name."""
    assert decoded(header(b"caf\xe9", b"t", b"\x01"), header(b"a", b"t", b"\x01")) == {"a": True}


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        (header(b"a", b"?", b"1234"), r"b'\?' is not a type"),
        (header(b"a", b"S", struct.pack(">I", 99)), "longer than all"),
        (b"\x63a", "b'' is not a type"),
    ],
)
def test_headers_that_cannot_be_decoded_say_why(headers: bytes, reason: str) -> None:
    """They would end the connection, and every one after it, as the broker delivers the message again."""
    found, end = decode_headers(sized(headers), 0)
    assert isinstance(found, Undecodable) and found == {} and end == 4 + len(headers)
    with pytest.raises(ValueError, match=reason):
        raise ValueError(found.reason)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"headers": {}},
        {"headers": {"a": 1, "b": {"c": "d"}}, "message_id": "m"},
        {"content_type": "text/plain", "content_encoding": "utf-8", "headers": {"a": "é"}, "delivery_mode": 2},
        {"content_type": "text/plain", "message_id": "m", "timestamp": 1 << 63},
        {"content_encoding": "", "headers": {"a": True}, "correlation_id": "c", "app_id": "x"},
    ],
)
def test_a_frame_is_otherwise_that_of_the_client(properties: dict[str, Any]) -> None:
    """A message would have the properties of another, or its body."""
    sent = Header(3, 7, pika.BasicProperties(**properties)).marshal()
    size, frame = read_frame(decode_frame, sent + b"behind")
    same_size, expected = decode_frame(sent + b"behind")
    assert isinstance(frame, Header) and isinstance(expected, Header)
    assert (size, frame.channel_number, frame.body_size) == (same_size, 3, 7)
    headers = expected.properties.headers
    plain = None if headers is None else {name: None if name == "b" else value for name, value in headers.items()}
    assert frame.properties.headers == plain
    frame.properties.headers = headers
    assert frame.properties == expected.properties


def test_a_frame_is_waited_for_until_it_is_whole() -> None:
    """Half a frame would be read as a whole one."""
    sent = Header(1, 2, pika.BasicProperties(headers={"a": 1}, message_id="m")).marshal()
    for size in range(len(sent)):
        assert read_frame(decode_frame, sent[:size]) == (0, None)
    body = Body(1, b"ab").marshal()
    assert read_frame(decode_frame, body)[0] == len(body)


def test_a_frame_without_its_end_is_still_an_error() -> None:
    """The next frames would be read from the wrong place."""
    sent = Header(1, 2, pika.BasicProperties(headers={"a": 1})).marshal()
    with pytest.raises(pika.exceptions.InvalidFrameError):
        read_frame(decode_frame, sent[:-1] + b"\x00")
