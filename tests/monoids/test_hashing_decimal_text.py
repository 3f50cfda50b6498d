"""The text of a decimal is that of its value, in a column as alone."""

from __future__ import annotations

import random
from decimal import Decimal, localcontext

import pyarrow as pa
import pytest

from monoids.hashing import decimal_text, decimal_texts

SHAPES = [(38, 0), (38, 38), (38, 10), (5, 2), (18, 7), (10, -3), (38, -20), (1, 0)]


@pytest.mark.parametrize(("precision", "scale"), SHAPES)
def test_a_column_has_the_texts_that_its_values_have(precision: int, scale: int) -> None:
    """Lost: the hash of a decimal key, which would not be found again in a column of another scale."""
    drawn = random.Random(precision + scale)
    numbers = [drawn.choice([1, -1]) * drawn.randrange(10 ** drawn.randint(0, precision)) for _ in range(500)]
    whole = [None, Decimal(0), *map(Decimal, numbers), Decimal(10 ** (precision - 1)), None]
    column = pa.array(whole, pa.decimal128(38, 0)).view(pa.decimal128(precision, scale)).slice(1)
    expected = [None if value is None else decimal_text(value) for value in column.to_pylist()]
    assert decimal_texts(column).to_pylist() == expected
    assert decimal_texts(column[:0]).to_pylist() == []
    assert decimal_texts(pa.nulls(2, column.type)).to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1.50", "1.5"),
        ("-100", "-100"),
        ("1E+2", "100"),
        ("-0.00", "0"),
        ("0.000001", "0.000001"),
        ("-0.0000012", "-0.0000012"),
        ("0.00000012", "1.2E-7"),
        ("9" * 38, "9" * 38),
    ],
)
def test_the_text_is_of_the_value_and_of_nothing_else(value: str, text: str) -> None:
    """Lost: equal keys, where one was written with more zeros, or read under a small context."""
    with localcontext(prec=3):
        assert decimal_text(Decimal(value)) == text
        assert decimal_texts(pa.array([Decimal(value)])).to_pylist() == [text]
