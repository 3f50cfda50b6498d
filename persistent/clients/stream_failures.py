"""What an error of a connection to streams means: whether another try may help, and what to do about it."""

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
    "SASLMechanismNotSupported": ("it takes no user with a password", "let it take PLAIN"),
    "SASLAuthenticationFailureLoopback": (
        "it lets this user in from its own machine only",
        "give another user: client={'username': ..., 'password': ...}",
    ),
    "VirtualHostAccessFailure": (
        "this user may not use that virtual host, or there is none of that name",
        "correct client={'vhost': ...}, or give the user its permissions",
    ),
    "AccessRefused": (
        "this user may not do that",
        "give it the permission to read the stream, and for a sink to write and configure",
    ),
    "PreconditionFailed": ("what is asked for contradicts what is there", "look into the log of the broker"),
}


def stream_failure(error: BaseException, redacted: Callable[[str], str] = str) -> StoreFailure:
    """What an error means. ``redacted``: what others say, without secrets; our own words have none."""
    name = type(error).__name__
    if name in _PERMANENT:
        cause, remedy = _PERMANENT[name]
        return StoreFailure(FaultKind.PERMANENT, cause, _GOOD + remedy)
    if isinstance(error, ssl.SSLCertVerificationError):
        remedy = "give the certificates that the broker's is signed by, client={'ca': 'ca.pem'}, and its own name"
        cause = f"its certificate is refused: {redacted(str(getattr(error, 'verify_message', error)))}"
        return StoreFailure(FaultKind.PERMANENT, cause, _GOOD + remedy)
    if isinstance(error, ssl.SSLError):
        remedy = "check servers= (a port with TLS is 5551) and the certificates in client="
        cause = f"TLS fails: {redacted(str(getattr(error, 'reason', None) or error))}"
        return StoreFailure(FaultKind.PERMANENT, cause, _GOOD + remedy)
    if name in ("StreamNotAvailable", "LeaderNotAvailable", "StreamDoesNotExist"):
        is_known = name != "StreamDoesNotExist"
        cause = "the stream has no leader at the moment" if is_known else "it knows no stream of that name"
        return StoreFailure(FaultKind.UNANSWERED, cause, _GOOD + "look after the broker, and run again")
    if isinstance(error, StorageError | Lost | NotTaken | OSError):
        said = redacted(str(error)) or "it does not answer"
        return StoreFailure(FaultKind.UNANSWERED, said, _GOOD + _REACH)
    return StoreFailure(FaultKind.UNANSWERED, f"{name}: {redacted(str(error))}" if str(error) else name, _GOOD + _REACH)
