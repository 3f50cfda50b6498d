"""For the reference: examples in docstrings become blocks of code."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$|>>> ).*\n?)*)+", re.M)


class Doctests(griffe.Extension):
    """Puts what starts with ``>>>``, up to the next empty line, between fences."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(found: re.Match[str]) -> str:
    return f"\n```pycon\n{found[0].rstrip()}\n```\n"
