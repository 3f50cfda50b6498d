"""Two jobs over one log: the second reads what the first has published."""

from __future__ import annotations

import pytest

from examples import two_jobs


def test_the_second_job_finds_the_busiest_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """A page of the docs shows this."""
    two_jobs.main()
    assert capsys.readouterr().out.splitlines() == [
        "first job: 8 windows in the log",
        "second job: /a had at most 40 visits in a minute",
        "second job: /b had at most 20 visits in a minute",
    ]
