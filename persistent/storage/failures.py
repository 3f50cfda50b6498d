"""A failure of a store, explained: what it means for the operation, its cause without secrets, and the remedy.

``FAULTS`` is the table of all known answers of stores. An unknown code can mean anything, so it counts as no answer;
misuse of a client is permanent. A verb is retried, with growing random pauses, until it is answered or a bound is
reached.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from persistent.errors import Stopped, StorageError
from persistent.time.clock import monotonic_s, pause

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space and run again; the last checkpoint is good.",
    errno.EDQUOT: "The quota is used up: free some space and run again; the last checkpoint is good.",
    errno.EACCES: "Let this user read and write there, or choose another place.",
    errno.EPERM: "Let this user write there, on a file system with hard links, or choose another place.",
    errno.EOPNOTSUPP: "This file system has no hard links: choose a place on one that has them.",
    errno.EROFS: "The file system is read-only: choose another place.",
    errno.ENOTDIR: "A file exists where a folder is needed: choose another place.",
    errno.EIO: "The device fails: its last writes may be lost; check it before running again.",
}
_CHECK_CAUSE = "Check the cause, then run again: the last checkpoint is good."


class disk_failures:
    """Turn errors of a local disk into a StorageError; ``answers`` pass through, because they are not failures."""

    __slots__ = ("_answers", "_operation", "_place")

    def __init__(self, operation: str, place: str, *answers: type[OSError]) -> None:
        self._operation, self._place, self._answers = operation, place, answers

    def __enter__(self) -> None:
        """Nothing has failed yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, (*self._answers, StorageError)):
            return
        code = error.errno if isinstance(error, OSError) else None
        remedy = _REMEDIES.get(code or 0, _CHECK_CAUSE)
        cause = (error.strerror if isinstance(error, OSError) else None) or f"{type(error).__name__}: {error}"
        raise StorageError(f"cannot {self._operation} {self._place}: {cause}. {remedy}") from error


class FaultKind(Enum):
    """What a failure means for the operation that met it."""

    BUSY = "nothing was done; another try may succeed"
    UNANSWERED = "it may have been done; another try may succeed"
    PERMANENT = "nothing was done, and no other try will succeed"


@dataclass(frozen=True)
class StoreFailure:
    """An error of a store: its fault, its cause in words without secrets, and the remedy."""

    fault: FaultKind
    cause: str
    remedy: str


_LATER = "The store is down or overloaded: run again when it is back; the last checkpoint is good."
_REACH = "Check the endpoint, the network and the name of the store; the last checkpoint is good."
_RIGHTS = "Give this user the rights to read, write, list and delete there, or choose another place."
CREDENTIALS = "Give valid credentials in the environment or the configuration file of the store."
_BUCKET = "Correct the bucket in the URL, or create it."
_REGION = "Set the region of the bucket, for example in AWS_DEFAULT_REGION."
_MEMORY = (
    "There is too little memory: give the process more (executors: spark.executor.memoryOverhead and, if it is set, "
    "spark.executor.pyspark.memory)."
)
_CONDITIONAL = "The store does not support conditional requests: choose one that does."
_TIME = "Correct the clock of this machine."

_TABLE: tuple[tuple[FaultKind, str, str], ...] = (
    (FaultKind.BUSY, _LATER, "SlowDown ServiceUnavailable Throttling ThrottlingException TooManyRequests"),
    (FaultKind.BUSY, _LATER, "RequestLimitExceeded RequestThrottled HTTP429 HTTP503"),
    (FaultKind.BUSY, _LATER, "OperationAborted ConditionalRequestConflict HTTP409"),
    (FaultKind.BUSY, _REACH, "EndpointConnectionError ConnectTimeoutError ProxyConnectionError ConnectionRefusedError"),
    (FaultKind.BUSY, _LATER, "StandbyException RetriableException SafeModeException"),
    (FaultKind.UNANSWERED, _LATER, "InternalError RequestTimeout HTTP500 HTTP502 HTTP504 HTTP408"),
    (FaultKind.UNANSWERED, _REACH, "ReadTimeoutError ConnectionClosedError ConnectionError TimeoutError"),
    (FaultKind.UNANSWERED, _REACH, "HTTPClientError ClientPayloadError IncompleteRead ResponseParserError"),
    (FaultKind.PERMANENT, _RIGHTS, "AccessDenied AllAccessDisabled AccessControlException PermissionError HTTP403"),
    (FaultKind.PERMANENT, CREDENTIALS, "InvalidAccessKeyId SignatureDoesNotMatch ExpiredToken InvalidToken HTTP401"),
    (
        FaultKind.PERMANENT,
        CREDENTIALS,
        "NoCredentialsError PartialCredentialsError ProfileNotFound TokenRefreshRequired",
    ),
    (FaultKind.PERMANENT, CREDENTIALS, "CredentialRetrievalError InvalidSecurity NoAuthHandlerFound SaslException"),
    (FaultKind.PERMANENT, _BUCKET, "NoSuchBucket InvalidBucketName"),
    (FaultKind.PERMANENT, _REGION, "PermanentRedirect AuthorizationHeaderMalformed IllegalLocationConstraintException"),
    (FaultKind.PERMANENT, _REGION, "HTTP301 HTTP307 NoRegionError"),
    (FaultKind.PERMANENT, _TIME, "RequestTimeTooSkewed"),
    (FaultKind.PERMANENT, _CONDITIONAL, "NotImplemented HTTP501"),
    (FaultKind.PERMANENT, "Free some space or raise the quota.", "QuotaExceededException DSQuotaExceededException"),
    (FaultKind.PERMANENT, "Free some space or raise the quota.", "NSQuotaExceededException EntityTooLarge"),
    (FaultKind.PERMANENT, "Correct the endpoint.", "InvalidEndpointURLError InvalidURL LocationParseError"),
    (FaultKind.PERMANENT, "Install the client of the store.", "ImportError"),
    (FaultKind.PERMANENT, "Correct the URL.", "FileNotFoundError FileExistsError IsADirectoryError NotADirectoryError"),
    (FaultKind.PERMANENT, _CHECK_CAUSE, "HTTP400 HTTP405 ParamValidationError"),
    (
        FaultKind.PERMANENT,
        _CHECK_CAUSE,
        "TypeError ValueError LookupError AttributeError NotImplementedError",
    ),
)
FAULTS = {code: (fault, remedy) for fault, remedy, codes in _TABLE for code in codes.split()}

_JAVA = re.compile(r"\b(?:[a-z]\w*\.)+([A-Z]\w*)")


def failure_of(error: BaseException) -> StoreFailure:
    """The meaning of the first code, of ``error`` and its causes, that ``FAULTS`` lists; without one: unanswered."""
    if is_short_of_memory(error) and any(isinstance(link, ImportError) for link in _chain(error)):
        return StoreFailure(FaultKind.PERMANENT, _cause(error), _MEMORY)
    codes = [code for code in codes_of(error) if code in FAULTS]
    fault, remedy = FAULTS[codes[0]] if codes else (FaultKind.UNANSWERED, _CHECK_CAUSE)
    return StoreFailure(fault, _cause(error), remedy)


def is_short_of_memory(error: BaseException) -> bool:
    """Whether memory ran out. An import then reports that a file cannot be mapped."""
    return any(
        isinstance(link, MemoryError)
        or (isinstance(link, OSError) and link.errno == errno.ENOMEM)
        or (isinstance(link, (ImportError, OSError)) and "failed to map segment" in str(link))
        for link in _chain(error)
    )


def codes_of(error: BaseException) -> Iterator[str]:
    """The codes of an error, most specific first: of the store, of Java classes, of Python classes."""
    chain = _chain(error)
    for link in chain:
        yield from _s3_codes(link)
    for link in chain:
        yield from _JAVA.findall(str(link))
        yield from (type(OSError(int(number), "")).__name__ for number in _OS_ERROR.findall(str(link)))
    for link in chain:
        yield from (kind.__name__ for kind in type(link).__mro__)


def _chain(error: BaseException) -> list[BaseException]:
    """An error and its causes."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and cause not in chain:
        chain.append(cause)
    return chain


def _s3_codes(error: BaseException) -> list[str]:
    response = getattr(error, "response", None)
    if not isinstance(response, dict):
        return []
    status = f"HTTP{response.get('ResponseMetadata', {}).get('HTTPStatusCode', '')}"
    code = str(response.get("Error", {}).get("Code", ""))
    is_told = status in ("HTTP401", "HTTP403") and FAULTS.get(code, FAULTS[status])[0] is not FaultKind.PERMANENT
    return [name for name in ((status, code) if is_told else (code, status)) if name not in ("", "HTTP")]


def _cause(error: BaseException) -> str:
    codes = next((codes for link in _chain(error) if (codes := _s3_codes(link))), [type(error).__name__])
    text = without_secrets(_STACK.split(str(error) or repr(error))[0].rstrip(". \n"))
    return f"{' '.join(dict.fromkeys(codes))}: {text}"


_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_STACK = re.compile(r"(?:\\n|\n)\s*(?:\\t)?at ")
_USER_INFO = re.compile(r"//[^/\s'\"]*@")
_QUERY = re.compile(r"\?[^\s'\"]*=[^\s'\"]*")
_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSWORD|PASSPHRASE|CREDENTIAL", re.IGNORECASE)
_SECRET_CHARACTERS_MIN = 6


def without_secrets(text: str) -> str:
    """``text`` without user info and query in URLs, and without secrets of the environment.

    >>> without_secrets("no answer from http://me:pass@host/bucket?Signature=1")
    'no answer from http://...@host/bucket?...'
    >>> without_secrets("postgresql://me:p@ss@host/db and amqp://me:p@host")
    'postgresql://...@host/db and amqp://...@host'
    """
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _SECRET_CHARACTERS_MIN:
            text = text.replace(value, "...")
    return _QUERY.sub("?...", _USER_INFO.sub("//...@", text))


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

            answer: T = self._attempts(tenacity, began)(tried)
            return answer
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
            pause(seconds, why, patience.sleep or tenacity.nap.sleep)

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
