"""A round of the matrix: whatever happens to us, the server or the way between, every record counts once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.few import share
from tests.integration.cells import CELLS, FAULTS, PARTS, REPEATS, Part, Tally, page
from tests.integration.rounds import judge, play


def test_matrix_page_is_of_these_cells() -> None:
    """A part that was added, or a cell that was left out, would be missing on the page, and nobody see it."""
    shown = (Path(__file__).parents[2] / "docs/evidence/matrix.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in shown.splitlines() if line[:2] == "| "]
    assert rows[0][1:] == list(FAULTS)
    assert [row[0] for row in rows[1:]] == [part.name for part in PARTS]
    for part, row in zip(PARTS, rows[1:]):
        assert [fault for fault, cell in zip(FAULTS, row[1:]) if cell != "–"] == list(part.faults), part.name
        assert part.sink in REPEATS or all(cell == "–" or cell.isdigit() for cell in row[1:]), row
        assert not part.excluded or f"{part.excluded}." in shown


def test_the_page_counts_what_was_found() -> None:
    """A page that says 0 whatever happens is none."""
    found = {(PARTS[5].name, FAULTS[0]): (20, Tally(60, 60, 1, 2))}
    assert "| KafkaSource | 60, 1 twice, 2 lost | – | – | – |" in page(found, 7)


WRITTEN = [{"n": 1, "ts": 10, "page": "a"}, {"n": 2, "ts": 20, "page": "a"}, {"n": 3, "ts": 120, "page": "b"}]
START = "1970-01-01T00:00:00+00:00"


def bag(**counts: int) -> list[dict[str, int]]:
    return [{"value": int(name[1:]), "count": count} for name, count in counts.items()]


@pytest.mark.parametrize(
    ("rows", "twice", "lost"),
    [
        ([("a", 0, bag(n1=1, n2=1)), ("b", 100, bag(n3=1))], 0, 0),
        ([("a", 0, bag(n1=1, n2=1)), ("a", 0, bag(n1=1, n2=1)), ("b", 100, bag(n3=1))], 1, 0),
        ([("a", 0, bag(n1=2, n2=1)), ("b", 100, bag(n3=1))], 1, 0),
        ([("a", 0, bag(n1=1)), ("b", 100, bag(n3=1))], 0, 1),
        ([("a", 0, bag(n1=1, n2=1))], 0, 1),
        ([("a", 0, bag(n1=1, n2=1)), ("b", 0, bag(n3=1))], 1, 1),
        ([], 0, 3),
    ],
)
def test_judge_finds_what_is_wrong(rows: list[Any], twice: int, lost: int) -> None:
    """A judge that sees nothing would call everything right."""
    given = [
        {"page": name, "window_start": f"1970-01-01T00:00:00.{ms:03}Z", "value": value} for name, ms, value in rows
    ]
    assert judge(WRITTEN, given) == Tally(duplicates=twice, lost=lost)


@pytest.mark.parametrize(
    ("part", "fault", "server"),
    [pytest.param(part, fault, part.server, id=f"{part.name}: {fault}") for part, fault in share(3, CELLS)],
    indirect=["server"],
)
def test_a_round(part: Part, fault: str, server: str, seed: str, tmp_path: Path) -> None:
    """A row twice, or a number lost, that no other test has thought of."""
    tally = play(part, fault, tmp_path, f"{seed} {part.name} {fault} 0")
    repeats = f"SEED={seed} make integration repeats it"
    assert tally.strikes, f"nothing has happened; {repeats}"
    assert tally.lost == 0, f"{tally}; {repeats}"
    assert tally.duplicates == 0 or part.sink in REPEATS, f"{tally}; {repeats}"
