"""The examples of single tasks: each prints what it finds, and compares all of it with a plain computation."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")

PRINTED = {
    "sessions": ["ann, 08:29 to 08:59: 1 clicks on /shoes; 0 cents", "180 clicks in 42 visits, 0 late"],
    "sensors": [
        "boiler, 12:00: 30 readings, 12.9 to 36.5 degrees",
        "2160 readings; 68 windows; 4 published anew, 120 too late",
    ],
    "order_book": [
        "ACME: ask 4192 at 1001, 5165 at 1002, 4013 at 1003; largest trades 499, 497, 497",
        "6553 events, and both books are what a plain computation gives",
    ],
    "ab_test": [
        "A: 383 sales to 6000 visitors, 5.8% to 7.0%, 3324 cents",
        "the difference is 4.6 standard errors: no mere chance",
    ],
    "trips": [
        "Queens, 01:00 EST: 15 trips, 49.8 miles",
        "Queens, 03:00 EDT: 14 trips, 21.6 miles",
        "4000 trips, 0 late; 240 rows",
    ],
}
"""The lines that the page shows."""


def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"examples.{name}")


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_is_what_a_plain_computation_gives(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Without it what newcomers copy first could be wrong, or print other lines than the page."""
    module_of(name).main()
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in PRINTED[name] if line not in printed] == [], printed
    assert "what a plain computation gives" in printed[-1]
    assert [line for line in PRINTED[name] if line not in PAGE] == []


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_notices_a_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the comparison could hold whatever the task does."""
    module = module_of(name)
    plain = module.expected
    monkeypatch.setattr(module, "expected", lambda *given: dict(list(plain(*given).items())[1:]))
    with pytest.raises(SystemExit, match="DIFFERENT"):
        module.main()


def test_the_page_names_every_example() -> None:
    """Without it an example could be added and nobody told."""
    for path in (ROOT / "examples").glob("*.py"):
        assert f"`examples/{path.name}`" in PAGE, path.name
