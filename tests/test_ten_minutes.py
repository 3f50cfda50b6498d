"""The page that promises ten minutes is run word for word, from an empty environment."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.test_readme import BLOCK, PAGES, ROOT

SECONDS_MAX = 600
LEFT_OUT = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "spark-warehouse")
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.M)


def commands(page: str) -> list[tuple[str, str]]:
    """Every command of the page, and what it prints."""
    blocks = (text for language, _, text in BLOCK.findall(PAGES[page]) if language == "console")
    return [found for text in blocks for found in _COMMAND.findall(text)]


def script(page: str, log: Path) -> str:
    """All commands in one shell, as they are typed: what each prints goes into a file of its own; a line says when it
    began and ended."""
    lines = ["set -e"]
    for number, (command, _) in enumerate(commands(page)):
        lines += ["began=$(date +%s.%N)", f"{{ {command}\n}} >{log}/{number}.out 2>{log}/{number}.err"]
        lines.append(f"echo {number} $began $(date +%s.%N) >>{log}/times")
    return "\n".join(lines)


@pytest.mark.check
@pytest.mark.timeout(1_200)
def test_the_page_leads_to_a_result_in_ten_minutes(tmp_path: Path) -> None:
    """Without it the page could ask for what nobody has, or take an hour."""
    checkout, log = tmp_path / "checkout", tmp_path / "log"
    shutil.copytree(ROOT, checkout, ignore=LEFT_OUT)
    log.mkdir()
    for _, name, text in BLOCK.findall(PAGES["start.md"]):
        if name:
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_text(text)
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "PIP_INDEX_URL", "PIP_CACHE_DIR", "SSL_CERT_FILE")
    environment = {name: os.environ[name] for name in os.environ if name in kept or name.lower().endswith("_proxy")}
    # Without the environment of this test, which has everything.
    ours = os.environ["PATH"].split(os.pathsep)
    environment["PATH"] = os.pathsep.join(one for one in ours if not (Path(one).parent / "pyvenv.cfg").exists())
    done = subprocess.run(["bash", "-c", script("start.md", log)], cwd=checkout, env=environment, timeout=1_100)
    times = [line.split() for line in (log / "times").read_text().splitlines()]
    seconds = [float(ended) - float(began) for _, began, ended in times]
    for spent, (command, _) in zip(seconds, commands("start.md")):
        print(f"{spent:7.1f} s  {command}")
    print(f"{sum(seconds):7.1f} s  in all")
    failed = len(seconds)
    assert done.returncode == 0, (log / f"{failed}.err").read_text() + (log / f"{failed}.out").read_text()
    _compare(log)
    assert sum(seconds) < SECONDS_MAX


def _compare(log: Path) -> None:
    """What the page shows is what was printed; of commands that make the environment it shows nothing."""
    checker, options = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for number, (command, expected) in enumerate(commands("start.md")):
        printed = (log / f"{number}.out").read_text()
        assert not expected or checker.check_output(expected, printed, options), f"{command}\n{printed}"


def test_the_page_has_all_steps() -> None:
    """Without it a step could be left out of the page, and so of what is timed."""
    typed = [command for command, _ in commands("start.md")]
    for words in ("python3 -m venv", "pip install", "persistent init", "persistent run", "cat ", "python -m pytest"):
        assert any(command.startswith(words) for command in typed), words
