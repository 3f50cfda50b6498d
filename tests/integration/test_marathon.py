"""A short marathon: everything dies in turn, and tables and topics are what a plain computation gives.

Here half a minute, embedded; ``make marathon`` is five minutes, the first on each engine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.few import turn
from tests.integration.marathon import Marathon
from tests.integration.marathon_queue import VICTIMS, QueueMarathon
from tests.integration.marathon_topic import TopicMarathon
from tests.servers.shared import shared_kafka, shared_postgres, shared_rabbit

SECONDS = 30


@turn(0, of=3)
@pytest.mark.timeout(600)
def test_everything_dies_in_turn(seed: str, tmp_path: Path) -> None:
    """What no single accident shows: a rollback after a kill, a savepoint of what was rolled back, a kill in that."""
    shared_kafka(), shared_postgres()
    marathon = Marathon("embedded", tmp_path, f"{seed} embedded")
    marathon.run(SECONDS)
    kills = {"driver", "broker", "database", "rollback, retract", "rollback, again", "start from a savepoint"}
    assert kills <= marathon.kills.keys(), f"SEED={seed}: {marathon.kills}"


@turn(1, of=3)
@pytest.mark.timeout(600)
def test_everything_dies_in_turn_behind_a_topic(seed: str, tmp_path: Path) -> None:
    """A tail that nobody names, or an order that counts twice when a driver dies between journal and table."""
    shared_postgres()
    marathon = TopicMarathon(tmp_path, f"{seed} topic")
    marathon.run(SECONDS)
    assert marathon.kills.keys() == {"driver", "sender", "connection", "database"}, f"SEED={seed}: {marathon.kills}"


@turn(2, of=3)
@pytest.mark.timeout(600)
def test_everything_dies_in_turn_behind_a_queue(seed: str, tmp_path: Path) -> None:
    """A copy that counts when it comes to another journal entry, broker or run than the first; an order that was
    acknowledged, and is nowhere."""
    shared_kafka(), shared_rabbit()
    marathon = QueueMarathon(tmp_path, f"{seed} queue")
    marathon.run(SECONDS)
    assert marathon.kills.keys() == set(VICTIMS), f"SEED={seed}: {marathon.kills}"
