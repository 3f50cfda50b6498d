"""The example from Kafka into a table, on a broker of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.servers.kafka import jars
from tests.servers.processes import java

ROOT = Path(__file__).parents[2]


def test_each_payment_counts_once() -> None:
    """What a new user of Kafka copies first could read a topic twice, or leave its broker behind."""
    java(), jars()
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "examples" / "kafka_to_table.py"), "--payments", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stdout + done.stderr
    first, second, verdict = done.stdout.splitlines()[-3:]
    assert first.startswith("500 payments read, 0 late") and second.startswith("500 payments read, 0 late")
    assert verdict == "each row is what a plain computation gives"
