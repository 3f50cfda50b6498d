"""The calls of the operating system mean what those of ``os`` mean."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from persistent.storage.local import OsDisk

FILES = OsDisk()


def test_a_file_is_opened_written_synced_and_closed(tmp_path: Path) -> None:
    """Descriptors would run out after a thousand steps, or bytes be missing."""
    path = str(tmp_path / "run")
    descriptor = FILES.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    assert FILES.write(descriptor, memoryview(b"data")) == 4
    FILES.fsync(descriptor)
    FILES.close(descriptor)
    for call in (os.fstat, FILES.fsync):
        with pytest.raises(OSError, match="descriptor"):
            call(descriptor)
    assert Path(path).read_bytes() == b"data"


def test_modes_are_those_of_os(tmp_path: Path) -> None:
    """State would be readable by others; or a simulated disk would say other things than this one."""
    before = os.umask(0)
    try:
        for number, mode in enumerate(((), (0o640,))):
            FILES.close(FILES.open(str(tmp_path / f"{number}"), os.O_WRONLY | os.O_CREAT, *mode))
        FILES.mkdir(str(tmp_path / "folder"), 0o750)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("0", "1", "folder")]
    assert modes == [0o777, 0o640, 0o750]


@pytest.mark.parametrize("data", [b"", b"x", b"0123456789" * 1000])
def test_a_file_is_read_whole(tmp_path: Path, data: bytes) -> None:
    """A map of nothing is refused by the system: an empty file could not be read."""
    (tmp_path / "run").write_bytes(data)
    assert FILES.read(str(tmp_path / "run")).to_pybytes() == data


def test_what_is_there_is_told(tmp_path: Path) -> None:
    """A file would be taken for a folder, a link to nothing for a free name, another file for the same."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    at = {name: str(tmp_path / name) for name in ("folder", "file", "dangling", "none", "file/none", "linked")}
    assert FILES.file_names(str(tmp_path)) == ["file"]
    assert FILES.is_folder(at["folder"]) is True
    assert [FILES.is_folder(at[name]) for name in ("file", "none", "file/none")] == [False] * 3
    assert [FILES.exists(at[name]) for name in ("file", "dangling", "none")] == [True, True, False]
    assert [FILES.access(at[name], os.R_OK) for name in ("file", "none")] == [True, False]
    FILES.link(at["file"], at["linked"])
    assert FILES.is_same(at["file"], at["linked"]) is True
    assert FILES.is_same(at["file"], at["folder"]) is False
    FILES.unlink(at["file"])
    assert FILES.exists(at["file"]) is False


def test_a_folder_that_cannot_be_told_is_an_error(tmp_path: Path) -> None:
    """A failing disk would look like a folder that is not there, and be written over."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(OSError) as caught:
        FILES.is_folder(str(tmp_path / "loop"))
    assert caught.value.errno == errno.ELOOP
