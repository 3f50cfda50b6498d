"""What a path stands for, on a local disk and through fsspec."""

from __future__ import annotations

import pickle

import fsspec
import pytest

from persistent.errors import InvalidPipeline, SourceChanged
from persistent.sources import FileSource
from persistent.sources.listing import Files
from tests.sources.draining import drain


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
