"""The text of a decimal is its value in scientific notation, independent of its scale and of the caller's context.

    decimal_texts(column)[i] == decimal_text(column[i])

Fractions have no trailing zeros: 1.50 is ``1.5``, 100 is ``100``, 0.00 is ``0``, 0.0000001 is ``1E-7``.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_CONTEXT = Context(prec=76, capitals=1)
_DIGITS_MAX = 38
_PLAIN_MIN = -6
"""Numbers below 10**-6 are written with an exponent."""


def decimal_text(value: Decimal) -> str:
    """The text of one decimal of at most 76 digits.

    >>> decimal_text(Decimal("-1.50")), decimal_text(Decimal("100")), decimal_text(Decimal("0.00"))
    ('-1.5', '100', '0')
    """
    return _CONTEXT.to_sci_string(_CONTEXT.add(_CONTEXT.normalize(value), 0))


def decimal_texts(column: pa.Array) -> pa.Array:
    """The texts of a decimal128 column; null stays null."""
    whole = column.view(pa.decimal128(_DIGITS_MAX, 0)).cast(pa.string())
    digits = pc.ascii_rtrim(whole, "0")
    exponents = _lengths(whole) - _lengths(digits) - column.type.scale
    negative = pc.starts_with(digits, "-")
    digits = pc.ascii_ltrim(digits, "-")
    zero = pc.equal(digits, "")
    # Rows with the same exponent share one format; a column has at most 39 exponents.
    exponents[np.asarray(zero.fill_null(True))] = 0
    order = np.argsort(exponents.astype(np.int16), kind="stable")
    found, starts = np.unique(exponents[order], return_index=True)
    digits = pc.if_else(zero, "0", digits).take(pa.array(order))
    parts = [
        _of_exponent(digits[start:stop], int(exponent))
        for exponent, start, stop in zip(found, starts, [*starts[1:], len(order)])
    ]
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    texts = pa.concat_arrays([pa.array([], pa.string()), *parts]).take(pa.array(places))
    return pc.if_else(negative, pc.binary_join_element_wise("-", texts, ""), texts)


def _of_exponent(digits: pa.Array, exponent: int) -> pa.Array:
    """The texts of digits * 10**exponent. The digits do not end in 0, or are ``0``."""
    if not exponent:
        return digits
    if exponent > 0:
        return pc.binary_join_element_wise(digits, "0" * exponent, "")
    padded = pc.ascii_lpad(digits, 1 - exponent, "0")
    whole, rest = pc.utf8_slice_codeunits(padded, 0, exponent), pc.utf8_slice_codeunits(padded, exponent)
    plain = pc.binary_join_element_wise(whole, rest, ".")
    powers = _lengths(digits) - 1 + exponent
    if int(powers.min()) >= _PLAIN_MIN:
        return plain
    return pc.if_else(pa.array(powers >= _PLAIN_MIN), plain, _scientific(digits, powers))


def _scientific(digits: pa.Array, powers: Any) -> pa.Array:
    first, rest = pc.utf8_slice_codeunits(digits, 0, 1), pc.utf8_slice_codeunits(digits, 1)
    pointed = pc.if_else(pc.equal(rest, ""), first, pc.binary_join_element_wise(first, rest, "."))
    return pc.binary_join_element_wise(pointed, pa.array(powers).cast(pa.string()), "E")


def _lengths(texts: pa.Array) -> Any:
    lengths = pc.binary_length(texts)
    return (lengths.fill_null(0) if lengths.null_count else lengths).to_numpy().astype(np.int64)
