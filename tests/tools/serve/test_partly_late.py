"""Partly late records are counted from the files of late rows: each file once, and those taken back not at all."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from persistent import operations
from persistent.checkpoint.output_parts import Aside
from persistent.names import Staged
from persistent.tools.serve import partly_late as module
from persistent.tools.serve.partly_late import PartlyLate
from tests.tools.serve.jobs import several


def test_each_state_says_what_it_misses() -> None:
    """Totals take all, so the account has nothing late; living keys and windows both refuse the record."""
    shown = several("partly", "minutes", "total", "living")
    found = shown.partly_late()
    assert (found.records(), found.missing()) == (1, {"minutes": 1, "living": 1})
    assert (found.unread, found.damaged, found.inherited) == (0, 0, False)
    ((id, _),) = found.by_id
    assert (found.records(id), found.records(id - 1)) == (0, 1)


def test_what_a_rollback_takes_back_does_not_count() -> None:
    """The page would count a record again that is read again."""
    shown = several("partly-back", "minutes", "total")
    ((id, _),) = shown.partly_late().by_id
    newest = operations.rollback(shown.storage, id - 1, outputs="retract").manifest
    assert PartlyLate(shown.storage).count(newest).records() == 0


def test_files_are_read_once_and_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job with many files would make each answer wait for all of them."""
    shown = several("partly-slow", "minutes", "total")
    newest, storage = shown.look().newest.manifest, shown.storage
    (name,) = storage.list("late")
    again = name.replace("-", "-0", 1)
    storage.write(f"late/{again}", storage.read(f"late/{name}").to_pybytes())
    monkeypatch.setattr(module, "_BUDGET_S", -1.0)
    counts = PartlyLate(storage)
    assert [(found.records(), found.unread) for found in (counts.count(newest), counts.count(newest))] == [
        (1, 1),
        (2, 0),
    ]
    storage.delete(f"late/{name}")
    assert counts.count(newest).records() == 2


def test_a_damaged_file_is_said() -> None:
    """One damaged file would hide the whole job, or count as nothing."""
    shown = several("partly-damaged", "minutes", "total")
    (name,) = shown.storage.list("late")
    shown.storage.delete(f"late/{name}")
    shown.storage.write(f"late/{name}", b"damaged")
    found = shown.partly_late()
    assert (found.records(), found.damaged) == (0, 1)


def test_what_waits_to_be_published_counts() -> None:
    """A driver killed between its commit and the publication would show a step without its late records."""
    shown = several("partly-owed", "minutes", "total")
    newest = shown.look().newest.manifest
    (name,) = shown.storage.list("late")
    id, nonce = int(name[:20]), name[21:].removesuffix(".arrow")
    staged = f"late/e1-c{id}-{nonce}.arrow"
    shown.storage.rename(f"late/{name}", staged)
    assert PartlyLate(shown.storage).count(replace(newest, aside=())).records() == 0
    waits = Aside(id, (Staged(staged, 1, ""),))
    assert PartlyLate(shown.storage).count(replace(newest, aside=(waits,))).records() == 1


def test_a_copy_says_that_it_lacks_files() -> None:
    """A savepoint has the account of its job, and none of its late rows."""
    shown = several("partly-copied", "minutes", "total")
    assert PartlyLate(shown.storage).count(replace(shown.look().newest.manifest, kind="savepoint")).inherited
