"""What is committed is published, whoever else writes, reads or takes over, or is told aloud to be impossible."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from monoids import Count
from persistent import (
    CorruptCheckpoint,
    FileSink,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    PersistentTask,
    Pipeline,
    SinkMismatch,
    StorageError,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.engines.embedded import Embedded
from persistent.operations import rollback
from persistent.storage import LocalStorage
from tests.faults import FaultyStorage, Killed, Operations

ROWS = [{"ts": time, "page": f"p{time % 3}"} for time in range(1, 40)]


class Visits(PersistentTask):
    """Counts."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


def pipeline(checkpoint: Any, sink: Any, rows: Sequence[dict[str, Any]] = ROWS) -> Pipeline:
    source = MemorySource(rows, timestamp="ts", ordered=True)
    return Pipeline(source=source, task=Visits(), sink=sink, checkpoint=checkpoint, step_rows=15)


def run(pipeline: Pipeline) -> None:
    pipeline.run(engine=Embedded(threads=1), end_of_input=True)


def die_between_commit_and_publish(folder: Path, sink: Callable[[], Any]) -> LocalStorage:
    """A checkpoint whose newest manifest lists windows that its driver did not live to publish."""
    operations = Operations()
    run(pipeline(FaultyStorage(LocalStorage(folder / "calm"), operations), FileSink(folder / "calm-results")))
    commits = [n for n, (verb, _, name) in enumerate(operations.log) if verb == "put_if_absent" and name[:2] == "m/"]
    storage = LocalStorage(folder / "checkpoint")
    with pytest.raises(Killed):
        run(pipeline(FaultyStorage(storage, Operations(commits[-1], "after")), sink()))
    return storage


def results(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=str)


def test_a_second_job_does_not_touch_what_the_first_has_staged(tmp_path: Path) -> None:
    """Its sweep would delete outputs that the first has committed, and the first could never run again."""

    def sink() -> FileSink:
        return FileSink(tmp_path / "results", format="jsonl")

    storage = die_between_commit_and_publish(tmp_path, sink)
    before = sorted(tmp_path.joinpath("results").rglob("*"))
    for _ in range(2):
        with pytest.raises(SinkMismatch, match=r"Two jobs write here: give each its own folder.*new checkpoint"):
            run(pipeline(str(tmp_path / "other"), sink()))
    assert sorted(tmp_path.joinpath("results").rglob("*")) == before
    run(pipeline(storage, sink()))
    calm = FileSink(tmp_path / "all", format="jsonl")
    # Whom the folder refused goes on with a folder of its own.
    run(pipeline(str(tmp_path / "other"), calm))
    assert results(tmp_path / "results") == results(tmp_path / "all") != []


def test_a_memory_sink_too_is_of_one_job() -> None:
    """Rows of two jobs would stand in one table, and nobody could tell whose they are."""
    sink = MemorySink()
    run(pipeline("memory://publish-one", sink))
    seen = sink.rows()
    with pytest.raises(SinkMismatch, match=r"holds the results of job .* give each its own MemorySink"):
        run(pipeline("memory://publish-two", sink))
    assert sink.rows() == seen != []


def test_results_that_were_taken_away_do_not_stop_the_next_run(tmp_path: Path) -> None:
    """A consumer that moves the files it has read would end the pipeline for good."""
    sink, rows = FileSink(tmp_path / "results", format="jsonl"), list(ROWS)
    place = str(tmp_path / "checkpoint")
    run(pipeline(place, sink, rows))
    for more in ([], [{"ts": 55, "page": "new"}]):
        for path in (tmp_path / "results").glob("*.jsonl"):
            path.unlink()
        rows += more
        run(pipeline(place, sink, rows))
    assert [row["page"] for row in results(tmp_path / "results")] == ["new"]


def test_committed_outputs_are_not_dropped_for_want_of_a_sink(tmp_path: Path) -> None:
    """A run without the sink would go on past windows that were never shown, and say nothing."""

    def sink() -> FileSink:
        return FileSink(tmp_path / "results", format="jsonl")

    storage = die_between_commit_and_publish(tmp_path, sink)
    ids, more = storage.list("m"), [*ROWS, {"ts": 55, "page": "new"}]
    for rows in (ROWS, more):
        with pytest.raises(InvalidPipeline, match=r"a WindowState without sink="):
            pipeline(storage, None, rows)
        # As for a state without windows, which needs no sink, and had one.
        without = pipeline(storage, sink(), rows)
        without.sinks = {}
        with pytest.raises(InvalidPipeline, match=r"has outputs for a sink.*Run it with its old sink") as error:
            run(without)
        assert storage.url in str(error.value)
        assert storage.list("m") == ids, "refused, yet something was put"
    run(pipeline(storage, sink(), more))
    run(pipeline(str(tmp_path / "all"), FileSink(tmp_path / "all-results", format="jsonl"), more))
    assert results(tmp_path / "results") == results(tmp_path / "all-results")
    assert any(row["page"] == "new" for row in results(tmp_path / "results"))


class Elsewhere(MemorySink):
    """A sink of another name."""


def test_what_is_staged_for_one_sink_is_not_given_to_another(tmp_path: Path) -> None:
    """Those windows would be in none of the two, or end the run with an error that names nothing; and leave a fence at
    every try."""

    def sink() -> FileSink:
        return FileSink(tmp_path / "results", format="jsonl")

    storage = die_between_commit_and_publish(tmp_path, sink)
    ids, more = storage.list("m"), [*ROWS, {"ts": 55, "page": "new"}]
    for other in (MemorySink(), Elsewhere()):
        with pytest.raises(InvalidPipeline, match=r"has outputs for its old sink \('file'\).*start_from=") as told:
            run(pipeline(storage, other, more))
        assert storage.url in str(told.value)
        assert storage.list("m") == ids, "refused, yet something was put"
    run(pipeline(storage, sink(), ROWS))
    source = MemorySource(more, timestamp="ts", ordered=True)
    then = MemorySink()
    run(Pipeline(source=source, task=Visits(), sink=then, checkpoint=tmp_path / "then", start_from=storage.url))
    run(pipeline(str(tmp_path / "all"), FileSink(tmp_path / "all-results", format="jsonl"), ROWS))
    assert results(tmp_path / "results") == results(tmp_path / "all-results")
    assert [row["page"] for row in then.rows()] == ["new"]


def test_what_is_to_be_taken_back_is_not_asked_of_another_sink(tmp_path: Path) -> None:
    """That has nothing of it: the rows of the branch that is left would stay in the first for good."""
    storage, first = LocalStorage(tmp_path / "checkpoint"), MemorySink()
    run(pipeline(storage, first))
    rollback(storage, 0, outputs="retract")
    ids = storage.list("m")
    with pytest.raises(
        InvalidPipeline, match=r"take back later outputs from its old sink \('memory'\).*--outputs=again"
    ):
        run(pipeline(storage, Elsewhere()))
    assert storage.list("m") == ids
    run(pipeline(storage, first))
    alone = MemorySink()
    run(pipeline(LocalStorage(tmp_path / "alone"), alone))
    assert sorted(map(str, first.rows())) == sorted(map(str, alone.rows()))


def test_the_same_place_may_be_written_by_another_class(tmp_path: Path) -> None:
    """It knows what it has published, whatever the class is called: a renamed class must not end a job. Without names
    the class is the name, and the error says which it was."""

    class Renamed(FileSink):
        pass

    storage = die_between_commit_and_publish(tmp_path, lambda: FileSink(tmp_path / "results", format="jsonl"))
    with pytest.raises(
        InvalidPipeline, match=r"not under the name 'renamed': if it was 'file', .*sink=\{'file': \.\.\.\}"
    ):
        run(pipeline(storage, Renamed(tmp_path / "results", format="jsonl")))
    run(pipeline(storage, {"file": Renamed(tmp_path / "results", format="jsonl")}))
    run(pipeline(str(tmp_path / "all"), FileSink(tmp_path / "all-results", format="jsonl")))
    assert results(tmp_path / "results") == results(tmp_path / "all-results")


def test_a_sink_follows_another_that_has_shown_everything(tmp_path: Path) -> None:
    """What is known to be published binds nobody."""
    storage, first, then = LocalStorage(tmp_path / "checkpoint"), MemorySink(), Elsewhere()
    pipeline(storage, first, ROWS[:5]).run(engine=Embedded(threads=1))
    run(pipeline(storage, then))
    assert not first.rows() and then.rows()


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"\0" + data[1:]]
)
def test_a_staged_file_that_was_damaged_before_it_was_published_is_not_published(
    damage: Callable[[bytes], bytes], end: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its windows have left the state: the results would lack rows, and the run say that all is well."""

    def job(step_rows: int) -> Pipeline:
        source, sink = MemorySource(ROWS, timestamp="ts"), FileSink(tmp_path / "out", format="jsonl")
        return Pipeline(source=source, task=Visits(), sink=sink, checkpoint=tmp_path / "a job", step_rows=step_rows)

    def refuse(self: FileSink, staging_id: int, staged: Sequence[Any]) -> None:
        raise StorageError("no space")

    with monkeypatch.context() as full:
        full.setattr(FileSink, "publish", refuse)
        with pytest.raises(StorageError, match="no space"):
            job(39 if end else 15).run(engine="embedded", end_of_input=end)
    (left,) = (tmp_path / "out" / "_staged").iterdir()
    left.write_bytes(damage(left.read_bytes()))
    with pytest.raises(CorruptCheckpoint, match=rf"^{left}: its bytes are not those that were staged") as told:
        job(15).run(engine="embedded", end_of_input=end)
    assert f"'persistent rollback \"{tmp_path}/a job\" ID --outputs=retract'" in str(told.value)
    newest = Log(LocalStorage(tmp_path / "a job")).newest()
    assert newest is not None
    rollback(str(tmp_path / "a job"), newest.manifest.base - 1, outputs="retract")
    job(15).run(engine="embedded", end_of_input=True)
    found = [json.loads(line) for path in (tmp_path / "out").glob("*.jsonl") for line in path.open()]
    assert sum(row["value"] for row in found) == len(ROWS)
    assert len({(row["page"], row["window_start"]) for row in found}) == len(found) == 12
