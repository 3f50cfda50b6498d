"""What an error of the client means decides whether it is waited for; the password is in none of them."""

from __future__ import annotations

import logging
import pickle
import socket
import traceback
from typing import Any

import pytest

from persistent.connect.rabbitmq.link import Link, LinkLost, LinkRefused, RabbitPlace, patience, pika
from persistent.errors import InvalidPipeline

SECRET = "hunter2%2Fx"
PLACE = RabbitPlace(f"amqp://app:{SECRET}@broker.example:5671/shop")
errors = pika().exceptions


def test_a_place_never_shows_the_password() -> None:
    """It would be in the logs, and in the checkpoint's address."""
    assert PLACE.said == "amqp://broker.example:5671/shop"
    assert repr(PLACE) == "RabbitPlace('amqp://broker.example:5671/shop')"
    assert PLACE.scrubbed("no login with hunter2/x, hunter2%2Fx") == "no login with ..., ..."
    assert RabbitPlace("amqp://app:e@broker.example").scrubbed("refused: app:e@") == "refused: app:...@"
    again = pickle.loads(pickle.dumps(PLACE))
    assert again.parameters().credentials.password == "hunter2/x"


@pytest.mark.parametrize(
    "url",
    [
        "",
        None,
        "localhost",
        "http://localhost",
        "amqp://",
        "amqp:///shop",
        "amqp://user:hunter2/secret@host:5672/shop",
        "amqp://user:1234/hunter2@host:5672/shop",
        "amqp://user:hunter#2@host:5672/shop",
        "amqp://user:hunter?2@host:5672/shop",
        "amqp://user:12?hunter2@host:5672/shop",
        "amqp://user:hun[ter2@host:5672/shop",
        "amqp://user:hunter2@host:99999/shop",
        "amqp://user:hunter2@host:0/shop",
        "amqp://user:hunter2@host:http/shop",
        "amqp://user:hunter2@host/shop/hunter2",
        "amqp://hunter2@host/shop",
        b"amqp://host",
    ],
)
def test_a_url_that_cannot_be_read_is_refused_unseen(url: Any) -> None:
    """It may hold a password."""
    with pytest.raises(InvalidPipeline, match="url= cannot be parsed") as raised:
        RabbitPlace(url)
    said = "".join(traceback.format_exception(raised.value))
    assert "hunter" not in said and "secret" not in said and raised.value.__context__ is None
    assert not url or str(url) not in str(raised.value).replace("amqp://user", "")


def test_the_heartbeat_is_ours_unless_the_url_says_it() -> None:
    """A broker that vanishes without a word would be waited for as long as the kernel likes."""
    assert PLACE.parameters().heartbeat == 30
    assert RabbitPlace("amqp://broker.example/?heartbeat=7").parameters().heartbeat == 7
    assert PLACE.parameters().socket_timeout == 10
    assert RabbitPlace("amqp://broker.example/?socket_timeout=3").parameters().socket_timeout == 3


@pytest.mark.parametrize(
    ("query", "match"),
    [
        ("heartbeat=abc", r"the client refuses heartbeat= in the query \(ValueError\)"),
        ("heartbeat=7&heartbeat=8", "refuses heartbeat="),
        ("heartbeat=0", "without heartbeats a broker that is gone is never noticed"),
        ("bogus=hunter2", "refuses bogus="),
        ("heartbeat=7&ssl_options={'password':'hunter2'", r"refuses ssl_options= in the query \(SyntaxError\)"),
        ("ssl_options={'certfile':'/none','password':'hunter2'}", "refuses ssl_options="),
    ],
)
def test_settings_in_the_url_are_checked_at_once(query: str, match: str) -> None:
    """They would fail in the thread of a run; or a broker that vanishes would be waited for without an end."""
    with pytest.raises(InvalidPipeline, match=match) as raised:
        RabbitPlace(f"amqp://app:{SECRET}@broker.example/shop?{query}")
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))


def test_a_virtual_host_is_known() -> None:
    """Queues of one name in two virtual hosts are two queues."""
    urls = ("amqp://h", "amqp://h/", "amqp://h/%2F", "amqp://h/shop", "amqp://h/a%2Fb", "amqp://h/shop/")
    assert [RabbitPlace(url).virtual_host for url in urls] == ["/", "/", "/", "shop", "a/b", "shop"]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (errors.ChannelClosedByBroker(404, "NOT_FOUND - no queue 'q'"), LinkRefused, "no queue 'q': it does not exist"),
        (errors.ChannelClosedByBroker(406, "PRECONDITION_FAILED - x"), LinkRefused, "with other arguments"),
        (
            errors.ChannelClosedByBroker(
                406, "invalid arg 'x-priority' for queue 'q' of queue type rabbit_stream_queue"
            ),
            LinkRefused,
            "not a queue: read it with RabbitStreamSource",
        ),
        (errors.ChannelClosedByBroker(406, "delivery ... timed out"), LinkRefused, "raise that of the broker"),
        (
            errors.ChannelClosedByBroker(
                406, "PRECONDITION_FAILED - message size 9 is larger than configured max size 3"
            ),
            LinkRefused,
            "size 3: raise max_message_size of the broker",
        ),
        (
            errors.ChannelClosedByBroker(403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"),
            LinkRefused,
            "in exclusive use: another consumer has the queue for itself",
        ),
        (errors.ChannelClosedByBroker(405, "LOCKED"), LinkRefused, "another connection holds it"),
        (errors.ChannelClosedByBroker(311, "too large"), LinkRefused, "has closed the channel"),
        (errors.ChannelWrongStateError("closed"), LinkRefused, "closed: the broker has closed the channel"),
        (
            errors.ProbableAuthenticationError("(403) 'ACCESS_REFUSED' hunter2/x"),
            LinkRefused,
            "'ACCESS_REFUSED' ...: the",
        ),
        (errors.AMQPConnectionError(errors.ConnectionClosedByBroker(530, "no vhost")), LinkRefused, "no vhost"),
        (errors.AMQPConnectionError(OSError(111, "refused")), LinkLost, "refused"),
        (errors.ConnectionClosedByBroker(320, "CONNECTION_FORCED"), LinkLost, "CONNECTION_FORCED"),
        (errors.StreamLostError("reset"), LinkLost, "reset"),
        (errors.AMQPHeartbeatTimeout("no heartbeat"), LinkLost, "no heartbeat"),
        (errors.ProbableAuthenticationError("reset by peer"), LinkLost, "reset by peer"),
        (errors.AMQPConnectionError(), LinkLost, "AMQPConnectionError"),
        (OSError("no route"), LinkLost, "no route"),
    ],
)
def test_an_error_is_lost_or_refused(error: Exception, kind: type[Exception], said: str) -> None:
    """What is refused would be tried for minutes, or what is lost would end the run."""
    with pytest.raises(kind) as raised, PLACE.failures():
        raise error
    assert said in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_nobody_listens() -> None:
    """A broker that is not there yet may come."""
    before = logging.getLogger("pika").level
    try:
        with pytest.raises(LinkLost, match="refused"):
            Link(RabbitPlace("amqp://app:x@127.0.0.1:1/"))
        assert logging.getLogger("pika").level == logging.CRITICAL
    finally:
        logging.getLogger("pika").setLevel(before)


def test_somebody_listens_and_does_not_answer() -> None:
    """A broker that stands still while it is connected to would end the run at once, in the words of the client."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"amqp://app:x@127.0.0.1:{silent.getsockname()[1]}/?stack_timeout=0.2&socket_timeout=0.2"
        with pytest.raises(LinkLost, match="accepts connections, and does not answer"):
            Link(RabbitPlace(url))


def test_times_are_options() -> None:
    """A duration that cannot be read would fail once the broker is away."""
    found = patience("1 s", "2 min", "5 s")
    assert (found.connect_ms, found.away_ms, found.recovery_ms) == (1_000, 120_000, 5_000)
    with pytest.raises(InvalidPipeline, match="server_away"):
        patience("1 s", "soon", "5 s")
