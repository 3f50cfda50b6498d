"""The choices of a pipeline are refused where it is made, and not hours later where they would matter."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from persistent.driver.options import check_choices, checked_ms, positive_ms
from persistent.errors import InvalidPipeline


def test_a_duration_is_refused_by_the_name_of_its_option() -> None:
    """Of several durations nobody would know which one is meant."""
    assert checked_ms("2 min", "max_future") == 120_000 and checked_ms(0, "max_future") == 0
    for wrong in ("2 moons", -1, 1.5, timedelta(microseconds=1)):
        with pytest.raises(InvalidPipeline, match=r"^max_future: "):
            checked_ms(wrong, "max_future")  # type: ignore[arg-type]


def test_a_duration_that_must_be_positive() -> None:
    """Zero is a way to say never in other systems, and would mean at once here."""
    assert positive_ms(None, "quiet_after") is None and positive_ms(1, "quiet_after") == 1
    with pytest.raises(
        InvalidPipeline, match=r"^quiet_after='0 s': give a duration above zero, such as '10 min', or None$"
    ):
        positive_ms("0 s", "quiet_after")
    with pytest.raises(InvalidPipeline, match=r"^quiet_after: "):
        positive_ms("soon", "quiet_after")


@pytest.mark.parametrize(
    ("step_rows", "on_error", "require", "says"),
    [
        (0, "stop", None, "step_rows=0: give a number of rows, at least 1"),
        (True, "stop", None, "step_rows=True"),
        ("4", "stop", None, "step_rows='4'"),
        (None, "skip", None, 'on_error=\'skip\': choose "stop" or "dead-letter"'),
        (None, "stop", "best-effort", "require='best-effort': choose one of at-least-once, exactly-once"),
    ],
)
def test_a_choice_that_does_not_exist(step_rows: Any, on_error: Any, require: Any, says: str) -> None:
    """A misspelt one would be taken for another."""
    check_choices(1, "dead-letter", "at-least-once")
    check_choices(None, "stop", "exactly-once")
    with pytest.raises(InvalidPipeline, match=says):
        check_choices(step_rows, on_error, require)
