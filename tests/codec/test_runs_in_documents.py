"""A run in a document is one that can be: a file of the job, in key groups, with panes and checkpoints in order."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from persistent.codec.fields import INT64_MAX, INT64_MIN, Run
from tests.checkpoint.samples import json_of

RUN_JSON = json_of(Run("d/V/x", 5, 9, "0" * 64, 0, 3, 1024, -1, 60, 1, 2))


def of(body: Any) -> Run:
    return msgspec.convert(body, Run, strict=True)


def test_a_run_is_read_as_it_was_written() -> None:
    """``rows_left`` divides by the width of its key groups."""
    assert json_of(of(RUN_JSON)) == RUN_JSON
    assert of(RUN_JSON).rows_left == 4
    assert of({**RUN_JSON, "rows": 10, "start": 512, "low": 768}).rows_left == 5


def test_only_a_wide_run_says_so() -> None:
    """Most are not, and a manifest has many."""
    assert "wide" not in RUN_JSON and of(RUN_JSON).wide is False
    wide = {**RUN_JSON, "wide": True}
    assert of(wide).wide and json_of(of(wide)) == wide


@pytest.mark.parametrize(
    "name",
    [
        "d/../../etc/passwd",
        "d/x/../y",
        "/d/x",
        "d//x",
        "d/",
        "d",
        "x/d/a",
        "../d/x",
        "d/.hidden",
        "d/a b",
        "d/a\0",
        "d/a\n",
        "d/é",
        "d/a\\b",
        "d/" + "a" * 201,
        "d" + "/a" * 500,
        "",
        7,
    ],
)
def test_a_name_never_leaves_the_folder(name: Any) -> None:
    """A sealed manifest would choose which file of the store is read."""
    for good in ("d/Visits/e1-c1-0f.arrow", "d/i/x", "d/" + "a" * 200, "d/aa" + "/a" * 498):
        of({**RUN_JSON, "name": good})
    with pytest.raises(msgspec.ValidationError):
        of({**RUN_JSON, "name": name})


@pytest.mark.parametrize(
    "changes",
    [
        {"low": 1024},
        {"start": 4},
        {"high": 3},
        {"high": 1025},
        {"start": -1},
        {"rows": -1},
        {"bytes": True},
        {"pane_max": -2},
        {"pane_min": 1 << 64},
        {"first": 3},
        {"sha256": "Z" * 64},
        {"name": "late/x"},
        {"extra": 1},
    ],
)
def test_a_run_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    """A run in no key group counts for none, silently."""
    with pytest.raises(msgspec.ValidationError):
        of({**RUN_JSON, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"start": 0, "low": 0, "high": 1},
        {"start": 1024 - 1, "low": 1024 - 1},
        {"pane_min": 60, "pane_max": 60},
        {"pane_min": INT64_MIN, "pane_max": INT64_MAX},
        {"first": 0, "last": 0},
        {"rows": 0, "bytes": 0},
        *({name: 1 << 62} for name in ("rows", "bytes", "last")),
        {"first": 1 << 62, "last": 1 << 62},
    ],
    ids=str,
)
def test_a_run_at_its_bounds_is_read(changes: dict[str, Any]) -> None:
    """It has been committed: a bound that is too narrow makes its checkpoint unreadable."""
    assert json_of(of({**RUN_JSON, **changes})) == {**RUN_JSON, **changes}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        *(({name: (1 << 62) + 1}, "4611686018427387904") for name in ("rows", "bytes", "first", "last")),
        ({"start": 0, "low": 0, "high": 0}, "key groups 0 to 0"),
        ({"pane_min": INT64_MIN - 1}, "pane_min"),
        ({"pane_max": INT64_MAX + 1}, "pane_max"),
        ({"pane_max": -2}, "end before they begin"),
    ],
)
def test_a_run_just_beyond_its_bounds_is_refused(changes: dict[str, Any], says: str) -> None:
    """Larger counts overflow where they are added up."""
    with pytest.raises(msgspec.ValidationError, match=says):
        of({**RUN_JSON, **changes})
