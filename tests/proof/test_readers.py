"""A slice of the section "readers": files are read as plain readers read them, and what would not be is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proof.readers import FORMATS, MUTANTS, is_found, tried


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_is_read_as_a_plain_reader_reads_it(format: str, tmp_path: Path) -> None:
    """Steps, splits and blocks must not show in what is read; nor must an end of line inside a field, or a null."""
    assert [fault for number in range(10) if (fault := tried(format, f"sample/{number}", tmp_path))] == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_defect_is_found(name: str) -> None:
    """A section that passes over the first splitter of CSV would have passed over what the trials found."""
    assert is_found(name)
