"""What ``persistent show`` says of a clock whose closed windows still take records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from persistent.storage import LocalStorage
from tests.late import Run
from tests.tools.cli.visits import command


@pytest.mark.parametrize(("allowed", "said"), [(8, "closed up to 1970-01-01 00:00:00.015Z, final up to"), (0, "")])
def test_a_clock_says_up_to_where_windows_are_final(allowed: int, said: str, tmp_path: Path) -> None:
    """Who waits for a late record must see whether its window still takes it."""
    rows: list[dict[str, Any]] = [{"ts": time, "key": "a", "value": 1} for time in (5, 15, 16)]
    run = Run(rows, options={"allowed_lateness": allowed}, step_rows=1, storage=LocalStorage(tmp_path / "checkpoint"))
    run.run(end_of_input=False)
    shown = " ".join(command("show", str(tmp_path / "checkpoint")).output.split())
    assert ("final up to" in shown) == bool(said)
    assert said in shown
