"""The example from Kafka to PostgreSQL and Kafka, small: its servers are its own, and its drivers are killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import postgres
from tests.servers.kafka import jars
from tests.servers.processes import java, missing

ROOT = Path(__file__).parents[2]


@pytest.mark.crash
def test_orders_survive_their_drivers() -> None:
    """What a new user copies first would count twice after a crash; or leave its servers behind."""
    java(), jars()
    if postgres.programs() is None:
        missing("no PostgreSQL found", postgres.INSTALL)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "examples" / "orders.py"), "--orders", "12000", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("was killed with -9") == 2 and done.stdout.count(" equal") == 3
    assert "WRONG" not in done.stdout
