"""CountIf, Any and All."""

from __future__ import annotations

import typing

import numpy as np
import pyarrow as pa
import pytest

from monoids import All, Any, Count, CountIf, Group, Sum, encoding

ALL: list[typing.Any] = [CountIf(), Any(), All()]


def test_they_are_those_of_python() -> None:
    """By both paths, with nulls."""
    random = np.random.default_rng(1)
    values = [[None, True, False][at] for at in random.integers(0, 3, 90)]
    values[:30] = [True] * 30
    cells = np.repeat(np.arange(9), 10)
    counts = np.full(9, 10)
    for monoid, python in zip(ALL, (sum, any, all)):
        columns = monoid.lift_columns(pa.array(values, pa.bool_()))
        expected = [python(value for value in values[at : at + 10] if value is not None) for at in range(0, 90, 10)]
        assert monoid.unpack(monoid.reduce_sorted(columns, np.arange(0, 90, 10))) == expected
        by_cell = monoid.reduce_cells(columns, cells, counts, np.arange(9))
        assert by_cell is not None and monoid.unpack(by_cell) == expected


def test_of_none() -> None:
    """A window that got only nulls is published."""
    assert [monoid.present(monoid.lift(None)) for monoid in ALL] == [0, False, True]
    shown = [monoid.present_columns(monoid.lift_columns(pa.nulls(1))).to_pylist() for monoid in ALL]
    assert shown == [[0], [False], [True]]


def test_one_value_for_every_row() -> None:
    """A constant costs nothing a row."""
    for monoid, expected in zip(ALL, (500, True, True)):
        columns = monoid.reduce_sorted(monoid.lift_rows(True, 1000), np.array([0, 500]))
        assert monoid.unpack(columns) == [expected] * 2
    assert All().lift_rows(True, 1000)[0].strides == (0,)


@pytest.mark.parametrize("wrong", [1, 0.0, "yes", float("nan")])
def test_other_values_are_refused(wrong: typing.Any) -> None:
    """Python's truth of a text or a NaN is not what is asked."""
    for monoid in ALL:
        with pytest.raises(TypeError, match="takes booleans"):
            monoid.lift(wrong)
        with pytest.raises(TypeError, match="takes booleans"):
            monoid.lift_columns(pa.array([wrong]))


def test_traits() -> None:
    """A count can be taken back, a truth cannot."""
    assert [isinstance(monoid, Group) for monoid in ALL] == [True, False, False]
    assert [monoid.idempotent for monoid in ALL] == [False, True, True]
    assert len({str(monoid.fingerprint()) for monoid in (*ALL, Count(), Sum())}) == 5
    with pytest.raises(ValueError, match="of type bool"):
        Any().decode(encoding.encode(1))
