"""A request has the name of its requester and an id, which grows from request to request.

The last id of each requester is its high-water mark. Above it: the work is done, and its reply stands beside the new
mark, in one transaction. At it: the same reply again. Below it: refused, for its reply is gone; the requester has
moved on since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from persistent.errors import InvalidPipeline, Refused

TABLE = "persistent_requests"
_ID_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class Answered:
    """The last request of a requester that was answered."""

    id: int
    reply: bytes


def is_answered(found: Answered | None, requester: str, id: int, place: str) -> bool:
    """Whether this is the request that was answered last; else it is new. Refused if a later one was answered."""
    if found is None or id > found.id:
        return False
    if id == found.id:
        return True
    raise Refused(
        f"{place}: request {id} of {requester!r} comes after {found.id} was answered: ids grow from request to "
        "request, and only the last reply is kept. It was answered before, or its id was given again: drop it. A "
        "requester that begins anew takes another name"
    )


def checked_request(requester: Any, id: Any) -> None:
    """Raise InvalidPipeline unless these can be the name of a requester and the id of a request."""
    if not isinstance(requester, str) or not requester or "\0" in requester:
        raise InvalidPipeline(f"requester={requester!r}: give a text")
    if not isinstance(id, int) or isinstance(id, bool) or not 0 <= id <= _ID_MAX:
        raise InvalidPipeline(f"id={id!r}: give a whole number from 0 to {_ID_MAX}, larger than the one before")


def checked_reply(reply: Any) -> bytes:
    """What the work returned, if it can be a reply; else TypeError, and nothing of the work stays."""
    if not isinstance(reply, bytes):
        raise TypeError(
            f"the work of a request returned {type(reply).__name__}: return the reply as bytes, b'' for none"
        )
    return reply
