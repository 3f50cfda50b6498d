"""The page of the protocol has every field of the documents of a checkpoint, with its type, as the shapes say."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from persistent.checkpoint import shapes
from persistent.codec import RUN
from persistent.codec import shapes as kinds

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"
_STAGED = inspect.getclosurevars(shapes.SHOWN).nonlocals["shape"]
_ACCOUNT = inspect.getclosurevars(shapes.LEDGER).nonlocals["shape"]
_OWN = {id(RUN): "run", id(_ACCOUNT): "account", id(_STAGED): "staged file"}
_OWN[id(inspect.getclosurevars(shapes.ASIDE).nonlocals["shape"])] = "staged file"
"""Shapes with a table of their own."""
DOCUMENTS = {
    "manifest": shapes.MANIFEST,
    "plan": shapes.PLAN,
    "FORMAT": shapes.FORMAT_FILE,
    "run": RUN,
    "staged file": _STAGED,
    "account": _ACCOUNT,
}


def parts(shape: Any) -> tuple[str, dict[str, Any]]:
    """How a shape was made, and of what."""
    if shape in (kinds.flag, kinds.anything, shapes.position):
        return shape.__name__, {}
    return shape.__qualname__.partition(".")[0], dict(inspect.getclosurevars(shape).nonlocals)


def type_of(shape: Any) -> str:
    """What a field of that shape is called on the page."""
    kind, of = parts(shape)
    if id(shape) in _OWN:
        return _OWN[id(shape)]
    if kind == "both":
        return type_of(of["shapes"][0])
    if kind == "items":
        return f"[{', '.join(map(type_of, of['shapes']))}]"
    inner = type_of(of["shape"]) if "shape" in of else ""
    return {
        "whole": "whole number",
        "flag": "flag",
        "anything": "any JSON",
        "position": "position",
        "_within_the_source": "object",
        "optional": f"{inner} or null",
        "sequence": f"list of {inner}",
        "mapping": f"mapping to {inner}",
        "fields": "object",
    }.get(kind, "text")


def walked(shape: Any, path: str = "", *, top: bool = True) -> Iterator[tuple[str, str]]:
    """Every field below a shape, and its type."""
    kind, of = parts(shape)
    if id(shape) in _OWN and not top:
        return
    if kind == "both":
        yield from walked(of["shapes"][0], path, top=top)
    elif kind == "fields":
        for name, inner in of["shapes"].items():
            place = f"{path}.{name}" if path else name
            yield place, type_of(inner)
            yield from walked(inner, place, top=False)
    elif kind in ("mapping", "sequence", "optional"):
        yield from walked(of["shape"], path + {"mapping": ".*", "sequence": "[]", "optional": ""}[kind], top=False)


def listed(document: str) -> list[tuple[str, str]]:
    """The fields of a document on the page."""
    text = PAGE.read_text().partition(f"<!-- {document} begin -->\n")[2].partition(f"<!-- {document} end -->")[0]
    rows = [line.split(" | ") for line in text.splitlines()[2:]]
    assert all(len(row) == 3 and row[2].removesuffix(" |") for row in rows), "each with a meaning"
    return [(re.sub(r"^\| `|`$", "", name), type_) for name, type_, _ in rows]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_page_has_every_field_with_its_type(document: str) -> None:
    """Who reads a checkpoint without our code, in ten years, has only the page."""
    assert sorted(listed(document)) == sorted(walked(DOCUMENTS[document]))
