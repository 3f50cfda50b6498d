"""What is checked of one module: its style, its types, and the tests that mirror it.

``make test ONLY=persistent/sources/text.py``: the tests are those of the same name (``tests/sources/test_text*.py``),
else those of its room, so that a change can be tried in seconds. The house is looked at too.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]


def mirrors(module: Path) -> list[Path]:
    """The tests of a module, by its path: of its name, or else of its folder."""
    package, *folders = module.parts[:-1]
    room = Path("tests", *(["monoids"] if package == "monoids" else []), *folders)
    name = module.stem.strip("_")
    found = sorted(ROOT.glob(f"{room}/test_{name}.py")) + sorted(ROOT.glob(f"{room}/test_{name}_*.py"))
    if not found and folders:
        found = sorted(ROOT.glob(f"{room}/test_*.py"))
    return found


def commands(module: Path) -> list[list[str]]:
    """What to run, one after the other."""
    path, name = str(module), ".".join(module.with_suffix("").parts)
    style = [["ruff", "check", path], ["ruff", "format", "--check", path]]
    if module.parts[0] == "tests":
        return [*style, ["pytest", "-q", path]]
    tests = [str(test.relative_to(ROOT)) for test in mirrors(module)]
    return [
        *style,
        ["mypy", path],
        ["pytest", "-q", "--doctest-modules", path, *tests],
        ["pytest", "-q", "tests/test_house.py", "-k", name],
    ]


def main(arguments: Sequence[str]) -> int:
    """The exit code: of the first command that fails, else 0."""
    for argument in arguments:
        module = Path(argument)
        if not (ROOT / module).is_file() or module.suffix != ".py":
            print(f"ONLY={argument}: no such module; give a path as persistent/sources/text.py")
            return 2
        for command in commands(module):
            print(f"$ {' '.join(command)}", flush=True)
            code = subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode
            if code:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
