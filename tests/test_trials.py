"""The page of what the trials found names tests that exist."""

import re
from pathlib import Path

root = Path(__file__).resolve().parent.parent
page = root / "docs" / "evidence" / "trials.md"
names = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page.read_text())))


def test_names_are_found_on_the_page():
    """Without it a change of the page's form would switch the check off."""
    assert names, f"{page} names no test"


def test_a_named_test_exists():
    """A finding whose test is gone would be open again, and the page would still say it is kept out."""
    for file, test in names:
        path = root / file
        assert path.is_file(), file
        assert not test or re.search(rf"^\s*def {test}\(", path.read_text(), re.MULTILINE), f"{file}::{test}"
