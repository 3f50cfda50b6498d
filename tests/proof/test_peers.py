"""A slice of the section "peers": files are read as pandas, Polars and DuckDB read them, and a defect is found."""

from __future__ import annotations

import pytest

from tests.proof.peers import ENDINGS, MUTANTS, drawn_case, is_found, smaller, tried


@pytest.mark.parametrize("format", ENDINGS)
def test_files_are_read_as_their_peers_read_them(format: str) -> None:
    """A value that only our reader takes for another would be counted so without a word."""
    assert [fault for number in range(12) if (fault := tried(format, f"sample/{number}"))] == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_defect_is_found(name: str) -> None:
    """A comparison that passes over a lost record or a cut float would pass over what the trials found."""
    assert is_found(name)


def test_a_case_is_made_small() -> None:
    """Thirty rows of five columns in three files show nobody what differs."""
    cases = (drawn_case("csv", number) for number in range(99))
    case = next(case for case in cases if len(case.sheets) == 3 and len(case.sheets[2]) > 7)
    small = smaller(case, lambda one: sum(map(len, one.sheets)) >= 2)
    assert [(sheet.names, len(sheet)) for sheet in small.sheets] == [(["ts"], 2)]
