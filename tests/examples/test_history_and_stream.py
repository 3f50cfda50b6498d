"""A week in files and in a log, with a day and a half in both."""

from __future__ import annotations

import pytest

from examples import history_and_stream


def test_each_order_counts_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A page of the docs names this."""
    history_and_stream.main()
    assert capsys.readouterr().out.splitlines() == [
        *(f"2024-05-{day:02}: 2400 cents" for day in range(6, 13)),
        "history/files: 126 read, 120 counted here",
        "live/log: 50 read, 48 counted here",
    ]
