"""The place of a receiver: how far it has handed out messages, as its successor needs to know."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from persistent.topic.messages import MessagesLost, SessionBegan, SessionEnded, TopicEvent, TopicMessage

LEFT_MAX = 64


@dataclass(frozen=True)
class TopicPlace:
    """Of ``session``, nothing before ``next`` is needed; ``ended``: nor anything else. ``left``: the same for earlier
    sessions, the oldest first. A receiver that sees one of them again, behind a proxy, resumes where it left it."""

    session: str = ""
    next: int = 0
    ended: bool = False
    left: Mapping[str, int] = field(default_factory=dict)

    def after(self, event: TopicEvent) -> TopicPlace:
        """The place after one more event.

        >>> TopicPlace().after(SessionBegan("s", 4, 9)).after(MessagesLost("s", 4, 7, "")).next
        7
        """
        match event:
            case SessionBegan(session, first, _) if session != self.session:
                left = {name: next_ for name, next_ in self.left.items() if name != session}
                left.update({self.session: self.next} if self.session else {})
                return TopicPlace(session, first, False, dict(list(left.items())[-LEFT_MAX:]))
            case SessionBegan():
                return self
            case TopicMessage(session, number):
                return TopicPlace(session, number + 1, False, self.left)
            case MessagesLost(session, _, stop):
                return TopicPlace(session, stop, False, self.left)
            case SessionEnded(session, next_, _):
                return TopicPlace(session, next_, True, self.left)

    def known(self, session: str) -> int | None:
        """The first number that is needed of a session seen before, or None."""
        return self.next if session == self.session else self.left.get(session)

    def encoded(self) -> bytes:
        """The place as bytes, for the mark of a log."""
        said = {"session": self.session, "next": self.next, "ended": self.ended, "left": [*self.left.items()]}
        return json.dumps(said, separators=(",", ":")).encode()

    @staticmethod
    def decoded(data: bytes) -> TopicPlace:
        """The place of such bytes, or the beginning if there are none. ValueError, KeyError, TypeError for other
        bytes."""
        if not data:
            return TopicPlace()
        said: dict[str, Any] = json.loads(data)
        left = {str(session): int(next_) for session, next_ in said["left"]}
        return TopicPlace(str(said["session"]), int(said["next"]), bool(said["ended"]), left)
