"""An answer that cannot be right is refused with the answers that can."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from persistent import InvalidPipeline
from persistent.tools.project import sink_of, source_of, window_of
from persistent.tools.project.answers import WindowChoice, checked_name
from tests.visits import says


@pytest.mark.parametrize(
    ("make", "text", "parts"),
    [
        (source_of, "events.csv", ("--source 'events.csv'", "names no source", "as in files:views/*.csv")),
        (source_of, "files:", ("--source", "files:PATH")),
        (source_of, "kafka:localhost/views", ("--source 'kafka:localhost/views'", "as in kafka:localhost:9092/views")),
        (sink_of, "csv", ("--sink 'csv'", "names no sink", "sqlite")),
        (sink_of, "kafka:", ("--sink", "as in kafka:localhost:9092")),
        (window_of, "fortnight", ("--window 'fortnight'", "is no window", "session 10 min")),
        (window_of, "60", ("--window '60'", "without a unit", "'15 min'")),
        (window_of, "0 s", ("--window '0 s'", "at least 10 ms")),
        (window_of, "600 weeks", ("--window '600 weeks'", "at most ten years")),
        (window_of, "session 3 days", ("--window 'session 3 days'", "at most a day")),
        (lambda name: checked_name(name, "--key"), "my key", ("--key 'my key'", "Rename", "message.value['my key']")),
        (lambda name: checked_name(name, "--value"), "größe €", ("--value 'größe €'", "Rename", "task.py")),
        (lambda name: checked_name(name, "--key"), "revision", ("--key 'revision'", "results", "rename the column")),
        (lambda name: checked_name(name, "--key"), '"', ("--key", "Rename", "task.py")),
    ],
)
def test_what_is_no_answer_is_told(make: Callable[[str], object], text: str, parts: tuple[str, ...]) -> None:
    """Without it a mistyped option would be a project that does not run, or code that somebody else has written."""
    with pytest.raises(InvalidPipeline) as error:
        make(text)
    says(error, *parts)


@pytest.mark.parametrize(
    "place", ["postgres:postgresql://me:hunter2@localhost/shop", "postgres:host=a password=hunter2", "x://me:hunter2@a"]
)
def test_no_password_is_written(place: str) -> None:
    """Without it the first commit of a project could hold a password, or the terminal show it."""
    with pytest.raises(InvalidPipeline) as error:
        sink_of(place)
    assert "hunter2" not in str(error.value)


def test_windows_are_named_in_several_ways() -> None:
    """Without it an answer would be refused for its spelling."""
    assert window_of("hour") == window_of(" 1  h ") == WindowChoice("tumbling", "1 h")
    assert window_of("session").ms == 1_800_000
    assert window_of("session 10 minutes") == WindowChoice("session", "10 minutes")
