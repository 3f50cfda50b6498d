"""Deduplication as a user meets it: whole jobs in any number of steps, splits and runs, and what is refused."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
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
    Refused,
    Retention,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.parts import SeenColumns
from persistent.codec.fields import KEY_GROUPS
from persistent.operations import merge, rollback, savepoint
from persistent.storage import LocalStorage, MemoryStorage
from persistent.task.dedupe import check_columns
from persistent.text.figures import clock_text
from persistent.tools.cli import main
from persistent.verify import verify
from persistent.worker.merge_runs import read_rows
from persistent.worker.seen_state import seen_monoid, seen_node
from tests.few import examples
from tests.single import only

BY_NUMBER = Dedupe(origin="origin", sequence="n", within=1_000)


class Visits(PersistentTask):
    """Messages by sender."""

    key = "origin"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        if message.value["n"] is not None and message.value["n"] < 0:
            raise ValueError("negative")
        state.update(message.timestamp, 1)


class Counted(PersistentTask):
    """All messages together."""

    key = None

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Count())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class Windows(Visits):
    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling(10))


@pytest.fixture
def url() -> Iterator[str]:
    yield from _url()


def _url() -> Iterator[str]:
    name = f"dedupe-{uuid.uuid4().hex}"
    yield f"memory://{name}"
    MemoryStorage(name).clear()


def row(origin: Any, n: Any, ts: int, **more: Any) -> dict[str, Any]:
    return {"ts": ts, "origin": origin, "n": n, **more}


def pipeline(url: str, rows: list[Any], **options: Any) -> Pipeline:
    lag = options.pop("lag", 0)
    given = {"task": Visits(), "dedupe": BY_NUMBER, "on_error": "dead-letter", **options}
    source = MemorySource(rows, timestamp="ts", max_out_of_orderness=lag, ordered=True)
    return Pipeline(source=source, checkpoint=url, **given)


def counted(of: Pipeline) -> dict[str, int]:
    return {one["origin"]: one["value"] for one in of.state().to_pylist()}


def account(url: str) -> dict[str, int]:
    newest = Log(storage_of(url)).newest()
    assert newest is not None
    (found,) = newest.manifest.accounts.values()
    return {name: getattr(found, name) for name in ("read", "processed", "late", "dead", "duplicate")}


def storage_of(url: str) -> MemoryStorage:
    return MemoryStorage(url.removeprefix("memory://"))


def seen(url: str, at: int | None = None) -> dict[str, set[int]]:
    """What the checkpoint has seen, by origin."""
    storage = storage_of(url)
    log = Log(storage)
    newest = log.newest() if at is None else log.read(at)
    assert newest is not None
    part = only(newest.manifest.sources).seen
    assert part is not None
    job = seen_node(replace(pipeline(url, []).job(), storage=storage), "memory", part.pane_ms)
    found: dict[str, set[int]] = {}
    for run in part.runs:
        rows = read_rows(job, run, 0, KEY_GROUPS)
        elements = seen_monoid().unpack(rows.columns)
        for key, pane, (ranges, _) in zip(rows.keys[0].to_pylist(), rows.panes.tolist(), elements, strict=True):
            if pane >= part.expired:
                numbers = {n for first, last in ranges for n in range(first, last + 1)}
                assert not numbers & found.get(key, set()), "a number seen twice"
                found[key] = found.get(key, set()) | numbers
    return found


# -- what a plain set says ---------------------------------------------------------------------------------------

ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), min_size=1, max_size=60)


@settings(max_examples=examples(60), deadline=None)
@given(
    sent=ROWS,
    step_rows=st.integers(1, 30),
    threads=st.integers(1, 4),
    stops=st.lists(st.integers(1, 60), max_size=2),
    restamped=st.booleans(),
)
def test_each_number_counts_once_in_any_steps_splits_and_runs(
    sent: list[tuple[str, int]], step_rows: int, threads: int, stops: list[int], restamped: bool
) -> None:
    """The promise: permutations, gaps and copies, in one split or several, in one step or several, before and after
    a restart. A copy has the timestamp of its original, or one of its own."""
    for url in _url():
        rows = [row(origin, n, 10_000 + (at if restamped else n)) for at, (origin, n) in enumerate(sent)]
        dedupe = replace(BY_NUMBER, within=100, restamped=restamped)
        for stop in sorted({min(stop, len(rows)) for stop in stops} | {len(rows)}):
            job = pipeline(url, rows[:stop], dedupe=dedupe, step_rows=step_rows, lag=90)
            job.run(engine=Embedded(threads=threads))
            copies = stop - len(set(sent[:stop]))
            assert counted(job) == Counter(origin for origin, _ in set(sent[:stop])), stop
            assert account(url) == {
                "read": stop,
                "processed": stop - copies,
                "late": 0,
                "dead": 0,
                "duplicate": copies,
            }


@settings(max_examples=examples(40), deadline=None)
@given(
    sent=st.lists(st.integers(0, 25), min_size=1, max_size=60),
    step_rows=st.integers(1, 30),
    threads=st.integers(1, 4),
    stop=st.integers(1, 60),
    is_text=st.booleans(),
)
def test_each_id_counts_once_in_any_steps_splits_and_runs(
    sent: list[int], step_rows: int, threads: int, stop: int, is_text: bool
) -> None:
    """Ids without numbers: those of a broker. Sent again in any order, by anyone, with a time of their own."""
    for url in _url():
        ids = [str(uuid.UUID(int=n)) if is_text else uuid.UUID(int=n).bytes for n in sent]
        rows = [row("ab"[at % 2], n, 10_000 + at, id=id) for at, (n, id) in enumerate(zip(sent, ids))]
        for end in sorted({min(stop, len(rows)), len(rows)}):
            job = pipeline(url, rows[:end], dedupe=Dedupe.by_id("id", within=100), step_rows=step_rows, lag=90)
            job.run(engine=Embedded(threads=threads))
            assert sum(counted(job).values()) == len(set(sent[:end]))
            assert account(url) == {
                "read": end,
                "processed": len(set(sent[:end])),
                "late": 0,
                "dead": 0,
                "duplicate": end - len(set(sent[:end])),
            }


@pytest.mark.parametrize("by_ids", [False, True])
@settings(max_examples=examples(60), deadline=None)
@given(
    sent=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 60)), min_size=1, max_size=50),
    step_rows=st.integers(1, 12),
)
def test_expiry_is_by_the_clock_of_the_steps_before(sent: list[tuple[int, int]], step_rows: int, by_ids: bool) -> None:
    """What is too old is late and never counts twice; what is judged is judged exactly. Compared step by step with a
    mapping of number to pane. The panes are 5 ms: a fourth of what is remembered."""
    for url in _url():
        rows = [row("a", n, 1_000 + ts) for n, ts in sent]
        dedupe = Dedupe.by_id("n", within=20) if by_ids else replace(BY_NUMBER, within=20, restamped=True)
        job = pipeline(url, rows, dedupe=dedupe, step_rows=step_rows, lag=3)
        job.run(engine=Embedded(threads=1))
        known: dict[int, int] = {}
        expected, watermark, largest = Counter[str](), 0, 0
        for start in range(0, len(rows), step_rows):
            horizon = max(0, (watermark - 20) // 5 * 5)
            known = {n: pane for n, pane in known.items() if pane >= horizon}
            for one in rows[start : start + step_rows]:
                if one["n"] in known:
                    expected["duplicate"] += 1
                elif one["ts"] < horizon:
                    expected["late"] += 1
                else:
                    expected["processed"] += 1
                    known[one["n"]] = one["ts"] // 5 * 5
                    largest = max(largest, one["ts"])
            watermark = max(watermark, largest - 3)
        names = ("processed", "late", "duplicate")
        assert [account(url)[name] for name in names] == [expected[name] for name in names]
        assert len(job.late()) == expected["late"]


def test_a_record_too_old_to_judge_is_late_and_says_why(url: str) -> None:
    """It may be a copy and it may be new: it is put aside, where it can be looked at."""
    rows = [row("a", 1, 1_000), row("a", 2, 9_000), row("a", 1, 1_000), row("b", 1, 1_001)]
    job = pipeline(url, rows, step_rows=1)
    job.run(engine="embedded")
    late = job.late().to_pylist()
    assert {(one["value"]["origin"], one["reason"]) for one in late} == {
        (origin, "late: too old to know whether it is a copy (see within= of dedupe)") for origin in "ab"
    }
    assert account(url) == {"read": 4, "processed": 2, "late": 2, "dead": 0, "duplicate": 0}


def test_a_copy_never_moves_the_clock(url: str) -> None:
    """A copy with a later timestamp would close windows that its original would not."""
    rows = [row("a", 1, 100), row("a", 1, 900), row("a", 2, 110)]
    job = pipeline(url, rows, dedupe=replace(BY_NUMBER, restamped=True), step_rows=1)
    assert job.run(engine="embedded").clock_ms == 110


# -- numbers that begin again ------------------------------------------------------------------------------------


def test_a_sender_that_begins_again_is_not_swallowed(url: str) -> None:
    """Without an epoch its new messages have old numbers: silence about them would be a loss that nobody sees."""
    rows = [row("a", n, 100 + n) for n in range(5)] + [row("a", n, 200 + n) for n in range(5)]
    job = pipeline(url, rows)
    job.run(engine="embedded")
    assert account(url) == {"read": 10, "processed": 5, "late": 0, "dead": 5, "duplicate": 0}
    (reason, *_) = job.dead_letters().to_pylist()[0]["reason"].split(";")
    assert reason == "origin 'a', n 0 was seen before, and this record is younger than all of its origin: not a copy"


def test_a_new_epoch_counts_on_its_own_and_stragglers_of_the_old_one_are_judged(url: str) -> None:
    """A restarted sender begins at 1; what was on its way before the restart may still come, and come twice."""
    first = [row("a", n, 100 + n, epoch=1) for n in range(4)]
    second = [row("a", n, 110 + n, epoch=2) for n in range(4)]
    straggler = row("a", 9, 105, epoch=1)
    rows = [*first, *second, first[2], straggler, straggler, second[0]]
    job = pipeline(url, rows, dedupe=replace(BY_NUMBER, epoch="epoch"), step_rows=3, lag=50)
    job.run(engine="embedded")
    assert counted(job) == {"a": 9}
    assert account(url)["duplicate"] == 3


def test_lanes_of_one_sender_count_on_their_own(url: str) -> None:
    """A sender with several threads numbers each of them."""
    rows = [row("a", n, 100, lane=lane) for n in range(3) for lane in (0, 1)] * 2
    job = pipeline(url, rows, dedupe=replace(BY_NUMBER, origin=("origin", "lane")), step_rows=5)
    job.run(engine="embedded")
    assert counted(job) == {"a": 6} and account(url)["duplicate"] == 6


def test_numbers_of_32_bits_wrap(url: str) -> None:
    """After 2**32 - 1 comes 0: no copy of the 0 sent long ago, and no gap that is remembered for ever."""
    last = 2**32 - 1
    before = [row("a", n, 1_000 + n) for n in range(3)]
    around = [row("a", n, 9_000 + at) for at, n in enumerate((last - 1, last, 0, 1))]
    rows = [*before, *around, around[1], around[3]]
    job = pipeline(url, rows, step_rows=2)
    job.run(engine="embedded")
    assert account(url) == {"read": 9, "processed": 7, "late": 0, "dead": 0, "duplicate": 2}


def test_a_sender_that_fails_over_resends_its_tail(url: str) -> None:
    """The second server does not know how far the first one came: it sends what it has once more, in other lanes."""
    sent = [row("a", n, 100 + n) for n in range(20)]
    job = pipeline(url, [*sent, *sent[8:], row("a", 20, 120)], step_rows=7, lag=20)
    job.run(engine="embedded")
    assert counted(job) == {"a": 21} and account(url)["duplicate"] == 12


# -- records that cannot count -----------------------------------------------------------------------------------


def test_a_record_without_a_name_is_a_dead_letter(url: str) -> None:
    """Whether it is a copy cannot be known: counted it might count twice, dropped it would be lost."""
    job = pipeline(url, [row("a", 1, 100), row(None, 1, 101), row("a", None, 102), row("a", 1, 100)])
    job.run(engine="embedded")
    assert {one["offset"]: one["reason"] for one in job.dead_letters().to_pylist()} == {
        1: "no origin: dedupe needs them to recognise a copy",
        2: "no n: dedupe needs them to recognise a copy",
    }
    assert account(url) == {"read": 4, "processed": 1, "late": 0, "dead": 2, "duplicate": 1}


def test_a_copy_of_a_dead_letter_is_a_copy(url: str) -> None:
    """A message that the task cannot process is put aside once, however often it is sent."""
    job = pipeline(url, [row("a", -1, 100), row("a", -1, 100), row("a", 2, 101)], step_rows=1, lag=9)
    job.run(engine="embedded")
    assert account(url) == {"read": 3, "processed": 1, "late": 0, "dead": 1, "duplicate": 1}


def test_a_copy_of_a_late_record_is_a_copy(url: str) -> None:
    """The window of the first one was closed: the second is put aside no second time."""
    rows = [row("a", 1, 100), row("a", 2, 150), row("a", 3, 105), row("a", 3, 105)]
    job = pipeline(url, rows, task=Windows(), discard_closed=True, step_rows=1)
    job.run(engine="embedded")
    assert account(url) == {"read": 4, "processed": 2, "late": 1, "dead": 0, "duplicate": 1}


# -- the checkpoint ----------------------------------------------------------------------------------------------


def test_what_was_seen_is_bounded_by_what_is_remembered(url: str) -> None:
    """A state that only grows would end every long job. Five thousand numbers, of which a fraction is within reach."""
    rows = [row("ab"[n % 2], n, 1_000 + 10 * n) for n in range(0, 5_000, 3)]
    job = pipeline(url, rows, step_rows=20)
    job.run(engine="embedded")
    newest = Log(storage_of(url)).newest()
    assert newest is not None and only(newest.manifest.sources).seen is not None
    part = only(newest.manifest.sources).seen
    assert part.expired > 40_000 and len(part.runs) < 40
    held = seen(url)
    last = {n for numbers in held.values() for n in numbers}
    assert last and min(last) * 10 + 1_000 >= part.expired
    assert verify(storage_of(url)).ok


def test_a_rollback_judges_as_it_did_then(url: str) -> None:
    """What was seen goes back with the state and the positions; else everything read again would be a copy."""
    rows = [row("a", n, 100 + n) for n in range(10)]
    job = pipeline(url, rows, step_rows=2)
    job.run(engine="embedded")
    whole, before = counted(job), account(url)
    kept = sorted(id for id in Log(storage_of(url)).ids())[3]
    then = seen(url, kept)
    rollback(url, kept, outputs="retract")
    assert seen(url) == then and then != {}
    again = pipeline(url, rows, step_rows=2)
    again.run(engine="embedded")
    assert counted(again) == whole and account(url) == before


def test_a_savepoint_takes_along_what_was_seen(url: str) -> None:
    """A job that starts there would count again what the old one has read."""
    rows = [row("a", n, 100 + n) for n in range(6)]
    pipeline(url, rows, step_rows=2).run(engine="embedded")
    place = savepoint(url, "before")
    for other in _url():
        job = pipeline(other, [*rows, rows[3], row("a", 7, 120)], start_from=place, step_rows=2)
        job.run(engine="embedded")
        assert counted(job) == {"a": 7} and verify(storage_of(other)).ok


def test_merge_is_refused(url: str) -> None:
    """Two jobs may have seen the same: each has counted it."""
    rows = [row("a", n, 100 + n) for n in range(6)]
    pipeline(url, rows).run(engine="embedded")
    for other in _url():
        with pytest.raises(Refused, match=r"cannot be merged|both"):
            merge(url, url, other)


def by_type(url: str, folder: Path, origin: pa.DataType) -> Pipeline:
    """A job that reads the origins of CSV as this type."""
    schema = pa.schema([("ts", pa.int64()), ("origin", origin), ("n", pa.int64())])
    source = FileSource(str(folder / "*.csv"), timestamp="ts", timestamp_unit="ms", schema=schema)
    return Pipeline(source=source, task=Visits(), checkpoint=url, dedupe=BY_NUMBER)


def kinds(url: str) -> dict[str, str]:
    newest = Log(storage_of(url)).newest()
    assert newest is not None and only(newest.manifest.sources).seen is not None
    return dict(only(newest.manifest.sources).seen.kinds)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (pa.int64(), pa.string(), "'origin', which held integers and is now read as text"),
        (pa.string(), pa.binary(), "'origin', which held text and is now read as bytes"),
        (pa.int64(), pa.bool_(), "'origin', which held integers and is now read as booleans"),
    ],
)
def test_names_of_another_kind_are_refused(
    first: pa.DataType, second: pa.DataType, said: str, url: str, tmp_path: Path
) -> None:
    """The origin 1 is not the text "1": every copy would count again, without a word."""
    text = "ts,origin,n\n1000,1,1\n2000,1,2\n"
    (tmp_path / "a.csv").write_text(text)
    by_type(url, tmp_path, first).run(engine="embedded")
    (tmp_path / "b.csv").write_text(text)
    with pytest.raises(FingerprintChanged, match=said):
        by_type(url, tmp_path, second).run(engine="embedded")
    by_type(url, tmp_path, first).run(engine="embedded")
    assert account(url)["processed"] == account(url)["duplicate"] == 2


@pytest.mark.parametrize(
    ("ids", "dedupe"),
    [
        ("007 7 0x7", Dedupe.by_id("id", within=1_000)),
        ("true True TRUE", Dedupe.by_id("id", within=1_000)),
        ("7 007 7.0", Dedupe(origin="id", sequence="n", within=1_000)),
        ("1 01 001", Dedupe(origin="n", sequence="n2", epoch="id", within=1_000)),
    ],
)
def test_names_whose_type_was_guessed_from_text_are_refused(ids: str, dedupe: Dedupe, url: str, tmp_path: Path) -> None:
    """007 and 7 are two ids, and one number: the second record would be lost as a copy. A sequence is a number, however
    it is written; and whoever gives the types has said what is meant."""
    lines = [f"{1000 + at},{id},1,1" for at, id in enumerate(ids.split())]
    (tmp_path / "a.csv").write_text("\n".join(["ts,id,n,n2", *lines]))
    columns = {"ts": "int64", "id": "string", "n": "string" if dedupe.epoch else "int64", "n2": "int64"}

    def job(schema: Any, place: str = url) -> Pipeline:
        source = FileSource(tmp_path / "*.csv", timestamp="ts", timestamp_unit="ms", schema=schema, ordered=True)
        return Pipeline(source=source, task=Counted(), checkpoint=place, dedupe=dedupe)

    with pytest.raises(InvalidPipeline, match=r'inferred as \w+ from text, where 7, 007 .*\{..., "\w+": "string"\}'):
        job(None).run(engine="embedded")
    assert not [id for id in Log(storage_of(url)).ids() if id], "nothing was counted"
    job(columns).run(engine="embedded")
    assert account(url)["processed"] == 3 and account(url)["duplicate"] == 0


def test_a_sequence_may_be_inferred_from_text(url: str, tmp_path: Path) -> None:
    """Numbers are what a sequence is compared by, and text says who sent it."""
    (tmp_path / "a.csv").write_text("ts,till,n\n1000,a,7\n1001,a,007\n1002,b,7\n")
    source = FileSource(tmp_path / "*.csv", timestamp="ts", timestamp_unit="ms")
    dedupe = Dedupe(origin="till", sequence="n", within=1_000, restamped=True)
    Pipeline(source=source, task=Counted(), checkpoint=url, dedupe=dedupe).run(engine="embedded")
    assert account(url)["processed"] == 2 and account(url)["duplicate"] == 1


def test_types_of_one_kind_are_one_name(url: str, tmp_path: Path) -> None:
    """Another width of whole numbers is no other column: its copies are found."""
    text = "ts,origin,n\n1000,1,1\n2000,1,2\n"
    (tmp_path / "a.csv").write_text(text)
    by_type(url, tmp_path, pa.int64()).run(engine="embedded")
    assert kinds(url) == {"origin": "integers"}
    (tmp_path / "b.csv").write_text(text)
    by_type(url, tmp_path, pa.int32()).run(engine="embedded")
    assert kinds(url) == {"origin": "integers"} and account(url)["duplicate"] == 2


def test_another_identity_is_refused_and_another_time_is_not(url: str) -> None:
    """By other columns nothing would be recognised; for how long is a matter of the steps to come."""
    rows = [row("a", n, 100 + n, m=n) for n in range(4)]
    pipeline(url, rows[:2]).run(engine="embedded")
    with pytest.raises(FingerprintChanged, match=r"by \(origin, n\), but this pipeline has dedupe by \(origin, m\)"):
        pipeline(url, rows, dedupe=replace(BY_NUMBER, sequence="m")).run(engine="embedded")
    with pytest.raises(FingerprintChanged, match=r"has no dedupe=: they would count.*allow_dropped=\['dedupe'\]"):
        pipeline(url, rows, dedupe=None).run(engine="embedded")
    job = pipeline(url, [*rows[:3], rows[0]], dedupe=replace(BY_NUMBER, within="1 h", restamped=True), lag=50)
    job.run(engine="embedded")
    assert account(url)["duplicate"] == 1
    report = pipeline(url, [*rows[:3], rows[0], rows[1]], dedupe=None, allow_dropped=["dedupe"], lag=50).run(
        engine="embedded"
    )
    assert account(url)["processed"] == 4 and "the seen records are forgotten" in str(report)


def test_a_shorter_time_does_not_bring_back_what_expired(url: str) -> None:
    """From 5 ms to an hour: what was forgotten is not known again, so older records stay late."""
    rows = [row("a", n, 1_000 + 100 * n) for n in range(5)]
    pipeline(url, rows, dedupe=replace(BY_NUMBER, within=5)).run(engine="embedded")
    job = pipeline(url, [*rows, rows[0], row("a", 9, 1_390)], dedupe=replace(BY_NUMBER, within="1 h"))
    job.run(engine="embedded")
    assert account(url) == {"read": 7, "processed": 5, "late": 2, "dead": 0, "duplicate": 0}


def test_a_job_that_begins_to_deduplicate_says_what_it_does_not_know(url: str) -> None:
    """A copy of what was read before counts again: silence would let one believe otherwise."""
    rows = [row("a", n, 100 + n) for n in range(3)]
    pipeline(url, rows, dedupe=None).run(engine="embedded")
    report = pipeline(url, [*rows, rows[2], rows[2]], lag=50).run(engine="embedded")
    assert "deduplication begins after checkpoint" in str(report)
    assert account(url) == {"read": 5, "processed": 4, "late": 0, "dead": 0, "duplicate": 1}


class Acknowledged(MemorySource):
    """Remembers what it was told that it may forget."""

    def acknowledge(self, positions: Any) -> None:
        self.told = {**getattr(self, "told", {}), **positions}


def test_a_copy_is_acknowledged_again(url: str) -> None:
    """Whoever sent it again did not hear of the first time, and would send it for ever. Any part of what was read may
    come again: all, every other, the last."""
    rows = [row("a", n, 1_000 + n) for n in range(6)]
    for again in ([], rows, rows[::2], rows[-1:]):
        rows = [*rows, *again]
        source = Acknowledged(rows, timestamp="ts", ordered=True, max_out_of_orderness="100 ms")
        options = {"task": Visits(), "dedupe": BY_NUMBER, "retention": Retention(last=1)}
        job = Pipeline(source=source, checkpoint=url, **options)
        report = job.run(engine="embedded")
        assert report.duplicates == len(again) and counted(job) == {"a": 6}
        assert source.told == {"memory": (0, len(rows))}


def test_what_is_held_is_shown(url: str, tmp_path: Path) -> None:
    """Who sizes a machine must see how much is remembered, and since when."""
    rows = [row(origin, n, 1_000 + 400 * n) for n in range(9) for origin in "abc"]
    pipeline(str(tmp_path), rows, step_rows=3).run(engine="embedded")
    newest = Log(LocalStorage(tmp_path)).newest()
    assert newest is not None and only(newest.manifest.sources).seen is not None
    held = only(newest.manifest.sources).seen
    shown = CliRunner().invoke(main, ["show", str(tmp_path)]).output
    (line,) = (line for line in shown.splitlines() if line.startswith("  seen"))
    assert f"{sum(run.rows_left for run in held.runs)} rows of origins and panes" in line
    assert f"not older than {clock_text(held.expired)}" in line and held.expired == 3_000


# -- what is said ------------------------------------------------------------------------------------------------


def test_the_report_says_that_most_were_copies_and_who_was_silent(url: str) -> None:
    """Half of all swallowed is a sender that begins again, or a source read twice."""
    rows = [row("a", 1, 100), row("a", 2, 800), row("a", 2, 800), row("a", 2, 800)]
    report = pipeline(url, rows, step_rows=1).run(engine="embedded")
    assert "2 of 4 records read were copies, and did not count. If a sender restarts its numbers" in str(report)
    assert "an origin was silent for 700 ms, more than half of within=1000 of dedupe" in str(report)
    assert report.duplicates == 2


def test_the_report_says_how_far_behind_copies_come(url: str) -> None:
    """Those that come a little later still could not be judged, and nobody would know that within= is short."""
    rows = [row("a", 1, 100), row("a", 2, 800), row("a", 1, 800), row("a", 3, 801), row("a", 4, 802)]
    report = pipeline(url, rows, dedupe=Dedupe.by_id("n", within=1_000), step_rows=1).run(engine="embedded")
    assert "a copy arrived 700 ms behind the clock, more than half of within=1000 of dedupe" in str(report)
    assert "silent" not in str(report) and account(url)["duplicate"] == 1
    for other in _url():
        few = pipeline(other, rows, dedupe=Dedupe.by_id("n", within=1_400), step_rows=1).run(engine="embedded")
        assert "behind the clock" not in str(few)


def test_a_record_without_an_id_is_a_dead_letter(url: str) -> None:
    """A publisher that leaves the message id out: whether its message is a copy cannot be known."""
    rows = [row("a", 1, 100, id="x"), row("a", 2, 101, id=None), row("a", 2, 101, id="x")]
    job = pipeline(url, rows, dedupe=Dedupe.by_id("id"))
    job.run(engine="embedded")
    assert [one["reason"] for one in job.dead_letters().to_pylist()] == ["no id: dedupe needs them to recognise a copy"]
    assert account(url) == {"read": 3, "processed": 1, "late": 0, "dead": 1, "duplicate": 1}
    held = Log(storage_of(url)).newest()
    assert held is not None and only(held.manifest.sources).seen is not None and verify(storage_of(url)).ok
    assert only(held.manifest.sources).seen.columns == SeenColumns(("id",))
    with pytest.raises(
        FingerprintChanged, match=r"recognised by \(id\), but this pipeline has dedupe by \(origin, n\)"
    ):
        pipeline(url, rows).run(engine="embedded")


def test_the_guarantee_mentions_it(url: str) -> None:
    """A pipeline that drops records must say so where it says what it promises."""
    assert "copies of a record by (origin, n) count once, within 1000 ms of event time" in pipeline(url, []).guarantee()
    assert "copies" not in pipeline(url, [], dedupe=None).guarantee()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"origin": "a", "sequence": ""}, "name columns of the source"),
        ({"origin": (), "sequence": "n"}, "name columns of the source"),
        ({"origin": "a", "sequence": "a"}, "are different columns"),
        ({"origin": "a", "sequence": "n", "epoch": "n"}, "are different columns"),
        ({"origin": "a", "sequence": None, "epoch": "e"}, "an id is unique in all lives of its sender"),
        ({"origin": "", "sequence": None}, "name columns of the source"),
        ({"origin": "a", "sequence": "n", "within": "soon"}, "is not a duration"),
        ({"origin": "a", "sequence": "n", "within": 0}, "at least 1 ms"),
        ({"origin": "a", "sequence": "n", "restamped": "yes"}, "True or False"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(given: dict[str, Any], told: str) -> None:
    """A column that is not there would make every record a dead letter."""
    with pytest.raises(InvalidPipeline, match=told):
        Dedupe(**given)


def test_a_source_without_the_columns_is_refused_before_anything_is_read(url: str) -> None:
    """Else all records would be dead letters, one by one."""
    with pytest.raises(InvalidPipeline, match=r"dedupe: the source has no column 'n'; its columns are ts, origin"):
        pipeline(url, [{"ts": 1, "origin": "a"}]).run(engine="embedded")
    with pytest.raises(InvalidPipeline, match=r"the column 'origin' holds double, but must hold integers, text"):
        pipeline(url, [row(1.5, 1, 1)]).run(engine="embedded")
    with pytest.raises(InvalidPipeline, match=r'dedupe=True: give Dedupe\(origin="sender"'):
        pipeline(url, [], dedupe=True)
    check_columns(BY_NUMBER, pa.schema({"origin": pa.dictionary(pa.int8(), pa.string()), "n": pa.int8()}))
