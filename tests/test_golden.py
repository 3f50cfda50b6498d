"""Checkpoints that releases have written are read for ever; what a newer release writes is refused by name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from monoids import Count, Max, Sum, record
from persistent import FileSink, NewerFormat, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import KINDS
from persistent.codec.documents import FIRST_FORMAT, FORMAT
from persistent.driver.evolution import Evolution
from persistent.errors import Refused
from persistent.storage import LocalStorage
from persistent.tools.cli import main
from persistent.verify import verify, verify_sinks
from tests.checkpoint.samples import body_of, document
from tests.golden.make import GOLDEN, TASKS, Visits, pipeline, shown, write_input
from tests.operations.conftest import _quiet, folder

__all__ = ["_quiet", "folder"]

MORE = '{"ts": 200000, "page": "a", "country": "de", "n": 7}\n'


FORMATS = range(FIRST_FORMAT, FORMAT + 1)


@pytest.fixture(params=FORMATS, ids="format-{}".format)
def place(request: pytest.FixtureRequest, folder: Path) -> Path:
    """A copy of the golden checkpoints of a format."""
    copy = folder / f"format-{request.param}"
    shutil.copytree(GOLDEN / copy.name, copy)
    return copy


@pytest.fixture(params=TASKS, ids=lambda task: task.__name__)
def job(request: pytest.FixtureRequest, place: Path) -> Pipeline:
    return pipeline(request.param(), place)


def name_of(job: Pipeline) -> str:
    return type(job.task).__name__.lower()


def all_files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def published(job: Pipeline) -> list[str]:
    assert isinstance(job.sink, FileSink)
    lines = [line for path in Path(job.sink.url).glob("*.jsonl") for line in path.read_text().splitlines()]
    return sorted(json.dumps({**json.loads(line), "revision": 0}, sort_keys=True) for line in lines)


def test_each_format_has_its_golden_checkpoints() -> None:
    """A format without one would be read only as long as nobody changes the reader."""
    assert sorted(path.name for path in GOLDEN.glob("format-*")) == [f"format-{number}" for number in FORMATS]


def test_the_newest_golden_checkpoints_hold_what_is_new() -> None:
    """Made by a run alone they would not tell whether a rollback, a pin or a compaction of then is still read."""
    logs = [Log(LocalStorage(str(GOLDEN / f"format-{FORMAT}" / name))) for name in ("visits", "totals")]
    found = [log.read(id).manifest for log in logs for id in log.ids()]
    assert {one.kind for one in found} >= {"checkpoint", "fence", "rollback", "compaction"} <= set(KINDS)
    assert any(one.pins for one in found)


def test_a_golden_checkpoint_is_read(job: Pipeline, place: Path) -> None:
    """An operator looks at a job of years ago with the command line of today, and sees what there was; and no more
    happens than that."""
    before, url = all_files(place), job.storage.url
    expected = json.loads((place / f"{name_of(job)}.json").read_text())
    assert shown(job.state().to_pylist()) == expected
    first = GOLDEN / f"format-{FIRST_FORMAT}" / f"{name_of(job)}.json"
    assert expected == json.loads(first.read_text()), "the same input"
    assert len(job.dead_letters()) == 1
    found = verify(job.storage)
    assert found.ok and not found.findings
    looked = verify_sinks(job)
    assert {one.severity for one in looked.findings} <= {"note"} and looked.parts.keys() == {"sink file"}
    ids = Log(job.storage).ids()
    listed = CliRunner().invoke(main, ["history", url, "--json"])
    assert listed.exit_code == 0 and [json.loads(line)["id"] for line in listed.stdout.splitlines()] == ids
    for id in ids:
        one = CliRunner().invoke(main, ["show", url, str(id)])
        assert one.exit_code == 0 and f"{id}, of epoch" in one.stdout, one.output
    assert CliRunner().invoke(main, ["verify", url]).exit_code == 0
    assert all_files(place) == before


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_the_newest_format_goes_on(task: Callable[[], PersistentTask], folder: Path) -> None:
    """A checkpoint of this format that an earlier build has written holds no less than one of today."""
    shutil.copytree(GOLDEN / f"format-{FORMAT}", folder / "golden")
    shutil.copytree(folder / "golden" / "input", folder / "fresh" / "input")
    jobs = [pipeline(task(), folder / where) for where in ("golden", "fresh")]
    for job, where in zip(jobs, ("golden", "fresh"), strict=True):
        (folder / where / "input" / "3.jsonl").write_text(MORE)
        job.run(engine="embedded", end_of_input=True)
        assert not verify(job.storage).findings
        looked = verify_sinks(job)
        assert not looked.findings and looked.parts["sink file"].checked
    old, anew = jobs
    assert shown(old.state().to_pylist()) == shown(anew.state().to_pylist())
    assert published(old) == published(anew) and published(old)
    ledgers = [Log(job.storage).newest().manifest.accounts for job in jobs]  # type: ignore[union-attr]
    assert ledgers[0] == ledgers[1]


class MoreVisits(Visits):
    """Visits as the next release of the task has them."""

    name = "Visits"

    def persistent_state(self) -> WindowState:
        return WindowState(record(largest=Max(), sum=Sum(), visits=Count()), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "sum": message.value["n"], "largest": message.value["n"]})


def test_a_task_changes_over_each_format(place: Path) -> None:
    """Years later the format and the task have both changed: what was written then becomes what is wanted now."""
    before = shown(pipeline(Visits(), place).state().to_pylist())
    (place / "out" / "visits").rename(place / "out" / "morevisits")
    (place / "visits").rename(place / "morevisits")
    job = pipeline(MoreVisits(), place, evolve=Evolution(renamed={"total": "sum"}))
    job.run(engine="embedded")
    after = shown(job.state().to_pylist())
    assert after == [
        {**{name: row[name] for name in row if name != "total"}, "sum": row["total"], "largest": None} for row in before
    ]
    assert verify(job.storage).ok


def altered(path: Path, **fields: Any) -> None:
    """The document with other fields, and the hash that belongs to it."""
    path.write_bytes(document({**body_of(path.read_bytes()), **fields}))


@pytest.mark.parametrize("part", ["FORMAT", "m", "p"])
def test_what_a_newer_release_wrote_is_refused_by_name(part: str, job: Pipeline, place: Path) -> None:
    """Read as far as it is understood, a newer checkpoint would lose what this release does not know of."""
    root, log = Path(job.storage.url), Log(job.storage)
    newest = log.newest()
    assert newest is not None
    if part == "p":
        # A plan that was put, whose step was never committed.
        plans = sorted((root / "p").iterdir())
        path = root / f"p/{newest.manifest.base:020d}.json"
        shutil.copy(plans[-1], path)
    else:
        path = root / (part if part == "FORMAT" else f"m/{newest.manifest.id:020d}.json")
    altered(path, format=FORMAT + 1, more=1)
    write_input(place / "input", 3)
    before, sentence = all_files(place), f"format {FORMAT + 1}, but this release reads {FORMAT}: use a newer release"
    with pytest.raises(NewerFormat, match=sentence) as refused:
        job.run(engine="embedded")
    assert str(path) in str(refused.value)
    assert all_files(place) == before
    if part != "p":
        with pytest.raises(NewerFormat, match=sentence):
            job.state()
    assert sentence in "".join(finding.text for finding in verify(job.storage).findings)


def test_a_checkpoint_of_before_the_first_release_is_refused_in_one_sentence(job: Pipeline) -> None:
    """What it held would be guessed; called damaged, it would be rolled back in vain."""
    root = Path(job.storage.url)
    for path in (root / "FORMAT", *(root / "m").iterdir()):
        altered(path, format=3, features=[])
    says = (
        "FORMAT: format 3 is that of a tree before the first release, which nothing reads: start anew, with another url"
    )
    for act in (job.state, lambda: job.run(engine="embedded")):
        with pytest.raises(Refused, match=says):
            act()
