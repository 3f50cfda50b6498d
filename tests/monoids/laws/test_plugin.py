"""pytest --monoid-laws=PACKAGE tries every public monoid of a package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from monoids import Max
from monoids.laws import laws_of
from tests.few import one_in

ROOT = Path(__file__).parents[3]


def run(folder: Path, *words: str, path: Path | str = "") -> subprocess.CompletedProcess[str]:
    plugin = [] if "pytest_monoids" in _entry_points() else ["-p", "pytest_monoids"]
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "import pytest; raise SystemExit(pytest.main())",
            "-p",
            "no:cacheprovider",
            *plugin,
            *words,
        ],
        cwd=folder,
        env={"PATH": "", "PYTHONPATH": str(path or f"{folder}:{ROOT}")},
        capture_output=True,
        text=True,
        check=False,
    )


def _entry_points() -> set[str]:
    from importlib.metadata import entry_points

    return {point.value for point in entry_points(group="pytest11")}


@pytest.mark.check
def test_plugin_tries_every_public_monoid_of_a_package(package: Path) -> None:
    """A monoid that nobody thought of testing is tested."""
    (package / "test_other.py").write_text("def test_other(): pass\n")
    done = run(package, "--monoid-laws=jobs_of_mine", "--monoid-laws-examples=40", "-v", "--tb=short")
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("jobs_of_mine::Longest()::associativity PASSED") for line in lines)
    assert any(line.startswith("jobs_of_mine::Shortest()::commutativity FAILED") for line in lines)
    assert any(line.startswith("jobs_of_mine::Sum(float)::commutativity PASSED") for line in lines)
    assert any(line.startswith("jobs_of_mine::Max()::idempotence PASSED") for line in lines)
    assert any(line.startswith("jobs_of_mine::Known()::fold PASSED") for line in lines)
    assert "Shortest() breaks 'commutativity': combine(a, b) == combine(b, a)\n  a = lift('" in done.stdout
    assert "Bounded needs arguments" in done.stdout
    assert "LAWFUL = [(Bounded(...), strategies.text())]" in done.stdout
    assert "no inputs are known for Untyped()" in done.stdout
    assert "_Private" not in done.stdout and "test_other" not in done.stdout
    assert "3 failed" in lines[-1]


@pytest.mark.check
def test_plugin_beside_other_tests(package: Path) -> None:
    """The laws may be tried in the same run as the tests, and chosen by name."""
    (package / "test_other.py").write_text("def test_other(): pass\n")
    done = run(package, "test_other.py", "--monoid-laws=jobs_of_mine.inner", "--monoid-laws-examples=5", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(laws_of(Max())) + 1} passed" in done.stdout
    chosen = run(package, "--monoid-laws=jobs_of_mine.inner", "-k", "associativity", "-q")
    assert "1 passed" in chosen.stdout


@pytest.mark.parametrize(
    ("name", "told"), one_in(2, [("json", "has no public monoid"), ("jobs_of_nobody", "No module named")])
)
def test_plugin_refuses_a_package_without_monoids(package: Path, name: str, told: str) -> None:
    """No test at all would be a pass."""
    done = run(package, f"--monoid-laws={name}")
    assert done.returncode == 4
    assert told in done.stderr


def test_plugin_that_is_not_asked_loads_nothing(package: Path) -> None:
    """Every pytest of every project pays for what a plugin imports."""
    code = (
        "import sys, pytest_monoids; print({'hypothesis', 'numpy', 'pyarrow', 'monoids', 'pytest'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("words", "told"),
    one_in(
        2,
        [
            (["--monoid-laws="], "name a package or module"),
            (["--monoid-laws=jobs_of_mine.broken"], "broken cannot be imported: ZeroDivisionError"),
            (["--monoid-laws=jobs_of_mine", "--monoid-laws-examples=0"], "at least 1, not 0"),
            (["--monoid-laws=jobs_of_mine", "--monoid-laws-examples=-3"], "at least 1, not -3"),
            (["--monoid-laws=jobs_of_nobody"], "in the folder that holds it, or add that folder to PYTHONPATH"),
        ],
    ),
)
def test_plugin_tells_what_is_wrong_with_its_options(package: Path, words: list[str], told: str) -> None:
    """An internal error of pytest takes all other tests with it."""
    (package / "jobs_of_mine" / "broken.py").write_text("1 / 0\n")
    done = run(package, *words)
    assert done.returncode == 4, done.stdout + done.stderr
    assert told in done.stderr and "INTERNALERROR" not in done.stdout + done.stderr


def test_plugin_survives_a_monoid_that_raises(package: Path) -> None:
    """One monoid that cannot be tried is one item that fails; the count of items is right, and no path is needed."""
    (package / "jobs_of_mine" / "sums.py").write_text(
        "from monoids import Monoid\n"
        "class Boom(Monoid[int]):\n    identity = 0\n"
        "    def combine(self, a: int, b: int) -> int:\n        raise KeyError('boom')\n"
        "class Unprintable(Boom):\n    def __repr__(self):\n        raise KeyError('boom')\n"
    )
    done = run(
        package, "--monoid-laws=jobs_of_mine", "--monoid-laws-examples=5", "-k", "Boom or Unprintable", path=ROOT
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed" in done.stdout and "combine(identity, identity) raises KeyError" in done.stdout
    assert "INTERNALERROR" not in done.stdout and "/ 2 selected" in done.stdout, done.stdout
