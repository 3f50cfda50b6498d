"""Deduplication of several sources: each has seen its own records, whatever the others have."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count
from persistent import (
    Dedupe,
    Embedded,
    FileSource,
    FingerprintChanged,
    InvalidPipeline,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
)
from persistent.checkpoint.log import Log
from persistent.operations import merge, rollback, savepoint
from persistent.storage import MemoryStorage
from persistent.verify import verify
from tests.few import examples

BY_NUMBER = Dedupe(origin="origin", sequence="n", within=1_000)
BY_ID = Dedupe.by_id("id", within=1_000)


class Visits(PersistentTask):
    key = "origin"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


@pytest.fixture
def url() -> Iterator[str]:
    yield from _url()


def _url() -> Iterator[str]:
    name = f"dedupe-{uuid.uuid4().hex}"
    yield f"memory://{name}"
    MemoryStorage(name).clear()


def storage_of(url: str) -> MemoryStorage:
    return MemoryStorage(url.removeprefix("memory://"))


def rows(sent: list[tuple[str, int]], start: int = 1_000) -> list[dict[str, Any]]:
    return [{"ts": start + n, "origin": origin, "n": n, "id": f"{origin}-{n}"} for origin, n in sent]


def pipeline(url: str, sources: Mapping[str, list[Any]], dedupe: Any = BY_NUMBER, **options: Any) -> Pipeline:
    made = {
        name: MemorySource(some, timestamp="ts", max_out_of_orderness="90 ms", ordered=True)
        for name, some in sources.items()
    }
    return Pipeline(source=made, task=Visits(), checkpoint=url, dedupe=dedupe, **options)


def counted(of: Pipeline) -> dict[str, int]:
    return {one["origin"]: one["value"] for one in of.state().to_pylist()}


SENT = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), min_size=1, max_size=30)


@settings(max_examples=examples(30), deadline=None)
@given(clicks=SENT, orders=SENT, step_rows=st.integers(1, 20), threads=st.integers(1, 3), stop=st.integers(1, 30))
def test_a_record_counts_once_in_each_source(
    clicks: list[tuple[str, int]], orders: list[tuple[str, int]], step_rows: int, threads: int, stop: int
) -> None:
    """The number 7 of a sender of clicks is not the number 7 of orders; one of both would be lost. By numbers here and
    by ids there, in any steps, splits and runs."""
    for url in _url():
        dedupe = {"clicks": BY_NUMBER, "orders": BY_ID}
        for end in (stop, 30):
            sources = {"clicks": rows(clicks[:end]), "orders": rows(orders[:end])}
            job = pipeline(url, sources, dedupe, step_rows=step_rows)
            job.run(engine=Embedded(threads=threads))
            expected = Counter(origin for some in (clicks, orders) for origin, _ in set(some[:end]))
            assert counted(job) == expected
        assert verify(storage_of(url)).ok


def test_a_source_that_is_not_named_counts_every_record(url: str) -> None:
    """And the guarantee says of which sources copies are recognised."""
    sent = [("a", 1), ("a", 1), ("b", 2)]
    job = pipeline(url, {"clicks": rows(sent), "orders": rows(sent)}, {"orders": BY_ID})
    report = job.run(engine="embedded")
    assert counted(job) == {"a": 3, "b": 2} and report.duplicates == 1
    assert "of orders, copies of a record by (id) count once" in job.guarantee()
    assert "of clicks" not in job.guarantee()
    newest = Log(storage_of(url)).newest()
    assert newest is not None and newest.manifest.sources["clicks"].seen is None
    again = pipeline(url, {"clicks": rows(sent), "orders": rows([*sent, ("a", 1)])}, {"orders": BY_ID})
    assert again.run(engine="embedded").duplicates == 1


def test_what_each_source_has_seen_is_folded_kept_and_taken_back(url: str) -> None:
    """Folds of one source must not take the runs of the other; both go back with the state."""
    sent = [(origin, n) for n in range(30) for origin in "ab"]
    sources = {"clicks": rows(sent), "orders": rows([("a", n) for n in range(30)])}
    job = pipeline(url, sources, step_rows=3)
    job.run(engine="embedded")
    newest = Log(storage_of(url)).newest()
    assert newest is not None
    held = {name: source.seen for name, source in newest.manifest.sources.items()}
    assert all(seen is not None and 0 < len(seen.runs) < 20 for seen in held.values())
    names = [run.name for seen in held.values() if seen for run in seen.runs]
    assert len(set(names)) == len(names)
    before, kept = counted(job), sorted(Log(storage_of(url)).ids())[2]
    place = savepoint(url, "here")
    rollback(url, kept, outputs="retract")
    again = pipeline(url, {name: [*some, *some[:5]] for name, some in sources.items()}, step_rows=7)
    assert again.run(engine="embedded").duplicates == 10 and counted(again) == before
    for other in _url():
        new = pipeline(other, {name: [*some, *some[:5]] for name, some in sources.items()}, start_from=place)
        new.run(engine="embedded")
        assert counted(new) == before and verify(storage_of(other)).ok


def test_a_source_that_joins_begins_to_recognise_copies(url: str) -> None:
    """What it has not read yet, nobody has seen; the other goes on with what it has."""
    sent = [("a", 1), ("a", 2)]
    pipeline(url, {"clicks": rows(sent)}).run(engine="embedded")
    both = {"clicks": rows([*sent, ("a", 1)]), "orders": rows([("a", 1), ("a", 1)])}
    job = pipeline(url, both)
    report = job.run(engine="embedded")
    assert report.duplicates == 2 and counted(job) == {"a": 3}
    assert "deduplication" not in str(report)


def test_each_source_is_held_to_its_columns(url: str) -> None:
    """The text names the source of which copies would count, or be recognised by something else."""
    sources = {"clicks": rows([("a", 1)]), "orders": rows([("a", 1)])}
    pipeline(url, sources).run(engine="embedded")
    with pytest.raises(FingerprintChanged, match=r"copies of orders were recognised by \(origin, n\), .* by \(id\)"):
        pipeline(url, sources, {"clicks": BY_NUMBER, "orders": BY_ID}).run(engine="embedded")
    with pytest.raises(FingerprintChanged, match=r"copies of clicks are recognised by .* no dedupe="):
        pipeline(url, sources, {"orders": BY_NUMBER}).run(engine="embedded")
    more = {name: [*some, *some] for name, some in sources.items()}
    report = pipeline(url, more, {"orders": BY_NUMBER}, allow_dropped=["dedupe"]).run(engine="embedded")
    assert "deduplication of clicks ends: the seen records are forgotten" in str(report) and report.duplicates == 1
    report = pipeline(url, more).run(engine="embedded")
    assert "deduplication of clicks begins after checkpoint" in str(report)


def test_notes_name_the_source(url: str) -> None:
    """Of several, one may have a within= that is too short."""
    late = rows([("a", 1), ("a", 2)]) + rows([("a", 3)], 1_700)
    sources = {"clicks": late, "orders": rows([("a", n) for n in range(3)])}
    dedupe = {"clicks": BY_NUMBER, "orders": replace(BY_NUMBER, within="1 h")}
    report = pipeline(url, sources, dedupe, step_rows=2).run(engine="embedded")
    assert "an origin of clicks was silent for 701 ms, more than half of within=1000" in str(report)
    assert "of orders was silent" not in str(report)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"visits": BY_NUMBER}, r"dedupe: no source is named 'visits'; the sources are clicks, orders"),
        ({"clicks": "id"}, r"a mapping of sources to Dedupe, or None"),
        ([BY_NUMBER], r"a mapping of sources to Dedupe, or None"),
    ],
)
def test_what_cannot_be_meant_is_refused(url: str, given: Any, told: str) -> None:
    """A name mistyped would let every copy count."""
    with pytest.raises(InvalidPipeline, match=told):
        pipeline(url, {"clicks": [], "orders": []}, given)


def test_every_source_needs_the_columns(url: str) -> None:
    """One Dedupe for all is for sources alike; else each is named."""
    sources = {"clicks": rows([("a", 1)]), "orders": [{"ts": 1_000, "origin": "a"}]}
    with pytest.raises(InvalidPipeline, match=r"dedupe: the source has no column 'n'; its columns are ts, origin"):
        pipeline(url, sources).run(engine="embedded")


def from_files(url: str, folder: Path, *names: str, step_rows: int | None = None) -> Pipeline:
    """A job that reads a folder of JSON for each of its sources."""
    made = {
        name: FileSource(str(folder / name / "*.jsonl"), timestamp="ts", timestamp_unit="ms", max_out_of_orderness=90)
        for name in names
    }
    return Pipeline(source=made, task=Visits(), checkpoint=url, dedupe=BY_NUMBER, step_rows=step_rows)


def send(folder: Path, file: str, sent: list[tuple[str, int]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{file}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows(sent)))


def test_merged_jobs_go_on_as_if_one_had_read_both(url: str, tmp_path: Path) -> None:
    """Under names of their own. What one of them has seen would be forgotten, and its copies count."""
    sent = {"clicks": [("a", 1), ("a", 2)], "orders": [("a", 1), ("b", 1)]}
    for name, some in sent.items():
        send(tmp_path / name, "1", some)
        from_files(f"{url}-{name}", tmp_path, name).run(engine="embedded")
    merge(f"{url}-clicks", f"{url}-orders", f"{url}-both")
    for name, some in sent.items():
        send(tmp_path / name, "2", [*some, ("c", 1)])
    merged, plain = (from_files(f"{url}{end}", tmp_path, *sent) for end in ("-both", ""))
    assert merged.run(engine="embedded").duplicates == plain.run(engine="embedded").duplicates == 4
    assert counted(merged) == counted(plain) == {"a": 3, "b": 1, "c": 2} and verify(storage_of(f"{url}-both")).ok
    for name in ("clicks", "orders", "both"):
        storage_of(f"{url}-{name}").clear()


def test_a_checkpoint_merged_of_long_jobs_verifies(url: str, tmp_path: Path) -> None:
    """What was seen of a source is numbered by the steps of its old job; a merged job has few ids yet, and every later
    verify would report corruption where nothing is damaged."""
    for name in ("clicks", "orders"):
        send(tmp_path / name, "1", [("a", number) for number in range(12)])
        from_files(f"{url}-{name}", tmp_path, name, step_rows=1).run(engine="embedded")
    merge(f"{url}-clicks", f"{url}-orders", f"{url}-both")
    storage = storage_of(f"{url}-both")
    assert not verify(storage).findings
    for name in ("clicks", "orders"):
        send(tmp_path / name, "2", [("a", number) for number in range(24)])
    merged = from_files(f"{url}-both", tmp_path, "clicks", "orders", step_rows=1)
    assert merged.run(engine="embedded").duplicates == 24 and counted(merged) == {"a": 48}
    assert not verify(storage).findings
    for name in ("clicks", "orders", "both"):
        storage_of(f"{url}-{name}").clear()
