"""Prometheus' own program, which judges metrics and queries."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.servers.processes import missing

INSTALL = "apt-get install prometheus (its server is not needed; .ci/run takes the one program)"


def promtool(*words: str | Path, given: bytes | None = None) -> str:
    """What ``promtool`` says, if it finds nothing wrong. See ``missing`` where there is none."""
    program = shutil.which("promtool") or missing("no promtool found", INSTALL)
    done = subprocess.run([program, *words], input=given, capture_output=True)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, said
    return said
