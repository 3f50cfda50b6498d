"""What is said: exact values, errors in words, no secrets."""

from __future__ import annotations

import datetime
import inspect
from decimal import Decimal

import pyarrow as pa
import pytest

from persistent import errors
from persistent.errors import CorruptCheckpoint, NewerFormat, PersistentError, StorageError
from persistent.tools.serve.wording import cell, cells, columns_of, place_text, said_of

KINDS = [one for _, one in inspect.getmembers(errors, inspect.isclass) if issubclass(one, PersistentError)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_words(kind: type[PersistentError]) -> None:
    """It would be a stack trace."""
    status, words = said_of(kind("s3://me:pass@bucket/x: gone. Restore it"))
    assert status >= 400 and words["title"] and words["text"].endswith("Restore it")
    assert "pass" not in words["text"]


def test_the_nearest_kind_is_said() -> None:
    """A newer format would be called damaged, and a store that is away too."""
    kinds = [said_of(one("x"))[1]["kind"] for one in (NewerFormat, CorruptCheckpoint, StorageError)]
    assert kinds == ["newer", "corrupt", "away"]


def test_a_long_error_is_cut() -> None:
    """The list of ten thousand kept ids would fill the page."""
    assert len(said_of(CorruptCheckpoint("x" * 10_000))[1]["text"]) < 3_000


def test_places_hide_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password in a URL would stand in the page."""
    monkeypatch.setenv("MY_SECRET_KEY", "hunter2hunter2")
    shown = place_text("s3://me:pass@host/bucket?Signature=abc/hunter2hunter2")
    assert "pass" not in shown and "abc" not in shown and "hunter2" not in shown


@pytest.mark.parametrize(
    "value, text",
    [(None, None), ("<b>", "<b>"), (2**63 - 1, "9223372036854775807"), (True, "true"), (0.1, "0.1"), ("", "")]
    + [(Decimal("1.10"), "1.10"), (b"\xff<", "\\xff<"), ([1, None], "[1,null]"), (float("nan"), "nan")]
    + [(datetime.datetime(2024, 5, 6, 10, tzinfo=datetime.UTC), "2024-05-06 10:00:00Z")],
)
def test_a_cell_is_exact_text(value: object, text: str | None) -> None:
    """A value would be rounded, or null taken for text."""
    found = cell(value)
    assert found == text or (found or "").replace(" ", "") == text


def test_a_table_with_its_columns() -> None:
    """A picture would be drawn of a number."""
    table = pa.table({"a": [1], "b": [["x"]], "c": ["<"], "d": [{"p": 1}]})
    assert [one["kind"] for one in columns_of(table.schema)] == ["number", "list", "text", "struct"]
    assert cells(table)[0][0] == "1" and cells(table)[0][2] == "<"


def test_a_huge_value_is_cut() -> None:
    """One cell would be a page of megabytes."""
    assert len(cell("x" * 1_000_000) or "") < 30_000
