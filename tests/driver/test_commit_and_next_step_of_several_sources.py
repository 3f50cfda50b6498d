"""Several sources feed one task: each has its own positions, disorder and account, and one clock waits for all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from monoids import Sum, record
from persistent import (
    FileSource,
    InvalidPipeline,
    MemorySink,
    MemorySource,
    PersistentTask,
    Pipeline,
    RunReport,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import Account, SourcePart, TaskPart
from persistent.checkpoint.plan import SourceStep, StepPlan, TaskStep
from persistent.checkpoint.successor import Entry
from persistent.connect.source import Budget, Reached, SourcePlan, SourceState, Span, Split, together
from persistent.driver.commit import watermark_after, with_sources
from persistent.driver.next_step import _budget, awake
from persistent.driver.recover import plan_number
from persistent.errors import CorruptCheckpoint, OtherJob
from persistent.names import new_nonce, plan_name
from persistent.operations import merge, restart, rollback, savepoint
from persistent.reading import diff
from persistent.reading.place import place
from persistent.storage import MemoryStorage
from persistent.testing.faults import Killed
from persistent.verify import verify
from persistent.verify.source import verify_source
from tests.checkpoint.samples import manifest, node
from tests.driver.step_results import committed, mapped, results
from tests.single import only

ROWS = tuple({"ts": 7 * n % 60, "page": "ab"[n % 2], "n": n} for n in range(24))
EVEN, ODD = ROWS[::2], ROWS[1::2]


class Totals(PersistentTask):
    """The sum and the partitions of each page and ten milliseconds."""

    key = "page"

    def persistent_state(self) -> WindowState:
        return WindowState(record(total=Sum()), tumbling(10))

    def process_message(self, state: Any, message: Any) -> None:
        assert message.partition == message.order[1]
        state.update(message.timestamp, {"total": message.value["n"]})


class Killing(Totals):
    """Dies at its first message."""

    def process_message(self, state: Any, message: Any) -> None:
        raise Killed("at the first message")


Totals.name = Killing.name = "Totals"  # type: ignore[attr-defined]


def source(rows: Any = EVEN, **options: Any) -> MemorySource:
    return MemorySource(list(rows), timestamp="ts", **{"max_out_of_orderness": 60, **options})


def both(**options: Any) -> dict[str, MemorySource]:
    return {"even": source(EVEN, **options), "odd": source(ODD, **options)}


class Shop:
    """A checkpoint and a sink that live on."""

    def __init__(self) -> None:
        self.storage, self.sink = MemoryStorage(new_nonce()), MemorySink()

    def pipeline(self, source: Any, task: Any = Totals, **options: Any) -> Pipeline:
        return Pipeline(source=source, task=task(), sink=self.sink, checkpoint=self.storage, **options)

    def run(self, source: Any, end: bool = True, task: Any = Totals, **options: Any) -> RunReport:
        return self.pipeline(source, task, **options).run(engine="embedded", end_of_input=end)

    @property
    def newest(self) -> Manifest:
        entry = Log(self.storage).newest()
        assert entry is not None
        return entry.manifest

    def totals(self) -> dict[Any, int]:
        rows = self.sink.rows()
        found = {(row["page"], row["window_start"]): row["total"] for row in rows}
        assert len(found) == len(rows), "a window is published twice"
        return found


@pytest.fixture(scope="module")
def expected() -> Mapping[Any, int]:
    shop = Shop()
    shop.run(source(ROWS))
    return shop.totals()


# -- what they come to ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step_rows", [None, 1, 5])
def test_two_sources_come_to_what_one_with_all_rows_does(step_rows: int | None, expected: Mapping[Any, int]) -> None:
    """The promise: a row counts once, whichever source it comes from and wherever steps end."""
    shop = Shop()
    report = shop.run(both(), step_rows=step_rows)
    assert shop.totals() == expected
    assert (report.rows, report.late, report.dead) == (24, 0, 0)
    assert {name: one.read for name, one in report.ledger.items()} == {"even/memory": 12, "odd/memory": 12}
    assert report.reached == Reached(24, 24, "rows")
    assert verify(shop.storage).ok
    found = verify_source(shop.pipeline(both()), Log(shop.storage).newest())  # type: ignore[arg-type]
    assert found.ok and sum(part.rows for part in found.parts.values()) == 24


def test_late_rows_and_dead_letters_tell_their_source() -> None:
    """Of two topics with a partition 0 each, nobody would know where to look for the record."""
    shop = Shop()
    rows = [{"ts": 50, "page": "a", "n": 1}, {"ts": -1, "page": "a", "n": 1}]
    late = [{"ts": 50, "page": "a", "n": 1}, {"ts": 1, "page": "a", "n": 1}]
    given = {name: source(some, ordered=True, max_out_of_orderness=0) for name, some in (("x", rows), ("y", late))}
    shop.run(given, step_rows=1)
    pipeline = shop.pipeline(given)
    assert pipeline.late()["partition"].to_pylist() == ["y/memory"]
    assert pipeline.dead_letters()["partition"].to_pylist() == ["x/memory"]


def test_the_records_of_two_sources_have_an_order() -> None:
    """By partition: two records at one time and position are still one before the other, wherever they are read."""
    seen = []

    class Watching(Totals):
        name = "Totals"

        def process_message(self, state: Any, message: Any) -> None:
            seen.append(message.order)

    row = {"ts": 1, "page": "a", "n": 1}
    Shop().run({"b": source([row]), "a": source([row])}, task=Watching)
    assert sorted(seen) == [(1, "a/memory", (0, 0)), (1, "b/memory", (0, 0))]


# -- the clock --------------------------------------------------------------------------------------------------------


def test_the_clock_waits_for_the_source_that_is_behind() -> None:
    """Ahead of it, its records would be late."""
    shop = Shop()
    ahead, behind = [{"ts": 500, "page": "a", "n": 1}], [{"ts": 30, "page": "a", "n": 1}]
    given = {"ahead": source(ahead, max_out_of_orderness=0), "behind": source(behind, max_out_of_orderness=4)}
    shop.run(given, end=False)
    assert shop.newest.clock.watermark == 26
    assert shop.newest.clock.largest == {"ahead/memory": 500, "behind/memory": 30}
    given["behind"].rows.append({"ts": 700, "page": "a", "n": 1})
    shop.run(given, end=False)
    assert shop.newest.clock.watermark == 500


def test_each_source_has_its_own_disorder() -> None:
    """By that of another its records would be late, or windows wait for nothing."""
    sources = {
        "a": SourcePart("A", ("0",), {"0": 0}, largest={"0": 50}),
        "b": SourcePart("B", (), {}, largest={"0": 40}),
    }
    step = SourceStep({}, {}, (), {"0": None})
    assert watermark_after({"a": step, "b": step}, sources, {"a": 20, "b": 5}) == 30
    assert watermark_after({"a": step, "b": step}, sources, {"a": 0, "b": 5}) == 35
    assert watermark_after({"a": step, "b": structs.replace(step, cap={})}, sources, {"a": 0, "b": 5}) == 50
    assert watermark_after({"a": structs.replace(step, cap={})}, sources, {"a": 0}) == 0


def test_a_source_without_a_record_yet_holds_the_clock() -> None:
    """What it is about to give may be of any time."""
    shop = Shop()
    given = {"full": source(EVEN), "empty": source([{"ts": -1, "page": "a", "n": 1}])}
    shop.run(given, end=False)
    assert shop.newest.clock.watermark == 0
    assert shop.run(given).open_windows == 0


def plans(**idle: tuple[str | None, ...]) -> dict[str, SourcePlan]:
    """Plans of sources with a partition 0 that counts (None), or rests (its name)."""
    return {name: SourcePlan((), {}, {"0": None}, rests=rests[0]) for name, rests in idle.items()}


def test_a_source_that_is_idle_holds_nobody_back() -> None:
    """Its last partition counts only as long as nothing else does."""
    parts = {"a": SourcePart("A", ("0",), {}, largest={"0": 5}), "b": SourcePart("B", ("0",), {}, largest={"0": 9})}
    counting = plans(a=(None,), b=(None,))
    assert awake(counting, parts) == counting
    one = awake(plans(a=("0",), b=(None,)), parts)
    assert (dict(one["a"].cap), one["a"].idle, dict(one["b"].cap)) == ({}, ("0",), {"0": None})
    all_idle = awake(plans(a=("0",), b=("0",)), parts)
    assert (dict(all_idle["a"].cap), dict(all_idle["b"].cap)) == ({}, {"0": None}), "the farthest counts"
    none = SourcePlan((), {}, {}, idle=("0",))
    assert awake({"a": none, "b": none}, parts) == {"a": none, "b": none}
    assert awake(plans(a=("0",)), parts) == plans(a=("0",)), "of one source its own choice stands"
    even = {name: structs.replace(part, largest={"0": 5}) for name, part in parts.items()}
    last = awake(plans(b=("0",), a=("0",)), even)
    assert (dict(last["a"].cap), dict(last["b"].cap)) == ({}, {"0": None}), "by name, where both are as far"
    new = {"a": parts["a"], "b": SourcePart("B", ("0",), {})}
    assert dict(awake(plans(a=("0",), b=("0",)), new)["a"].cap) == {"0": None}
    mixed = awake({**plans(a=("0",), c=(None,)), "b": none}, parts)
    assert (mixed["a"].idle, mixed["b"], dict(mixed["c"].cap)) == (("0",), none, {"0": None})


# -- sources that come and go ------------------------------------------------------------------------------------------


def test_a_source_may_join_a_job_that_has_begun(expected: Mapping[Any, int]) -> None:
    """A second topic is found a year later; what the first has read stays counted, once."""
    shop = Shop()
    shop.run({"even": source(EVEN)}, end=False)
    first = shop.newest
    assert first.accounts == {"memory": first.accounts["memory"]}
    report = shop.run(both())
    assert shop.totals() == expected and report.rows == 12
    assert any("the source 'odd' is new" in note for note in report.notes)
    assert [*only(shop.newest.tasks).inputs] == ["even", "odd"]
    assert verify(shop.storage).ok and not shop.run(both()).steps
    changes = diff(place(shop.storage, first.id), place(shop.storage)).changes
    assert ("odd/memory", None, [0, 12]) in [(one.name, one.before, one.after) for one in changes]


def test_an_unnamed_source_keeps_its_name_when_another_joins(expected: Mapping[Any, int]) -> None:
    """Its name is its kind."""
    shop = Shop()
    even = source(EVEN)
    shop.run(even, end=False)
    shop.run({"memory": even, "odd": source(ODD)})
    assert shop.totals() == expected and [*shop.newest.sources] == ["memory", "odd"]


def test_a_plan_from_before_a_source_joined_is_run_as_it_was_planned(expected: Mapping[Any, int]) -> None:
    """It may have been read and published already by a driver that was killed."""
    shop = Shop()
    with pytest.raises(Killed):
        shop.run({"even": source(EVEN)}, task=Killing, step_rows=5)
    assert Log(shop.storage).plan(0, 0) is not None
    shop.run(both(), step_rows=5)
    assert shop.totals() == expected
    log = Log(shop.storage)
    steps = [log.read(id).manifest for id in log.ids() if log.read(id).manifest.is_base]
    assert [[*one.sources] for one in steps[:2]] == [["even"], ["even", "odd"]]
    assert {name: one.read for name, one in steps[1].accounts.items()} == {"even/memory": 5, "odd/memory": 0}
    assert verify(shop.storage).ok


def test_a_plan_of_a_source_that_is_gone_is_refused() -> None:
    """Half of it cannot be run; nothing of it is committed."""
    shop = Shop()
    shop.run({"even": source(EVEN[:4])}, end=False)
    with pytest.raises(Killed):
        shop.run(both(), task=Killing)
    with pytest.raises(
        CorruptCheckpoint, match=r"reads even, odd, but the sources .* are even: .* give the pipeline that source again"
    ):
        shop.run({"even": source(EVEN)})
    shop.run(both())
    assert sum(one.read for one in shop.newest.accounts.values()) == 24


@pytest.mark.parametrize(
    "given",
    [{"even": source(EVEN)}, {"even": source(EVEN), "others": source(ODD)}, source(EVEN), {"odd": source(ODD)}],
    ids=["removed", "renamed", "unnamed", "other"],
)
def test_a_source_that_is_left_out_or_renamed_is_refused(given: Any) -> None:
    """Under another name its records would be read again, and count twice; left out, the clock would wait for ever."""
    shop = Shop()
    shop.run(both(), end=False)
    before = shop.storage.list("m")
    with pytest.raises(OtherJob, match=r"has read the sources even, odd; this pipeline lacks .*source=\{'"):
        shop.run(given)
    assert shop.storage.list("m") == before


def test_an_only_source_that_is_renamed_is_refused() -> None:
    """The same, for a job with one."""
    shop = Shop()
    shop.run(source(EVEN), end=False)
    with pytest.raises(OtherJob, match="has read the sources memory; this pipeline lacks memory, and has clicks"):
        shop.run({"clicks": source(EVEN)})


def test_the_order_of_names_means_nothing(expected: Mapping[Any, int]) -> None:
    """A mapping is written in any order."""
    shop = Shop()
    shop.run(both(), end=False, step_rows=5)
    turned = dict(reversed(both().items()))
    assert not shop.run(turned, end=False).steps
    shop.run(turned)
    assert shop.totals() == expected


def test_files_that_change_names_are_refused(tmp_path: Path) -> None:
    """The second folder would be read from where the first was, and its beginning be lost."""

    def files(*folders: str) -> dict[str, FileSource]:
        sources = [FileSource(tmp_path / folder, timestamp="ts", timestamp_unit="ms") for folder in folders]
        return dict(zip("ab", sources))

    for folder, rows in (("even", EVEN), ("odd", ODD)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shop = Shop()
    shop.run(files("even", "odd"), end=False)
    before = shop.storage.list("m")
    with pytest.raises(InvalidPipeline, match="the checkpoint has read files below"):
        shop.run(files("odd", "even"))
    assert shop.storage.list("m") == before


def test_sources_of_two_kinds_keep_theirs() -> None:
    """Their positions mean nothing to each other."""

    class Special(MemorySource):
        kind = "SpecialSource"

    shop = Shop()
    shop.run({"a": source(EVEN), "b": Special(list(ODD), timestamp="ts")}, end=False)
    with pytest.raises(OtherJob, match="its source of b: SpecialSource, this pipeline's: MemorySource"):
        shop.run({"a": source(EVEN), "b": source(ODD)}, end=False)


# -- pure parts --------------------------------------------------------------------------------------------------------


def test_a_commit_moves_each_source_by_its_own_results() -> None:
    """One partition of the same name in both would get the records, time and losses of the other."""
    old = manifest(4, nodes={"Visits": node({}, ("page",))})
    joined = with_sources(
        old,
        structs.replace(
            old,
            sources={"kafka": SourcePart("K", ("memory",), {"memory": 0}, codec="offset/1"), **old.sources},
            tasks={"Visits": TaskPart({"kafka": {"memory": Account()}})},
        ),
    )
    assert [*joined.sources] == ["kafka", "memory"] and {*only(joined.tasks).inputs} == {"kafka", "memory"}
    assert with_sources(joined, joined) is joined
    steps = {
        "kafka": SourceStep({"memory": 0}, {"memory": 7}, (), {"memory": None}, skipped={"memory": 2}),
        "memory": SourceStep({"memory": (0, 0)}, {"memory": (0, 4)}, (), {"memory": None}, joins=()),
    }
    found = results(
        (
            mapped(source="kafka", account=Account(5, 5), largest=90),
            mapped(account=Account(4, 4), largest=25),
            mapped(account=Account(1, 1), largest=20),
        )
    )
    plan = StepPlan("job", 4, 0, "n", 1, steps, {"Visits": TaskStep()})
    new = committed(Entry(joined, "0" * 64, 1), plan, found, lags={"memory": 5})
    assert {name: dict(one.positions) for name, one in new.sources.items()} == {
        "kafka": {"memory": 7},
        "memory": {"memory": (0, 4)},
    }
    assert {name: dict(one.largest) for name, one in new.sources.items()} == {
        "kafka": {"memory": 90},
        "memory": {"memory": 25},
    }
    assert new.tasks["Visits"].inputs == {
        "kafka": {"memory": Account(5, 5, skipped=2)},
        "memory": {"memory": Account(5, 5)},
    }
    assert new.clock.watermark == 20
    assert new.accounts == {"kafka/memory": Account(5, 5, skipped=2), "memory/memory": Account(5, 5)}


def test_progress_is_the_sum_of_what_each_can_tell() -> None:
    """Rows and bytes have no sum; and half of an answer would be taken for all of it."""
    assert together([Reached(1, 2, "rows"), Reached(3, 4, "rows", 5, 6)]) == Reached(4, 6, "rows", 5, 6)
    assert together([Reached(1, 2, "rows"), Reached(3, 4, "bytes")]) is None
    assert together([Reached(1, 2, "rows"), None]) is None
    assert together([Reached(1, 2, "rows")]) == Reached(1, 2, "rows")


def test_two_sources_of_one_topic_are_refused_before_anything_is_written() -> None:
    """By whatever servers they find it: records that both read would count twice."""

    class Topic(MemorySource):
        def plan(self, state: SourceState, *args: Any, **options: Any) -> SourcePlan:
            planned = super().plan(state, *args, **options)
            return replace(planned, recorded={**planned.recorded, "topic_id": "the id"})

    shop = Shop()
    with pytest.raises(
        InvalidPipeline, match=r"'a' and 'b' are the same topic or log \(the id\): records that both read would count"
    ):
        shop.run({"a": Topic(list(EVEN), timestamp="ts"), "b": Topic(list(EVEN), timestamp="ts")})
    assert shop.storage.list("m") == []
    assert shop.run({"a": Topic(list(EVEN), timestamp="ts"), "b": source(ODD)}).rows == 24


# -- operations --------------------------------------------------------------------------------------------------------


def test_a_rollback_behind_a_source_reads_it_again(expected: Mapping[Any, int]) -> None:
    """The state before it joined holds nothing of it."""
    shop = Shop()
    shop.run({"even": source(EVEN)}, end=False)
    before = shop.newest.id
    shop.run(both())
    rollback(shop.storage, before, outputs="retract")
    assert [*shop.newest.sources] == ["even"]
    shop.run(both())
    assert shop.totals() == expected and verify(shop.storage).ok


def test_a_savepoint_has_all_sources_and_more_may_join(expected: Mapping[Any, int]) -> None:
    """A job that starts from it goes on where each of them stood."""
    shop, heir, more = Shop(), Shop(), Shop()
    shop.run(both(), end=False, step_rows=5)
    url = savepoint(shop.storage, "both")
    heir.run(both(), start_from=url)
    assert heir.totals() == expected
    more.run({**both(), "third": source([{"ts": 1, "page": "c", "n": 1}])}, start_from=url)
    assert {key for key in more.totals() if key[0] == "c"}
    with pytest.raises(OtherJob, match="this pipeline lacks odd"):
        Shop().run({"even": source(EVEN)}, start_from=url)


def test_a_restart_reads_each_source_again_from_the_clock() -> None:
    """Records before it are in the state, of each source."""
    shop = Shop()
    shop.run(both(), end=False)
    pipeline = shop.pipeline(both())
    restart(pipeline, 0, outputs="retract")
    newest = shop.newest
    assert {name: dict(one.positions) for name, one in newest.sources.items()} == {
        "even": {"memory": (0, 0)},
        "odd": {"memory": (0, 0)},
    }
    assert {one.since for one in newest.sources.values()} == {0}
    assert shop.run(both()).rows == 24


def test_jobs_over_two_sources_that_have_a_partition_of_one_name_are_merged(expected: Mapping[Any, int]) -> None:
    """Two topics both have a partition 0; the names of their sources tell them apart."""

    def topic(name: str, rows: Any) -> MemorySource:
        class Topic(MemorySource):
            def plan(self, state: SourceState, *args: Any, **options: Any) -> SourcePlan:
                planned = super().plan(state, *args, **options)
                return replace(planned, recorded={**planned.recorded, "topic_id": name})

        return Topic(list(rows), timestamp="ts", max_out_of_orderness=60)

    one, other, merged = Shop(), Shop(), Shop()
    one.run(topic("a", EVEN), end=False)
    other.run(topic("b", ODD), end=False)
    merge(one.storage, other.storage, merged.storage)
    assert {name: one.positions for name, one in merged.newest.sources.items()} == {
        "memory": {"memory": (0, 12)},
        "memory-2": {"memory": (0, 12)},
    }
    report = merged.run({"memory": topic("a", EVEN), "memory-2": topic("b", ODD)})
    assert merged.totals() == expected and report.rows == 0
    assert verify(merged.storage).ok


def test_a_plan_that_starts_elsewhere_names_every_source() -> None:
    """Which of them is not where the checkpoint is."""
    shop = Shop()
    shop.run(both(), end=False)
    with pytest.raises(Killed):
        grown = {**both(), "odd": source([*ODD, {"ts": 99, "page": "a", "n": 1}])}
        shop.run(grown, task=Killing)
    log, newest = Log(shop.storage), shop.newest
    put = log.plan(newest.base, 0)
    assert put is not None
    wrong = structs.replace(put.sources["even"], start={"memory": (0, 11)}, end={"memory": (0, 12)})
    shop.storage.delete(plan_name(newest.base, 0))
    shop.storage.write(plan_name(newest.base, 0), structs.replace(put, sources={**put.sources, "even": wrong}).encode())
    with pytest.raises(
        CorruptCheckpoint, match=r"starts at \{'even': \{'memory': \(0, 11\)\}, 'odd'.* the checkpoint is"
    ):
        shop.run(grown)
    assert "does not start at the positions of checkpoint" in str(verify(shop.storage).findings)


def test_a_plan_that_leaves_out_a_source_is_refused() -> None:
    """One that the checkpoint has read from stands in every plan since."""
    shop = Shop()
    shop.run(both(), end=False)
    more = {"ts": 99, "page": "a", "n": 1}
    grown = {"even": source([*EVEN, more]), "odd": source(ODD)}
    with pytest.raises(Killed):
        shop.run(grown, task=Killing)
    put = Log(shop.storage).plan(shop.newest.base, 0)
    assert put is not None
    name = plan_name(shop.newest.base, 0)
    shop.storage.delete(name)
    shop.storage.write(name, structs.replace(put, sources={"even": put.sources["even"]}).encode())
    with pytest.raises(
        CorruptCheckpoint, match=r"starts at \{'memory': \(0, 12\)\}, but the checkpoint is at \{'even'"
    ):
        shop.run(grown)


# -- shares and numbers ------------------------------------------------------------------------------------------------


def bench(**values: Any) -> Any:
    """What a step is planned with."""
    options = SimpleNamespace(step_rows=values.pop("step_rows", None), end_of_input=values.pop("ends", False))
    fields = {
        "busy": 2,
        "adopts": False,
        "split_rows": 1,
        "corrects": None,
        "options": options,
        "engine": SimpleNamespace(parallelism=4),
    }
    return SimpleNamespace(**{**fields, **values})


def test_each_source_has_a_share_of_a_step() -> None:
    """All of it for each, and a step with ten sources takes ten times as long as one with one."""
    assert _budget(bench(), 64, 0) == Budget(32, False, 2)
    assert _budget(bench(busy=1), 64, 0) == Budget(64, False, 4)
    assert _budget(bench(busy=8), 3, 0) == Budget(1, False, 1)
    assert _budget(bench(), 64, 1) == Budget(4, False, 2)
    assert _budget(bench(adopts=True), 64, 1) == Budget(32, False, 2)
    assert _budget(bench(ends=True), 64, 0) == Budget(32, False, 2, ends=True)
    assert _budget(bench(step_rows=7), 64, 1) == Budget(7, True, 2), "of each: by the positions alone"


class Forgetting(MemorySource):
    """Says that records are gone."""

    forgets = True
    gone = True

    def has_forgotten(self, splits: Any, recorded: Any) -> bool:
        return self.gone and bool(splits)


def test_a_plan_whose_records_one_source_has_forgotten_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """It can never be run; and those of the other source would wait for it for ever."""
    step = SourceStep({"memory": (0, 0)}, {"memory": (0, 1)}, (Split("memory", (Span(0, 0, 1),)),), {"memory": None})
    put = StepPlan("job", 4, 2, "n", 1, {"a": step, "b": step}, {"Visits": TaskStep()})
    given = {"a": source(), "b": Forgetting(list(ODD), timestamp="ts")}
    log = SimpleNamespace(plan=lambda base, number: put if (base, number) == (4, 2) else None)
    job = SimpleNamespace(sources=given, storage=SimpleNamespace(url="url"))
    assert plan_number(bench(job=job, log=log), manifest(4, replan=2)) == 3
    assert "url/p/00000000000000000004-2.json: the source no longer has records of this plan" in caplog.text
    assert plan_number(bench(job=job, log=log), manifest(4, replan=1)) == 1, "no plan is put"
    given["b"].gone = False
    assert plan_number(bench(job=job, log=log), manifest(4, replan=2)) == 2
    given["b"] = source()
    assert plan_number(bench(job=job, log=log), manifest(4, replan=2)) == 2


class Holding(MemorySource):
    """Has records behind an open transaction."""

    def plan(self, state: SourceState, *args: Any, **options: Any) -> SourcePlan:
        return replace(super().plan(state, *args, **options), held=True)


def test_input_that_one_source_holds_back_has_not_ended(caplog: pytest.LogCaptureFixture) -> None:
    """The windows would close without it."""
    shop = Shop()
    assert shop.run({"even": source(EVEN), "odd": Holding(list(ODD), timestamp="ts")}).open_windows
    assert "some records cannot be read yet, behind an open transaction" in caplog.text
    assert not shop.newest.clock.end_of_input
    assert not shop.run(both()).open_windows


def test_a_plan_that_is_found_is_read_by_the_options_it_was_made_with() -> None:
    """Another unit of time would put its records into other windows."""
    shop = Shop()
    shop.run(both(), end=False)
    with pytest.raises(Killed):
        shop.run({"even": source(EVEN), "odd": source([*ODD, {"ts": 99, "page": "a", "n": 1}])}, task=Killing)
    for name in ("even", "odd"):
        with pytest.raises(InvalidPipeline, match="timestamp_unit"):
            shop.run({**both(), name: source(EVEN, timestamp_unit="s")})
