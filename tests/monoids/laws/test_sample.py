"""A sample is what a monoid was tried on, to look at and to try again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from monoids import Monoid
from monoids.laws import assert_monoid_laws
from tests.monoids.laws.defects import FINITE, SMALL, Floats
from tests.monoids.laws.violations import violation


def test_exception_of_the_monoid_is_a_violation_from_it() -> None:
    """The user's own traceback is what says where it failed."""

    class Fragile(Monoid[int]):
        identity = 0

        def combine(self, a: int, b: int) -> int:
            if a and b:
                raise ZeroDivisionError("by me")
            return a or b

    found = violation(Fragile(), SMALL)
    assert "raises ZeroDivisionError: by me" in str(found)
    assert isinstance(found.__cause__, ZeroDivisionError)


def test_monoid_without_determinism_is_a_violation() -> None:
    """Hypothesis would raise a group of exceptions about itself."""

    class Moody(Monoid[int]):
        identity = 0
        calls = 0

        def combine(self, a: int, b: int) -> int:
            Moody.calls += 1
            return a + b + (Moody.calls % 97 == 0)

    violation(Moody(), SMALL, examples=50)


def test_rounding_excuses_no_serializer() -> None:
    """A sum that may err in the last bit is still stored to the last bit."""

    class Short(Floats):
        def encode(self, element: float) -> bytes:
            return f"{element:.15g}".encode()

        def decode(self, data: bytes) -> float:
            return float(data)

    assert violation(Short(), FINITE).law == "serializer round trip"


def test_elements_that_cannot_be_compared_are_told() -> None:
    """Two objects of a class without __eq__ are never equal, which is no fault of the law."""

    class Opaque:
        pass

    class Opaques(Monoid[Any]):
        identity = None

        def combine(self, a: Any, b: Any) -> Any:
            return b if a is None else a

        def encode(self, element: Any) -> bytes:
            return b"" if element is None else b"x"

        def decode(self, data: bytes) -> Any:
            return Opaque() if data else None

    with pytest.raises(TypeError, match="Opaque cannot be compared: define __eq__"):
        assert_monoid_laws(Opaques(), st.builds(Opaque))
