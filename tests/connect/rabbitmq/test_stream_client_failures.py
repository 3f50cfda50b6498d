"""What a broker of streams refuses is told from what another try may mend, each with its remedy."""

from __future__ import annotations

import ssl

import pytest
from rstream import exceptions

from persistent import StorageError
from persistent.connect.rabbitmq.stream_client import stream_failure
from persistent.connect.rabbitmq.stream_connection import Lost, NotTaken
from persistent.connect.secrets import without
from persistent.storage.failures import FaultKind


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (exceptions.AuthenticationFailure(), "'username': ..., 'password'"),
        (exceptions.SASLError(), "'username': ..., 'password'"),
        (exceptions.SASLAuthenticationFailureLoopback(), "give another user"),
        (exceptions.VirtualHostAccessFailure(), "'vhost'"),
        (exceptions.AccessRefused(), "permission to read the stream"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong"), "a port with TLS is 5551"),
        (ssl.SSLCertVerificationError(1, "no"), "'ca': 'ca.pem'"),
    ],
)
def test_what_no_other_try_mends(error: Exception, said: str) -> None:
    """It is not tried for five minutes."""
    found = stream_failure(error)
    assert found.fault is FaultKind.PERMANENT and said in found.remedy
    assert found.remedy.startswith("Nothing was lost")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Lost("gone"), "gone"),
        (NotTaken("code 18"), "code 18"),
        (ConnectionRefusedError(111, "refused"), "refused"),
        (TimeoutError(), "it does not answer"),
        (StorageError("as it was"), "as it was"),
        (exceptions.StreamNotAvailable(), "no leader at the moment"),
        (exceptions.LeaderNotAvailable("x"), "no leader at the moment"),
        (exceptions.StreamDoesNotExist(), "it knows no stream of that name"),
        (ValueError("odd"), "ValueError: odd"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_what_may_pass(error: Exception, said: str) -> None:
    """A broker that is being started says many things."""
    found = stream_failure(error)
    assert found.fault is FaultKind.UNANSWERED and said in found.cause


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Lost("no hunter2"), "no ***"),
        (ValueError("odd hunter2"), "ValueError: odd ***"),
        (ssl.SSLError(1, "hunter2"), "***"),
        (ssl.SSLCertVerificationError(1, "hunter2"), "***"),
        (exceptions.StreamNotAvailable(), "the stream has no leader at the moment"),
    ],
)
def test_what_others_say_is_redacted_and_our_words_are_not(error: Exception, said: str) -> None:
    """A password ``stream`` would be the hole in each sentence of ours, and whoever reads them would know it."""
    secrets = ["hunter2", "stream", "the"]
    found = stream_failure(error, lambda text: without(secrets, text, "***"))
    assert said in found.cause and "hunter2" not in found.cause and "***" not in found.remedy
