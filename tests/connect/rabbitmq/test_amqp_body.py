"""The body of a message is found in whatever a broker keeps; what is none says so, and never reads on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rstream import AMQPMessage, Header, Properties, amqp_decoder

from persistent.connect.rabbitmq.amqp_body import body_of, message_of

BODIES = st.binary(max_size=600)


@given(BODIES)
def test_ours_is_read_by_us_and_by_others(body: bytes) -> None:
    """Of any size: short ones have another length field where a client writes them."""
    assert body_of(message_of(body)) == body
    found = amqp_decoder(message_of(body)).body
    assert (found if isinstance(found, bytes) else b"".join(found)) == body
    assert body_of(bytes(AMQPMessage(body=body))) == (body or None)


@given(BODIES, st.dictionaries(st.text(max_size=5), st.integers(-(2**40), 2**40), max_size=20))
def test_what_stands_before_it_is_passed_over(body: bytes, said: dict[str, int]) -> None:
    """Headers, annotations and properties, small and large."""
    message = AMQPMessage(
        body=body,
        header=Header(durable=True),
        properties=Properties(message_id="m-1", content_type="application/json"),
        application_properties=said,
        message_annotations={"x-note": 5},
    )
    assert body_of(bytes(message)) == (body or None)


@pytest.mark.parametrize(("value", "body"), [("text", b"text"), (b"raw", b"raw"), ("t" * 300, b"t" * 300)])
def test_a_value_that_is_bytes_or_a_text(value: object, body: bytes) -> None:
    """As some clients write what they are given."""
    assert body_of(bytes(AMQPMessage(value=value))) == body


def test_several_sections_of_data_are_one_body() -> None:
    """So says the standard."""
    assert body_of(message_of(b"ab") + message_of(b"") + message_of(b"c")) == b"abc"
    assert body_of(b"\x00\x80" + (0x75).to_bytes(8, "big") + b"\xa0\x01x") == b"x", "a long descriptor"
    assert body_of(message_of(b"a") + b"\x00\x53\x78\x45") == b"a", "a footer, an empty list"


def test_no_body_is_none() -> None:
    """A null, and a message of properties alone."""
    assert body_of(b"\x00\x53\x77\x40") is None and body_of(b"") is None
    assert body_of(b"\x00\x53\x73\x45") is None


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b'{"a": 1}', 'not an AMQP 1.0 message.*encoding="raw"'),
        (b"\x00\x53\x75", "not an AMQP"),
        (b"\x00\x53\x75\xa0", "not an AMQP"),
        (b"\x00\x53\x75\xa0\x05abc", "not an AMQP"),
        (b"\x00\x53\x75\xb0\x00\x00\x00\x09abc", "not an AMQP"),
        (b"\x00\x53\x75\x10", "not an AMQP"),
        (b"\x00\x53\x60\xa0\x00", "not an AMQP"),
        (b"\x00\x80\x00\x00", "not an AMQP"),
        (message_of(b"a") + b"x", "not an AMQP"),
        (b"\x00\x53\x76\xc0\x01\x00", "an AMQP sequence"),
        (b"\x00\x53\x77\x54\x05", "neither bytes nor a text"),
        (b"\x00\x53\x75\x40", "neither bytes nor a text"),
    ],
)
def test_what_is_no_message(message: bytes, said: str) -> None:
    """It is a dead letter that says what to do."""
    with pytest.raises(ValueError, match=said):
        body_of(message)


@given(st.binary(max_size=40))
def test_any_bytes_end(message: bytes) -> None:
    """In a body or in an error, never anywhere else."""
    try:
        found = body_of(b"\x00\x53" + message)
    except ValueError:
        return
    assert found is None or found in message or len(found) < len(message)
