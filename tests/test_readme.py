"""What the documentation shows is run as it stands: the README's files and commands, and the examples in docstrings."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pyarrow as pa
import pytest

import monoids
import persistent
from monoids.records import RecordMonoid
from tests.few import only

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = {
    page.name if page.parent == ROOT else str(page.relative_to(ROOT / "docs")): page.read_text()
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"))
}
CATALOGUE, COMMANDS = PAGES["catalogue.md"], PAGES["operating.md"]
BLOCK = re.compile(r'^```(\w+)(?: title="(\S+)")?\n(.*?)^```$', re.M | re.S)
SET_UP = ("make ", "python3 -m venv ", ". .venv", "pip install ")
"""Commands that make an environment: tests/test_ten_minutes.py runs them."""
RUN = {"README.md", "connectors/writing.md"}
"""Pages whose commands run with every change; ``make check`` runs all."""
FENCE = re.compile(r'```(\w+( title="\S+")?)?')


def modules() -> Iterator[str]:
    for package in (monoids, persistent):
        yield package.__name__
        found = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        yield from (one.name for one in found if not one.name.endswith("__main__"))


def folder(module: str) -> str:
    return module.rpartition(".")[0]


FOLDERS = {name: list(found) for name, found in groupby(sorted(modules(), key=folder), folder)}


@pytest.mark.parametrize("name", FOLDERS)
def test_docstrings_of(name: str) -> None:
    """Without it examples in docstrings would rot."""
    for module in FOLDERS[name]:
        found = doctest.testmod(importlib.import_module(module), optionflags=doctest.ELLIPSIS)
        assert found.failed == 0, module


TAUGHT = [page for page in sorted((ROOT / "docs").rglob("*.md")) if ">>> " in page.read_text(encoding="utf-8")]
"""Pages with examples; the others are tables that commands make."""


@pytest.mark.parametrize("page", TAUGHT, ids=lambda page: page.name)
def test_pages_run(page: Path) -> None:
    """Without it a page that teaches would teach what was true once."""
    found = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted and not found.failed


@pytest.mark.parametrize("page", only(RUN.__contains__, [name for name, text in PAGES.items() if "```console" in text]))
def test_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    """Without it a new user's first hour could begin with an error.

    A block with a file name is that file; of a console block every command is run, and must print what follows it.
    """
    compared = 0
    shared = BLOCK.findall(PAGES["migrating/index.md"]) if page.startswith("migrating/") else []
    for language, name, text in [block for block in shared if block[1]] + BLOCK.findall(PAGES[page]):
        if name:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif language == "console":
            for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
                if not command.startswith(SET_UP):
                    check_command(command, expected, tmp_path)
                    compared += 1
    assert compared


def check_command(command: str, expected: str, folder: Path) -> None:
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {"PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        ["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=120, env=environment
    )
    assert ran.returncode == 0, f"{command}\n{ran.stderr}"
    checker = doctest.OutputChecker()
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert checker.check_output(expected, ran.stdout, options), f"{command}\n{ran.stdout}"


@pytest.mark.parametrize("page", sorted(PAGES))
def test_what_a_page_names_exists(page: str) -> None:
    """Without it a guarantee could refer to a test that is not there, or a link lead nowhere."""
    named = set(re.findall(r"`((?:tests|examples|benchmarks|monoids|persistent)/[\w/.]*)`", PAGES[page]))
    folder = ROOT if page in ("README.md", "CONTRIBUTING.md") else (ROOT / "docs" / page).parent
    linked = set(re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGES[page]))
    gone = [path for path in named if not (ROOT / path).exists()]
    assert gone + [link for link in linked if not (folder / link).exists()] == []


@pytest.mark.parametrize("page", sorted(PAGES))
def test_fences_are_those_that_the_site_knows(page: str) -> None:
    """Without it the site could show a file as running text, up to the next fence."""
    assert [line for line in PAGES[page].splitlines() if line.startswith("```") and not FENCE.fullmatch(line)] == []


def test_the_front_page_is_short() -> None:
    """Without it the first thing that a reader sees would grow with every feature."""
    (example,) = (text for _, name, text in BLOCK.findall(README) if name == "visits.py")
    assert len([line for line in example.splitlines() if line.strip()]) <= 12
    assert len(README.splitlines()) <= 150


def monoid_rows() -> list[list[str]]:
    table = CATALOGUE
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:3] == "| `"]


@pytest.mark.parametrize("row", monoid_rows(), ids=lambda row: row[0])
def test_monoids_are_what_the_catalogue_says(row: list[str]) -> None:
    """Without it a law could be claimed that no test tries, or an output of another type."""
    letters = {"c": "commutative", "i": "idempotent", "e": "exact"}
    for code in re.findall(r"`([^`]+)`", row[0]):
        monoid = eval(code, {**vars(monoids), "pa": pa})
        traits = [letter for letter, trait in letters.items() if getattr(monoid, trait)]
        assert " ".join(traits + ["g"] * isinstance(monoid, monoids.Group)) == row[4], code
        shown = "JSON" if monoid.output_type is None else str(monoid.output_type)
        assert shown.startswith(row[3].partition(" of ")[0].partition(",")[0]) or isinstance(monoid, RecordMonoid), code


def test_all_monoids_are_in_the_catalogue() -> None:
    """Without it a monoid could be added and nobody told of its laws."""
    for name in monoids.__all__:
        assert f"{name}(" in CATALOGUE or f"`{name}`" in CATALOGUE, name


def public_errors() -> dict[str, type[Exception]]:
    """The errors that a module of ours lets out, by name."""
    found: dict[str, type[Exception]] = {}
    for module in map(importlib.import_module, modules()):
        names = vars(module) if module.__name__ in ("persistent.errors", "persistent.serializers") else ()
        for name in {*names, *getattr(module, "__all__", ())}:
            thing = getattr(module, name)
            if name[0] != "_" and isinstance(thing, type) and issubclass(thing, Exception):
                found |= {} if issubclass(thing, Warning) else {name: thing}
    return found


def test_every_error_has_its_remedy() -> None:
    """Without it an error could be added and nobody told what to do about it, or one that is gone be explained."""
    from persistent.tools.cli.exits import exit_code

    page, errors = PAGES["errors.md"], public_errors()
    sections = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^##|\Z)", page, re.M | re.S))
    assert sorted(sections) == sorted(errors)
    ours = {name: error for name, error in errors.items() if issubclass(error, persistent.PersistentError)}
    for name in ours:
        assert "*The data:*" in sections[name] and "*Do:*" in sections[name], name
    rows = re.findall(r"^\| (\d+) \| (`.*?) \|", page, re.M)
    told = {name: int(code) for code, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == {name: code for name, error in ours.items() if (code := exit_code(error.__new__(error))) != 1}


def test_the_drawn_step_is_that_of_the_code() -> None:
    """Without it the picture could show an order of effects that was once."""
    from persistent.driver.step import EFFECTS

    drawn = re.findall(r'class="effect"[^>]*>([^<]*)<', (ROOT / "docs" / "step.svg").read_text(encoding="utf-8"))
    assert drawn == [effect.value for effect in EFFECTS]


def test_all_commands_are_in_the_docs() -> None:
    """Without it a command could be added and nobody told."""
    from persistent.tools.cli import main

    for name in main.commands:
        assert f"persistent {name} " in COMMANDS, name
