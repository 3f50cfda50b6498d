"""A package passes on the names of its modules, and loads a module when one of them is used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys

import pytest

from tests.figures import FILES, ROOT, tree

PACKAGES = (
    "monoids",
    "persistent",
    "persistent.engines",
    "persistent.metrics",
    "persistent.operations",
    "persistent.sinks",
    "persistent.sources",
    "persistent.storage",
    "persistent.testing",
)


def imported(body: list[ast.stmt]) -> dict[str, str]:
    """Name to module, of the imports."""
    found = [
        (alias.name, str(node.module)) for node in body if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    return dict(found)


def table(package: str) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """What type checkers see, what is loaded on demand, and what is there at once."""
    module = tree(package)
    block = next(node for node in module.body if isinstance(node, ast.If))
    call = next(node for node in ast.walk(ast.Module(block.orelse, [])) if isinstance(node, ast.Dict))
    homes = {name: home for home, names in ast.literal_eval(call).items() for name in names.split()}
    return imported(block.body), homes, list(imported(module.body))


@pytest.mark.parametrize("package", PACKAGES)
def test_each_name_is_that_of_its_module(package: str) -> None:
    """A name that only type checkers know raises at the user's; one that only we know is an error in every editor."""
    typed, homes, at_once = table(package)
    assert typed == homes
    module = importlib.import_module(package)
    assert sorted(module.__all__) == sorted({*homes, *at_once, *module.__all__} - {"TYPE_CHECKING", "on_demand"})
    for name, home in homes.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_name_is_that_of_a_module_beside_it(package: str) -> None:
    """Once somebody has imported that module, the name would mean it: ``then`` is no source then."""
    _, homes, _ = table(package)
    assert not [name for name in homes if f"{package}.{name}" in FILES]


def told(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_name_loads_its_module_alone() -> None:
    """Without it a script that reads files waits for the clients of every broker."""
    code = "import sys, persistent; before = set(sys.modules); persistent.WindowState; persistent.FileSource"
    window, kafka = "persistent.time.window", "persistent.connect.kafka.source"
    asked = f"{window!r} in before, {window!r} in sys.modules, {kafka!r} in sys.modules"
    assert told(f"{code}; print({asked})") == ["False", "True", "False"]


def test_a_room_is_an_attribute_of_the_package() -> None:
    """Code that wrote ``persistent.sources.FileSource`` after ``import persistent`` would stop."""
    code = "import persistent; print(persistent.sources.FileSource.__name__, persistent.errors.Fenced.__name__)"
    assert told(code) == ["FileSource", "Fenced"]


def test_what_is_not_there_is_an_attribute_error() -> None:
    """``hasattr`` and ``from persistent import`` rely on it."""
    persistent = importlib.import_module("persistent")
    with pytest.raises(AttributeError, match="module 'persistent' has no attribute 'Pipelin'"):
        persistent.Pipelin  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Pipelin' from 'persistent'"):
        exec("from persistent import Pipelin")
    assert not hasattr(persistent, "__wrapped__")
