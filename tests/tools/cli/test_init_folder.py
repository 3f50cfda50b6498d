"""A project replaces nothing, and what cannot run is not written."""

from __future__ import annotations

from pathlib import Path

import pytest

from persistent import InvalidPipeline
from persistent.tools.cli.init import write
from persistent.tools.project import Field, files_of
from tests.tools.project.made import answers, write_rows
from tests.visits import says


@pytest.mark.parametrize("name", ["task.py", "test_task.py", "README.md", "events.csv"])
@pytest.mark.parametrize("kind", ["file", "folder", "broken link"])
def test_nothing_is_replaced(name: str, kind: str, tmp_path: Path) -> None:
    """Without it a second 'persistent init' would take what its user has written since."""
    there = tmp_path / name
    if kind == "folder":
        there.mkdir()
    elif kind == "file":
        there.write_text("mine")
    else:
        there.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidPipeline) as error:
        write(tmp_path, files_of(answers(None, "hour", (), source="sample"), tmp_path))
    says(error, str(there), "nothing is replaced", "persistent init")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_project_inside_its_source_is_refused(tmp_path: Path) -> None:
    """Without it results would be read as input at the second run."""
    write_rows(tmp_path / "rows.csv")
    made = answers(Field("user", "str"), "hour", (), source=f"files:{tmp_path}")
    with pytest.raises(InvalidPipeline) as error:
        write(tmp_path / "totals", files_of(made, tmp_path / "totals"))
    says(error, str(tmp_path), "checkpoint")
    assert not (tmp_path / "totals").exists()


def test_a_key_that_is_a_column_of_the_results_is_refused(tmp_path: Path) -> None:
    """Without it the project would be written, and not load."""
    made = answers(Field("window_start", "str"), "hour", (), source="sample")
    with pytest.raises(InvalidPipeline, match="two columns named 'window_start'"):
        write(tmp_path, files_of(made, tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Without it a file in the way would be a traceback."""
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidPipeline, match="cannot be made"):
        write(tmp_path / "file" / "totals", files_of(answers(None, "hour", (), source="sample"), tmp_path))
