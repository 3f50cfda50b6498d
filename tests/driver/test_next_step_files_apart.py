"""A file that two sources of a job list is refused before both have read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import FileSource, MemorySource, NonWindowState, PersistentTask, Pipeline
from persistent.checkpoint.log import Log
from persistent.errors import InvalidPipeline


class Total(PersistentTask):
    """Counts all records."""

    key = None

    def persistent_state(self) -> Any:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"ts": 1, "name": name}) + "\n")


def job(folder: Path, *paths: Path | str, **options: Any) -> Pipeline:
    sources = {
        f"s{number}": FileSource(path, timestamp="ts", timestamp_unit="ms", schema={"ts": "int64", "name": "string"})
        for number, path in enumerate(paths)
    }
    return Pipeline(source=sources, task=Total(), checkpoint=f"{folder}/checkpoint", **options)


def run(made: Pipeline) -> int:
    made.run(engine="embedded")
    return int(made.state()["value"][0].as_py())


def test_patterns_that_match_the_same_file_are_refused(tmp_path: Path) -> None:
    """Its records would count twice, and nobody would see it."""
    put(tmp_path, "x/a.jsonl", "x/b.jsonl")
    made = job(tmp_path, tmp_path / "x/*.jsonl", tmp_path / "x/a*.jsonl")
    says = r"'s0' and 's1' both read /.*/x/a\.jsonl: records that both read would count twice\. Narrow .*x/\*.*x/a\*"
    with pytest.raises(InvalidPipeline, match=says):
        made.run(engine="embedded")
    assert Log(made.storage).newest() is None
    put(tmp_path, "x/a2.jsonl")
    with pytest.raises(InvalidPipeline, match=r"both read /.*/x/a.*\.jsonl and 1 more files: records that"):
        made.run(engine="embedded")
    assert run(job(tmp_path, tmp_path / "x/b*.jsonl", tmp_path / "x/a*.jsonl")) == 3


@pytest.mark.parametrize("other", ["x", "x/**", "link/*.jsonl", "file:{}/x/*.jsonl", "x/../x/b.jsonl", "./x/b.jsonl"])
def test_however_the_path_is_written(tmp_path: Path, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder, a URL, a link to the folder: it is the same file."""
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "x/a.jsonl", "x/b.jsonl")
    (tmp_path / "link").symlink_to(tmp_path / "x")
    with pytest.raises(InvalidPipeline, match=r"both read .*/x/b\.jsonl"):
        job(tmp_path, tmp_path / "x/b*", other.format(tmp_path)).run(engine="embedded")


def test_a_file_that_comes_later_is_refused_before_the_second_reads_it(tmp_path: Path) -> None:
    """A plan that lists nothing new says nothing of a file that another source listed before."""
    put(tmp_path, "x/a.jsonl", "x/b.jsonl")
    paths = tmp_path / "x/a*.jsonl", tmp_path / "x/b*.jsonl"
    assert run(job(tmp_path, *paths)) == 2
    newest = Log(job(tmp_path, *paths).storage).newest()
    wider = tmp_path / "x/*.jsonl"
    with pytest.raises(InvalidPipeline, match=r"both read .*/x/a\.jsonl"):
        job(tmp_path, paths[0], wider).run(engine="embedded")
    # Nor does the pattern of the first any longer.
    with pytest.raises(InvalidPipeline, match=r"both read .*/x/a\.jsonl"):
        job(tmp_path, tmp_path / "x/c*.jsonl", wider).run(engine="embedded")
    assert Log(job(tmp_path, *paths).storage).newest() == newest
    put(tmp_path, "x/ab.jsonl")
    with pytest.raises(InvalidPipeline, match=r"both read .*/x/ab\.jsonl"):
        job(tmp_path, paths[0], tmp_path / "x/*b.jsonl").run(engine="embedded")
    assert run(job(tmp_path, *paths)) == 3


def test_a_root_that_went_up_is_followed(tmp_path: Path) -> None:
    """What was listed below another folder is still the same file."""
    put(tmp_path, "d/x/a.jsonl", "d/y/b.jsonl")
    assert run(job(tmp_path, tmp_path / "d/x/*.jsonl", tmp_path / "d/y/*.jsonl")) == 2
    put(tmp_path, "d/z/c.jsonl")
    assert run(job(tmp_path, tmp_path / "d/x/*.jsonl", tmp_path / "d/y/*.jsonl")) == 2
    with pytest.raises(InvalidPipeline, match=r"both read .*/d/(x/a|y/b)\.jsonl"):
        job(tmp_path, tmp_path / "d/*/*.jsonl", tmp_path / "d/y/*.jsonl").run(engine="embedded")


def test_equal_names_and_bytes_in_two_folders_are_two_files(tmp_path: Path) -> None:
    """Two shops may have sold the same: what is counted twice is a place, not a content."""
    put(tmp_path, "x/a.jsonl", "y/a.jsonl")
    (tmp_path / "y/a.jsonl").write_bytes((tmp_path / "x/a.jsonl").read_bytes())
    assert run(job(tmp_path, tmp_path / "x", tmp_path / "y")) == 2


def test_beside_a_source_of_another_kind(tmp_path: Path) -> None:
    """Which lists no files, and has none in common."""
    put(tmp_path, "x/a.jsonl")
    files = FileSource(tmp_path / "x", timestamp="ts", timestamp_unit="ms")
    memory = MemorySource([{"ts": 1, "name": "m"}])
    made = Pipeline(source={"files": files, "memory": memory}, task=Total(), checkpoint=f"{tmp_path}/checkpoint")
    assert run(made) == 2
