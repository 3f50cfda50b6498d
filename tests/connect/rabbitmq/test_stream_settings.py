"""What a user says of a broker of streams is checked before anybody connects, and a secret in it is never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from persistent import InvalidPipeline, RabbitStreamSource
from persistent.connect.rabbitmq.stream_settings import StreamAccess, check_stream, stream_access
from tests.certificates import certificates


def access(servers: Any = "a:1", client: Any = None, connect: Any = 1, away: Any = 2) -> StreamAccess:
    return stream_access(servers, client, connect, away)


def test_servers() -> None:
    """With the port of the plugin, of its TLS, or another."""
    assert access("a,b:7").servers == (("a", 5552), ("b", 7))
    assert access(" a , b:7").text == "a:5552,b:7"
    assert access("a", {"tls": True}).servers == (("a", 5551),)
    assert access("::1:9").servers == (("::1", 9),)
    assert (access().connect_timeout_ms, access().server_away_ms) == (1, 2)


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        (None, "servers=None: give a text, such as 'localhost:5552'"),
        (" ", "give a text"),
        ("a:", "'a:' is not 'host:port'"),
        (":5", "':5' is not 'host:port'"),
        ("a:0", "is not 'host:port'"),
        ("a:65536", "is not 'host:port'"),
        ("a:1,", "'' is not 'host:port'"),
        ("amqp://dev:hunter2@a", "servers= is a URL: give 'host:port'.*belong to client="),
        ("dev:hunter2@a", "servers= is a URL"),
    ],
)
def test_servers_that_are_none(servers: Any, said: str) -> None:
    """A URL may hold a password, which is not shown."""
    with pytest.raises(InvalidPipeline, match=said) as raised:
        access(servers)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (["username"], "client= is a mapping"),
        ({"user": "a"}, "client= has no setting 'user'. It can have username, password"),
        ({"password": 5}, "{'password': ...} is a text"),
        ({"tls": "yes"}, "is True or False"),
        ({"heartbeat": 0}, "whole seconds, at least 1"),
        ({"heartbeat": 1.5}, "whole seconds"),
        ({"heartbeat": True}, "whole seconds"),
        ({"ca": "ca.pem"}, "names certificates, but lacks 'tls': True"),
        ({"tls": False, "key": "k"}, "lacks 'tls': True"),
    ],
)
def test_settings_that_are_none(client: Any, said: str) -> None:
    """Before a broker is away for a reason that it cannot say."""
    with pytest.raises(InvalidPipeline, match=said):
        access(client=client)


@pytest.mark.parametrize(("name", "values"), [("connect_timeout", ("soon", 1)), ("server_away", (1, -1))])
def test_waits(name: str, values: tuple[Any, Any]) -> None:
    """Named as the option is."""
    with pytest.raises(InvalidPipeline, match=name):
        access("a", None, *values)


def test_what_is_not_said() -> None:
    """As a broker is when it is new."""
    found = access("a")
    assert (found.username, found.password, found.vhost, found.heartbeat_seconds) == ("guest", "guest", "/", 60)
    said = {"username": "u", "password": "p", "vhost": "v", "heartbeat": 5}
    found = access("a", said)
    assert (found.username, found.password, found.vhost, found.heartbeat_seconds) == ("u", "p", "v", 5)
    assert found.tls() is None


def test_a_password_is_never_shown() -> None:
    """Nor in what others say."""
    found = access("a:1", {"password": "hunter2"})
    assert found.redacted("no hunter2 at a:1") == "no *** at a:1"
    source = RabbitStreamSource("a:1", "s", client={"password": "hunter2"})
    assert "hunter2" not in repr(found) + repr(source) + source.address
    assert access("a").redacted("guest") == "guest"
    assert access("a", {"password": "no"}).redacted("cannot, no") == "cannot, ***"


def test_certificates(tmp_path: Path) -> None:
    """Files that cannot be used are named by their settings, before anybody connects."""
    keys = certificates(tmp_path)
    context = access("a", {"tls": True, "ca": keys.ca, "certificate": keys.certificate, "key": keys.key}).tls()
    assert context is not None and len(context.get_ca_certs()) == 1
    for broken in ({"ca": str(tmp_path / "none")}, {"certificate": keys.certificate, "key": keys.ca}):
        with pytest.raises(InvalidPipeline, match="certificates of 'ca', 'certificate' or 'key' cannot be used"):
            access("a", {"tls": True, **broken}).tls()


def test_names_of_streams() -> None:
    """One is a text that a broker can have."""
    check_stream("x" * 255)
    for wrong, said in (("", "give the name"), (5, "give the name"), ("ü" * 128, "at most 255 bytes")):
        with pytest.raises(InvalidPipeline, match=said):
            check_stream(wrong)
    for wrong, said in (((), "a list of names"), (["a", "a"], "twice"), (["a", ""], "give the name")):
        with pytest.raises(InvalidPipeline, match=said):
            RabbitStreamSource("a:1", wrong)
