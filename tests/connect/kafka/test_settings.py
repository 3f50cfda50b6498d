"""What a user says of a broker is checked before anybody connects, and a secret in it is never shown."""

from __future__ import annotations

from typing import Any

import pytest

from persistent import InvalidPipeline, KafkaSink, KafkaSource
from persistent.connect.kafka.settings import Connection, check_place, checked_settings


@pytest.mark.parametrize(
    ("servers", "topic", "said"),
    [
        ("clicks", "localhost:9092", "cannot be the name of a topic.*servers='clicks' and topic= the other way round"),
        ("clicks", "a:1,b:1", "the other way round"),
        ("a:1", "b,c", "the other way round"),
        ("a:1", "my clicks", r"letters, digits, '.', '_' and '-'$"),
        ("a:1", "x" * 250, "cannot be the name"),
        ("a:1", "", "topic='': give a text, such as 'clicks'"),
        ("a:1", 5, "topic=5: give a text"),
        (None, "clicks", "servers=None: give a text, such as 'localhost:9092'"),
        ("", "clicks", "servers='': give a text"),
    ],
)
def test_servers_and_topic(servers: Any, topic: Any, said: str) -> None:
    """Swapped, they would be a broker that does not answer."""
    with pytest.raises(InvalidPipeline, match=said):
        check_place(servers, topic, "clicks")
    for kind in (KafkaSource, KafkaSink):
        with pytest.raises(InvalidPipeline):
            kind(servers, topic)
    check_place("a:1,b:1", "x" * 249, "clicks")
    check_place("a", "my.Clicks_5-x", "clicks")


def test_no_value_of_a_setting_is_shown() -> None:
    """A short one is a number or a flag, which may stand anywhere."""
    connection = Connection("a:1", {"sasl.password": "hunter2", "x": "abcd", "n": 123, "y=inline": "z"}, 1, 1)
    text = connection.redacted("no hunter2 at abcd:123 with inline")
    assert text == "no *** at ***:123 with ***"
    assert "hunter2" not in repr(connection)
    said = "SASL SCRAM-SHA-512 handshake failed for a or 512"
    named = {"sasl.mechanism": "SCRAM-SHA-512", "security.protocol": "SASL_SSL"}
    assert Connection("a:1", named, 1, 1).redacted(said) == said
    for name in ("sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret"):
        assert Connection("a:1", {**named, name: "a"}, 1, 1).redacted(said) == said.replace(" a ", " *** ")
    for name in ("sasl.password", "sasl.mechanism"):
        assert Connection("a:1", {**named, name: "SASL"}, 1, 1).redacted(said) == said.replace("SASL", "***")
    plain = Connection("a:1", {"sasl.mechanism": "plain", "sasl.password": "PLAIN"}, 1, 1)
    assert plain.redacted("no plain PLAIN") == "no plain ***"


def test_a_longer_value_goes_first() -> None:
    """The rest of a password is a secret too."""
    assert Connection("a:1", {"a": "pass", "b": "password"}, 1, 1).redacted("my password") == "my ***"


def test_what_we_set_ourselves_is_refused() -> None:
    """By name and reason, for each part."""
    assert checked_settings({"a.b": 1}) == {"a.b": 1}
    with pytest.raises(InvalidPipeline, match=r"sets 'group\.id', which this source sets itself: nothing is committed"):
        checked_settings({"group.id": "x"})
    with pytest.raises(InvalidPipeline, match="which this sink sets itself: because"):
        checked_settings({"own": "x"}, "sink", {"own": "because"})
    for wrong in (["a"], {1: "x"}, "a=b"):
        with pytest.raises(InvalidPipeline, match="client= is a mapping"):
            checked_settings(wrong)


@pytest.mark.parametrize("servers", ["me:hidden@broker:9092", "SASL_SSL://me:hidden@broker:9092"])
def test_a_password_in_servers_is_refused_and_not_shown(servers: str) -> None:
    """It would be in the log, and in each error of the broker."""
    for part in (KafkaSource, KafkaSink):
        with pytest.raises(InvalidPipeline, match=r"servers= has a user or a password .*client=") as caught:
            part(servers, "clicks")
        assert "hidden" not in str(caught.value)
    check_place("PLAINTEXT://broker:9092", "clicks", "clicks")
