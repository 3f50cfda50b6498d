"""A package of monoids of somebody else."""

from __future__ import annotations

from pathlib import Path

import pytest

PACKAGE = """
from hypothesis import strategies
from monoids import Monoid, Sum

class Longest(Monoid[str]):
    identity = ""
    def combine(self, a: str, b: str) -> str:
        return b if len(b) > len(a) else a

class Shortest(Longest):
    commutative = True
    def combine(self, a: str, b: str) -> str:
        return (b if len(b) < len(a) else a) if a and b else a or b

class Bounded(Monoid[int]):
    identity = 0
    def __init__(self, most):
        self.most = most
    def combine(self, a, b):
        return min(a + b, self.most)

class Known(Monoid[int]):
    identity = 0
    def __init__(self, most):
        self.most = most
    def lift(self, value):
        return min(value, self.most)
    def combine(self, a, b):
        return min(a + b, self.most)

class Untyped(Monoid):
    identity = 0
    def combine(self, a, b):
        return a + b

class _Private(Untyped):
    pass

total = Sum(float)
LAWFUL = [(Known(3), strategies.integers(0, 5))]
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs_of_mine"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "sums.py").write_text(PACKAGE)
    (folder / "inner" / "__init__.py").write_text("from monoids import Max\nnewest = Max()\n")
    return tmp_path
