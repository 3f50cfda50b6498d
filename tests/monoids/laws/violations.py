"""How a violation is had."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Monoid
from monoids.laws import LawViolation, assert_monoid_laws


def violation(monoid: Monoid[Any], inputs: Any, **options: Any) -> LawViolation:
    with pytest.raises(LawViolation) as caught:
        assert_monoid_laws(monoid, inputs, **options)
    return caught.value
