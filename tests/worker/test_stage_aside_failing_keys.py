"""A key or window without a result is found among all others, and costs none of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from monoids import Sum
from persistent import UserCodeError
from persistent.codec.sealed import decode_table
from persistent.names import Attempt
from persistent.storage import MemoryStorage
from persistent.time.window import Window, sliding
from persistent.worker.job import Node
from persistent.worker.stage_aside import (
    FailingKey,
    no_result,
    stage_failing_keys,
)
from tests.totals import Totals

SLIDING = sliding(20, every=10)


def node(window: Window | None = None) -> Node:
    task = Totals(Sum(), window)
    return Node("totals", task, task.persistent_state(), MemoryStorage(uuid.uuid4().hex), dead_letters=True)


FAILING = FailingKey((7, "é"), (60_000, 120_000), ValueError("no"), b"\x01\xff")


@pytest.mark.parametrize(
    ("failing", "names", "says"),
    [
        (FAILING, ("n", "k"), "key (n=7, k='é'), window 1970-01-01 00:01:00Z to 1970-01-01 00:02:00Z: ValueError: no"),
        (FailingKey((7,), None, ValueError("no")), ("n",), "key (n=7): ValueError: no"),
        (FailingKey((), None, ValueError("no")), (), "the whole state: ValueError: no"),
        (FailingKey((), (0, 1_000), ValueError("no")), (), "window 1970-01-01 00:00:00Z to 1970-01-01 00:00:01Z: "),
    ],
)
def test_its_text_is_its_place_and_what_was_raised(failing: FailingKey, names: Sequence[str], says: str) -> None:
    """It is all that a user has to find what to mend."""
    assert failing.text(names).startswith(says)
    assert says.endswith(": ") or failing.text(names) == says


def test_a_long_key_is_cut() -> None:
    """A key of a megabyte would be the error."""
    assert len(FailingKey(("x" * 1_000,), None, ValueError("no")).text(("k",))) < 240


def test_the_error_is_caused_by_what_was_raised() -> None:
    """Its traceback leads into the user's own code."""
    error = no_result(node(), FailingKey(("a",), None, FAILING.error))
    assert isinstance(error, UserCodeError) and error.__cause__ is FAILING.error
    assert "Totals: no result for key (k='a'): ValueError: no. Committed state stays" in str(error)


def test_dead_letters_hold_key_window_and_element() -> None:
    """They are all that is left of a result: a program puts it right from them."""
    made = node(SLIDING)
    assert stage_failing_keys(made, Attempt(3, 41), []) is None and made.storage.list("d/totals") == []
    given = [
        FailingKey(("a",), (60_000, 60_020), ValueError("no"), b"\x01\xff"),
        FailingKey(("\ud800",), None, ValueError("no")),
    ]
    staged = stage_failing_keys(made, Attempt(3, 41), given)
    assert staged is not None and staged.rows == 2 and staged.name.startswith("d/totals/e3-c41-")
    data = made.storage.read(staged.name)
    assert data.size == staged.bytes
    rows = decode_table(data, staged.sha256, "place").to_pylist()
    nothing: Mapping[str, Any] = {"partition": "", "file": "", "ordinal": None, "offset": None, "value": None}
    assert [{**row, **nothing} for row in rows] == rows
    assert [(row["timestamp"], row["checkpoint"]) for row in rows] == [(60_000, 41), (None, 41)]
    assert rows[0]["reason"] == f"no result for {given[0].text(('k',))}"
    assert [json.loads(row["data"]) for row in rows] == [
        {"key": {"k": "a"}, "window_start": 60_000, "window_end": 60_020, "element": "01ff"},
        {"key": {"k": "\ud800"}, "window_start": None, "window_end": None, "element": None},
    ]
