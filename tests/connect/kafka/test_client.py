"""A client of Kafka waits no longer for a broker once its run is asked to stop. All else:
tests/servers/test_kafka.py."""

from __future__ import annotations

import socket

import pytest

from persistent.connect.kafka.client import KafkaClient
from persistent.connect.kafka.settings import Connection
from persistent.errors import Stopped
from persistent.time.clock import StopRequest, heard


def test_who_is_asked_to_stop_waits_for_no_broker() -> None:
    """A run would wait on for minutes, as long as the broker may be away."""
    with socket.socket() as nobody:
        # Bound and not listening: nobody else gets this port, and nobody answers.
        nobody.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{nobody.getsockname()[1]}"
        client, request = KafkaClient(Connection(servers, {}, 60_000, 60_000)), StopRequest()
        request.make()
        with heard(request, 0), pytest.raises(Stopped, match=f"Kafka at {servers}: cannot"):
            client.topic("visits")
