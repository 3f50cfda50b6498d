"""The example of a project has what a test needs: two keys, two windows, and values that differ."""

from __future__ import annotations

import pytest

from persistent.tools.project import Field
from persistent.tools.project.texts import count_name, expected_of, records_of, sample_text
from tests.tools.project.made import KEYS, WINDOWS, answers


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("window", WINDOWS)
def test_an_example_tells_keys_and_windows_apart(key: Field | None, window: str) -> None:
    """Without it a task that ignores its key, or its window, would pass the test that it begins with."""
    made = answers(key, window, (Field("millis", "int"),))
    expected = expected_of(made)
    assert len(expected) == (1 if key is None else 2) + (window != "none" and 1) + (window.startswith("session") and 0)
    assert sum(value["count"] for value in expected.values()) == len(records_of(made)) == 4
    assert {value["millis_sum"] for value in expected.values()} != {value["count"] for value in expected.values()}


def test_the_number_of_records_has_a_name_of_its_own() -> None:
    """Without it a key called count would be two columns of one name."""
    assert count_name(answers(Field("count", "int"), "hour", ())) == "records"
    assert count_name(answers(None, "hour", (Field("count", "int"),))) == "count"


def test_the_sample_has_pauses_and_hours() -> None:
    """Without it a session, or an hour, would show nothing."""
    header, *lines = sample_text().splitlines()
    assert header == "time,user,page,millis" and len(lines) == 72
    assert lines == sorted(lines) and len({line[:13] for line in lines}) >= 5
    assert {line.split(",")[1] for line in lines} == {"ann", "bob", "cyd"}
