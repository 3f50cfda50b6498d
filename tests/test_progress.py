"""Progress: figures on the standard error, one line that changes or lines that do not flood a log."""

from __future__ import annotations

import io

import pytest

from persistent import StepReport
from persistent.progress import progress


def step(id: int) -> StepReport:
    return StepReport(id, 1_000, 0.1, 0, 0, 0, 1_700_000_000_000, 2_000, 512, 0, 256, 0.01)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_come_at_most_each_second() -> None:
    """Without it a log would get a line a step, hundreds a second."""
    stream = io.StringIO()
    with progress(stream) as on_step:
        for id in range(50):
            on_step(step(id))
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("1,000 rows")


def test_a_terminal_gets_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it nobody would see that a long run goes on."""
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with progress(stream) as on_step:
        for id in range(3):
            on_step(step(id))
    shown = stream.getvalue()
    assert "3,000 rows" in shown
    assert "clock 2023-11-14 22:13:20Z" in shown
    assert "\x1b[" in shown
