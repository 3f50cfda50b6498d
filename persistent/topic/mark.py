"""The mark of a topic journal says which topic it holds, how far, and what it lacks. Every entry has one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from persistent.topic.messages import MessagesLost, SessionBegan, SessionEnded, TopicEvent
from persistent.topic.options import JoinOptions
from persistent.topic.place import TopicPlace


@dataclass(frozen=True)
class JournalMark:
    """``place``: after the last event. ``begun``: the session and the number with which the journal begins, if earlier
    messages were wanted and were no longer retained. ``lost``: how many messages were lost since; ``open_ends``: how
    many sessions have ended without a word of their sender."""

    topic: str
    place: TopicPlace = field(default_factory=TopicPlace)
    begun: tuple[str, int] = ("", 0)
    lost: int = 0
    open_ends: int = 0

    def after(self, event: TopicEvent, options: JoinOptions) -> JournalMark:
        """The mark after one more event.

        >>> JournalMark("t").after(MessagesLost("s", 4, 7, ""), JoinOptions()).lost
        3
        """
        found = replace(self, place=self.place.after(event))
        match event:
            case SessionBegan(session, first) if not self.place.session and options.late and not options.last:
                return replace(found, begun=(session, first))
            case MessagesLost():
                return replace(found, lost=self.lost + len(event))
            case SessionEnded(clean=False):
                return replace(found, open_ends=self.open_ends + 1)
        return found

    def warnings(self) -> Iterator[str]:
        """What the journal lacks, a sentence each."""
        if self.begun[1]:
            session, first = self.begun
            yield (
                f"begins with message {first:,} of session {session}: the {first:,} before it are neither counted nor "
                "dead letters: the sender no longer had them; let the sender retain more (TopicSender(retain=)), or "
                "start the job before it"
            )
        if self.lost or self.open_ends:
            ends = f", and of {self.open_ends:,} sessions the end is unknown" if self.open_ends else ""
            yield f"lacks {self.lost:,} messages that were lost since it began{ends}: see persistent dead-letters"

    def encoded(self) -> bytes:
        said = {
            "topic": self.topic,
            "place": self.place.encoded().decode(),
            "begun": list(self.begun),
            "lost": self.lost,
            "open_ends": self.open_ends,
        }
        return json.dumps(said).encode()

    @staticmethod
    def decoded(mark: bytes) -> JournalMark:
        """The mark of such bytes. ValueError, KeyError, TypeError, AttributeError for other bytes.

        An earlier release did not store what the journal lacks.
        """
        said: Any = json.loads(mark)
        topic, place = str(said["topic"]), TopicPlace.decoded(said["place"].encode())
        session, first = said.get("begun", ("", 0))
        return JournalMark(
            topic, place, (str(session), int(first)), int(said.get("lost", 0)), int(said.get("open_ends", 0))
        )
