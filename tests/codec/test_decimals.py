"""A decimal from text is the number that the text says, or refused."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from persistent.codec.decimals import from_text, is_exact

DIGITS = st.one_of(
    st.text("0123456789", max_size=40), st.text("07", max_size=90), st.just("1" + "0" * 300), st.just("0" * 90 + "1")
)
EXPONENTS = st.integers(-45, 45) | st.sampled_from([-5_000, -400, -180, -77, 76, 77, 170, 400, 10**17, 10**30])
KINDS = st.builds(pa.decimal128, st.integers(1, 38), st.integers(-38, 38))


@given(st.sampled_from(["", "+", "-"]), DIGITS, DIGITS, st.none() | EXPONENTS, KINDS)
@example("-", "44", "", None, pa.decimal128(38, 37))
@example("", "1", "", -193, pa.decimal128(38, 0))
@example("", "1" + "0" * 300, "", None, pa.decimal128(38, 0))
@example("", "0", "", 400, pa.decimal128(9, 2))
def test_a_decimal_is_exact_or_refused(
    sign: str, whole: str, fraction: str, exponent: int | None, kind: pa.DataType
) -> None:
    """Arrow multiplies beyond 128 bits without noticing: -44 was read as -9.97, and a large power of ten as 0."""
    text = f"{sign}{whole}.{fraction}" + ("" if exponent is None else f"e{exponent}")
    texts = pa.array(["0", None, text])
    try:
        found = from_text(texts, kind)[2].as_py()
    except pa.ArrowInvalid:
        found = None
    assert is_exact(text, kind) == (found is not None)
    assert found == (_exact(text, kind) if whole + fraction else None)


def _exact(text: str, kind: pa.DataType) -> Decimal | None:
    """The value of a text, if it is a whole number of units of the type, and has no more digits than that has."""
    if abs(exponent := int(text.partition("e")[2] or 0)) > MAX_EMAX:
        return None
    context = Context(prec=1_000, Emin=MIN_EMIN, Emax=MAX_EMAX)
    value = Decimal(text) if exponent else context.create_decimal(text)
    if value == 0:
        return Decimal(0)
    if not -500 < value.adjusted() < 500:
        return None
    units = context.scaleb(value, kind.scale)
    return value if units == context.to_integral_value(units) and abs(units) < 10**kind.precision else None


@pytest.mark.parametrize("text", ["", " 1", "1_0", "nan", "Infinity", "0x7", "1e", "٣", "1,5", "."])
@pytest.mark.parametrize("kind", [pa.decimal128(9, 2), pa.decimal128(38, 37)])
def test_what_is_no_number_is_refused_by_name(text: str, kind: pa.DataType) -> None:
    """Python's own decimals take some of them for numbers."""
    with pytest.raises(pa.ArrowInvalid, match="is no value of type decimal128"):
        from_text(pa.array([text]), kind)
    assert not is_exact(text, kind)
