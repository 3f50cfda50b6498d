"""The progress of a long command: a line on a terminal, nothing in a file."""

from __future__ import annotations

import io

import pytest

from persistent.tools.cli.tables import one_line, working


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_gets_no_line() -> None:
    """Without it a log would hold every line that a terminal replaces."""
    stream = io.StringIO()
    with one_line(stream) as show, working(stream, "reading", str) as tell:
        show("text")
        tell(1, 2)
    assert stream.getvalue() == ""


def test_a_terminal_is_told_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it a verification of an hour would look like one that hangs."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    with working(stream, "verifying", lambda count: f"{count} B") as tell:
        tell(30, 40)
    assert "verifying: 30 B of 40 B 75 %" in stream.getvalue()
