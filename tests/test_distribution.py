"""A release holds all that it needs, and a reader who installs it gets what the start page shows."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import distribution
from tests.distribution import ROOT, check_source, check_wheel, expected, only


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``make dist`` builds, from a copy: a build leaves its traces beside the sources."""
    folder = tmp_path_factory.mktemp("dist")
    tracked = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    source = folder / "source"
    for name in tracked.split("\0"):
        if name and not name.startswith(("tests/golden", "docs/")) and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    words = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(source)]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.mark.check
def test_wheel_and_source_are_whole(dist: Path) -> None:
    """A page without its style, a package without its types, a plugin that pytest does not find."""
    assert check_wheel(only(dist, "*.whl")) == []
    assert check_source(only(dist, "*.tar.gz")) == []


@pytest.mark.check
def test_the_start_page_runs_from_the_wheel(dist: Path, tmp_path: Path) -> None:
    """What works here might lean on files that no user has. What it needs comes from this environment."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(only(dist, "*.whl")) as archive:
        archive.extractall(packages)
    import numpy

    ours = ("persistent", "monoids", "__editable__")
    others = [path for path in Path(numpy.__file__).parents[1].iterdir() if not path.name.startswith(ours)]
    for path in others:
        if not (packages / path.name).exists() and path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    program = environment / "bin" / "persistent"
    program.write_text(f"#!{environment}/bin/python\nfrom persistent.tools.cli import main\nmain()\n")
    program.chmod(0o755)
    (tmp_path / "start").mkdir()
    assert distribution.run_start_page(environment / "bin" / "python", tmp_path / "start") >= 7


def test_setup_names_every_package() -> None:
    """A new room would be missing in what users install, and in nothing that we run."""
    import configparser

    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    named = set(setup["options"]["packages"].split())
    rooms = {name.rpartition("/")[0].replace("/", ".") for name in expected() if name.endswith("/__init__.py")}
    assert named == rooms


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda names: names - {"persistent/py.typed"}, "lacks persistent/py.typed"),
        (lambda names: names - {"pytest_persistent.py"}, "lacks pytest_persistent.py"),
        (lambda names: names | {"tests/secret.py"}, "has tests/secret.py"),
    ],
)
def test_what_is_not_whole_is_told(spoil: Callable[[set[str]], set[str]], fault: str, tmp_path: Path) -> None:
    """The check would pass whatever is built."""
    wheel = tmp_path / "persistent.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in spoil(expected()):
            archive.writestr(name, "")
        names = ("persistent = persistent.__main__:main", "monoids = pytest_monoids", "persistent = pytest_persistent")
        points = "\n".join(["[x]", *names, ""])
        archive.writestr("persistent.dist-info/entry_points.txt", points)
        archive.writestr("persistent.dist-info/licenses/LICENSE", "")
    (found,) = check_wheel(wheel)
    assert fault in found
