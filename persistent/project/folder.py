"""A project is written into a folder, in which nothing is replaced; what cannot run is not written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from persistent.driver.destinations import check_columns, check_not_read_back
from persistent.errors import InvalidPipeline, PersistentError
from persistent.pipeline import Pipeline
from persistent.text.shell import shell_word


def write(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Write the files, and return their paths. InvalidPipeline if one of them exists, or the task is no pipeline:
    nothing is written then."""
    paths = [folder / name for name in files]
    there = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if there:
        raise InvalidPipeline(
            f"{', '.join(there)}: there already, and nothing is replaced: name a new folder, as in "
            f"'persistent init {shell_word(str(folder / 'totals'))}'"
        )
    _check_runs(files["task.py"], folder)
    _make(folder)
    for path, text in zip(paths, files.values()):
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    return paths


def _check_runs(task: str, folder: Path) -> None:
    """InvalidPipeline unless the task makes a pipeline whose results its sink can hold and no source reads."""
    module = ModuleType("task")
    module.__file__ = str(folder / "task.py")
    try:
        exec(compile(task, module.__file__, "exec"), module.__dict__)
    except PersistentError:
        raise
    except Exception as error:
        raise InvalidPipeline(
            f"{module.__file__}: these answers make no pipeline ({type(error).__name__}: {error}): give others"
        ) from error
    pipeline = module.__dict__["pipeline"]
    assert isinstance(pipeline, Pipeline)
    check_not_read_back(pipeline.sources, pipeline.all_sinks, pipeline.storage)
    check_columns(pipeline.job())


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidPipeline(f"{folder}: cannot be made ({error.strerror}): name another folder") from error
