"""A mutant of the sources is their code with one rule of reading taken out of it, as it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from persistent.connect.files import reader
from persistent.connect.formats import lines, parquet

Patch = tuple[tuple[Any, str, Any], ...]


def _nothing(*arguments: Any, **options: Any) -> None:
    return None


def _asked_once(self: Any, call: Any) -> Any:
    return call()


def _as_found(file: Any, attempt: Any) -> Any:
    return attempt(file)


def _whole_groups(file: Any, groups: Any, bounds: Any, start: int, stop: int, schema: Any) -> Any:
    return _ONE_BY_ONE(file, groups, bounds, 0, 1 << 62, schema)


_ONE_BY_ONE = parquet._one_by_one

MUTANTS: Mapping[str, tuple[Patch, str, str]] = {
    "what fails while a file is decoded is the fault of the file": (
        ((reader.Request, "__call__", _asked_once), (reader.Reader, "require_sound", _nothing)),
        "jsonl.gz",
        "reset",
    ),
    "a break in compressed data is believed at once": (((lines, "_confirm_break", _nothing),), "jsonl.gz", "wrong"),
    "after a failed read a step has whole row groups": (((parquet, "_one_by_one", _whole_groups),), "parquet", "wrong"),
    "a row group is found bad by one reading": (((parquet, "attempted", _as_found),), "parquet", "wrong"),
}
"""What is taken out, the format that shows it, and the fault that does."""


@contextmanager
def mutated(patch: Patch) -> Iterator[None]:
    """While inside, the code is without that rule."""
    with ExitStack() as stack:
        for where, what, instead in patch:
            assert hasattr(where, what), f"{where} has no {what} any more"
            stack.enter_context(mock.patch.object(where, what, instead))
        yield
