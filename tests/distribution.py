"""What a release is made of: looked at, installed in an environment of its own, and tried there as a reader would.

python -m tests.distribution dist              wheel and source archive in dist/ are whole
python -m tests.distribution dist --install    and the wheel is installed and tried, its materials listed
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
START = ROOT / "docs" / "start.md"
BLOCK = re.compile(r'^```(\w+)(?: title="(\S+)")?\n(.*?)^```$', re.M | re.S)
SET_UP = ("python3 -m venv ", ". .venv", "pip install ")
"""What a reader does before: here it is the wheel that is installed."""
BILL = "persistent-monoids.cdx.json"


def only(folder: Path, pattern: str) -> Path:
    """The only file of that kind."""
    (found,) = sorted(folder.glob(pattern))
    return found


def expected() -> set[str]:
    """What belongs into the wheel, as paths in it: the packages, their types, the page's assets, the pytest plugins."""
    found = {path for package in ("monoids", "persistent") for path in (ROOT / package).rglob("*.py")}
    found |= {ROOT / "monoids" / "py.typed", ROOT / "persistent" / "py.typed"}
    found |= {ROOT / "persistent" / "tools" / "cli" / "errors.md"}
    found |= set((ROOT / "persistent" / "tools" / "serve" / "assets").iterdir())
    found |= {ROOT / "pytest_monoids.py", ROOT / "pytest_persistent.py"}
    return {str(path.relative_to(ROOT)) for path in found}


def check_wheel(wheel: Path) -> list[str]:
    """What is missing in a wheel, and what does not belong there."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        about = {name: archive.read(name).decode() for name in names if name.endswith(("entry_points.txt", "METADATA"))}
    own = {name for name in names if ".dist-info/" not in name}
    faults = [f"{wheel.name} lacks {name}" for name in sorted(expected() - own)]
    faults += [f"{wheel.name} has {name}, which is none of its parts" for name in sorted(own - expected())]
    points = next((text for name, text in about.items() if name.endswith("entry_points.txt")), "")
    wanted = ("persistent = persistent.__main__:main", "monoids = pytest_monoids", "persistent = pytest_persistent")
    for point in wanted:
        faults += [] if point in points.splitlines() else [f"{wheel.name} has no entry point {point!r}"]
    faults += [] if any("licenses/LICENSE" in name or name.endswith("/LICENSE") for name in names) else ["no licence"]
    return faults


def check_source(archive: Path) -> list[str]:
    """What a source archive lacks to be built from."""
    with tarfile.open(archive) as found:
        names = {name.partition("/")[2] for name in found.getnames()}
    needed = expected() | {"setup.cfg", "pyproject.toml", "README.md", "LICENSE"}
    return [f"{archive.name} lacks {name}" for name in sorted(needed - names)]


def installed(wheel: Path, folder: Path) -> Path:
    """The Python of a new environment that has the wheel, what it needs, pytest, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel), "pytest"]
    subprocess.run([python, *words], check=True)
    return python


def run_start_page(python: Path, folder: Path) -> int:
    """Run every command of the start page; how many there were."""
    paths = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | {"PATH": paths}
    count = 0
    for language, name, text in BLOCK.findall(START.read_text(encoding="utf-8")):
        if name:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        elif language == "console":
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
                if not command.startswith(SET_UP):
                    check_command(command, shown, folder, environment)
                    count += 1
    return count


def check_command(command: str, shown: str, folder: Path, environment: dict[str, str]) -> None:
    """AssertionError unless a command prints what the page shows."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(shown, done.stdout, options), f"{command}\n{done.stdout}"


def write_bill(python: Path, dist: Path) -> Path:
    """Write the bill of materials of an environment, without the tools that made it."""
    bill = dist / BILL
    words = ["environment", str(python), "--output-reproducible", "--of", "JSON", "-o", str(bill)]
    subprocess.run([sys.executable, "-m", "cyclonedx_py", *words], check=True)
    return bill


def main(words: list[str]) -> int:
    dist = Path(words[0] if words else "dist").resolve()
    wheel, archive = only(dist, "*.whl"), only(dist, "*.tar.gz")
    faults = check_wheel(wheel) + check_source(archive)
    print("\n".join(faults) or f"{wheel.name} and {archive.name} are whole")
    if faults or "--install" not in words:
        return bool(faults)
    with tempfile.TemporaryDirectory() as folder:
        python = installed(wheel, Path(folder) / "environment")
        (Path(folder) / "start").mkdir()
        count = run_start_page(python, Path(folder) / "start")
        print(f"installed in a new environment: {count} commands of {START.name} print what the page shows")
        print(f"bill of materials: {write_bill(python, dist)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
