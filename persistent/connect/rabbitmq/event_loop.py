"""An event loop in a thread of its own, for asynchronous clients. Other threads wait for its answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from typing import Any, Final, TypeVar
from weakref import finalize

from persistent.time import clock
from persistent.time.clock import monotonic_s

T = TypeVar("T")

_LOOK_SECONDS: Final = 1.0


class EventLoop:
    """Runs coroutines for any thread. Its thread ends with this object, or with the process."""

    def __init__(self, name: str) -> None:
        self._loop = loop = asyncio.new_event_loop()
        threading.Thread(target=_serve, args=(loop,), name=name, daemon=True).start()
        self._end = finalize(self, loop.call_soon_threadsafe, loop.stop)
        # A daemon thread ends with the process.
        self._end.atexit = False

    def run(self, answer: Coroutine[Any, Any, T], seconds: float) -> T:
        """What ``answer`` returns or raises. After ``seconds`` it is cancelled: TimeoutError; Stopped."""
        future, until_s = self.spawn(answer), monotonic_s() + seconds
        try:
            while True:
                left_s = until_s - monotonic_s()
                try:
                    return future.result(min(left_s, _LOOK_SECONDS))
                except NotInTime:
                    if future.done() or left_s <= _LOOK_SECONDS:
                        raise
                clock.require_waiting("it does not answer")
        except NotInTime:
            if not future.done():
                future.cancel()
            raise TimeoutError(f"no answer for {seconds:.0f} s") from None
        except BaseException:
            future.cancel()
            raise

    def spawn(self, answer: Coroutine[Any, Any, T]) -> Future[T]:
        """Start ``answer`` without waiting for it."""
        return asyncio.run_coroutine_threadsafe(answer, self._loop)

    def close(self) -> None:
        """End the loop. Pending answers never arrive."""
        self._end()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
