"""The meaning of an error of a stream connection: whether a retry can help, and what to do about it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Final

from persistent.clients.stream_connection import Lost, NotTaken
from persistent.errors import StorageError
from persistent.storage.failures import FaultKind, StoreFailure

_GOOD: Final = "Nothing was lost, the last checkpoint is good: "
_REACH: Final = (
    "check servers= (the port of streams, 5552, not that of AMQP; does the broker want TLS? client={'tls': True}), or "
    "start the broker with its plugin (rabbitmq-plugins enable rabbitmq_stream), and run again"
)
_LOGIN: Final = "give valid ones: client={'username': ..., 'password': ...}"
_PERMANENT: Final = {
    "AuthenticationFailure": ("it refuses the user or the password", _LOGIN),
    "SASLError": ("it refuses the login", _LOGIN),
    "SASLChallenge": ("it refuses the login", _LOGIN),
    "SASLMechanismNotSupported": ("it accepts no user with a password", "let it accept PLAIN"),
    "SASLAuthenticationFailureLoopback": (
        "it accepts this user only from its own machine",
        "give another user: client={'username': ..., 'password': ...}",
    ),
    "VirtualHostAccessFailure": (
        "this user has no access to the virtual host, or it does not exist",
        "correct client={'vhost': ...}, or give the user its permissions",
    ),
    "AccessRefused": (
        "this user may not do that",
        "give it the permission to read the stream, and for a sink to write and configure",
    ),
    "PreconditionFailed": ("the request contradicts what exists", "look into the log of the broker"),
}


def stream_failure(error: BaseException, redacted: Callable[[str], str] = str) -> StoreFailure:
    """The meaning of an error. ``redacted``: removes secrets from foreign texts; our own have none."""
    name = type(error).__name__
    if name in _PERMANENT:
        cause, remedy = _PERMANENT[name]
        return StoreFailure(FaultKind.PERMANENT, cause, _GOOD + remedy)
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = (
            "give the certificates that sign the broker's, client={'ca': 'ca.pem'}, and the name in its certificate"
        )
        cause = f"its certificate is refused: {redacted(str(getattr(error, 'verify_message', error)))}"
        return StoreFailure(FaultKind.PERMANENT, cause, _GOOD + remedy)
    if isinstance(error, ssl.SSLError):
        remedy = "check servers= (a port with TLS is 5551) and the certificates in client="
        cause = f"TLS fails: {redacted(str(getattr(error, 'reason', None) or error))}"
        return StoreFailure(FaultKind.PERMANENT, cause, _GOOD + remedy)
    if name in ("StreamNotAvailable", "LeaderNotAvailable", "StreamDoesNotExist"):
        is_known = name != "StreamDoesNotExist"
        cause = "the stream has no leader at the moment" if is_known else "it knows no stream of that name"
        return StoreFailure(FaultKind.UNANSWERED, cause, _GOOD + "check the broker, and run again")
    if isinstance(error, StorageError | Lost | NotTaken | OSError):
        said = redacted(str(error)) or "it does not answer"
        return StoreFailure(FaultKind.UNANSWERED, said, _GOOD + _REACH)
    return StoreFailure(FaultKind.UNANSWERED, f"{name}: {redacted(str(error))}" if str(error) else name, _GOOD + _REACH)
