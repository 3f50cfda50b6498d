"""The section "topic": senders and receivers of a topic on a network that loses, repeats, delays and reorders, or on
one as TCP has it: in order and whole until a connection is cut, with few bytes a second and little room on the way.

Both are the state machines of ``persistent.topic``, which are stopped, die and begin again; network, time and deaths
are simulated, and drawn from a seed. An oracle knows what was published: each receiver is handed out every number of a
session once and in order, or told that it is lost, for a reason that is true. Where nothing may be lost, nothing is:
enough is retained, and nobody gives up. Over TCP nothing ever comes too late, however slow the network is.

    python -m tests.proof --only topic [--seed s] [--scale x]
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from persistent.messaging.topic.messages import Ask, HangUp, Sent, Spoken
from persistent.messaging.topic.ordering import GONE, NOT_RECOVERED, NOT_RETAINED, OVER, TIMEOUT
from persistent.messaging.topic.receiving import NOT_LATE, Dial, GiveUp, Receiving, Tell
from persistent.messaging.topic.sending import ASKED_MAX, Sending
from persistent.topic import JoinOptions, MessagesLost, Retain, SessionBegan, SessionEnded, TopicMessage, TopicPlace
from tests.proof.result import Result
from tests.proof.topic_network import Connection, Process

SEEDS = 1_000
_FAILURES_MAX = 10
_STORM_MS = 30_000
_CALM_MS = 600_000
_TICK_MS = 100
_LINGER_MS = 60_000
_LONG = "1 h"


class Sender(Process):
    """A life of a sender."""

    def __init__(self, world: World, session: int, retain: Retain | None) -> None:
        super().__init__(world)
        self.retain = retain
        self.machine = Sending("t", f"{session:032x}", retain, world.backlog_bytes)
        self.alive = True
        self.links: dict[int, Connection] = {}
        self.truth: list[tuple[int, bytes]] = []

    def publish(self) -> None:
        if self.alive and self.is_awake and not self.machine.ended:
            payload, drawn = b"%s %d" % (self.machine.session[-4:].encode(), len(self.truth)), self.world.drawn
            size = 30_000 if drawn.random() < 0.03 else drawn.choice((0, 0, 50, 3_000))
            self.truth.append((self.world.now, payload + b"." * size))
            number = self.machine.publish(self.truth[-1][1], self.world.now, self.world.now)
            assert number == len(self.truth) - 1
            self.pump()

    def end(self) -> None:
        self.machine.end()
        self.pump()

    def tick(self) -> None:
        self.machine.tick(self.world.now)
        self.pump()

    def pump(self) -> None:
        """Send what the connections have room for."""
        for connection in list(self.links.values()):
            connection.pump()
        for outbox in self.machine._outboxes.values():
            waiting = [len(one.payload) + 64 for one in outbox._queue if isinstance(one, Sent)]
            assert sum(waiting) == outbox._bytes <= max(self.world.backlog_bytes, *waiting, 0), f"{waiting} bytes wait"
            assert len(outbox._asked) == len(outbox._is_asked) <= ASKED_MAX

    def hear(self, connection: Connection, said: Spoken | None) -> None:
        if self.alive and connection.theirs in self.links and said is not None:
            self.machine.heard(connection.theirs, said)
            self.pump()

    def check_retained(self) -> None:
        """Every minimum holds, whatever was let go."""
        if self.retain is not None:
            low, times, age = self.machine.retained.low, [when for when, _ in self.truth], self.retain.age_ms
            kept = sum(len(payload) + 64 for _, payload in self.truth[low:])
            young = [number for number, when in enumerate(times) if self.world.now - when <= age] if age else []
            assert low <= min([*young, max(len(times) - 1, 0)]), f"{low} is the first retained, and {young} are young"
            assert low == 0 or kept >= self.retain.bytes, f"{kept} bytes are retained"

    def die(self) -> None:
        self.alive = False
        for connection in list(self.links.values()):
            self.world.cut(connection)


class Receiver(Process):
    """A chain of lives of a receiver, and the oracle of what it is handed out."""

    def __init__(self, world: World, options: JoinOptions, keeps_place: bool) -> None:
        super().__init__(world)
        self.options, self.keeps_place = options, keeps_place
        self.lives = 0
        self.machine = self._live(None)
        self.covered: dict[str, int] = {}
        self.ended: dict[str, SessionEnded] = {}
        self.current = ""
        self.seam = 0
        self.resumed = False
        self.arrived: set[tuple[str, int]] = set()
        self.lost: list[MessagesLost] = []
        self.messages = 0

    def _live(self, place: TopicPlace | None) -> Receiving:
        self.lives += 1
        return Receiving("t", self.options, place, receiver=self.world.drawn.randrange(1, 2**32))

    def begin_again(self) -> None:
        """Die, and begin again from what was stored with the messages; or anew, with a new oracle."""
        place = TopicPlace.decoded(self.machine.place.encoded()) if self.keeps_place else None
        self.world.forget(self.machine)
        self.forget_all()
        self.machine = self._live(place)
        self.arrived = set()
        if place is None:
            self.covered, self.ended, self.current = {}, {}, ""

    def perform(self, effects: Sequence[Any]) -> None:
        machine = self.machine
        for effect in effects:
            match effect:
                case Tell(said):
                    asks = isinstance(said, Ask)
                    assert not asks or self.options.recover or self.options.late, f"{said}, and it does not recover"
                    self.world.carry_back(said, machine)
                case Dial(link):
                    self.world.dial(self, machine, link)
                case HangUp(link):
                    self.world.hung_up(machine, link)
                case GiveUp(reason):
                    raise AssertionError(f"a receiver gave up: {reason}")
                case _:
                    self.judge(effect)
        order = machine.ordering
        held = len(order._waiting) if order is not None else 0
        assert held <= self.options.cache + self.options.window, f"{held} messages wait"

    def tick(self) -> None:
        self.perform(self.machine.tick(self.world.now))

    def hear(self, connection: Connection, said: Spoken | None) -> None:
        """It may be of a connection, or a life, that is over."""
        machine, link = connection.machine, connection.link
        if machine is not self.machine:
            return
        counts = isinstance(said, Sent) and machine.joined and link == machine._link
        if counts:
            self.arrived.add((said.session, said.number))
        self.perform(machine.heard(link, [] if said is None else [said], self.world.now))
        order = machine.ordering
        if counts and order is not None and said.session == order.session and self._takes_any_order:
            assert order.next > said.number, f"{said.number} came, and is held back"

    @property
    def _takes_any_order(self) -> bool:
        options = self.options
        return not (options.late or options.recover or options.cache)

    # -- the oracle ----------------------------------------------------------------------------------------------

    def judge(self, event: Any) -> None:
        """AssertionError unless this may be handed out now."""
        sender = self.world.sender_of(event.session)
        match event:
            case SessionBegan(session, first, seam):
                self._began(sender, session, first, seam)
            case TopicMessage(session, number):
                self._expect(session, number)
                assert (event.time, event.payload) == sender.truth[number], f"{event} is not what was published"
                self._came(event)
                self.covered[session] += 1
                self.messages += 1
            case MessagesLost(session, first, stop):
                self._expect(session, first)
                assert first < stop <= len(sender.truth), f"{event}: so many there are not"
                self._may_lose(sender, event)
                self.covered[session] = stop
                self.lost.append(event)
            case SessionEnded(session, next_, clean):
                self._expect(session, next_)
                if clean:
                    assert sender.machine.ended and next_ == len(sender.truth), f"{event}, and there is more"
                else:
                    assert len(self.world.senders) > 1, f"{event}, and there is no other"
                self.ended[session] = event

    def _began(self, sender: Sender, session: str, first: int, seam: int) -> None:
        left = self.current
        assert left in ("", session) or left in self.ended, f"session {left} was left without a word"
        self.current, self.seam = session, seam
        self.resumed = session in self.covered
        late, last = self.options.late and sender.retain is not None, self.options.last
        if self.resumed:
            assert first == self.covered[session], f"{first} after {self.covered[session]}"
        elif left:
            assert first == 0, "who was there is not told what it has missed"
        elif not late:
            assert first == seam, "it joins late, and should not"
        else:
            low = sender.machine.retained.low
            assert first <= max(low, seam - last if last else 0), f"it begins at {first}, and {low} is there"
            if low == 0:
                assert first == max(0, seam - last if last else 0), f"it begins at {first}, and 0 is retained"
        self.covered[session] = first

    def _expect(self, session: str, number: int) -> None:
        assert session == self.current, f"{session} is not the session that has begun"
        assert number == self.covered[session], f"number {number} instead of {self.covered[session]}"

    def _came(self, message: TopicMessage) -> None:
        if message.number < self.seam and not self.resumed:
            # A live one may be overtaken by the answer that says where the sender stands.
            assert message.delivery != "retransmit", f"{message.number} came {message.delivery} before {self.seam}"
        order = self.machine.ordering
        of_this = order is not None and order.session == message.session
        if of_this and message.number >= self.seam and not order.passed:
            assert message.delivery != "late-join", f"{message.number} came {message.delivery}"

    def _may_lose(self, sender: Sender, lost: MessagesLost) -> None:
        low = sender.machine.retained.low
        true = {
            GONE: lost.stop <= low and sender.retain is not None,
            TIMEOUT: self.options.timeout != _LONG and not self.world.is_whole,
            NOT_RECOVERED: not self.options.recover,
            NOT_RETAINED: sender.retain is None,
            OVER: len(self.world.senders) > 1,
            NOT_LATE: not self.options.late,
        }
        assert true[lost.reason], f"{lost}, and {low} is retained"
        numbers = range(lost.first, lost.stop)
        there = [number for number in numbers if (lost.session, number) in self.arrived]
        assert not there or self.options.cache < 100, f"{lost}, and {there} had come"

    def is_done(self, sender: Sender) -> bool:
        return self.current == sender.machine.session and self.covered[self.current] == len(sender.truth)


@dataclass
class World:
    """A story on a network: ``drawn`` decides everything."""

    drawn: random.Random
    now: int = 0
    senders: list[Sender] = field(default_factory=list)
    receivers: list[Receiver] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._link = 0
        self._links: dict[tuple[int, int], Connection] = {}
        self.is_slow = self.drawn.random() < 0.2
        """Whether a late join takes long, and both ends are stopped meanwhile."""
        self.is_whole = self.is_slow or self.drawn.random() < 0.4
        """Whether the network is as TCP has it."""
        self.loss = self.drawn.choice((0.0, 0.02, 0.2, 0.5))
        self.copies = self.drawn.choice((0.0, 0.02, 0.3))
        self.delay_ms = self.drawn.choice((1, 30) if self.is_whole else (1, 30, 900))
        self.bytes_per_ms = self.drawn.choice((5,) if self.is_slow else (5, 50, 10_000)) if self.is_whole else None
        self.room_bytes = self.drawn.choice((1, 4_000, 40_000)) if self.is_whole else 1 << 60
        self.backlog_bytes = self.drawn.choice((1, 4_000, 8 << 20))
        self.retain = self.drawn.choice((None, Retain(), Retain(age="2 s"), Retain(bytes=4_000), *[Retain("1 h")] * 3))
        self.silence = self.drawn.choice(("4 s", "4 s", "1 h"))
        """With the longest, both ends notice whatever happens to a connection."""
        if self.is_slow:
            self.retain, self.silence = Retain("1 h"), _LONG
        self.calm = self.mute = False

    # -- time ----------------------------------------------------------------------------------------------------

    def after(self, delay: int, do: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._heap, (self.now + max(delay, 0), self._order, do))

    def run_until(self, until: int, done: Callable[[], bool] = lambda: False) -> None:
        while self._heap and self._heap[0][0] <= until and not done():
            self.now, _, do = heapq.heappop(self._heap)
            do()
        self.now = max(self.now, until) if not done() else self.now

    # -- the network ---------------------------------------------------------------------------------------------

    def travel(self, do: Callable[[], None]) -> None:
        """Where the network does anything: by chance, not at all, or several times."""
        if self.calm:
            self.after(1, do if not self.mute else lambda: None)
            return
        for _ in range(1 + (self.drawn.random() < self.copies)):
            if self.drawn.random() >= self.loss:
                self.after(self.drawn.randrange(1, self.delay_ms + 1), do)

    def dial(self, receiver: Receiver, machine: Receiving, link: int) -> None:
        """A connection to one of the senders that live."""
        alive = [sender for sender in self.senders if sender.alive]
        if not alive:
            self.after(5, lambda: receiver.machine is machine and receiver.perform(machine.unlinked(link, self.now)))
            return
        sender = alive[-1] if self.calm else self.drawn.choice(alive)
        self._link += 1
        connection = Connection(self, sender, self._link, receiver, machine, link)
        sender.links[connection.theirs] = connection
        sender.machine.linked(connection.theirs, self.now)
        self._links[id(machine), link] = connection

        def stands() -> None:
            if receiver.machine is machine and connection.stands:
                receiver.perform(machine.linked(link, self.now))

        self.after(self.drawn.randrange(1, 20), lambda: receiver.do(stands))

    def carry_back(self, said: Spoken, machine: Receiving) -> None:
        self._links[id(machine), machine._link].carry_back(said)

    def cut(self, connection: Connection) -> None:
        """A connection is gone; each end notices for itself, and one may never notice."""
        receiver, machine = connection.receiver, connection.machine
        connection.end(self.now)
        if self.calm or self.silence == _LONG or self.drawn.random() < 0.8:

            def notices() -> None:
                if receiver.machine is machine:
                    receiver.perform(machine.unlinked(connection.link, self.now))

            self.after(self.drawn.randrange(1, 500), lambda: receiver.do(notices))

    def hung_up(self, machine: Receiving, link: int) -> None:
        connection = self._links.get((id(machine), link))
        if connection is not None and connection.stands:
            connection.end(self.now)

    def forget(self, machine: Receiving) -> None:
        """A receiver is dead: its connections are ended for it."""
        for connection in [one for sender in self.senders for one in sender.links.values()]:
            if connection.machine is machine:
                self.cut(connection)

    # -- the story -----------------------------------------------------------------------------------------------

    def sender_of(self, session: str) -> Sender:
        return next(sender for sender in self.senders if sender.machine.session == session)

    def begin_sender(self) -> None:
        """Another life of the sender; the one before is dead, or sleeps and wakes up."""
        for sender in self.senders:
            if sender.alive and self.drawn.random() < 0.8:
                if self.drawn.random() < 0.3:
                    sender.do(sender.end)
                self.after(self.drawn.choice((0, 0, 400)), sender.die)
        self.senders.append(Sender(self, len(self.senders) + 1, self.retain))
        for _ in range(60 if self.is_slow else self.drawn.choice((0, 0, 0, 60))):
            self.senders[-1].publish()

    def _tick(self) -> None:
        for sender in self.senders:
            if self.now % 1_000 < _TICK_MS:
                sender.check_retained()
            if sender.alive and sender.is_awake:
                sender.tick()
        for receiver in self.receivers:
            if receiver.is_awake:
                receiver.tick()
        self.after(_TICK_MS, self._tick)

    def story(self) -> None:
        """A storm in which everything happens, and a calm in which everyone catches up."""
        drawn = self.drawn
        self.after(drawn.choice((0, 3_000)), self.begin_sender)
        self.receivers = [self._receiver() for _ in range(2)]
        self._tick()
        for _ in range(drawn.choice((0, 20, 200))):
            self.after(drawn.randrange(_STORM_MS), lambda: self.senders and drawn.choice(self.senders[-2:]).publish())
        for _ in range(drawn.choice((0, 1, 3))):
            self.after(drawn.randrange(3_100, _STORM_MS), self.begin_sender)
        for _ in range(drawn.choice((0, 1, 4))):
            self.after(drawn.randrange(_STORM_MS), drawn.choice(self.receivers).begin_again)
        for _ in range(drawn.choice((0, 2, 6))):
            self.after(drawn.randrange(_STORM_MS), self._cut_one)
        for _ in range(drawn.choice((8, 16) if self.is_slow else (0, 0, 2, 6))):
            self.after(drawn.randrange(3_100, _STORM_MS), self._stop_one)
        self.run_until(_STORM_MS)
        self._come_to_rest()

    def _receiver(self) -> Receiver:
        drawn = self.drawn
        options = JoinOptions(
            late=drawn.random() < 0.8,
            last=drawn.choice((0, 0, 0, 5)),
            recover=drawn.random() < 0.8,
            window=drawn.choice((1, 10, 200)),
            retry=drawn.choice(("50 ms", "500 ms")),
            timeout="1 s" if self.is_slow else drawn.choice((_LONG, _LONG, "1 s")),
            gap_delay=drawn.choice((0, 0, "1 s")),
            cache=drawn.choice((0, 3, 5_000, 5_000)),
            attempts=10**6,
            silence=self.silence,
        )
        return Receiver(self, options, drawn.random() < 0.7)

    def _cut_one(self) -> None:
        links = [connection for sender in self.senders for connection in sender.links.values()]
        if links:
            self.cut(self.drawn.choice(links))

    def _stop_one(self) -> None:
        """A process does not run for a while, and what comes for it waits."""
        one = self.drawn.choice([*self.receivers, *self.senders])
        one.sleep(self.drawn.choice((300, 1_500, 5_000, 15_000)))

    def _come_to_rest(self) -> None:
        self.calm = True
        for process in (*self.senders, *self.receivers):
            process.wake()
        last = self.senders[-1]
        for sender in self.senders:
            if sender.alive and sender is not last:
                sender.die()
        if not last.alive or last.machine.ended:
            self.senders.append(last := Sender(self, len(self.senders) + 1, self.retain))
            for other in self.senders[:-1]:
                if other.alive:
                    other.die()
        self.run_until(_STORM_MS + 10_000)
        for number in range(5):
            self.after(100 * number, last.publish)
        self.run_until(_STORM_MS + 20_000)
        # The last one is lost, and nothing comes after it.
        self.mute = True
        last.publish()
        self.mute = False

        def all_done() -> bool:
            return len(last.truth) >= 6 and all(one.is_done(last) for one in self.receivers)

        self.run_until(_STORM_MS + _CALM_MS, all_done)
        assert all_done(), f"a receiver does not catch up: {[one.covered for one in self.receivers]}"
        self._end(last)

    def _end(self, last: Sender) -> None:
        """The sender ends, as soon as it believes that everyone has everything; a connection may be cut meanwhile."""
        for _ in range(self.drawn.choice((0, 0, 1, 2))):
            self._cut_one()
        last.end()
        self.run_until(self.now + _LINGER_MS, lambda: last.machine.is_received(self.now, _LINGER_MS))
        assert last.machine.is_received(self.now, _LINGER_MS), "the sender does not know that everyone has everything"
        for one in self.receivers:
            ended = one.ended.get(last.machine.session)
            assert ended == SessionEnded(last.machine.session, len(last.truth), True), f"{one.covered}, not the end"


@dataclass
class Sweep:
    """The stories of some seeds."""

    seed: object = 0
    seeds: int = 300
    until: float = float("inf")
    failures_max: int = _FAILURES_MAX
    cases: int = 0
    messages: int = 0
    lost: int = 0
    failures: list[str] = field(default_factory=list)

    def run(self) -> Sweep:
        while self.cases < self.seeds and len(self.failures) < self.failures_max and time.monotonic() < self.until:
            world = World(random.Random(f"topic {self.seed} {self.cases}"))
            try:
                world.story()
            except Exception as error:
                text = f"seed {self.seed}, story {self.cases}: {type(error).__name__}: {error}"
                self.failures.append(text[:500])
            self.cases += 1
            self.messages += sum(one.messages for one in world.receivers)
            self.lost += sum(len(lost) for one in world.receivers for lost in one.lost)
        return self


def prove(seconds_max: float | None = None, seed: int = 0, scale: float = 1.0) -> Result:
    """1,000 seeds at scale 1, and every mutant."""
    from tests.proof.topic_mutants import MUTANTS, failure_of

    began = time.monotonic()
    wanted = max(1, round(SEEDS * scale))
    sweep = Sweep(seed, wanted, began + (seconds_max or float("inf"))).run()
    found = [mutant.name for mutant in MUTANTS if failure_of(mutant, seed)]
    failures = [*sweep.failures, *(f"mutant not found: {one.name}" for one in MUTANTS if one.name not in found)]
    note = f"{sweep.messages:,} messages, {sweep.lost:,} told lost"
    if sweep.cases < wanted and not failures:
        note += f"; stopped by time, {wanted:,} were planned"
    mutants = (len(found), len(MUTANTS))
    return Result("topic", sweep.cases, tuple(failures), mutants, time.monotonic() - began, note)
