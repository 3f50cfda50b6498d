"""The page of the protocol has every field of the documents of a checkpoint, as the classes say."""

from __future__ import annotations

import pytest

from tests.checkpoint.page import DOCUMENTS, PAGE, listed, rows_of


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_page_has_every_field_with_its_type(document: str) -> None:
    """Who reads a checkpoint without our code, in ten years, has only the page."""
    rows = listed(PAGE.read_text(), document)
    assert [row[:-1] for row in rows] == list(rows_of(DOCUMENTS[document]))
    assert all(len(row) == 4 and row[-1] for row in rows), "each with a meaning"
