"""A pipeline is named by its file and name; what is none is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.cli.made import COMMANDS, contents, told

WRONG_TARGETS = {
    "no such file": ("none.py:pipeline", "no such file"),
    "no such name": ("visits.py:jobs", "has no 'jobs'; its pipelines: pipeline"),
    "no pipeline": ("visits.py:nothing", "not a Pipeline"),
    "no Python": ("broken.py:pipeline", "SyntaxError"),
    "no text": ("binary.py:pipeline", "cannot be loaded"),
}


@pytest.mark.parametrize("target", WRONG_TARGETS)
@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "merge"])
def test_a_wrong_pipeline_is_told(command: str, target: str, copied: Path) -> None:
    """Without it a mistyped name would be looked for as a copied, and called an empty one."""
    (copied / "broken.py").write_text("def pipeline(:\n")
    (copied / "binary.py").write_bytes(b"\x00\xff\xfe")
    before = contents(copied)
    named, text = WRONG_TARGETS[target]
    code, said = told(tuple(named if word in ("URL", "PIPELINE") else word for word in COMMANDS[command]))
    assert code == 1
    assert text in said, said
    assert contents(copied) == before


@pytest.mark.parametrize(
    "command", [name for name, words in COMMANDS.items() if "PIPELINE" in words and "diff" not in name]
)
def test_a_url_is_no_pipeline(command: str, copied: Path) -> None:
    """Without it nobody would see that it is the monoid that is missing."""
    words = tuple("checkpoint" if word == "PIPELINE" else word for word in COMMANDS[command])
    code, said = told(words)
    assert code == 2
    assert "give the pipeline as FILE.py:NAME" in said
