"""The receiver: it finds a sender, gives up after its time, and goes from session to session without losing a word."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.messaging.topic.messages import LEFT_MAX, Ask, Gone, HangUp, Have, Hello, Leave, Refusal, Sent, Standing
from persistent.messaging.topic.ordering import GONE, NOT_RETAINED, OVER
from persistent.messaging.topic.receiving import NOT_LATE, Dial, GiveUp, Receiving, Tell
from persistent.topic import JoinOptions, MessagesLost, SessionBegan, SessionEnded, TopicMessage, TopicPlace


def sent(number: int, session: str = "s", *, again: bool = False) -> Sent:
    return Sent(session, number, 0, b"", again)


def standing(next_: int, low: int = 0, session: str = "s", **more: Any) -> Standing:
    return Standing(session, low, next_, **{"retains": True, **more})


def receiving(place: TopicPlace | None = None, **options: Any) -> Receiving:
    """A receiver whose first connection stands."""
    machine = Receiving("t", JoinOptions(**options), place)
    assert machine.tick(0) == [Dial(1)] and machine.linked(1, 0) == [Tell(Hello("t"))]
    return machine


def told(effects: Any) -> list[Any]:
    """What is handed out: messages as numbers."""
    silent = Tell | Dial | HangUp | GiveUp
    found = [effect for effect in effects if not isinstance(effect, silent)]
    return [one.number if isinstance(one, TopicMessage) else one for one in found]


def asks(effects: Any) -> list[tuple[int, int]]:
    return [(one.said.first, one.said.stop) for one in effects if isinstance(one, Tell) and isinstance(one.said, Ask)]


# -- discovery -----------------------------------------------------------------------------------------------------


def test_it_dials_again_and_gives_up_after_its_time() -> None:
    """A sender may start later; one that never does must not be waited for in silence."""
    machine = Receiving("t", JoinOptions(discovery=100, attempts=3))
    dialled = []
    for now in range(0, 300, 10):
        for effect in machine.tick(now):
            dialled.append((now, effect))
            assert machine.unlinked(effect.link, now) == []
    assert dialled == [(0, Dial(1)), (100, Dial(2)), (200, Dial(3))]
    (gave_up,) = machine.tick(300)
    assert isinstance(gave_up, GiveUp) and "3 attempts" in gave_up.reason and machine.given_up
    assert machine.tick(400) == [] and machine.heard(3, [standing(0)], 400) == []


def test_hello_is_said_again_until_it_is_answered() -> None:
    """It may be lost; and an attempt that connects to nobody's ear counts too."""
    machine = receiving(discovery=100, attempts=3, silence="1 h")
    assert machine.tick(99) == [] and machine.tick(100) == [Tell(Hello("t"))] == machine.tick(200)
    assert isinstance(machine.tick(300)[0], GiveUp)


def test_an_answer_begins_the_count_anew() -> None:
    """Sixty tries are for each time that the sender is away, not for all of them together."""
    machine = receiving(discovery=100, attempts=2)
    machine.heard(1, [standing(0)], 50)
    machine.unlinked(1, 60)
    assert machine.tick(60) == [Dial(2)] and machine.tick(160) == [Dial(3)]
    assert "2 attempts" in machine.tick(260)[0].reason  # type: ignore[union-attr]


def test_what_was_known_to_be_missing_is_named_when_it_gives_up() -> None:
    """It is not lost: who goes on from its place asks for it."""
    machine = receiving(discovery=100, attempts=1)
    machine.heard(1, [standing(5), sent(0, again=True)], 0)
    machine.unlinked(1, 0)
    machine.tick(0)
    (gave_up,) = machine.tick(100)
    assert isinstance(gave_up, GiveUp) and "4 messages of its session " in gave_up.reason
    assert machine.place == TopicPlace("s", 1)


def test_who_follows_looks_for_the_next_session_as_long_as_it_takes() -> None:
    """It would be deaf to a sender that comes back later; one that died without a word is still given up."""
    machine = Receiving("t", JoinOptions(discovery=100, attempts=2), follow=True)
    machine.tick(0), machine.linked(1, 0)
    machine.heard(1, [standing(0, ended=True)], 0)
    machine.unlinked(1, 0)
    for link in range(2, 20):
        assert machine.tick(100 * link) == [Dial(link)] and machine.unlinked(link, 100 * link) == []
    assert machine.tries == 17
    machine.linked(19, 1_950)
    assert SessionBegan("new", 0, 1) in machine.heard(19, [standing(1, session="new")], 1_950)
    machine.unlinked(19, 2_000)
    assert machine.tick(2_000) == [Dial(20)] and machine.tick(2_100) == [Dial(21)]
    assert "2 attempts" in machine.tick(2_200)[0].reason  # type: ignore[union-attr]


def test_after_an_end_that_was_told_giving_up_is_no_error() -> None:
    """There is nothing to wait for."""
    machine = receiving(discovery=100, attempts=1)
    machine.heard(1, [standing(0, ended=True)], 0)
    machine.unlinked(1, 0)
    machine.tick(0)
    assert machine.tick(100) == [GiveUp("")]


def test_a_refusal_ends_it_in_the_words_of_the_sender() -> None:
    """Asked again, it would be refused again."""
    assert receiving().heard(1, [Refusal("another topic")], 0) == [GiveUp("another topic")]
    machine = receiving()
    assert machine.refused(2, "no") == [] and machine.refused(1, "no sender") == [GiveUp("no sender")]


def test_silence_is_a_connection_that_is_gone() -> None:
    """A host that lost its power says nothing; without this its receivers would wait for ever."""
    for answered in (True, False):
        machine = receiving(silence=500, discovery="1 h")
        if answered:
            machine.heard(1, [standing(0)], 0)
        assert HangUp(1) not in machine.tick(499)
        assert machine.tick(500) == [HangUp(1), Dial(2)]
        assert machine.heard(1, [standing(0)], 501) == [] and machine.linked(1, 501) == [HangUp(1)]


def test_what_comes_over_an_old_connection_does_not_count() -> None:
    """It may be of a sender that has died since."""
    machine = receiving()
    machine.heard(1, [standing(2), sent(0, again=True)], 0)
    machine.unlinked(1, 0)
    machine.tick(0)
    machine.linked(2, 0)
    assert machine.heard(1, [sent(1, again=True)], 0) == []
    assert machine.unlinked(1, 0) == [] and machine.heard(2, [standing(2)], 0) == [Tell(Ask("s", 1, 2))]


# -- joining -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "low", "retains", "first"),
    [
        ({}, 2, True, 2),
        ({"last": 3}, 2, True, 7),
        ({"last": 99}, 2, True, 2),
        ({"late": False}, 2, True, 10),
        ({"late": False, "last": 3}, 2, True, 10),
        ({}, 10, False, 10),
    ],
)
def test_where_it_begins(options: dict[str, Any], low: int, retains: bool, first: int) -> None:
    """With all that is retained, the last so many, or what is live; late join is switched at both ends."""
    machine = receiving(**options)
    found = machine.heard(1, [standing(10, low, retains=retains)], 0)
    assert told(found) == [SessionBegan("s", first, 10)] and asks(found) == ([(first, 10)] if first < 10 else [])


def test_a_receiver_before_the_first_message_gets_it() -> None:
    """It learns from a sender that has sent nothing with which number it begins."""
    machine = receiving()
    assert told(machine.heard(1, [standing(0)], 0)) == [SessionBegan("s", 0, 0)]
    assert told(machine.heard(1, [sent(0)], 0)) == [0]


def test_what_comes_before_the_answer_is_asked_for() -> None:
    """Until the sender has said where it stands nobody knows where to begin."""
    machine = receiving()
    found = machine.heard(1, [sent(0), standing(1), Gone("other", 9), sent(3, "other")], 0)
    assert told(found) == [SessionBegan("s", 0, 1)] and asks(found) == [(0, 1)]


# -- from session to session ---------------------------------------------------------------------------------------


def meets(machine: Receiving, answer: Standing, link: int = 2) -> list[Any]:
    """The connection is lost, and the next one is answered so."""
    machine.unlinked(link - 1, 0)
    machine.tick(0)
    machine.linked(link, 0)
    return machine.heard(link, [answer], 0)


def test_the_same_session_goes_on_where_it_was() -> None:
    """A connection that broke is a gap, and no new beginning."""
    machine = receiving()
    machine.heard(1, [standing(0), sent(0)], 0)
    found = meets(machine, standing(3))
    assert told(found) == [] and asks(found) == [(1, 3)]


def test_a_sender_that_begins_again_is_another_session_from_its_first_message_on() -> None:
    """Its numbers begin again: by the old ones they would all be copies."""
    machine = receiving(last=1)
    machine.heard(1, [standing(2), sent(1, again=True)], 0)
    found = meets(machine, standing(2, session="s2"))
    assert told(found) == [SessionEnded("s", 2, False), SessionBegan("s2", 0, 2)] and asks(found) == [(0, 2)]
    assert told(machine.heard(2, [sent(0, "s2", again=True)], 0)) == [0]
    assert machine.place == TopicPlace("s2", 1, left={"s": 2})


def test_what_is_missing_of_the_old_session_is_lost() -> None:
    """Its sender took with it what it retained."""
    machine = receiving()
    machine.heard(1, [standing(3), sent(1, again=True)], 0)
    *over, _ = told(meets(machine, standing(0, session="s2")))
    assert over == [MessagesLost("s", 0, 1, OVER), 1, MessagesLost("s", 2, 3, OVER), SessionEnded("s", 3, False)]


@pytest.mark.parametrize(
    ("options", "more", "reason", "first"),
    [
        ({}, {"low": 2}, GONE, 2),
        ({}, {"low": 5, "retains": False}, NOT_RETAINED, 5),
        ({"late": False}, {}, NOT_LATE, 5),
    ],
)
def test_who_was_there_is_told_what_it_missed_of_the_new_session(
    options: dict[str, Any], more: dict[str, Any], reason: str, first: int
) -> None:
    """Whoever joins anew missed nothing; whoever follows a topic did."""
    machine = receiving(**options)
    machine.heard(1, [standing(0)], 0)
    found = told(meets(machine, standing(5, session="s2", **more)))
    assert found[1:] == [SessionBegan("s2", 0, 5), MessagesLost("s2", 0, first, reason)]


def test_a_session_that_was_left_goes_on_where_it_was_left() -> None:
    """Behind a proxy the old sender may be met once more: from its first message on, everything would come twice."""
    machine = receiving()
    machine.heard(1, [standing(0), sent(0), sent(1)], 0)
    meets(machine, standing(0, session="s2"))
    found = meets(machine, standing(3), link=3)
    assert told(found) == [SessionEnded("s2", 0, False), SessionBegan("s", 2, 3)] and asks(found) == [(2, 3)]


def test_it_says_that_it_has_everything_when_a_session_has_ended() -> None:
    """The sender waits for that, and says it again as long as it has not heard."""
    machine = receiving()
    assert Tell(Have("s", 1)) not in machine.heard(1, [standing(1, ended=True)], 0)
    assert machine.heard(1, [sent(0, again=True)], 0)[-1] == Tell(Have("s", 1))
    assert machine.heard(1, [standing(1, ended=True)], 0) == [Tell(Have("s", 1))]


def test_it_says_who_it_is_and_that_it_leaves() -> None:
    """A sender waits for a receiver that may return, and knows it again; it need not wait for one that was closed."""
    machine = Receiving("t", JoinOptions(), receiver=7)
    assert machine.leave() == []
    machine.tick(0)
    assert machine.linked(1, 0) == [Tell(Hello("t", 0, 7))]
    assert machine.leave() == [Tell(Leave())], "also before it knows the session"
    machine.heard(1, [standing(3)], 0)
    assert machine.look(4) == [Tell(Hello("t", 4, 7))] and machine.leave() == [Tell(Leave())]


def test_a_part_of_a_message_is_a_sign_of_life() -> None:
    """A large message over a slow link takes longer than the silence: the connection would be given up each time."""
    machine = receiving(silence="2 s", retry="500 ms", timeout="1 s")
    machine.heard(1, [standing(1)], 0)
    for now in range(100, 10_000, 100):
        assert machine.heard(1, [], now) == [] and machine.tick(now) == []
    assert told(machine.heard(1, [sent(0, again=True)], 10_000)) == [0]


# -- places --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected", "asked"),
    [({}, [SessionBegan("s", 4, 7)], [(4, 7)]), ({"late": False}, [SessionBegan("s", 4, 4)], [(4, 7)])],
)
def test_a_receiver_goes_on_from_a_place(options: dict[str, Any], expected: Any, asked: Any) -> None:
    """Nothing twice, nothing left out, though another process had what was before."""
    found = receiving(TopicPlace("s", 4), **options).heard(1, [standing(7)], 0)
    assert told(found) == expected and asks(found) == asked


def test_from_a_place_it_is_told_what_it_missed() -> None:
    """Gone while the receiver was away; or the whole session is over."""
    gone = receiving(TopicPlace("s", 4)).heard(1, [standing(7, low=6)], 0)
    assert told(gone) == [SessionBegan("s", 4, 7), MessagesLost("s", 4, 6, GONE)]
    other = told(receiving(TopicPlace("s", 4)).heard(1, [standing(1, session="s2")], 0))
    assert other == [SessionEnded("s", 4, False), SessionBegan("s2", 0, 1)]
    ended = told(receiving(TopicPlace("s", 4, True)).heard(1, [standing(1, session="s2")], 0))
    assert ended == [SessionBegan("s2", 0, 1)]


def test_a_place_beyond_the_sender_is_refused() -> None:
    """It is of another log of the same name: what comes would be taken for known."""
    (gave_up,) = receiving(TopicPlace("s", 4)).heard(1, [standing(3)], 0)
    assert isinstance(gave_up, GiveUp) and "4 messages" in gave_up.reason


def test_a_place_comes_back_from_its_bytes_and_forgets_what_is_long_ago() -> None:
    """It stands in the mark of a log, and must not grow for ever."""
    place = TopicPlace()
    assert TopicPlace.decoded(b"") == place and place.known("s") is None
    for number in range(100):
        place = place.after(SessionBegan(f"s{number}", 0, 0)).after(TopicMessage(f"s{number}", number, 0, b""))
    assert len(place.left) == LEFT_MAX and place.known("s99") == 100 and place.known("s98") == 99
    assert place.known("s35") == 36 and place.known("s34") is None
    ended = place.after(SessionEnded("s99", 100, True))
    assert ended.ended and TopicPlace.decoded(ended.encoded()) == ended


def test_it_says_how_long_it_needs() -> None:
    """Or that it never will."""
    machine = receiving(silence="1 h")
    machine.heard(1, [standing(0)], 0)
    for second in range(4):
        machine.heard(1, [standing(100 * second)], 1_000 * second)
        machine.tick(1_000 * second)
    assert machine.catching_up().never and machine.catching_up().behind == 300
    machine.unlinked(1, 4_000)
    assert machine.catching_up().seconds is None


def test_a_question_before_the_first_answer_is_asked() -> None:
    """The Hello on its way does not ask it: whoever waits for the answer would wait for ever."""
    machine = receiving()
    assert machine.look(7) == [Tell(Hello("t", 7))]


def test_a_connection_without_an_answer_is_replaced_long_before_silence() -> None:
    """It may be nobody's: a sender that closed has left it open. A slow sender gets twice the time at each attempt."""
    machine = receiving(discovery=1_000, silence="1 h")
    assert machine.tick(2_999) == [Tell(Hello("t"))]
    assert machine.tick(3_000) == [HangUp(1), Dial(2)]
    machine.linked(2, 3_000)
    assert machine.tick(8_999) == [Tell(Hello("t"))] and machine.tick(9_000) == [HangUp(2), Dial(3)]
    machine.linked(3, 9_000)
    machine.heard(3, [standing(0)], 9_000)
    assert Dial(4) not in machine.tick(60_000)
