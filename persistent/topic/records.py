"""The records of a topic journal: one for each message and one for each loss, so that the journal states its gaps.

kind 1 | delivery 1 | session 16 | first 8 | time or stop 8 | payload or reason
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from persistent.topic.messages import MessagesLost, SessionEnded, TopicEvent, TopicMessage

_HEAD = struct.Struct("<BB16sQq")
_MESSAGE, _LOST, _OPEN = 1, 2, 3
_DELIVERIES = ("live", "late-join", "retransmit")
_OPEN_REASON = "the sender is gone, and it is unknown whether it had published more"


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A message with its ``payload``, or a loss without one, and ``why`` in a sentence."""

    session: str
    number: int
    time: int
    delivery: str
    payload: bytes | None
    why: str = ""


def encode_record(event: TopicEvent) -> bytes | None:
    """The record of an event; None for an event without a message or a loss."""
    match event:
        case TopicMessage(session, number, time, payload):
            delivery = _DELIVERIES.index(event.delivery)
            return _HEAD.pack(_MESSAGE, delivery, bytes.fromhex(session), number, time) + payload
        case MessagesLost(session, first, stop, reason):
            return _HEAD.pack(_LOST, 0, bytes.fromhex(session), first, stop) + reason.encode()
        case SessionEnded(session, next_, False):
            return _HEAD.pack(_OPEN, 0, bytes.fromhex(session), next_, next_) + _OPEN_REASON.encode()
    return None


def decode_record(data: bytes) -> TopicRecord:
    """The record of these bytes. ValueError if they are not a record.

    >>> lost = MessagesLost("00" * 16, 4, 7, "the sender no longer retained them")
    >>> decode_record(encode_record(lost)).why
    'lost: messages 4 to 6 of session 00000000000000000000000000000000: the sender no longer retained them'
    """
    if len(data) < _HEAD.size or data[0] not in (_MESSAGE, _LOST, _OPEN) or data[1] >= len(_DELIVERIES):
        raise ValueError("not a record of a topic journal")
    kind, delivery, session, number, time = _HEAD.unpack_from(data)
    rest, name = data[_HEAD.size :], session.hex()
    if kind == _MESSAGE:
        return TopicRecord(name, number, time, _DELIVERIES[delivery], rest)
    place = f"messages {number} to {time - 1} of" if kind == _LOST else f"messages from {number} on, if any, of"
    return TopicRecord(name, number, 0, "", None, f"lost: {place} session {name}: {rest.decode()}")
