"""A pattern stands for the same files on every store."""

from __future__ import annotations

import pytest

from persistent.connect.files.listing import Files
from persistent.connect.files.walk import Listed

CASES = {
    "": ["a.jsonl", "b/c.jsonl", "b/d/e.jsonl", "b/d/f.csv", "b2/c.jsonl", "day=1/x.jsonl", "é ß.jsonl"],
    "/": ["a.jsonl", "b/c.jsonl", "b/d/e.jsonl", "b/d/f.csv", "b2/c.jsonl", "day=1/x.jsonl", "é ß.jsonl"],
    "/a.jsonl": ["a.jsonl"],
    "/*.jsonl": ["a.jsonl", "é ß.jsonl"],
    "/b": ["c.jsonl", "d/e.jsonl", "d/f.csv"],
    "/b/*": ["c.jsonl"],
    "/b/**": ["c.jsonl", "d/e.jsonl", "d/f.csv"],
    "/**/*.csv": ["b/d/f.csv"],
    "/**/c.jsonl": ["b/c.jsonl", "b2/c.jsonl"],
    "/b*/c.jsonl": ["b/c.jsonl", "b2/c.jsonl"],
    "/b?/": ["b2/c.jsonl"],
    "/day=*/*": ["day=1/x.jsonl"],
    "/none": [],
    "/none/*": [],
    "/_SUCCESS": [],
}


@pytest.mark.parametrize("pattern", CASES)
def test_a_path_stands_for_the_same_files_everywhere(root, pattern):
    """Without it a job would read other files on another store, or half-written ones."""
    files = Files(root + pattern)
    assert files.list() == [Listed(path, 20) for path in sorted(CASES[pattern])]
    for listed in files.list():
        assert files.where(listed.path).endswith(listed.path)
        assert files.open(listed.path).read() == b'{"ts":"2024-01-01"}\n'
