"""The public monoids of a package are found, and what is wrong with how it names them is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from monoids.laws.plugin import public_monoids


def test_broken_list_of_pairs_is_refused(package: Path) -> None:
    """A pair the wrong way round would be tried as nothing."""
    (package / "jobs_of_mine" / "sums.py").write_text("from monoids import Sum\nLAWFUL = [('a', Sum())]\n")
    sys.path.insert(0, str(package))
    try:
        with pytest.raises(TypeError, match="LAWFUL holds"):
            public_monoids("jobs_of_mine")
    finally:
        sys.path.remove(str(package))
        for name in [name for name in sys.modules if name.startswith("jobs_of_mine")]:
            del sys.modules[name]


def test_found_in_this_package() -> None:
    """The doors to the laws of this package find what it is made of."""
    found: list[Any] = public_monoids("monoids.numbers.booleans")
    assert found and all(one.title for one in found)
