"""The mark of a journal says what it lacks, and keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.connect.topic.journal import JournalMark
from persistent.messaging.topic.messages import TopicEvent
from persistent.topic import JoinOptions, MessagesLost, SessionBegan, SessionEnded, TopicMessage, TopicPlace


def after(*events: TopicEvent, **options: Any) -> JournalMark:
    """The mark after these events, stored and read between any two."""
    mark = JournalMark("t")
    for event in events:
        mark = JournalMark.decoded(mark.after(event, JoinOptions(**options)).encoded())
    return mark


def test_what_is_lacking_is_counted() -> None:
    """One dead letter may stand for a thousand messages: only their number says how wrong a state may be."""
    mark = after(
        SessionBegan("s", 0, 0),
        TopicMessage("s", 0, 0, b""),
        MessagesLost("s", 1, 1_000, "gone"),
        MessagesLost("s", 1_000, 1_500, "other"),
        SessionEnded("s", 1_500, False),
        SessionBegan("s2", 0, 0),
        SessionEnded("s2", 0, True),
    )
    assert (mark.lost, mark.open_ends, mark.place) == (1_499, 1, TopicPlace("s2", 0, True, {"s": 1_500}))
    (warning,) = mark.warnings()
    assert warning.startswith("lacks 1,499 messages that were lost since it began, and of 1 sessions the end")


@pytest.mark.parametrize(("options", "warns"), [({}, True), ({"late": False}, False), ({"last": 3}, False)])
def test_a_beginning_that_was_wanted_and_is_missing_is_kept(options: dict[str, Any], warns: bool) -> None:
    """Whoever reads a later report must still learn that the state is not that of the whole topic."""
    mark = after(SessionBegan("s", 4, 9), TopicMessage("s", 4, 0, b""), SessionBegan("s2", 7, 7), **options)
    assert mark.begun == (("s", 4) if warns else ("", 0))
    assert ["the 4 before it" in warning for warning in mark.warnings()] == [True] * warns


def test_nothing_is_lacking_of_a_topic_from_its_beginning() -> None:
    """A warning without cause would hide the others."""
    assert list(after(SessionBegan("s", 0, 4), TopicMessage("s", 0, 0, b"")).warnings()) == []
