"""A decimal from text is exact, or refused.

Arrow alone does not notice a value that overflows its bits, nor a power of ten beyond its tables: as
``decimal128(38, 37)`` it reads ``-44`` as -9.97, and ``1e-400`` as 0.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_DIGITS_MAX: Final = 38
_SAFE: Final = r"^[+-]?(?:[0-9]{0,38}(?:\.[0-9]{0,38})?|[0-9]{0,19}(?:\.[0-9]{0,19})?[eE][+-]?[01]?[0-9])$"
"""Texts of at most 38 digits on each side of the point, after the exponent: 256 bits hold them in units of 10^-38."""
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SHOWN: Final = 60


def from_text(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array, cast to the type. ``pa.ArrowInvalid`` if a value is not of the type; it names a decimal only if that
    is the array's single value.

    >>> from_text(pa.array(["-44", None, "12e-1"]), pa.decimal128(38, 30)).cast(pa.decimal128(3, 1)).to_pylist()
    [Decimal('-44.0'), None, Decimal('1.2')]
    """
    if not (pa.types.is_decimal128(kind) and pa.types.is_string(texts.type)):
        return texts.cast(kind)
    try:
        longest = pc.max(pc.binary_length(texts)).as_py() or 0
        if longest + abs(kind.scale) <= _DIGITS_MAX and not _has_exponents(texts):
            return texts.cast(kind)
        risky = pc.fill_null(pc.invert(pc.match_substring_regex(texts, _SAFE)), False)
        if pc.any(risky).as_py():
            plain = [f"{exact(text, kind):f}" for text in texts.filter(risky).to_pylist()]
            texts = pc.replace_with_mask(texts, risky, pa.array(plain, texts.type))
        return texts.cast(pa.decimal256(76, kind.scale)).cast(kind)
    except (pa.ArrowInvalid, InvalidOperation, Inexact) as error:
        value = repr(texts[0].as_py()) if len(texts) == 1 else "a value"
        raise pa.ArrowInvalid(f"{value:.{_SHOWN}} is no value of type {kind}") from error


def exact(text: str, kind: pa.DataType) -> Decimal:
    """The number in a text, with the scale of a decimal type. ``InvalidOperation`` or ``Inexact`` if the type does not
    hold it exactly.

    >>> exact("1.5e3", pa.decimal128(6, 2))
    Decimal('1500.00')
    """
    if not _NUMBER.fullmatch(text):
        raise InvalidOperation(f"{text!r:.{_SHOWN}} is no number")
    context = Context(kind.precision, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[InvalidOperation, Inexact])
    return Decimal(text).quantize(Decimal((0, (1,), -kind.scale)), context=context)


def is_exact(text: str, kind: pa.DataType) -> bool:
    """Whether a text is a value of a decimal type.

    >>> is_exact("1e-400", pa.decimal128(38, 37)), is_exact("0e-400", pa.decimal128(38, 37))
    (False, True)
    """
    try:
        exact(text, kind)
    except (InvalidOperation, Inexact):
        return False
    return True


def _has_exponents(texts: pa.Array) -> bool:
    data = texts.buffers()[2]
    return data is not None and (b"e" in (content := data.to_pybytes()) or b"E" in content)
