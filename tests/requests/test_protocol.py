"""What is decided about a request."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.errors import InvalidPipeline, Refused
from persistent.requests.protocol import Answered, checked_reply, checked_request, is_answered


def test_above_the_mark_it_is_new_and_at_it_the_same() -> None:
    """Below it nothing can be told: the reply is gone."""
    found = Answered(5, b"five")
    assert not is_answered(None, "a", 0, None, "log") and not is_answered(found, "a", 6, None, "log")
    assert not is_answered(found, "a", 900, None, "log") and is_answered(found, "a", 5, None, "log")
    with pytest.raises(Refused, match="log: request 4 of 'a' arrived after 5 was answered"):
        is_answered(found, "a", 4, None, "log")


@pytest.mark.parametrize(
    ("requester", "id"), [("", 1), (7, 1), ("a\0", 1), ("a", -1), ("a", True), ("a", 2**63), ("a", "1")]
)
def test_what_is_no_request_is_refused(requester: Any, id: Any) -> None:
    """The database would cut it, or take it for another."""
    with pytest.raises(InvalidPipeline):
        checked_request(requester, id)
    checked_request("a", 2**63 - 1)


def test_a_reply_is_bytes() -> None:
    """What was stored would come back as something else."""
    assert checked_reply(b"") == b""
    with pytest.raises(TypeError, match="returned str: return the reply as bytes"):
        checked_reply("a")
