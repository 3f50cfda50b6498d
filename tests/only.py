"""What is checked of one module or room: its style, its types, and the tests that mirror it.

``make test ONLY=persistent/connect/formats/text.py``: the tests are those that ``tests.mirrors`` computes
(``test_text*.py``), so that a change can be tried in seconds; and those of the house, its bounds and its floors.
``ONLY=persistent/driver`` does so for all modules of a room.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mirrors import ROOT, mirrors

NO_TESTS = 5
"""What pytest ends with where there is none: a protocol has neither examples nor tests."""


def commands(module: Path) -> list[list[str]]:
    """What to run, one after the other."""
    path, name = str(module), ".".join(module.with_suffix("").parts)
    names = [other for other in mirrors() if f"{other}.".startswith(f"{name}.")]
    style = [["ruff", "check", path], ["ruff", "format", "--check", path]]
    if module.parts[0] == "tests":
        return [*style, ["pytest", "-q", path]]
    tests = list(dict.fromkeys(str(test.relative_to(ROOT)) for other in names for test in mirrors()[other]))
    return [
        *style,
        ["mypy", path],
        ["pytest", "-q", "-m", "not check", "--doctest-modules", path, *tests],
        ["pytest", "-q", "tests/test_house.py", "tests/test_figures.py"],
    ]


def main(arguments: Sequence[str]) -> int:
    """The exit code: of the first command that fails, else 0."""
    for argument in arguments:
        module = Path(argument)
        if not (ROOT / module).is_dir() and (not (ROOT / module).is_file() or module.suffix != ".py"):
            print(f"ONLY={argument}: no such module or room; give a path as persistent/connect/formats/text.py")
            return 2
        for command in commands(module):
            print(f"$ {' '.join(command)}", flush=True)
            code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode
            if code == NO_TESTS and command[0] == "pytest":
                print(f"{argument} has no tests of its own (outside make check)")
            elif code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
