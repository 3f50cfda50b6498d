"""The option --monoid-laws of pytest, in a module that is quick to import: the rest is loaded when it is given."""

from __future__ import annotations

from argparse import ArgumentTypeError
from typing import Any


def pytest_addoption(parser: Any) -> None:
    """Add ``--monoid-laws=PACKAGE`` ``--monoid-laws-examples=N`` and ``--monoid-laws-untried=LAW``."""
    group = parser.getgroup("monoids", "laws of monoids")
    group.addoption(
        "--monoid-laws",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="Test the laws on every public monoid of PACKAGE; without paths, nothing else is tested. Can be repeated.",
    )
    group.addoption(
        "--monoid-laws-examples",
        type=_examples,
        metavar="N",
        help="How many examples each law is tested on [default: 200, or as many as time allows].",
    )
    group.addoption(
        "--monoid-laws-untried",
        action="append",
        default=[],
        metavar="LAW",
        help="A law that may be tested on fewer than ten examples, for lack of memory. Can be repeated.",
    )


def _examples(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ArgumentTypeError(f"a number of examples is at least 1, not {number}")
    return number


def pytest_configure(config: Any) -> None:
    """Load the plugin if the option is given."""
    if not config.getoption("monoid_laws"):
        return
    from monoids.laws import plugin

    config.pluginmanager.register(plugin, "monoids.laws.plugin")
    if config.args_source is not config.ArgsSource.ARGS:
        config.args = []
