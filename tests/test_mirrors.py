"""Which tests a module has is computed from their paths: for ``make test ONLY=``, and for the mutants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mirrors import ROOT, mirrored, mirrors
from tests.only import commands, main


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("file", ["file"]),
        ("file_and_memory", ["file", "memory"]),
        ("memory_map_of_one_page", ["memory_map"]),
        ("memory_of_files", ["memory"]),
        ("file_and_what_it_leaves", ["file"]),
        ("files", []),
    ],
)
def test_a_name_says_what_is_tested(name: str, expected: list[str]) -> None:
    """Without it a mutant would be tried with the tests of a neighbour, and survive."""
    assert mirrored(name, dict.fromkeys(("file", "memory", "memory_map"), "")) == expected


def test_the_tests_of_a_name_come_first() -> None:
    """Without it every mutant would wait for the longest of its tests."""
    for tests in mirrors().values():
        assert list(tests) == sorted(tests, key=lambda test: len(test.stem))


def test_one_module_is_checked_with_its_own_tests() -> None:
    """Without it ONLY= would run nothing, and say that all is well."""
    ran = commands(Path("persistent/connect/formats/text.py"))
    assert ["ruff", "check", "persistent/connect/formats/text.py"] in ran
    (tests,) = (words for words in ran if "--doctest-modules" in words)
    assert tests[-1] == "tests/connect/formats/test_text.py" and (ROOT / tests[-1]).exists()
    assert ran[-1] == ["pytest", "-q", "tests/test_house.py", "tests/test_figures.py"]
    changed = commands(Path("tests/connect/formats/test_text.py"))
    assert changed[-1] == ["pytest", "-q", "tests/connect/formats/test_text.py"]


def test_a_room_is_checked_with_all_its_tests() -> None:
    """Without it who changes several modules of a room would run the tests of one."""
    (tests,) = (words for words in commands(Path("persistent/state")) if "--doctest-modules" in words)
    some = {"tests/state/test_state.py", "tests/state/test_views_sessions.py"}
    assert tests[5] == "persistent/state" and some <= {*tests}
    assert not [path for path in tests[6:] if not path.startswith("tests/state/")]


@pytest.mark.check
def test_a_module_without_tests_of_its_own_passes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """pytest ends with 5 where it finds none, and a contributor would look for what is wrong with the module."""
    ran = [words for words in commands(Path("persistent/engines/protocol.py")) if "--doctest-modules" in words]
    monkeypatch.setattr("tests.only.commands", lambda module: ran)
    assert main(["persistent/engines/protocol.py"]) == 0
    assert "persistent/engines/protocol.py has no tests of its own" in capfd.readouterr().out
    ran.append(["pytest", "-q", "no such file"])
    assert main(["persistent/engines/protocol.py"]) != 0
