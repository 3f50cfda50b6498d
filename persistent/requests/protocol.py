"""A request has the name of its requester and an id that grows from request to request.

The last id of each requester is its high-water mark. A request above it is processed, and its reply is stored with the
new mark, in one transaction. A request at the mark gets the same reply again, but is refused if its content differs
from the content of the answered request. A request below the mark is refused, because its reply is gone and the
requester has moved on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from persistent.errors import InvalidPipeline, Refused

TABLE = "persistent_requests"
_ID_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Answered:
    """The last answered request of a requester. ``content``: the digest of its content, None if none was given."""

    id: int
    reply: bytes
    content: bytes | None = None


def digest_of(content: Any) -> bytes | None:
    """The digest of the content of a request; None if it is not given. InvalidPipeline unless it is bytes."""
    if content is not None and not isinstance(content, bytes):
        raise InvalidPipeline(
            f"content={content!r:.60}: give the body of the request as bytes, or those of its fields that make it the "
            "same request"
        )
    return None if content is None else hashlib.sha256(content).digest()


def is_answered(answered: Answered | None, requester: str, id: int, content: bytes | None, place: str) -> bool:
    """Whether this request was the last one answered; otherwise it is new. ``content``: the digest of its content.
    Refused if a later request was answered, or a request with another content under this id."""
    if answered is None or id > answered.id:
        return False
    if id == answered.id:
        if None not in (content, answered.content) and content != answered.content:
            raise Refused(
                f"{place}: request {id} of {requester!r} was answered before, with another content: its id was reused, "
                "and the stored reply is that of the other request. Give each request a new id, larger than the last; "
                "if copies of one request differ, give as content= only what they have in common"
            )
        return True
    raise Refused(
        f"{place}: request {id} of {requester!r} arrived after {answered.id} was answered: ids grow from request to "
        "request, and only the last reply is kept. It was answered before, or its id was reused: drop it. A "
        "requester that starts anew takes another name"
    )


def checked_request(requester: Any, id: Any) -> None:
    """Raise InvalidPipeline unless these can be the name of a requester and the id of a request."""
    if not isinstance(requester, str) or not requester or "\0" in requester:
        raise InvalidPipeline(f"requester={requester!r}: give a text")
    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id <= _ID_MAX:
        raise InvalidPipeline(f"id={id!r}: give a whole number from 0 to {_ID_MAX}, larger than the previous one")


def checked_reply(reply: Any) -> bytes:
    """The return value of ``work``, if it can be a reply; otherwise TypeError, which undoes the work."""
    if not isinstance(reply, bytes):
        raise TypeError(
            f"the work of a request returned {type(reply).__name__}: return the reply as bytes, b'' for none"
        )
    return reply
