"""The network of the section "topic": connections, and processes that can be stopped."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from persistent.messaging.topic.messages import HangUp, Sent, Spoken
from persistent.messaging.topic.receiving import Receiving

if TYPE_CHECKING:
    from tests.proof.topic import Receiver, Sender, World

_PIECE_MS = 100
"""How often a part of a message arrives that takes longer."""
_AGAIN_MAX = 10
"""How often one message is sent on request over a connection that loses nothing: each wait for it is twice as long."""


class Process:
    """A process that runs, or is stopped for a while: what is to be done then waits, in order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._waiting: deque[Callable[[], Any]] = deque()
        self._awake_at = 0

    @property
    def is_awake(self) -> bool:
        return self.world.now >= self._awake_at

    def sleep(self, ms: int) -> None:
        self._awake_at = max(self._awake_at, self.world.now + ms)
        self.world.after(ms, lambda: self.is_awake and self._waiting and self.wake())

    def tick(self) -> None:
        raise NotImplementedError

    def wake(self) -> None:
        """Whether it looks at the clock or at what came first is not said."""
        self._awake_at = self.world.now
        if self._waiting and self.world.drawn.random() < 0.5:
            self._waiting.appendleft(self.tick)
        while self._waiting:
            self._waiting.popleft()()

    def forget_all(self) -> None:
        """What waits for it is not done any more."""
        self._waiting.clear()
        self._awake_at = self.world.now

    def do(self, what: Callable[[], Any]) -> None:
        """Now, or as soon as the process runs."""
        if self.is_awake and not self._waiting:
            what()
        else:
            self._waiting.append(what)


class Connection:
    """Between a sender, where it has the number ``theirs``, and a life of a receiver, where it has ``link``.

    In a world that is whole, it carries everything in order, so many bytes in a millisecond, and takes no more than
    what has room on the way and at a receiver that does not read. Otherwise it takes all, and anything may happen.
    """

    def __init__(
        self, world: World, sender: Sender, theirs: int, receiver: Receiver, machine: Receiving, link: int
    ) -> None:
        self.world, self.sender, self.theirs = world, sender, theirs
        self.receiver, self.machine, self.link = receiver, machine, link
        self.stands = True
        self._under_way = 0
        self._free_at = self._back_at = 0
        self._again: Counter[int] = Counter()

    def end(self, now: int) -> None:
        self.stands = False
        self.sender.links.pop(self.theirs)
        self.sender.machine.unlinked(self.theirs, now)

    def pump(self) -> None:
        """Take what the sender has for it, as long as there is room."""
        while self.stands and self._under_way < self.world.room_bytes:
            said = self.sender.machine.next(self.theirs)
            if said is None:
                return
            if isinstance(said, HangUp):
                self.world.cut(self)
            elif self.world.is_whole:
                self._carry(said)
            else:
                self.world.travel(lambda said=said: self.receiver.do(lambda: self.receiver.hear(self, said)))

    def _carry(self, said: Spoken) -> None:
        world, size = self.world, len(said.payload) + 64 if isinstance(said, Sent) else 40
        self._under_way += size
        if isinstance(said, Sent) and said.again:
            self._again[said.number] += 1
            assert self._again[said.number] <= _AGAIN_MAX, f"{said.number} is sent again and again"
        begins = max(world.now, self._free_at)
        self._free_at = begins + -(-size // (world.bytes_per_ms or size))
        for piece in range(begins + _PIECE_MS, self._free_at, _PIECE_MS):
            self._arrives(piece + world.delay_ms, None, 0)
        self._arrives(self._free_at + world.delay_ms, said, size)

    def _arrives(self, at: int, said: Spoken | None, size: int) -> None:
        def is_read() -> None:
            self._under_way -= size
            if self.stands:
                self.receiver.hear(self, said)
                self.sender.do(self.pump)

        self.world.after(at - self.world.now, lambda: self.receiver.do(is_read))

    def carry_back(self, said: Spoken) -> None:
        def is_read() -> None:
            self.sender.do(lambda: self.sender.hear(self, said))

        if self.world.is_whole:
            self._back_at = max(self._back_at, self.world.now + self.world.delay_ms)
            self.world.after(self._back_at - self.world.now, is_read)
        else:
            self.world.travel(is_read)
