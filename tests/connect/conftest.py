"""Folders of files on every kind of store."""

from __future__ import annotations

import fsspec
import pytest

PATHS = [
    "a.jsonl",
    "b/c.jsonl",
    "b/d/e.jsonl",
    "b/d/f.csv",
    "b2/c.jsonl",
    "day=1/x.jsonl",
    "_SUCCESS",
    ".hidden",
    "b/_staged/x.jsonl",
    "b/.git/x.jsonl",
    "b/growing.jsonl.tmp",
    "é ß.jsonl",
]


@pytest.fixture(params=["local", "file", "memory"])
def root(request, tmp_path):
    """A folder with all of ``PATHS``, and its URL in three spellings."""
    if request.param == "memory":
        base, system = f"memory:/{tmp_path}", fsspec.filesystem("memory")
    else:
        base, system = str(tmp_path), fsspec.filesystem("file")
    for path in PATHS:
        system.pipe_file(f"{base}/{path}", b'{"ts":"2024-01-01"}\n') if request.param == "memory" else None
        if request.param != "memory":
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(b'{"ts":"2024-01-01"}\n')
    yield f"file://{base}" if request.param == "file" else base
    if request.param == "memory":
        system.rm(base, recursive=True)
