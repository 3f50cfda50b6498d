"""A sink is known by its name: each is the one that it was, or the run is refused before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from persistent import FileSink
from persistent.checkpoint.log import Log
from persistent.driver import publish
from persistent.errors import InvalidPipeline, SinkMismatch
from persistent.names import manifest_name
from persistent.operations import rollback, savepoint
from persistent.storage import MemoryStorage
from tests.connect.ledger import LedgerSink
from tests.driver.test_publish_and_commit_of_several_sinks import ROWS, Job, of, told

__all__ = ["told"]


def folders(job: Job, **names: str) -> dict[str, Any]:
    """File sinks in memory: the name of each, and that of its folder."""
    return {
        name: FileSink(MemoryStorage(f"{job.storage.url}-{folder}"), format="jsonl") for name, folder in names.items()
    }


def lines(sink: FileSink) -> list[str]:
    """The rows that count in a folder."""
    found = [bytes(sink.storage.read(name)).decode().splitlines() for name in sink.published()]
    return sorted(line for lines in found for line in lines)


def without_outputs(job: Job, sinks: Any) -> None:
    """One more step, after which no sink has anything to publish."""
    job.rows.append({**job.rows[-1]})
    job.run(sinks, end=False)
    assert not any(part.owed for part in job.newest.sinks.values())


def test_a_folder_that_was_left_out_does_not_come_back() -> None:
    """The windows that were published without it would be missing there for good, and nothing say so."""
    job = Job(ROWS[:25])
    both = folders(job, a="A", b="B")
    job.run(both, end=False)
    without_outputs(job, both)
    job.rows += ROWS[25:37]
    report = job.run({"a": both["a"]}, end=False)
    assert any("the sink 'b' is left out: it has the windows that closed up to" in note for note in report.notes)
    without_outputs(job, {"a": both["a"]})
    job.rows += ROWS[37:]
    before = job.storage.list("m")
    with pytest.raises(InvalidPipeline, match=r"not under the name 'b': it was left out meanwhile.* a new place"):
        job.run(both)
    with pytest.raises(InvalidPipeline, match=r"not under the name 'b': if it was 'a', .* it was left out meanwhile"):
        job.run({"b": both["b"]})
    with pytest.raises(SinkMismatch, match=r"but 'a' was given those of checkpoint \d+: .* Give 'a' the place that it"):
        job.run(folders(job, a="B"))
    assert job.storage.list("m") == before
    report = job.run(folders(job, a="A", b="C"))
    assert not any("left out" in note for note in report.notes)


def test_a_folder_keeps_its_name_so_that_a_rollback_finds_it() -> None:
    """Under a new name the rollback would ask for two sinks, of which there is one, and no run go on."""
    job = Job(ROWS[:25])
    job.run(folders(job, file="A"), end=False)
    to = job.newest.base
    job.rows += ROWS[25:]
    with pytest.raises(InvalidPipeline, match=r"not under the name 'archive': if it was 'file', give it that name"):
        job.run(folders(job, archive="A"), end=False)
    job.run(folders(job, file="A"), end=False)
    rollback(job.storage, to, outputs="retract")
    job.run(folders(job, file="A"))
    calm = Job()
    calm.run(folders(calm, file="A"))
    (shown_again,), (plain,) = folders(job, file="A").values(), folders(calm, file="A").values()
    assert lines(shown_again) == lines(plain) != []


def test_what_a_lost_checkpoint_gave_a_folder_is_taken_back_before_it_joins() -> None:
    """No manifest tells of its name any more, and it would be taken for one that was left out."""
    job = Job(ROWS[:25])
    job.run(folders(job, a="A"), end=False)
    known = job.newest
    job.rows += ROWS[25:]
    both = folders(job, a="A", b="B")
    job.run(both)
    assert lines(both["b"])
    for id in [id for id in Log(job.storage).ids() if id > known.id]:
        job.storage.delete(manifest_name(id))
    rollback(job.storage, known.id, outputs="retract", take_over=True)
    assert [*job.newest.sinks] == ["a"]
    job.run(both)
    calm = Job()
    plain = folders(calm, a="A")["a"]
    calm.run(plain)
    assert lines(both["a"]) == lines(plain) and set(lines(both["b"])) < set(lines(plain))


def test_a_sink_of_the_job_before_is_asked_for_by_its_name(told: list[str]) -> None:
    """The place is taken over by name; else the error says to start from a savepoint, which is what was done."""
    first = Job(ROWS[:25])
    first.run(LedgerSink(first.x), end=False)
    saved = savepoint(first.storage, "s")
    job = Job()
    with pytest.raises(
        InvalidPipeline, match=r"started from, where it was called 'ledger'; .* sink=\{'ledger': \.\.\.\}"
    ):
        job.run({"table": LedgerSink(first.x), "more": LedgerSink(job.y)}, start_from=saved)
    job.run({"ledger": LedgerSink(first.x), "more": LedgerSink(job.y)}, start_from=saved)
    assert of(first.x.rows()) == told


def test_a_job_takes_over_one_of_the_places_of_its_origin() -> None:
    """What another sink of the origin had is no reason to refuse the one that keeps its name."""
    first = Job(ROWS[:25])
    first.run(end=False)
    saved = savepoint(first.storage, "s")
    job = Job()
    job.run({"x": LedgerSink(first.x)}, start_from=saved)
    whole = Job()
    whole.run()
    assert of(first.x.rows()) == of(whole.x.rows())


def test_a_folder_is_missed_behind_a_sink_that_has_none() -> None:
    """The first sink cannot tell what it has; the place of the second would be taken for its own."""
    job = Job(ROWS[:25])
    sinks = {"a": LedgerSink(job.x), **folders(job, b="B")}
    job.run(sinks, end=False)
    without_outputs(job, sinks)
    last = job.newest.sinks["b"].last
    assert last is not None
    checked = job.pipeline(sinks).job(), Log(job.storage), job.newest
    publish.check_has_last(*checked, {"a": -1, "b": last})
    with pytest.raises(SinkMismatch, match="but 'b' was given those of checkpoint"):
        publish.check_has_last(*checked, {"a": -1, "b": last - 1})
    with pytest.raises(SinkMismatch, match="has no outputs of this job, but 'b' was given"):
        publish.check_has_last(*checked, {"a": -1, "b": -1})
