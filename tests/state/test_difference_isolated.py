"""A row whose computation raises is found among all others, and costs none of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from monoids import Monoid
from monoids.groupby.summing import GroupSums
from persistent.errors import StorageError, UserCodeError
from persistent.state.difference import Comparison, RowDifference, isolated, isolated_differences
from persistent.state.rows import OPEN_PANE, fold
from persistent.state.views import KeyView, WindowView
from persistent.storage import MemoryStorage
from persistent.time.window import Panes, Window, WindowRange, sliding, tumbling
from persistent.worker.job import Node
from persistent.worker.stage_aside import Failures
from tests.totals import One, Totals

SLIDING = sliding(20, every=10)


class Unwritable(One):
    """Only its identity has bytes."""

    def encode(self, element: Any) -> bytes:
        if element is not None:
            raise ValueError("no bytes")
        return super().encode(element)


def failures(window: Window | None = None, *, dead_letters: bool = True, monoid: Monoid[Any] | None = None) -> Failures:
    task = Totals(monoid or Fussy(), window)
    storage = MemoryStorage(uuid.uuid4().hex)
    return Failures(Node("totals", task, task.persistent_state(), storage, dead_letters=dead_letters))


class Fussy(Monoid[int]):
    """A sum that raises above a hundred."""

    identity = 0
    commutative = True

    def combine(self, a: int, b: int) -> int:
        if a + b > 100:
            raise ValueError(f"{a + b} is too much")
        return a + b


def sums(*rows: tuple[int, str, int, int]) -> GroupSums:
    """Halvable of hash, key, pane and value, in the order of their hashes."""
    hashes, keys, panes, values = zip(*sorted(rows))
    return GroupSums(np.array(hashes, np.uint64), (pa.array(keys),), np.array(panes), Fussy().pack(values))


def shown(found: Iterator[RowDifference]) -> list[tuple[str, int, int]]:
    return sorted(
        row
        for one in (difference.new.rows for difference in found)
        for row in zip(one.keys[0].to_pylist(), one.panes.tolist(), Fussy().unpack(one.columns), strict=True)
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
    failing = failures()
    tables = list(isolated(table_of(bad), ROWS, failing.presenting))
    assert [key for table in tables for key in table["k"].to_pylist()] == [
        f"k{number}" for number in range(9) if f"k{number}" not in bad
    ]
    assert [one.key for one in failing.keys] == [(key,) for key in sorted(bad)]
    for one in failing.keys:
        assert str(one.error) == f"cannot show {[one.key[0]]}" and one.window is None
        assert one.element == Fussy().encode(int(one.key[0][1:]))


@pytest.mark.parametrize("window", [tumbling(10), SLIDING])
def test_a_row_that_cannot_be_shown_names_its_window(window: Window) -> None:
    """Of a key with a year of windows, whoever has to mend it must know which."""
    failing = failures(window)
    list(isolated(table_of({"k4"}), ROWS, failing.presenting))
    assert [one.window for one in failing.keys] == [(40, 40 + window.size_ms)]


def test_an_element_without_bytes_is_left_out() -> None:
    """The dead letter would fail like the result it stands for, and the run stop after all."""
    failing = failures(monoid=Unwritable())
    rows = GroupSums(ROWS.hashes, ROWS.keys, ROWS.panes, Unwritable().pack([*range(9)]))
    list(isolated(table_of({"k4"}), rows, failing.presenting))
    assert [(one.key, one.element) for one in failing.keys] == [(("k4",), None)]


def test_without_dead_letters_the_first_is_enough() -> None:
    """The run stops with it: to look for all of a million would keep its user waiting for the error."""
    sizes: list[int] = []

    def show(rows: GroupSums) -> pa.Table:
        sizes.append(len(rows))
        raise OverflowError

    with pytest.raises(UserCodeError, match=r"no result for key \(k='k0'\)"):
        list(isolated(show, ROWS, failures(dead_letters=False).presenting))
    assert sizes == [9, 4, 2, 1]


@pytest.mark.parametrize("error", [StorageError, UserCodeError, OSError, MemoryError])
def test_what_is_of_no_row_is_raised(error: type[Exception]) -> None:
    """A disk that is full would be taken for as many failing keys as there are."""
    failing = failures()
    with pytest.raises(error):
        list(isolated(table_of({"k4"}, error), ROWS, failing.presenting))
    assert failing.keys == []


PARTS = [
    ROWS,
    sums((21, "k3", 40, 5), (21, "other", 30, 6), (56, "k8", 0, 7), (1 << 63, "far", 0, 1)),
]
"""Two parts; k3 and another key share a hash."""


@pytest.mark.parametrize("bad", [set(), {"k0"}, {"far"}, {"k8"}, {"k3"}, {"other"}, {"k3", "other", "k4"}])
def test_every_key_that_can_be_folded_is_folded_once(bad: set[str]) -> None:
    """A key whose sum raises would take those along that share its half, or its hash."""
    failing = failures()
    held = [(int(hash_), key) for part in PARTS for hash_, key in zip(part.hashes, part.keys[0].to_pylist())]
    extra = [sums((hash_, key, OPEN_PANE, 60)) for hash_, key in dict.fromkeys(held) if key in bad]
    found = isolated_differences(Comparison(KeyView(1), [], [*PARTS, *extra, *extra]), Fussy(), failing.folding)
    whole = fold(Fussy(), [GroupSums(one.hashes, one.keys, 0 * one.panes + OPEN_PANE, one.columns) for one in PARTS], 1)
    expected = zip(whole.keys[0].to_pylist(), whole.panes.tolist(), Fussy().unpack(whole.columns))
    assert shown(found) == sorted(row for row in expected if row[0] not in bad)
    assert sorted(one.key for one in failing.keys) == [(key,) for key in sorted(bad)]
    assert {(one.window, one.element) for one in failing.keys} <= {(None, None)}


def windows_of(parts: list[GroupSums], first: int, last: int, failing: Failures) -> Iterator[RowDifference]:
    view = WindowView(WindowRange(SLIDING, first, last), Panes(SLIDING, None))
    return isolated_differences(Comparison(view, [], parts), Fussy(), failing.folding)


def test_of_a_failing_key_the_other_windows_are_folded() -> None:
    """A user's monoid that knows no sum of two values of one hour would lose the key its whole year."""
    parts = [sums((5, "a", 20, 20), (5, "a", 30, 90), (5, "a", 60, 60), (9, "b", 20, 1))]
    failing = failures(SLIDING)
    found = windows_of(parts, 2, 6, failing)
    # Windows 1 to 3 and 5 to 6 of a hold something; 1 is before the range.
    assert shown(found) == [("a", 30, 90), ("a", 50, 60), ("a", 60, 60), ("b", 20, 1)]
    assert [(one.key, one.window, str(one.error)) for one in failing.keys] == [(("a",), (20, 40), "110 is too much")]
    failing = failures(SLIDING)
    list(windows_of(parts, 3, 5, failing))
    assert failing.keys == []


def test_a_state_without_a_key_is_one_key() -> None:
    """Its rows have no key columns, and its windows fail one by one too."""
    failing = failures(SLIDING)
    rows = GroupSums(np.zeros(3, np.uint64), (), np.array([20, 30, 60]), Fussy().pack([60, 60, 2]))
    found = list(windows_of([rows], 0, 9, failing))
    assert [(one.key, one.window) for one in failing.keys] == [((), (20, 40))]
    pairs = [zip(one.new.rows.panes.tolist(), Fussy().unpack(one.new.rows.columns)) for one in found]
    assert sorted(pair for some in pairs for pair in some) == [(10, 60), (30, 60), (50, 2), (60, 2)]
