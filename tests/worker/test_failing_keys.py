"""A key or window without a result is found among all others, and costs none of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Monoid, Sum
from monoids.groupby.summing import GroupSums
from persistent import MemorySource, UserCodeError
from persistent.checkpoint.names import Attempt
from persistent.codec import decode_table
from persistent.errors import StorageError
from persistent.state_rows import fold
from persistent.storage import MemoryStorage
from persistent.window import Window, WindowRange, sliding, tumbling
from persistent.worker.failing_keys import (
    FailingKey,
    fold_apart,
    no_result,
    present_rows,
    stage_failing_keys,
)
from persistent.worker.job import Job
from tests.totals import One, Totals

SLIDING = sliding(20, every=10)


class Unwritable(One):
    """Only its identity has bytes."""

    def encode(self, element: Any) -> bytes:
        if element is not None:
            raise ValueError("no bytes")
        return super().encode(element)


def job(window: Window | None = None, *, dead_letters: bool = True, monoid: Monoid[Any] | None = None) -> Job:
    task = Totals(monoid or Sum(), window)
    storage = MemoryStorage(uuid.uuid4().hex)
    return Job(task, task.persistent_state(), {"memory": MemorySource([], timestamp="ts")}, {}, storage, dead_letters)


def sums(*rows: tuple[int, str, int, int]) -> GroupSums:
    """Rows of hash, key, pane and value, in the order of their hashes."""
    hashes, keys, panes, values = zip(*sorted(rows))
    return GroupSums(np.array(hashes, np.uint64), (pa.array(keys),), np.array(panes), Sum().pack(values))


def shown(pieces: Sequence[GroupSums]) -> list[tuple[str, int, int]]:
    return sorted(
        row
        for one in pieces
        for row in zip(one.keys[0].to_pylist(), one.panes.tolist(), Sum().unpack(one.columns), strict=True)
    )


ROWS = sums(*((7 * number, f"k{number}", 10 * number, number) for number in range(9)))


def table_of(bad: set[str], error: type[Exception] = OverflowError) -> Callable[[GroupSums], pa.Table]:
    """Tables of rows, unless one of these keys is among them."""

    def table(rows: GroupSums) -> pa.Table:
        found = sorted(bad & {*rows.keys[0].to_pylist()})
        if found:
            raise error(f"cannot show {found}")
        return pa.table({"k": rows.keys[0]})

    return table


@pytest.mark.parametrize("bad", [set(), {"k0"}, {"k8"}, {"k3", "k4"}, {f"k{number}" for number in range(9)}])
def test_every_row_that_can_be_shown_is_shown_once(bad: set[str]) -> None:
    """One result that cannot be shown would take its neighbours along, or show them twice."""
    failing: list[FailingKey] = []
    tables = list(present_rows(job(), table_of(bad), ROWS, failing))
    assert [key for table in tables for key in table["k"].to_pylist()] == [
        f"k{number}" for number in range(9) if f"k{number}" not in bad
    ]
    assert [one.key for one in failing] == [(key,) for key in sorted(bad)]
    for one in failing:
        assert str(one.error) == f"cannot show {[one.key[0]]}" and one.window is None
        assert one.element == Sum().encode(int(one.key[0][1:]))


@pytest.mark.parametrize("window", [tumbling(10), SLIDING])
def test_a_row_that_cannot_be_shown_names_its_window(window: Window) -> None:
    """Of a key with a year of windows, whoever has to mend it must know which."""
    failing: list[FailingKey] = []
    list(present_rows(job(window), table_of({"k4"}), ROWS, failing))
    assert [one.window for one in failing] == [(40, 40 + window.size_ms)]


def test_an_element_without_bytes_is_left_out() -> None:
    """The dead letter would fail like the result it stands for, and the run stop after all."""
    failing: list[FailingKey] = []
    rows = replace(ROWS, columns=Unwritable().pack([*range(9)]))
    list(present_rows(job(monoid=Unwritable()), table_of({"k4"}), rows, failing))
    assert [(one.key, one.element) for one in failing] == [(("k4",), None)]


def test_without_dead_letters_the_first_is_enough() -> None:
    """The run stops with it: to look for all of a million would keep its user waiting for the error."""
    shown_rows: list[int] = []
    folded_rows: list[int] = []

    def show(rows: GroupSums) -> pa.Table:
        shown_rows.append(len(rows))
        raise OverflowError

    def fold_windows(parts: Sequence[GroupSums], number: int | None) -> Sequence[GroupSums]:
        folded_rows.append(len(parts[0]))
        raise OverflowError

    failing: list[FailingKey] = []
    list(present_rows(job(dead_letters=False), show, ROWS, failing))
    assert len(failing) == 1 and shown_rows == [9, 4, 2, 1]
    failing.clear()
    list(fold_apart(job(dead_letters=False), [ROWS], fold_windows, None, failing))
    assert len(failing) == 1 and folded_rows == [9, 4, 2, 1, 1]


@pytest.mark.parametrize("error", [StorageError, UserCodeError, OSError, MemoryError])
def test_what_is_of_no_row_is_raised(error: type[Exception]) -> None:
    """A disk that is full would be taken for as many failing keys as there are."""
    failing: list[FailingKey] = []
    with pytest.raises(error):
        list(present_rows(job(), table_of({"k4"}, error), ROWS, failing))
    for at in (None, 4):

        def fold_windows(parts: Sequence[GroupSums], number: int | None, at: int | None = at) -> Sequence[GroupSums]:
            raise error if number == at else ValueError

        with pytest.raises(error):
            list(fold_apart(job(SLIDING), [ROWS.slice(4, 5)], fold_windows, WindowRange(SLIDING, 4, 8), failing))
    assert failing == []


def folds(
    bad: set[tuple[str, int | None]],
) -> Callable[[Sequence[GroupSums], int | None], Sequence[GroupSums]]:
    """The sums of parts, unless one holds a key and window that is bad; a window of None: whatever is asked for."""

    def fold_windows(parts: Sequence[GroupSums], number: int | None) -> Sequence[GroupSums]:
        for part in parts:
            for key, pane in zip(part.keys[0].to_pylist(), part.panes.tolist()):
                held = {None, *range(SLIDING.first_number(pane), SLIDING.last_number(pane) + 1)}
                if any((key, one) in bad for one in (held if number is None else {number})):
                    raise ValueError(f"{key} {number}")
        if number is None:
            return [fold(Sum(), parts, 10)]
        start, stop = 10 * number, 10 * number + 20
        of_window = [part.take(np.flatnonzero((start <= part.panes) & (part.panes < stop))) for part in parts]
        return [fold(Sum(), of_window, 10)]

    return fold_windows


PARTS = [
    ROWS,
    sums((21, "k3", 40, 5), (21, "other", 30, 6), (56, "k8", 0, 7), (1 << 63, "far", 0, 1)),
    ROWS.slice(0, 0),
]
"""Two parts with something in them; k3 and another key share a hash."""


@pytest.mark.parametrize("bad", [set(), {"k0"}, {"far"}, {"k8"}, {"k3"}, {"other"}, {"k3", "other", "k4"}])
def test_every_key_that_can_be_folded_is_folded_once(bad: set[str]) -> None:
    """A key whose sum raises would take those along that share its half, or its hash."""
    failing: list[FailingKey] = []
    found = list(fold_apart(job(), PARTS, folds({(key, None) for key in bad}), None, failing))
    whole = shown([fold(Sum(), PARTS[:2], 10)])
    assert shown(found) == [row for row in whole if row[0] not in bad]
    assert sorted(one.key for one in failing) == [(key,) for key in sorted(bad)]
    assert {(one.window, one.element) for one in failing} <= {(None, None)}


def test_of_a_failing_key_the_other_windows_are_folded() -> None:
    """A user's monoid that knows no sum of two values of one hour would lose the key its whole year."""
    failing: list[FailingKey] = []
    parts = [sums(*((5, "a", pane, pane) for pane in (20, 30, 60)), (9, "b", 20, 1))]
    bad: set[tuple[str, int | None]] = {("a", 2), ("a", 6)}
    found = list(fold_apart(job(SLIDING), parts, folds(bad), WindowRange(SLIDING, 2, 6), failing))
    # Windows 1 to 3 and 5 to 6 of a hold something; 1 is before the range.
    assert [(one.key, one.window, str(one.error)) for one in failing] == [
        (("a",), (20, 40), "a 2"),
        (("a",), (60, 80), "a 6"),
    ]
    assert shown(found) == [("a", 30, 30), ("a", 60, 60), ("b", 20, 1)]
    failing.clear()
    list(fold_apart(job(SLIDING), parts, folds(bad), WindowRange(SLIDING, 3, 5), failing))
    assert [one.window for one in failing] == []


def test_a_state_without_a_key_is_one_key() -> None:
    """Its rows have no key columns, and its windows fail one by one too."""
    failing: list[FailingKey] = []
    rows = GroupSums(np.zeros(2, np.uint64), (), np.array([20, 60]), Sum().pack([1, 2]))

    def fold_windows(parts: Sequence[GroupSums], number: int | None) -> Sequence[GroupSums]:
        if number in (None, 2):
            raise ValueError
        return [part.take(np.flatnonzero(part.panes // 10 == number)) for part in parts]

    found = list(fold_apart(job(SLIDING), [rows], fold_windows, WindowRange(SLIDING, 0, 9), failing))
    assert [(one.key, one.window) for one in failing] == [((), (20, 40))]
    assert [Sum().unpack(one.columns) for one in found] == [[], [], [2]]


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
    error = no_result(job(), FailingKey(("a",), None, FAILING.error))
    assert isinstance(error, UserCodeError) and error.__cause__ is FAILING.error
    assert "Totals: no result for key (k='a'): ValueError: no. Committed state stays" in str(error)


def test_dead_letters_hold_key_window_and_element() -> None:
    """They are all that is left of a result: a program puts it right from them."""
    made = job(SLIDING)
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
