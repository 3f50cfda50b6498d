"""A walk over folders ends, and tells what it cannot name."""

from __future__ import annotations

import os

import pytest

from persistent.connect.files.listing import Files
from persistent.errors import InvalidPipeline, SourceError
from persistent.sources import FileSource
from tests.connect.draining import drain


def test_a_name_that_is_no_text_is_told(tmp_path):
    """An error about encodings, without the file, would end every run."""
    (tmp_path / "a.jsonl").write_text('{"ts":"2024-01-01"}\n')
    folder = os.fsencode(tmp_path) + b"/day\xff"
    os.mkdir(folder)
    for name in (b"b.jsonl", b"_c\xff.jsonl"):
        with open(folder + b"/" + name, "w") as file:
            file.write('{"ts":"2024-01-01"}\n')
    for on_bad_file in ("raise", "dead-letter"):
        with pytest.raises(SourceError, match=r"b'day.xff/b\.jsonl'.*not UTF-8.*Rename it"):
            drain(FileSource(tmp_path, timestamp="ts", on_bad_file=on_bad_file))
    assert len(drain(FileSource(tmp_path / "*.jsonl", timestamp="ts")).rows) == 1
    with pytest.raises(InvalidPipeline, match=r"day.xff'.*not UTF-8"):
        FileSource(os.fsdecode(folder), timestamp="ts")


def test_a_link_to_itself_is_passed_over(tmp_path):
    """It would cost every run a minute of tries, and then the run."""
    (tmp_path / "a.jsonl").write_text('{"ts":"2024-01-01"}\n')
    for name in ("loop", "loop.jsonl"):
        (tmp_path / name).symlink_to(name)
    assert [one.path for one in Files(tmp_path).list()] == ["a.jsonl"]
