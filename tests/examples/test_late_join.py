"""A job that joins a topic late, over two runs."""

from __future__ import annotations

import pytest

from examples import late_join


def test_what_was_published_before_is_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A page of the docs shows this."""
    late_join.main()
    assert capsys.readouterr().out.splitlines() == [
        "first run: 200 views, 6 windows in the table",
        "second run: 0 views, 2 windows in the table",
        "exactly-once",
    ]
