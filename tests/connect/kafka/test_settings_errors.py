"""A broker that refuses us is not waited for, and one that is started again is."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from persistent.connect.kafka.settings import Connection, Reports, error_name, is_final

LOGIN = "sasl_ssl://b:1/bootstrap: SASL authentication error: Authentication failed (after 302ms in state AUTH_REQ)"


def reports(*errors: tuple[int, str]) -> Reports:
    """What was reported of a connection, in this order."""
    secret = Connection("b:1", {"sasl.password": "hunter2", "sasl.mechanism": "PLAIN"}, 1, 1)
    found = Reports(secret.redacted)
    for code, text in errors:
        found.hear(KafkaError(code, text))
    return found


@pytest.mark.parametrize(
    ("code", "text", "remedy"),
    [
        (KafkaError._AUTHENTICATION, LOGIN, "correct sasl.username, sasl.password or sasl.mechanism in client="),
        (KafkaError._AUTHENTICATION, "SASL PLAIN mechanism handshake failed", "correct sasl.username"),
        (KafkaError._SSL, "certificate verify failed", "check servers= and client= "),
        (KafkaError._TRANSPORT, "ssl://b:1: SSL alert number 42", "check servers= and client= "),
    ],
)
def test_what_another_try_does_not_mend(code: int, text: str, remedy: str) -> None:
    """A wrong password would be tried until the time is over, and read as a broker that is slow."""
    found = reports((KafkaError._TRANSPORT, "Connection refused"), (code, text), (KafkaError._ALL_BROKERS_DOWN, "1/1"))
    assert found.refused == found.cause() == f"{KafkaError(code).name()}: {text}"
    assert found.cause(KafkaException(KafkaError(KafkaError._TIMED_OUT, "waiting"))) == found.refused
    assert found.remedy.startswith(remedy)
    found.clear()
    assert found.refused == "" and found.cause() == "it does not answer"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (KafkaError._TRANSPORT, "Connection refused"),
        (KafkaError._SSL, "SSL handshake failed: Disconnected"),
        (KafkaError._AUTHENTICATION, "SASL handshake failed: Connection reset by peer"),
        (KafkaError._TRANSPORT, "SSL alert number 42: Broken pipe"),
        (KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"),
    ],
)
def test_what_may_pass(code: int, text: str) -> None:
    """A broker that is started again would end every job that reads from it."""
    found = reports((code, text))
    assert found.refused == "" and found.remedy.startswith("check servers=")
    assert found.cause() == f"{KafkaError(code).name()}: {text}"


def test_the_newest_cause_counts_and_no_secret_is_shown() -> None:
    """Of many, the one that still holds; that all brokers are down follows from it."""
    found = reports((KafkaError._RESOLVE, "a"), (KafkaError._TRANSPORT, "no hunter2"), (KafkaError._RESOLVE, "b"))
    assert found.cause() == "_RESOLVE: b"
    found.hear(KafkaError(KafkaError._TRANSPORT, "no hunter2 with PLAIN"))
    found.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1"))
    timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT, "waiting for hunter2"))
    assert found.cause(timed_out) == "_TIMED_OUT: waiting for ***; _TRANSPORT: no *** with PLAIN"
    assert found.cause(TimeoutError("x")) == "_TRANSPORT: no *** with PLAIN"


def test_answers_that_stay() -> None:
    """A missing right is asked for until the time is over, or a broker without leaders is taken at its word."""
    final = [
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    ]
    for code in final:
        assert is_final(KafkaException(KafkaError(code)))
    for passing in (KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)), TimeoutError("INVALID"), OSError()):
        assert not is_final(passing)
    assert error_name(KafkaException(KafkaError(KafkaError._FENCED))) == "_FENCED"
    assert error_name(TimeoutError()) == error_name(TimeoutError("x")) == ""
