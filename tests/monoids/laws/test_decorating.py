"""Laws as tests of pytest: by decorator, by class, and as items of a package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from monoids import Count, Max, Sum
from monoids.laws import LawViolation, MonoidLaws, exact, laws_of, monoid_laws
from monoids.laws.finding import public_monoids
from tests.monoids.laws.defects import SMALL, CommutingList, Integers, Sampled

ROOT = Path(__file__).parents[3]


@monoid_laws((Sum(), st.integers(-9, 9)), (Max(str), None), Count(), examples=10)
def test_decorated(check: Callable[[], None]) -> None:
    """The decorator on a real test."""
    check()


def test_decorator_makes_an_item_for_each_monoid_and_law() -> None:
    """A report of one item for all laws hides which hold."""

    @monoid_laws((CommutingList(), SMALL), Sum(), examples=30)
    def decorated(check: Callable[[], None]) -> None:
        check()

    (mark,) = decorated.pytestmark  # type: ignore[attr-defined]
    name, parameters = mark.args
    assert name == "check"
    ids = [parameter.id for parameter in parameters]
    assert ids == [f"{monoid!r}-{law.name}" for monoid in (CommutingList(), Sum()) for law in laws_of(monoid)]
    failed = []
    for parameter in parameters:
        try:
            parameter.values[0]()
        except LawViolation as violation:
            failed.append(violation.law)
    assert failed == ["commutativity"]


def test_decorator_refuses_what_is_no_monoid() -> None:
    """A decorator without monoids would collect nothing, and pass."""
    with pytest.raises(TypeError, match="takes monoids, or pairs"):
        monoid_laws()
    with pytest.raises(TypeError, match="takes a monoid first"):
        monoid_laws(Sum)  # type: ignore[arg-type]


class TestIntegers(MonoidLaws):
    monoid = Integers()
    inputs = SMALL
    examples = 20
    equality = exact


class CommutingListLaws(MonoidLaws):
    monoid = CommutingList()
    inputs = SMALL
    examples = 20
    expected_failures = {"commutativity": "a list keeps its order"}


def test_class_has_a_test_for_each_law() -> None:
    """A law without a test of its own cannot be expected to fail."""
    tests = {name for name in vars(TestIntegers) if name.startswith("test_")}
    assert tests == {f"test_{law.name.replace(' ', '_')}" for law in laws_of(Integers())}
    assert "combine(identity, a) == a" in str(TestIntegers.test_left_identity.__doc__)  # type: ignore[attr-defined]


def test_expected_failure_that_holds_is_a_failure() -> None:
    """An excuse that is no longer needed hides the next defect."""

    class Mended(MonoidLaws):
        monoid = Sampled()
        inputs = SMALL
        examples = 20
        expected_failures = {"associativity": "once it was wrong"}

    with pytest.raises(pytest.fail.Exception, match="'associativity' holds, but is expected to fail"):
        Mended().test_associativity()  # type: ignore[attr-defined]
    with pytest.raises(pytest.xfail.Exception, match="keeps its order: CommutingList"):
        CommutingListLaws().test_commutativity()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("commutative", "the laws are: no mutation, totality"), ("inverse", "does not apply to Sampled")],
)
def test_expected_failure_of_no_law_is_refused(name: str, hint: str) -> None:
    """A typing error would leave a law unexcused, or an excuse unused."""
    with pytest.raises(TypeError, match=hint):
        type("Wrong", (MonoidLaws,), {"monoid": Sampled(), "inputs": SMALL, "expected_failures": {name: "because"}})


def test_class_without_monoid_is_for_others() -> None:
    """Options common to many tests are written once."""

    class Common(MonoidLaws):
        examples = 7

    class Own(Common):
        monoid = Count()

    assert not [name for name in vars(Common) if name.startswith("test_")]
    Own().test_fold()  # type: ignore[attr-defined]


PACKAGE = """
from hypothesis import strategies
from monoids import Monoid, Sum

class Longest(Monoid[str]):
    identity = ""
    def combine(self, a: str, b: str) -> str:
        return b if len(b) > len(a) else a

class Shortest(Longest):
    commutative = True
    def combine(self, a: str, b: str) -> str:
        return (b if len(b) < len(a) else a) if a and b else a or b

class Bounded(Monoid[int]):
    identity = 0
    def __init__(self, most):
        self.most = most
    def combine(self, a, b):
        return min(a + b, self.most)

class Known(Monoid[int]):
    identity = 0
    def __init__(self, most):
        self.most = most
    def lift(self, value):
        return min(value, self.most)
    def combine(self, a, b):
        return min(a + b, self.most)

class Untyped(Monoid):
    identity = 0
    def combine(self, a, b):
        return a + b

class _Private(Untyped):
    pass

total = Sum(float)
LAWFUL = [(Known(3), strategies.integers(0, 5))]
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "jobs_of_mine"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "sums.py").write_text(PACKAGE)
    (folder / "inner" / "__init__.py").write_text("from monoids import Max\nnewest = Max()\n")
    return tmp_path


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


def test_plugin_tries_every_public_monoid_of_a_package(package: Path) -> None:
    """A monoid that nobody thought of testing is tested."""
    (package / "test_other.py").write_text("def test_other(): pass\n")
    done = run(package, "--monoid-laws=jobs_of_mine", "--monoid-laws-examples=200", "-v", "--tb=short")
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("jobs_of_mine::Longest()::associativity PASSED") for line in lines)
    assert any(line.startswith("jobs_of_mine::Shortest()::commutativity FAILED") for line in lines)
    assert any(line.startswith("jobs_of_mine::Sum(float)::commutativity PASSED") for line in lines)
    assert any(line.startswith("jobs_of_mine::Max()::idempotence PASSED") for line in lines)
    assert any(line.startswith("jobs_of_mine::Known()::fold PASSED") for line in lines)
    assert "Shortest() breaks 'commutativity': combine(a, b) == combine(b, a)\n  a = lift('" in done.stdout
    assert "Bounded cannot be made without arguments" in done.stdout
    assert "LAWFUL = [(Bounded(...), strategies.text())]" in done.stdout
    assert "no inputs are known for Untyped()" in done.stdout
    assert "_Private" not in done.stdout and "test_other" not in done.stdout
    assert "3 failed" in lines[-1]


def test_plugin_beside_other_tests(package: Path) -> None:
    """The laws may be tried in the same run as the tests, and chosen by name."""
    (package / "test_other.py").write_text("def test_other(): pass\n")
    done = run(package, "test_other.py", "--monoid-laws=jobs_of_mine.inner", "--monoid-laws-examples=5", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(laws_of(Max())) + 1} passed" in done.stdout
    chosen = run(package, "--monoid-laws=jobs_of_mine.inner", "-k", "associativity", "-q")
    assert "1 passed" in chosen.stdout


@pytest.mark.parametrize(("name", "told"), [("jobs_of_nobody", "No module named"), ("json", "no public monoid in it")])
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


def test_broken_list_of_pairs_is_refused(package: Path) -> None:
    """A pair the wrong way round would be tried as nothing."""
    (package / "jobs_of_mine" / "sums.py").write_text("from monoids import Sum\nLAWFUL = [('a', Sum())]\n")
    sys.path.insert(0, str(package))
    try:
        with pytest.raises(TypeError, match="LAWFUL holds"):
            public_monoids("jobs_of_mine")
    finally:
        sys.path.remove(str(package))
        for name in [name for name in sys.modules if name.startswith("jobs_of_mine")]:
            del sys.modules[name]


def test_found_in_this_package() -> None:
    """The doors to the laws of this package find what it is made of."""
    found: list[Any] = public_monoids("monoids.numbers.truth")
    assert found and all(one.title for one in found)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--monoid-laws="], "name a package or module"),
        (["--monoid-laws=jobs_of_mine.broken"], "broken cannot be imported: ZeroDivisionError"),
        (["--monoid-laws=jobs_of_mine", "--monoid-laws-examples=0"], "at least 1, not 0"),
        (["--monoid-laws=jobs_of_mine", "--monoid-laws-examples=-3"], "at least 1, not -3"),
        (["--monoid-laws=jobs_of_nobody"], "in the folder that holds it, or name that in PYTHONPATH"),
    ],
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
