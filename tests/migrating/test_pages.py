"""The pages about migrating: the code of both sides runs on the same input, and publishes the same rows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.few import turn
from tests.migrating import tools
from tests.test_readme import BLOCK, PAGES, check_command

pytestmark = pytest.mark.check

FLINK_SQL = f"java {Path(__file__).with_name('RunSql.java')} visits.sql"
SHARED = "migrating/index.md"
"""The page of what all have in common: the input, the task, and what it prints."""
SIDES: dict[str, tuple[Callable[[], Mapping[str, str]], tuple[str, ...]]] = {
    "structured-streaming": (tools.here, ()),
    "transform-with-state": (tools.here, ()),
    "flink": (tools.flink, (FLINK_SQL,)),
    "bytewax": (tools.bytewax, ()),
    "kafka-streams": (tools.kafka_streams, ()),
}
"""The environment of the other side, and what runs it where the page has no command that does."""
TURNS = {"structured-streaming": turn(0, 2), "transform-with-state": turn(1, 2)}
"""The two that wait for a Spark of their own: each run tries one."""
OURS = {"transform-with-state": "totals"}
ENDS = ("flink", "bytewax")
"""Where the end of the input closes the last window, as `--end-of-input` does here."""


def test_every_page_is_run() -> None:
    """Without it a page could be added whose code nobody has run."""
    pages = {page for page in PAGES if page.startswith("migrating/")}
    assert {f"migrating/{name}.md" for name in SIDES} == pages - {SHARED}


@pytest.mark.parametrize("name", [pytest.param(name, marks=TURNS.get(name, ())) for name in SIDES])
def test_both_sides_publish_the_same(name: str, tmp_path: Path) -> None:
    """Without it a page could promise a result that one of the two does not give, or that both gave once."""
    environment, more = SIDES[name]
    found = environment()
    page = BLOCK.findall(PAGES[SHARED]) + BLOCK.findall(PAGES[f"migrating/{name}.md"])
    write_files(page, tmp_path)
    for text in (text for language, _, text in page if language == "console"):
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
            if name in ENDS or "--end-of-input" not in command:
                check_command(command, expected, tmp_path)
    commands = [line for language, _, text in page if language == "sh" for line in text.splitlines()]
    for command in [*commands, *more]:
        tools.run(command, tmp_path, found)
    theirs = rows(tmp_path / "theirs")
    assert theirs and theirs == rows(tmp_path / OURS.get(name, "ours"))
    if (tmp_path / "continued-totals").exists():
        assert sum_by_page(tmp_path / "continued-totals") == {"/cart": (4, 410), "/end": (1, 0), "/home": (8, 1420)}


def write_files(page: list[tuple[str, str, str]], folder: Path) -> None:
    """The blocks that have a file name. Spark reads files in the order of their times."""
    named = [(folder / name, text) for _, name, text in page if name]
    for number, (path, text) in enumerate(named):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_715_000_000 + number,) * 2)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """The rows of all files that are published there, times as times, without what only this package adds. None of them
    may be taken back."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name[0] not in "._"]
    found = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    assert not any(row.get("retracted") for row in found)
    return sorted(tuple(value_of(row[name]) for name in row if name not in {"revision", "retracted"}) for row in found)


def value_of(value: Any) -> Any:
    if isinstance(value, str) and re.match(r"\d{4}-", value):
        return datetime.fromisoformat(value).replace(tzinfo=None)
    return value


def sum_by_page(folder: Path) -> dict[str, tuple[int, int]]:
    return {page: (visits, ms) for page, visits, ms in rows(folder)}
