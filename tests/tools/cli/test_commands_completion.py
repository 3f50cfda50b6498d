"""A shell completes commands and options after it has sourced what we print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.cli.made import ROOT
from tests.tools.cli.visits import command

ASKS = """
source <(persistent --completion bash)
COMP_WORDS=(persistent {words}); COMP_CWORD={at}
_persistent_completion persistent
echo "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_one(shell: str) -> None:
    """A user of another shell would get nothing, or bash's."""
    result = command("--completion", shell)
    assert result.exit_code == 0, result.output
    assert f"_PERSISTENT_COMPLETE={shell}_complete" in result.stdout
    assert command("--completion", "tcsh").exit_code == 2


ASKED = {"expl": "explain", "run --log-f": "--log-format", "run --engine e": "embedded"}


@pytest.mark.check
def test_bash_completes(tmp_path: Path) -> None:
    """What is printed might be no bash, or ask under another name."""
    program = tmp_path / "persistent"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m persistent "$@"\n')
    program.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for words, found in ASKED.items():
        script = ASKS.format(words=words, at=len(words.split()))
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, timeout=60)
        assert done.stdout.split() == [found], done.stderr
