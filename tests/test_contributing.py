"""What CONTRIBUTING.md names is there: a map of rooms that have moved leads astray."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def walked() -> Iterator[tuple[str, str]]:
    """The form and the module of each row of the two walks."""
    yield from re.findall(r"^\| `(\w+)` \| `([\w.]+)` \|", TEXT, re.MULTILINE)


def test_every_form_of_the_walk_is_there() -> None:
    """A record's way is the first thing that a newcomer follows through the code."""
    rows = list(walked())
    assert len(rows) == 15
    for name, module in rows:
        assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"


def test_every_module_and_file_named_is_there() -> None:
    """Also in the table of questions, and where it is told how something is added."""
    for module in set(re.findall(r"`((?:persistent|monoids)(?:\.\w+)+)`", TEXT)):
        assert importlib.util.find_spec(module) or hasattr(*_attribute(module)), module
    for path in set(re.findall(r"`((?:persistent|monoids|tests|docs)/[\w/.]+\.\w+)`", TEXT)):
        assert (ROOT / path).exists(), path


def _attribute(name: str) -> tuple[object, str]:
    before, _, last = name.rpartition(".")
    return importlib.import_module(before), last
