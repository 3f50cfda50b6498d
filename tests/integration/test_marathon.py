"""A short marathon: everything dies in turn, and the table and the topic are what a plain computation gives.

Here half a minute, embedded; ``make marathon`` is five minutes on each engine.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.marathon import Marathon
from tests.servers.shared import shared_kafka, shared_postgres

SECONDS = 30


@pytest.mark.timeout(600)
def test_everything_dies_in_turn(seed: str, tmp_path: Path) -> None:
    """What no single accident shows: a rollback after a kill, a savepoint of what was rolled back, a kill in that."""
    shared_kafka(), shared_postgres()
    marathon = Marathon("embedded", tmp_path, f"{seed} embedded")
    marathon.run(SECONDS)
    kills = {"driver", "broker", "database", "rollback, retract", "rollback, again", "start from a savepoint"}
    assert kills <= marathon.kills.keys(), f"SEED={seed}: {marathon.kills}"
