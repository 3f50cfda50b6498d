"""One record with a time far ahead has closed every window: the job goes back to before it, and it is a dead letter."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from monoids import Count
from persistent import (
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    Refused,
    Retention,
    RunReport,
    StillRunning,
    WindowState,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.running import put_mark
from persistent.driver import step_effects
from persistent.operations import (
    Undone,
    compact,
    lift_limit,
    merge,
    pin,
    restart,
    rollback,
    savepoint,
    set_back,
    undone,
)
from persistent.storage import MemoryStorage
from persistent.testing.faults import FaultyStorage, Killed, Operations
from persistent.verify import verify, verify_source
from tests.checkpoint.samples import body_of

HOUR = 3_600_000
POISON = 50 * HOUR


class Visits(PersistentTask):
    """Visits by page and hour."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("1 h"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class Totals(Visits):
    """Visits by page."""

    def persistent_state(self) -> Any:
        return NonWindowState(Count())


class Shop:
    """A job whose rows come in steps of two."""

    def __init__(self, *times: int, **options: Any) -> None:
        self.rows = [{"ts": time, "page": "a"} for time in times]
        self.storage, self.sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
        self.options = {"step_rows": 2, "retention": Retention(last=30), **options}

    def pipeline(self, **options: Any) -> Pipeline:
        source = MemorySource(self.rows, ordered=True)
        given = {"source": source, "task": Visits(), "sink": self.sink, "checkpoint": self.storage}
        return Pipeline(**{**given, **self.options, **options})

    def run(self, end: bool = False, **options: Any) -> RunReport:
        return self.pipeline(**options).run(engine="embedded", end_of_input=end)

    @property
    def newest(self) -> Manifest:
        entry = Log(self.storage).newest()
        assert entry is not None
        return entry.manifest

    def published(self) -> list[tuple[int, int]]:
        """The hour of each window, and its value."""
        return sorted((int(row["window_start"].timestamp() * 1_000) // HOUR, row["value"]) for row in self.sink.rows())

    def back(self, limit: int = 9 * HOUR, outputs: str = "retract") -> Manifest:
        return set_back(self.storage, not_after=limit, outputs=outputs).manifest

    @property
    def account(self) -> tuple[int, int, int]:
        """Processed, late and dead."""
        account = self.newest.accounts["memory"]
        return account.processed, account.late, account.dead


HOURS = [0, 1, 2, 3, 4, 50, 5, 6, 7, 8]
"""The sixth record is far ahead."""


def poisoned(**options: Any) -> Shop:
    shop = Shop(*(hour * HOUR for hour in HOURS), **options)
    shop.run()
    return shop


def test_a_poisoned_clock_is_repaired() -> None:
    """A regression of other systems: one record closes the windows of two days, and all later ones are dropped. Set
    back, the job comes to what it would have without that record, which is a dead letter."""
    shop = poisoned()
    assert shop.account == (6, 4, 0) and shop.newest.clock.watermark == POISON
    back = shop.back()
    assert (back.kind, back.target, back.not_after) == ("rollback", 3, 9 * HOUR) and back.clock.watermark == 3 * HOUR
    report = shop.run(end=True)
    sound = Shop(*(hour * HOUR for hour in HOURS if hour != 50))
    sound.run(end=True)
    assert shop.published() == sound.published() == [(hour, 1) for hour in range(9)]
    assert shop.account == (9, 0, 1)
    assert shop.pipeline().dead_letters()["timestamp"].to_pylist() == [POISON]
    (reason,) = shop.pipeline().dead_letters()["reason"].to_pylist()
    assert "1970-01-03 02:00:00Z is after 1970-01-01 09:00:00Z, the limit of a clock that was set back" in reason
    assert any("timestamps after 1970-01-01 09:00:00Z are dead letters" in note for note in report.notes)
    assert any(f"'persistent clock {shop.storage.url} --not-after none'" in note for note in report.notes)
    assert verify(shop.storage).ok
    assert verify_source(shop.pipeline(), Log(shop.storage).newest()).ok  # type: ignore[arg-type]


def test_what_it_undoes_is_told_before_and_changes_nothing() -> None:
    """Nobody should have to find out from the sink."""
    shop = poisoned()
    before = {folder: shop.storage.list(folder) for folder in ("m", "p", "d/Visits")}
    found = undone(shop.storage, 9 * HOUR)
    assert {folder: shop.storage.list(folder) for folder in before} == before
    assert found == Undone(
        target=3,
        checkpoints=tuple(id for id in sorted(shop.newest.bases) if id > 3),
        clock=(POISON, 3 * HOUR),
        closed=(POISON, HOUR),
        records=6,
        outputs=4,
        sinks=("memory",),
    )
    text = str(found)
    assert text.startswith("back to checkpoint 3: the clock goes from 1970-01-03 02:00:00Z to 1970-01-01 03:00:00Z; ")
    ids = ", ".join(map(str, found.checkpoints))
    assert (
        f"the checkpoints after it ({ids}) are undone, and 6 records will be read again" in text
        and "; 4 rows of the kept ones among these checkpoints went to memory" in text
    )
    assert "the windows that end after 1970-01-01 01:00:00Z, up to 1970-01-03 02:00:00Z, open again" in text
    quiet = replace(found, sinks=(), outputs=0)
    assert "went to" not in str(quiet) and "have published nothing" in str(quiet)
    bare = poisoned(sink=None, discard_closed=True)
    assert "rows" not in str(undone(bare.storage, 9 * HOUR))
    total = poisoned(task=Totals())
    assert undone(total.storage, 9 * HOUR).closed is None and "windows" not in str(undone(total.storage, 9 * HOUR))
    assert str(replace(found, checkpoints=())).count("the checkpoints after it are undone") == 1, "they are lost"


class ByHourAndInAll(Visits):
    def persistent_state(self) -> Any:
        return {"hour": super().persistent_state(), "total": NonWindowState(Count())}

    def process_message(self, state: Any, message: Any) -> None:
        for one in state.values():
            one.update(message.timestamp, 1)


def test_only_sinks_that_were_given_rows_are_named() -> None:
    """Somebody would look in the sink of totals for rows to take back, which has none."""
    shop = poisoned(task=ByHourAndInAll(), sink={"hour": MemorySink(), "total": MemorySink()})
    found = undone(shop.storage, 9 * HOUR)
    assert found.sinks == ("hour",) and found.outputs > 0


def test_the_limit_itself_is_good() -> None:
    """Whoever names the last good time means it to count: in a checkpoint, and in a record."""
    shop = poisoned()
    assert undone(shop.storage, 3 * HOUR).target == 3
    assert undone(shop.storage, 3 * HOUR - 1).target == 2
    shop.back(8 * HOUR)
    shop.run(end=True)
    assert shop.account == (9, 0, 1)
    less = poisoned()
    less.back(8 * HOUR - 1)
    less.run(end=True)
    assert less.account == (8, 0, 2)


def test_a_timestamp_that_has_not_moved_the_clock_yet_counts() -> None:
    """With disorder allowed, or another source behind, the clock follows later: the record is in the state all the
    same."""
    shop = Shop(0, HOUR, 2 * HOUR, POISON)
    slow = MemorySource([{"ts": 5, "page": "b"}], ordered=True)
    sources = {"memory": MemorySource(shop.rows, ordered=True), "slow": slow}
    shop.run(source=sources)
    assert shop.newest.clock.watermark == 5
    assert undone(shop.storage, 9 * HOUR).target == 2


def test_there_must_be_something_to_set_back() -> None:
    """A limit below the records to come would turn all of them into dead letters, for nothing."""
    shop = Shop(0, HOUR)
    shop.run()
    for call in (lambda: undone(shop.storage, HOUR), lambda: shop.back(HOUR)):
        with pytest.raises(Refused, match="nothing after 1970-01-01 01:00:00Z was counted, and the clock stands at"):
            call()
    assert shop.newest.not_after is None
    with pytest.raises(Refused, match="outputs='keep'"):
        shop.back(0, outputs="keep")


def test_where_no_checkpoint_from_before_is_kept_it_says_what_remains() -> None:
    """Retention has a reach; behind it only a copy, or the source, helps."""
    shop = poisoned(retention=Retention(last=2))
    before = Log(shop.storage).ids()
    with pytest.raises(Refused, match="keeps no checkpoint from before: each has counted a timestamp after") as told:
        shop.back()
    for way in (
        "start_from",
        "new checkpoint that reads the source again",
        "max_future=",
        "persistent late",
        "retention=",
    ):
        assert way in str(told.value)
    assert "the earliest up to 1970-01-03 02:00:00Z. Nothing was changed" in str(told.value)
    assert Log(shop.storage).ids() == before


def test_a_branch_whose_outputs_were_taken_back_is_no_target() -> None:
    """Its windows would never be published again."""
    shop = poisoned()
    rollback(shop.storage, 2, outputs="retract")
    shop.run()
    assert shop.newest.clock.watermark == POISON
    target = undone(shop.storage, 9 * HOUR).target
    assert target > 3, "checkpoint 3 is of the branch that was left"
    assert all(id > target for id in undone(shop.storage, 9 * HOUR).checkpoints)
    shop.back()
    shop.run(end=True)
    assert shop.published() == [(hour, 1) for hour in range(9)]


def test_a_driver_that_runs_is_not_overtaken_unasked() -> None:
    """As by a rollback."""
    shop = poisoned()
    put_mark(shop.storage, shop.newest.epoch, "another")
    with pytest.raises(StillRunning):
        shop.back()
    assert set_back(shop.storage, not_after=9 * HOUR, outputs="retract", take_over=True).manifest.target == 3


# -- the limit lasts ---------------------------------------------------------------------------------------------------


def test_the_limit_outlives_every_kind_of_manifest() -> None:
    """Lost once, the record would poison the clock again."""
    shop = poisoned()
    shop.back()
    shop.run()
    compact(shop.pipeline())
    pin(shop.storage, shop.newest.base)
    rollback(shop.storage, 2, outputs="retract")
    assert shop.newest.not_after == 9 * HOUR, "a rollback to before the limit keeps it"
    shop.run()
    restart(shop.pipeline(), 2 * HOUR, outputs="retract")
    shop.run()
    assert shop.newest.not_after == 9 * HOUR and shop.newest.clock.watermark <= 9 * HOUR
    document = body_of(shop.newest.encode(), "m")
    assert document["not_after"] == 9 * HOUR
    assert Manifest.decode(shop.newest.encode(), "m") == shop.newest
    url = savepoint(shop.storage, "good")
    heir = Shop(*(hour * HOUR for hour in HOURS))
    heir.run(start_from=url)
    assert heir.newest.not_after == 9 * HOUR
    assert verify(shop.storage).ok and verify(heir.storage).ok


def test_a_lifted_limit_is_gone_for_good() -> None:
    """When the time it names has come, every record would be a dead letter."""
    shop = poisoned()
    shop.back()
    shop.run()
    epoch = shop.newest.epoch
    assert lift_limit(shop.storage).manifest.not_after is None
    assert shop.newest.kind == "fence" and shop.newest.epoch == epoch + 1
    assert "not_after" not in body_of(shop.newest.encode(), "m")
    again = lift_limit(shop.storage)
    assert again.manifest.id == shop.newest.id, "without one nothing is put"
    shop.rows += [{"ts": 9 * HOUR + 1, "page": "a"}, {"ts": 20 * HOUR, "page": "a"}]
    report = shop.run(end=True)
    assert shop.account == (11, 0, 1) and not any("dead letters" in note for note in report.notes)


def test_a_plan_that_is_found_again_judges_as_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lifted in between, the same step would count what it had set aside."""
    shop = poisoned()
    shop.back()
    items = step_effects._run_items

    def die(*arguments: Any) -> None:
        raise Killed("before the map")

    shop.run(step_rows=1)
    shop.back(4 * HOUR)
    monkeypatch.setattr(step_effects, "_run_items", die)
    with pytest.raises(Killed):
        shop.run(step_rows=30)
    monkeypatch.setattr(step_effects, "_run_items", items)
    put = Log(shop.storage).plan(shop.newest.base, 0)
    assert put is not None and put.not_after == 4 * HOUR
    document = body_of(put.encode(), "p")
    assert document["not_after"] == 4 * HOUR
    lift_limit(shop.storage, take_over=True)
    shop.run(step_rows=30)
    assert shop.account == (5, 0, 5)


def test_jobs_with_different_limits_are_not_merged() -> None:
    """Under one limit, good records of the other would become dead letters."""

    class Other(MemorySource):
        def partitions(self) -> Any:
            return ("other",)

        def plan(self, state: Any, budget: Any, **options: Any) -> Any:
            position = state.positions.get("other", (0, 0))
            planned = super().plan(replace(state, positions={"memory": position}), budget, **options)
            renamed = tuple(structs.replace(split, partition="other") for split in planned.splits)
            (end,), (cap,) = planned.end.values(), planned.cap.values()
            return replace(planned, splits=renamed, end={"other": end}, cap={"other": cap})

        kind = "MemorySource"

    one, other, into = poisoned(), Shop(0, HOUR), MemoryStorage(uuid.uuid4().hex)
    reads = {"source": Other(other.rows, ordered=True)}
    other.run(**reads)
    one.back()
    one.run(end=True)
    with pytest.raises(Refused, match=r"letters after 1970-01-01 09:00:00Z in .*, after none in .*--not-after none"):
        merge(one.storage, other.storage, into)
    other.rows.append({"ts": POISON, "page": "a"})
    other.run(**reads)
    other.back()
    other.run(end=True, **reads)
    assert merge(one.storage, other.storage, into).manifest.not_after == 9 * HOUR


# -- whenever it is killed ------------------------------------------------------------------------------------------


def test_killed_at_any_operation_it_has_happened_or_not() -> None:
    """Half of it would be a rollback without the limit, and the record would come again."""
    operations = Operations()
    shop = poisoned()
    set_back(FaultyStorage(shop.storage, operations), not_after=9 * HOUR, outputs="retract")
    assert operations.count > 8
    for death in range(0, operations.count, 4):
        shop = poisoned()
        with pytest.raises(Killed):
            set_back(FaultyStorage(shop.storage, Operations(at=death)), not_after=9 * HOUR, outputs="retract")
        newest = shop.newest
        assert (newest.kind == "rollback") == (newest.not_after is not None)
        if newest.kind != "rollback":
            shop.back()
        shop.run(end=True)
        assert shop.published() == [(hour, 1) for hour in range(9)] and shop.account == (9, 0, 1)


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 9), st.integers(0, 40), st.sampled_from([1, 2, 3]), st.sampled_from(["retract", "again"]))
def test_wherever_the_record_comes_the_result_is_that_without_it(
    place: int, ahead: int, step_rows: int, outputs: str
) -> None:
    """Each window has each good record once, whichever checkpoint the job goes back to."""
    good = [hour * HOUR for hour in range(10)]
    shop = Shop(*good[:place], (11 + ahead) * HOUR, *good[place:], step_rows=step_rows)
    shop.run()
    shop.back(10 * HOUR, outputs=outputs)
    shop.run(end=True)
    assert shop.account == (10, 0, 1)
    if outputs == "retract":
        assert shop.published() == [(hour, 1) for hour in range(10)]
    assert {hour for hour, _ in shop.published()} >= set(range(10))
