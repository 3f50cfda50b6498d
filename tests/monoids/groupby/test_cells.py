"""Grouping orders rows as a stable sort by (group, pane) does, however it gets there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids.groupby import cells as columns
from monoids.groupby.cells import group_codes, pane_codes
from monoids.groupby.grouping import group_rows

PANES = st.sampled_from([0, 60, 120, 180, 6_000, 60 * 2**20])
WIDE_PANES = st.sampled_from([0, 60, 60 * 2**36, 60 * 2**45])


def model(places: Sequence[tuple[Any, ...]]) -> tuple[list[int], list[int]]:
    """A stable sort, and where each run of equals begins."""
    order = sorted(range(len(places)), key=lambda row: places[row])
    starts = [at for at, row in enumerate(order) if at == 0 or places[row] != places[order[at - 1]]]
    return order, starts


def check(found: tuple[Any, Any], places: Sequence[tuple[Any, ...]]) -> None:
    order, starts = found
    assert (order.tolist(), starts.tolist()) == model(places)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 7, 1 << 20, 1 << 45, 1 << 62]), PANES | WIDE_PANES), max_size=60))
def test_codes_are_grouped_as_a_stable_sort_does(rows: list[tuple[int, int]]) -> None:
    """Rows that change places within a group answer "first" with the second; also where codes and panes do not
    fit beside each other into 64 bits."""
    codes = np.array([code for code, _ in rows], np.int64)
    panes = np.array([pane for _, pane in rows], np.int64)
    check(group_codes(codes, panes, 60), rows)
    check(group_codes(codes, panes), rows)


def test_pane_codes_keep_the_order() -> None:
    """Codes out of order would close windows out of order."""
    codes, size = pane_codes(np.array([-60, 120, 0, -60]), 60)
    assert codes.tolist() == [0, 3, 1, 0] and size == 4
    codes, size = pane_codes(np.array([-1, -1]), 60)
    assert codes.tolist() == [0, 0] and size == 1


@pytest.mark.parametrize("rows", [0, 1])
def test_nothing_and_one_row(rows: int) -> None:
    """The smallest delta of all."""
    nothing = np.zeros(rows, np.int64)
    groups = group_rows([pa.array(["a"] * rows, pa.string())], nothing.astype(np.uint64), nothing)
    for order, starts in (
        group_codes(nothing, nothing),
        (groups.order, groups.starts),
    ):
        assert order.tolist() == starts.tolist() == list(range(rows))
    assert columns.fits_cells(1 << 16, rows) and not columns.fits_cells((1 << 16) + 1, rows)
