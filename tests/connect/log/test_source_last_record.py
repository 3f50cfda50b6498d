"""The last record that was read of a log is recognised, whatever became of the log since."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from persistent import SegmentedLog
from persistent.connect.log.source import LastRecord
from persistent.errors import SourceChanged


def filled(folder: Path, *records: bytes) -> SegmentedLog:
    log = SegmentedLog(folder)
    with log.writer() as writer:
        for record in records:
            writer.append(record)
    return log


def last(folder: Path) -> LastRecord:
    """Of a new process."""
    return LastRecord("the source", SegmentedLog(folder), "Restore it")


def test_the_same_record_under_a_number_is_no_fault(tmp_path: Path) -> None:
    """A job would end that has nothing to fear, as when its log goes on, or is cut off behind it."""
    log = filled(tmp_path / "log", b"one", b"two")
    recorded = last(tmp_path / "log").recorded({}, 2)
    filled(tmp_path / "log", b"three")
    last(tmp_path / "log").require_same(recorded, 2)
    assert last(tmp_path / "log").recorded(recorded, 2) == {}, "it is recorded once"
    log.truncate(log.position_of(3))
    last(tmp_path / "log").require_same(recorded, 2)
    assert last(tmp_path / "log").recorded({}, 0) == {}


def test_another_record_under_the_same_number_is_refused(tmp_path: Path) -> None:
    """What an older copy lacks was replaced by other records, which would count as read."""
    filled(tmp_path / "log", b"one")
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    filled(tmp_path / "log", b"two")
    recorded = last(tmp_path / "log").recorded({}, 2)
    filled(tmp_path / "copy", b"other")
    one = last(tmp_path / "copy")
    for _ in range(2):
        with pytest.raises(SourceChanged, match=r"the source: record 1 is no longer the one.*Restore it"):
            one.require_same(recorded, 2)
    one.require_same(recorded, 1)
