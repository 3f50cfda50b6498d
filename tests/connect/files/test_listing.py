"""What a path stands for, on a local disk and through fsspec."""

from __future__ import annotations

import pickle
from pathlib import Path

import fsspec
import pytest

from persistent.connect.files.listing import Files
from persistent.errors import InputGone, InvalidPipeline, SourceChanged
from persistent.sources import FileSource
from tests.connect.draining import drain


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


@pytest.mark.parametrize("path", ["views", "views/", "views/*.jsonl", "views/a.jsonl"])
def test_a_folder_that_is_away_is_not_an_empty_one(path: str, tmp_path: Path) -> None:
    """With the end of the input declared, every window would close, and what lies in the folder would be late."""
    folder = tmp_path / "views"
    folder.mkdir()
    (folder / "a.jsonl").write_text('{"ts": 1}\n')
    source = FileSource(f"{tmp_path}/{path}", timestamp="ts", timestamp_unit="ms")
    state = drain(source).state
    folder.rename(tmp_path / "away")
    assert drain(source, state=state, follow=True).rows == []
    with pytest.raises(InputGone, match=rf"^{folder}/: gone, .*is it mounted"):
        drain(source, state=state)
    folder.mkdir()
    assert drain(source, state=state).rows == []


def test_a_folder_of_a_store_exists_while_it_has_files() -> None:
    """Files that were read may be deleted, and on such a store their folder is gone with the last of them."""
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/listing-gone/a.jsonl", b'{"ts": 1}\n')
    source = FileSource("memory://listing-gone", timestamp="ts", timestamp_unit="ms")
    state = drain(source).state
    memory.rm("/listing-gone", recursive=True)
    assert drain(source, state=state).rows == []
