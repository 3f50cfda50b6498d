"""What a path stands for, on a local disk and through fsspec."""

from __future__ import annotations

import os
import pickle

import fsspec
import pytest

from persistent.errors import InvalidPipeline, SourceChanged, SourceError
from persistent.sources import FileSource
from persistent.sources.files import Files
from persistent.sources.walk import Listed
from tests.sources.draining import drain

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


def test_a_name_that_is_no_text_is_told(tmp_path):
    """An error about encodings, without the file, would end every run."""
    (tmp_path / "a.jsonl").write_text('{"ts":"2024-01-01"}\n')
    folder = os.fsencode(tmp_path) + b"/day\xff"
    os.mkdir(folder)
    for name in (b"b.jsonl", b"_c\xff.jsonl"):
        with open(folder + b"/" + name, "w") as file:
            file.write('{"ts":"2024-01-01"}\n')
    for on_bad_file in ("raise", "dead-letter"):
        with pytest.raises(SourceError, match=r"b'day.xff/b\.jsonl'.*no UTF-8.*Rename it"):
            drain(FileSource(tmp_path, timestamp="ts", on_bad_file=on_bad_file))
    assert len(drain(FileSource(tmp_path / "*.jsonl", timestamp="ts")).rows) == 1
    with pytest.raises(InvalidPipeline, match=r"day.xff'.*no UTF-8"):
        FileSource(os.fsdecode(folder), timestamp="ts")


def test_a_link_to_itself_is_passed_over(tmp_path):
    """It would cost every run a minute of tries, and then the run."""
    (tmp_path / "a.jsonl").write_text('{"ts":"2024-01-01"}\n')
    for name in ("loop", "loop.jsonl"):
        (tmp_path / name).symlink_to(name)
    assert [one.path for one in Files(tmp_path).list()] == ["a.jsonl"]


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


@pytest.mark.parametrize("pattern", CASES)
def test_a_path_stands_for_the_same_files_everywhere(root, pattern):
    """Without it a job would read other files on another store, or half-written ones."""
    files = Files(root + pattern)
    assert files.list() == [Listed(path, 20) for path in sorted(CASES[pattern])]
    for listed in files.list():
        assert files.where(listed.path).endswith(listed.path)
        assert files.open(listed.path).read() == b'{"ts":"2024-01-01"}\n'


def test_edges_see_a_file_that_grew_or_shrank(root):
    """Without it a file that is still being written would be read in two states."""
    files = Files(root)
    assert files.edges("a.jsonl", 20) == (b'{"ts":"2024-01-01"}\n',) * 2
    for size in (19, 21):
        with pytest.raises(SourceChanged, match=f"it had {size} bytes"):
            files.edges("a.jsonl", size)


def test_edges_of_a_large_file(tmp_path):
    """Without it a change in the middle of small files, or at the end of large ones, could pass unseen."""
    data = bytes(range(256)) * 1_000
    for base in (str(tmp_path), f"memory:/{tmp_path}"):
        fsspec.filesystem("memory").pipe_file(f"memory:/{tmp_path}/x", data)
        (tmp_path / "x").write_bytes(data)
        assert Files(base).edges("x", len(data)) == (data[: 1 << 16], data[-(1 << 16) :])
        for size in (len(data) - 1, len(data) + 1):
            with pytest.raises(SourceChanged):
                Files(base).edges("x", size)


def test_a_source_on_fsspec_is_read_in_steps(root):
    """Without it FileSource would work on local disks only."""
    drained = drain(FileSource(root + "/b*/**/*.jsonl", timestamp="ts"), 2, True, 2)
    assert drained.steps == [2, 1] and {row[2] for row in drained.rows} == {1_704_067_200_000}


def test_a_pickle_holds_no_connection(root):
    """Without it a worker would inherit a connection, or a secret would be written down."""
    files = Files(root)
    listed = files.list()
    again = pickle.loads(pickle.dumps(files))
    assert again._system is None and again.list() == listed


def test_an_unknown_protocol_is_refused():
    """Without it the error would be fsspec's, without the path."""
    with pytest.raises(InvalidPipeline, match="nothing://x"):
        Files("nothing://x").list()
