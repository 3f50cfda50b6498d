"""The connections of a sender and a receiver belong to one process."""

from __future__ import annotations

import os
import signal
import time

import pytest

from persistent.errors import PersistentError
from persistent.topic import Retain, TopicMessage, TopicReceiver, TopicSender

ALL = Retain("1 h")


def refusals(sender: TopicSender, receiver: TopicReceiver) -> str:
    """What a fork is told by each, one a line."""
    found = []
    for call in (lambda: sender.publish(b"x"), lambda: sender.receivers, receiver.take, receiver.look):
        try:
            call()
        except PersistentError as error:
            found.append(f"{type(error).__name__}: {error}")
    sender.close()
    receiver.close()
    return "\n".join(found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.timeout(60)
def test_a_fork_has_neither_the_port_nor_the_connections() -> None:
    """What it published would have numbers that the sender gives again, and reach nobody; and as long as it runs, a new
    sender could not have the port, and nobody would notice that a connection has ended."""
    sender = TopicSender("t", retain=ALL)
    receiver = TopicReceiver(sender.address, "t")
    while not sender.receivers:
        time.sleep(0.005)
    here, there = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(there, refusals(sender, receiver).encode())
            signal.pause()
        finally:
            os._exit(0)
    try:
        said = os.read(here, 10_000).decode().splitlines()
        kinds = [line.partition(":")[0] for line in said]
        assert kinds == ["Refused", "Refused", "SourceError", "SourceError"]
        assert all(f"process {os.getpid()}, which this process was forked from" in line for line in said)
        assert sender.publish(b"0") == 0
        found: list[object] = []
        while not any(isinstance(event, TopicMessage) for event in found):
            found += receiver.take()
        receiver.close()
        while sender.receivers:
            time.sleep(0.005)
        sender.close()
        TopicSender("t", port=int(sender.address.rpartition(":")[2])).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(here)
        os.close(there)
