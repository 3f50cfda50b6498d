"""The mutants of the section "topic": each leaves out one thing that keeps a topic whole, and must be found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from persistent.messaging.topic.ordering import Asks, Ordering
from persistent.messaging.topic.receiving import Receiving
from persistent.messaging.topic.sending import Outbox, Retained, Sending
from persistent.topic import MessagesLost, SessionBegan, SessionEnded, TopicMessage, TopicPlace
from tests.proof.topic import Sweep

_SEEDS_MAX = 300


@dataclass(frozen=True)
class TopicMutant:
    """A defect of a sender or a receiver."""

    name: str
    planted: Callable[[], AbstractContextManager[Any]]


_real_comes, _real_lose, _real_close, _real_begin = Ordering.comes, Ordering._lose, Ordering.close, Receiving._begin
_real_heard, _real_after, _real_of, _real_hand_out = Receiving.heard, TopicPlace.after, Retained.of, Ordering._hand_out
_real_pass, _real_meets = Ordering._pass, Receiving._meets
_real_ask, _real_unlinked, _real_put = Outbox.ask, Sending.unlinked, Outbox.put
_real_over, _real_asks = Asks.over, Asks.__init__


def _again(self: Ordering, message: Any, now: int) -> Any:
    if message.number < self.next:
        return [TopicMessage(self.session, message.number, message.time, message.payload)]
    return _real_comes(self, message, now)


def _as_it_comes(self: Ordering, message: Any, now: int) -> Any:
    if message.number >= self.next:
        self.next = message.number
    return _real_comes(self, message, now)


def _quietly(self: Ordering, found: Any, stop: int, reason: str) -> None:
    self.next = stop


def _told_twice(self: Ordering, found: Any, stop: int, reason: str) -> None:
    first = self.next
    _real_lose(self, found, stop, reason)
    found.append(MessagesLost(self.session, first, stop, reason))


def _dropped(self: Ordering) -> Any:
    self._waiting.clear()
    return _real_close(self)


def _from_any(self: Receiving, link: int, said: Any, now: int) -> Any:
    return _real_heard(self, self._link, said, now)


def _still(self: TopicPlace, event: Any) -> TopicPlace:
    return self if isinstance(event, MessagesLost) else _real_after(self, event)


def _forgetful(self: TopicPlace, event: Any) -> TopicPlace:
    return replace(_real_after(self, event), left={})


def _unsaid(self: Receiving, standing: Any, known: Any) -> Any:
    began, *_ = _real_begin(self, standing, known)
    return [began]


def _live_alone(self: Receiving, standing: Any, known: Any) -> Any:
    return _real_begin(self, replace(standing, low=standing.next), known)


def _one_before(self: Receiving, standing: Any, known: Any) -> Any:
    return _real_begin(self, standing, known if known is None else max(0, known - 1))


def _shifted(self: Retained, first: int, stop: int) -> Any:
    return [replace(one, number=max(one.number - 1, 0)) for one in _real_of(self, first, stop)]


def _let_go(self: Retained, now: int) -> None:
    while len(self._messages) > 3:
        self._messages.popleft()


def _ended_early(self: Ordering, reason: str = "") -> Any:
    found = _real_hand_out(self, reason)
    if self.ended and not self._has_reported_end:
        self._has_reported_end = True
        found.append(SessionEnded(self.session, self.stop, True))
    return found


def _passed_by(self: Ordering, message: Any) -> None:
    _real_pass(self, message)
    self._look_from = max(self._look_from, message.number + 1)


def _as_new(self: Receiving, standing: Any, now: int) -> Any:
    """Another session is taken for a part of the same."""
    if self.ordering is not None:
        self.ordering.session = standing.session
    return _real_meets(self, standing, now)


def _all_live(self: Ordering, reason: str = "") -> Any:
    return [replace(one, gap=False) if isinstance(one, TopicMessage) else one for one in _real_hand_out(self, reason)]


def _seam_at(self: Receiving, standing: Any, known: Any) -> Any:
    events = _real_begin(self, standing, known)
    return [replace(one, next=one.first) if isinstance(one, SessionBegan) else one for one in events]


def _once_more(self: Outbox, first: int, stop: int) -> None:
    self._is_asked.clear()
    _real_ask(self, first, stop)


def _never_alone(self: Asks, options: Any) -> None:
    """Time passes however long nothing is heard."""
    _real_asks(self, options)
    self._vouched_most = 1 << 60


def _whole_ones(self: Receiving, link: int, said: Any, now: int) -> Any:
    return _real_heard(self, link, said, now) if said else []


def _without_room(self: Outbox, message: Any) -> bool:
    self._bytes_max = 1 << 60
    return _real_put(self, message)


def _from_the_request(self: Asks) -> Any:
    self._moved = 0
    return _real_over(self)


def _forgotten(self: Sending, link: int, now: int) -> None:
    _real_unlinked(self, link, now)
    self._away.clear()


def _recovered(self: Ordering, number: int) -> bool:
    return not self._retains


def _plant(where: Any, name: str, other: Any) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(where, name, other)


MUTANTS = (
    TopicMutant("what comes twice is handed out twice", _plant(Ordering, "comes", _again)),
    TopicMutant("what is missing is passed over", _plant(Ordering, "comes", _as_it_comes)),
    TopicMutant("a loss is not told", _plant(Ordering, "_lose", _quietly)),
    TopicMutant("a loss is told twice", _plant(Ordering, "_lose", _told_twice)),
    TopicMutant("what waits is lost with the session", _plant(Ordering, "close", _dropped)),
    TopicMutant("what is said over an old connection counts", _plant(Receiving, "heard", _from_any)),
    TopicMutant("the place does not know of losses", _plant(TopicPlace, "after", _still)),
    TopicMutant("the place forgets sessions that were left", _plant(TopicPlace, "after", _forgetful)),
    TopicMutant("what was missed of a new session is not told", _plant(Receiving, "_begin", _unsaid)),
    TopicMutant("late join begins with what is live", _plant(Receiving, "_begin", _live_alone)),
    TopicMutant("who goes on begins one too early", _plant(Receiving, "_begin", _one_before)),
    TopicMutant("the seam is told where it is not", _plant(Receiving, "_begin", _seam_at)),
    TopicMutant("the end of a session is not told", _plant(Receiving, "_leave", lambda self, session: [])),
    TopicMutant("another session is taken for the same", _plant(Receiving, "_meets", _as_new)),
    TopicMutant("nothing is asked for again", _plant(Asks, "due", lambda self, now: [])),
    TopicMutant("what is asked for is lost at once", _plant(Asks, "over", lambda self: list(self._asked))),
    TopicMutant("a message waits its time though others come", _plant(Asks, "over", _from_the_request)),
    TopicMutant("a part of a message is silence", _plant(Receiving, "heard", _whole_ones)),
    TopicMutant("a sender that is stopped is waited for", _plant(Asks, "__init__", _never_alone)),
    TopicMutant("what waits is asked for once more", _plant(Outbox, "ask", _once_more)),
    TopicMutant("it asks again all the time", _plant(Asks, "due", lambda self, now: list(self._asked))),
    TopicMutant("any number of messages wait for a receiver", _plant(Outbox, "put", _without_room)),
    TopicMutant("who does not recover asks", _plant(Ordering, "_is_unrecovered", _recovered)),
    TopicMutant("who may return is not waited for", _plant(Sending, "unlinked", _forgotten)),
    TopicMutant("what is gone is waited for", _plant(Ordering, "_lost", lambda self, reason: None)),
    TopicMutant("what was too far ahead is not asked for", _plant(Ordering, "_pass", _passed_by)),
    TopicMutant("a session ends before its end", _plant(Ordering, "_hand_out", _ended_early)),
    TopicMutant("what filled a gap is called late join", _plant(Ordering, "_hand_out", _all_live)),
    TopicMutant("a sender does not tell where it stands", _plant(Sending, "tick", lambda self, now: [])),
    TopicMutant("what is sent again has another number", _plant(Retained, "of", _shifted)),
    TopicMutant("less is retained than must be", _plant(Retained, "let_go", _let_go)),
)


def failure_of(mutant: TopicMutant, seed: object = 0) -> str:
    """The first failure that the defect leads to; "" if it is not found. An error is not the oracle's."""
    with mutant.planted():
        sweep = Sweep(f"{mutant.name} {seed}", _SEEDS_MAX, failures_max=1).run()
    found = sweep.failures[0] if sweep.failures else ""
    assert not found or "AssertionError" in found, f"{mutant.name}: {found}"
    return found
