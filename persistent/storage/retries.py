"""A verb of a store is retried, with growing random pauses, until it is answered or a bound is reached."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from persistent import stopping
from persistent.clock import monotonic_s
from persistent.errors import Stopped, StorageError
from persistent.storage.failures import FaultKind, StoreFailure, failure_of

T = TypeVar("T")
_log = logging.getLogger("persistent.storage")


@dataclass(frozen=True)
class Patience:
    """How long to wait for a store: no try begins after ``seconds_max``, and there are at most ``tries_max``.

    ``sleep`` pauses; None: tenacity's own.
    """

    tries_max: int = 12
    seconds_max: float = 60.0
    pause_first_seconds: float = 0.2
    pause_max_seconds: float = 10.0
    sleep: Callable[[float], None] | None = None
    clock: Callable[[], float] = monotonic_s

    def pause(self) -> None:
        """A short random pause, before asking whether a request was performed."""
        import tenacity

        wait = tenacity.wait_random(0, self.pause_first_seconds)
        state: Any = None
        (self.sleep or tenacity.nap.sleep)(wait(state))


@dataclass(frozen=True)
class Retrying:
    """One verb on one place: repeats the request as long as ``patience`` lasts, then raises.

    ``answers`` are errors that answer the caller's question. ``explain``: what an error of the client means.
    """

    operation: str
    place: str
    patience: Patience
    answers: tuple[type[Exception], ...] = ()
    explain: Callable[[BaseException], StoreFailure] = failure_of

    def __call__(self, call: Callable[[], T]) -> T:
        """The result of ``call``. StorageError with operation, place, cause, tries and remedy."""
        began = self.patience.clock()
        try:
            return self.once(call)
        except Exception as error:
            first = error
        # Nearly every call is answered at once: only a failure pays for the retry machinery.
        tries = 0

        def tried() -> T:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise first
            return self.once(call)

        try:
            import tenacity

            found: T = self._attempts(tenacity, began)(tried)
            return found
        except Exception as error:
            if isinstance(error, (*self.answers, StorageError, Stopped)):
                raise
            failure = self.explain(error)
        # Raised outside the except clause: a client's error, kept as context, may hold an endpoint's password.
        raise self.error(failure, tries, self.patience.clock() - began)

    def once(self, call: Callable[[], T]) -> T:
        """One try."""
        return call()

    def error(self, failure: StoreFailure, tries: int, seconds: float) -> StorageError:
        """The error after the last try."""
        how_often = f" ({tries} {'try' if tries == 1 else 'tries'} over {seconds:.0f} seconds)"
        if tries == 1 and seconds < 1:
            how_often = ""
        return StorageError(f"cannot {self.operation} {self.place}: {failure.cause}{how_often}. {failure.remedy}")

    def note(self, failure: StoreFailure, what: str) -> None:
        """Log the reason for the delay."""
        _log.warning("cannot %s %s yet: %s; %s", self.operation, self.place, failure.cause, what)

    def _attempts(self, tenacity: Any, began: float) -> Any:
        patience = self.patience
        half = patience.pause_first_seconds / 2
        wait = tenacity.wait_exponential(half, patience.pause_max_seconds / 2)
        wait += tenacity.wait_random_exponential(half, patience.pause_max_seconds / 2)

        def is_over(state: Any) -> bool:
            is_late: bool = patience.clock() - began + state.upcoming_sleep > patience.seconds_max
            return is_late or bool(state.attempt_number >= patience.tries_max)

        why = ""

        def noted(state: Any) -> None:
            nonlocal why
            failure = self.explain(state.outcome.exception())
            self.note(failure, f"trying again in {state.upcoming_sleep:.1f} s")
            why = f"cannot {self.operation} {self.place}: {failure.cause}"

        def sleep(seconds: float) -> None:
            stopping.pause(seconds, why, patience.sleep or tenacity.nap.sleep)

        return tenacity.Retrying(
            sleep=sleep,
            wait=wait,
            stop=is_over,
            retry=tenacity.retry_if_exception(self._is_worth_a_try),
            before_sleep=noted,
            reraise=True,
        )

    def _is_worth_a_try(self, error: BaseException) -> bool:
        if not isinstance(error, Exception) or isinstance(error, (*self.answers, StorageError, Stopped)):
            return False
        return self.explain(error).fault is not FaultKind.PERMANENT
