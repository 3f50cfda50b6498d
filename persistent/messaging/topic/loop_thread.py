"""An event loop in a thread of its own, for the connections of a sender or a receiver.

A fork copies the sockets of a process, but not its threads. The copies would hold a port, and keep connections open,
and no thread would serve them. So a forked process replaces its copies. A sender or a receiver that is used there
raises an error.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

_TURNS_MAX = 1_000


class LoopThread:
    """A loop, and the thread ``name`` in which it runs, from ``start`` to ``stop``. ``sockets``: what it has open."""

    def __init__(self, name: str, sockets: Callable[[], Iterable[Any]]) -> None:
        self.loop = asyncio.new_event_loop()
        self.process = os.getpid()
        self._name, self._sockets = name, sockets
        self._thread: threading.Thread | None = None
        self._stopping = threading.Lock()
        """Taken for good by the first ``stop``."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether this is a fork of the process that has the thread."""
        return os.getpid() != self.process

    def start(self, begin: Callable[[], None], end: Callable[[], Awaitable[None]]) -> None:
        """Run the loop. Both are called in its thread: ``begin`` first, and ``end`` before the last connections go."""
        _RUNNING.add(self)
        self._thread = threading.Thread(target=self._run, args=(begin, end), name=self._name, daemon=True)
        self._thread.start()

    def call(self, do: Callable[..., None], *values: Any) -> None:
        """Call ``do(*values)`` in the thread of the loop, soon. Not allowed after ``stop``."""
        self.loop.call_soon_threadsafe(do, *values)

    def stop(self) -> None:
        """End the loop and its thread, and wait until both have ended. A second call, as after an interrupt or from
        another thread, only waits."""
        if self._stopping.acquire(blocking=False):
            self.call(self.loop.stop)
        if self._thread is not None:
            self._thread.join()

    def _run(self, begin: Callable[[], None], end: Callable[[], Awaitable[None]]) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.call_soon(begin)
        self.loop.run_forever()
        self.loop.run_until_complete(self._ended(end))
        _RUNNING.discard(self)
        self.loop.close()

    async def _ended(self, end: Callable[[], Awaitable[None]]) -> None:
        """Cancel the tasks of the loop, and wait until they have ended, and no connection is open."""
        await end()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(_TURNS_MAX):
            await asyncio.sleep(0)
            if not list(self._sockets()):
                return

    def let_go(self, nothing: int) -> None:
        """Replace each socket by the descriptor ``nothing``. The sockets stay open in the original process."""
        for open_socket in list(self._sockets()):
            if (descriptor := open_socket.fileno()) >= 0:
                os.dup2(nothing, descriptor, inheritable=False)


async def settled() -> None:
    """Wait until every task has ended. A task that accepts a connection needs a few turns of the loop; if it were
    cancelled, the connection would stay open until it is collected."""
    for _ in range(_TURNS_MAX):
        if asyncio.all_tasks() == {asyncio.current_task()}:
            return
        await asyncio.sleep(0)


_RUNNING: weakref.WeakSet[LoopThread] = weakref.WeakSet()


def _let_go_in_child() -> None:
    with socket.socket() as nothing:
        for thread in list(_RUNNING):
            thread.let_go(nothing.fileno())


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_let_go_in_child)
