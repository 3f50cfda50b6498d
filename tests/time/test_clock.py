"""A duration is what a person writes, read as that and as nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from persistent import tumbling
from persistent.text.figures import duration_text
from persistent.time.clock import duration_ms, instant_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1 hour", 3_600_000),
        ("1 h", 3_600_000),
        ("1h", 3_600_000),
        ("2 hours", 7_200_000),
        ("1 d", 86_400_000),
        ("1 day", 86_400_000),
        ("10 seconds", 10_000),
        ("1 second", 1_000),
        ("5minutes", 300_000),
        ("5  min", 300_000),
        ("1 week", 604_800_000),
        ("250 milliseconds", 250),
        (" 7 ms ", 7),
    ],
)
def test_the_ways_people_write_a_duration(text: str, ms: int) -> None:
    """A first pipeline must not die of "1 hour" where "1 h" is meant."""
    assert duration_ms(text) == ms


@pytest.mark.parametrize("text", ["1 m", "1 month", "an hour", "1.5 h", "h", "1", "", "-1 s", "1 h 5 min", "\u0661 h"])
def test_what_is_no_duration_is_refused_with_the_units(text: str) -> None:
    """Whoever guessed wrong once must not have to guess again: minutes or months?"""
    with pytest.raises(ValueError, match=r"size: .* whole number and a unit.*ms, .*s, .*min, .*h, hour, hours; d, day"):
        tumbling(text)


@pytest.mark.parametrize("ms", [0, 1, 999, 1_000, 90_000, 3_600_000, 86_400_000, 604_800_000, 604_800_001])
def test_a_duration_in_words_is_that_duration(ms: int) -> None:
    """An error that shows another duration than the one at fault sends its reader astray."""
    assert duration_ms(duration_text(ms)) == ms


@pytest.mark.parametrize("value", [True, 1.5, None])
def test_what_is_neither_number_nor_text_is_refused(value: Any) -> None:
    """True would be one millisecond."""
    with pytest.raises(TypeError, match="neither milliseconds"):
        duration_ms(value)


@pytest.mark.parametrize("size", ["99999999999999 w", 2**61 + 1, "9" * 30 + " ms"])
def test_a_duration_that_no_clock_holds_is_refused(size: Any) -> None:
    """It was taken, and the first message raised an OverflowError that blamed the line of the task."""
    with pytest.raises(ValueError, match=r"size: .* is too long: .* 73 million years"):
        tumbling(size)
    assert tumbling(2**61).last_end(2**62) < 2**63


@pytest.mark.parametrize("text", ["--5", "\u00b2", "\u0663", "-", "9" * 5_000, "1e3"])
def test_what_is_no_time_is_refused_in_our_words(text: str) -> None:
    """Python's error about int() says neither which option nor what to write."""
    with pytest.raises(ValueError, match=r"as_of: .* is not a time: give 2024-05-01T10:00:00Z"):
        instant_ms(text, "as_of")


def test_digits_that_may_be_a_date_are_neither() -> None:
    """20240501 was six hours after the beginning of 1970: a state as of then is empty, without a word."""
    with pytest.raises(ValueError, match=r"as_of: '20240501' can be a date .*2024-05-01, or 1970-01-01T05:37:20.501"):
        instant_ms(" 20240501 ", "as_of")
    assert [instant_ms(value) for value in ("99999999", "-5", " 5 ", 20240501)] == [99_999_999, -5, 5, 20_240_501]
