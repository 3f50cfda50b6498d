"""A checkpoint of an older format is read as it is, and written only once it is upgraded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from persistent import (
    CorruptCheckpoint,
    FileSink,
    MemorySink,
    OldFormat,
    Pipeline,
)
from persistent.checkpoint.copies import newest_of
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import FORMAT
from persistent.checkpoint.names import manifest_name, plan_name
from persistent.checkpoint.shapes import FORMATS
from persistent.codec import decode_document, encode_document
from persistent.operations import collect_garbage, compact, pin, rollback, savepoint, upgrade
from persistent.storage import LocalStorage
from persistent.verify import verify
from tests.crash.sweep import Deaths, anywhere
from tests.faults import FaultyStorage, Killed, Operations
from tests.golden.make import TASKS, Totals, pipeline, shown

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(params=FORMATS[:-1], ids="format-{}".format)
def number(request: pytest.FixtureRequest) -> int:
    """An older format."""
    found: int = request.param
    return found


@pytest.fixture(params=TASKS, ids=lambda task: task.__name__)
def old(request: pytest.FixtureRequest, number: int, folder: Path) -> Pipeline:
    """The pipeline of a checkpoint that an older release has written, over a copy of it."""
    shutil.copytree(GOLDEN / f"format-{number}", folder / "golden")
    return pipeline(request.param(), folder / "golden")


def golden_state(job: Pipeline) -> Any:
    """The state as the first release showed it; the others read the same input."""
    return json.loads((GOLDEN / "format-1" / f"{type(job.task).__name__.lower()}.json").read_text())


def pinnable(job: Pipeline) -> int:
    return newest_of(Log(job.storage)).manifest.base


def published(job: Pipeline) -> list[str]:
    assert isinstance(job.sink, FileSink)
    rows = []
    for path in sorted(Path(job.sink.url).glob("*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            row.pop("revision", None)
            rows.append(json.dumps(row, sort_keys=True))
    return sorted(rows)


def all_files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_the_old_format_is_read(old: Pipeline, number: int) -> None:
    """An operator looks at a job before deciding to upgrade it; what it shows must be what it showed then."""
    assert shown(old.state().to_pylist()) == golden_state(old)
    newest = Log(old.storage).newest()
    assert newest is not None and newest.manifest.format == number
    found = verify(old.storage)
    assert found.ok, found.findings
    assert found.newest_good == newest.manifest.base
    assert len(old.dead_letters()) == 1


def test_the_old_format_is_not_written(old: Pipeline, number: int) -> None:
    """Written by the way, it would be unreadable to the release that made it, without anybody having asked for that."""
    place = Path(old.storage.url)
    Path(old.source.root if hasattr(old.source, "root") else place.parent / "input")
    (place.parent / "input" / "3.jsonl").write_text('{"ts": 200000, "page": "a", "country": "de", "n": 7}\n')
    before = all_files(place)
    is_compact = isinstance(old.task, Totals) and number == 2
    for write in (
        lambda: old.run(engine="embedded"),
        lambda: pin(old.storage, pinnable(old)),
        lambda: collect_garbage(old.storage),
        lambda: rollback(old.storage, pinnable(old), outputs="retract"),
        *([] if is_compact else [lambda: compact(old)]),
    ):
        with pytest.raises(OldFormat, match=f"'persistent upgrade {old.storage.url}'"):
            write()
        assert all_files(place) == before


def test_upgraded_it_goes_on(old: Pipeline, folder: Path) -> None:
    """The state of years is worth more than the format it is kept in."""
    newest = Log(old.storage).newest()
    assert newest is not None
    entry = upgrade(old.storage)
    assert (entry.manifest.format, entry.manifest.kind, entry.manifest.id) == (FORMAT, "fence", newest.manifest.id + 1)
    assert set(entry.manifest.bases) >= set(newest.manifest.bases)
    assert upgrade(old.storage).manifest.id == entry.manifest.id, "nothing to do, nothing done"
    assert verify(old.storage).ok
    more = '{"ts": 200000, "page": "a", "country": "de", "n": 7}\n'
    (folder / "golden" / "input" / "3.jsonl").write_text(more)
    old.run(engine="embedded", end_of_input=True)
    fresh = folder / "fresh"
    shutil.copytree(folder / "golden" / "input", fresh / "input")
    anew = pipeline(old.task, fresh)
    anew.run(engine="embedded", end_of_input=True)
    assert shown(old.state().to_pylist()) == shown(anew.state().to_pylist())
    assert published(old) == published(anew)
    ledgers = [Log(job.storage).newest().manifest.accounts for job in (old, anew)]  # type: ignore[union-attr]
    assert ledgers[0] == ledgers[1]
    collect_garbage(old.storage)
    assert not verify(old.storage).findings
    rollback(old.storage, newest.manifest.base, outputs="retract")
    old.run(engine="embedded", end_of_input=True)
    assert published(old) == published(anew)


@anywhere
def test_killed_anywhere_it_is_old_or_new(old: Pipeline, deaths: Deaths) -> None:
    """A checkpoint of years, half upgraded, would belong to no release."""
    place = Path(old.storage.url)
    before, operations = all_files(place), Operations()
    rows = shown(old.state().to_pylist())
    upgrade(FaultyStorage(old.storage, operations))
    for death in deaths(operations.log):
        shutil.rmtree(place)
        for name, data in before.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        with pytest.raises(Killed):
            upgrade(FaultyStorage(old.storage, Operations(death.at, death.how)))
        assert verify(old.storage).ok and shown(old.state().to_pylist()) == rows, death
        assert upgrade(old.storage).manifest.format == FORMAT
        assert verify(old.storage).ok and shown(old.state().to_pylist()) == rows, death


def test_a_savepoint_of_the_old_format_starts_a_new_job(old: Pipeline, folder: Path) -> None:
    """The other way to the new format, which leaves the old job as it is."""
    before = all_files(Path(old.storage.url))
    url = savepoint(LocalStorage(old.storage.url), "before-upgrade")
    started = pipeline(old.task, folder / "golden")
    started = Pipeline(
        source=started.source,
        task=old.task,
        sink=MemorySink(),
        checkpoint=str(folder / "new"),
        step_rows=5,
        start_from=url,
    )
    started.run(engine="embedded")
    assert shown(started.state().to_pylist()) == shown(old.state().to_pylist())
    assert {name: data for name, data in all_files(Path(old.storage.url)).items() if name in before} == before


def test_a_corrupt_old_checkpoint_is_gone_back_behind(old: Pipeline) -> None:
    """Neither can it be upgraded, which takes its newest manifest, nor must it be lost for that."""
    log = Log(old.storage)
    newest = log.newest()
    assert newest is not None
    path = Path(old.storage.url) / f"m/{newest.manifest.id:020d}.json"
    path.write_bytes(path.read_bytes()[:-3])
    entry = rollback(old.storage, newest.manifest.id - 1, outputs="retract")
    assert entry.manifest.format == FORMAT and newest.manifest.id in entry.manifest.burnt
    assert verify(old.storage).ok
    old.run(engine="embedded")
    assert shown(old.state().to_pylist()) == golden_state(old)


def test_an_old_checkpoint_that_has_lost_its_newest_is_gone_back_behind(old: Pipeline) -> None:
    """A rollback asked for an upgrade, and that for the rollback."""
    log, place = Log(old.storage), Path(old.storage.url)
    base = newest_of(log).manifest.base
    for id in log.ids():
        if id >= base:
            (place / manifest_name(id)).unlink()
    # What its driver left behind, a moment later.
    body = decode_document(sorted((place / "p").iterdir())[0].read_bytes(), "a plan")
    (place / plan_name(base, 0)).write_bytes(encode_document({**body, "base": base, "number": 0}))
    with pytest.raises(CorruptCheckpoint, match=r"persistent rollback .* --outputs=retract") as told:
        old.run(engine="embedded")
    to = int(str(told.value).partition("persistent rollback ")[2].split()[1])
    assert rollback(old.storage, to, outputs="retract").manifest.format == FORMAT
    assert verify(old.storage).ok
    old.run(engine="embedded")
    assert shown(old.state().to_pylist()) == golden_state(old)
