"""An explanation says what a pipeline will do, from what it declares and the newest manifest of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any

__all__ = ["Explanation", "Section"]

_WIDTH = 100
_MARGIN = 12


@dataclass(frozen=True)
class Section:
    """``lines``: sentences. ``facts``: the same as JSON values."""

    name: str
    lines: tuple[str, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        texts = []
        for line in self.lines:
            texts += wrap(line, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
        heads = [self.name.ljust(_MARGIN), *(" " * _MARGIN for _ in texts[1:])]
        return "\n".join(f"{head}{text}" for head, text in zip(heads, texts))


@dataclass(frozen=True)
class Explanation:
    """What a pipeline will do. ``str()`` has it for people, ``to_json()`` for programs.

    >>> print(Explanation((Section("reads", ("files: a folder.", "One partition.")), Section("closes", ("Nothing.",)))))
    reads       files: a folder.
                One partition.
    closes      Nothing.
    """

    sections: tuple[Section, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.sections))

    def __getitem__(self, name: str) -> Section:
        """The section of that name. KeyError."""
        for section in self.sections:
            if section.name == name:
                return section
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """Each section by its name: its facts, and its sentences as ``text``."""
        return {section.name: {**section.facts, "text": list(section.lines)} for section in self.sections}
