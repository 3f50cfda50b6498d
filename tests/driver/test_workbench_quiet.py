"""A stream goes quiet: its last windows close, by the time that this driver has watched, and no other time counts."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monoids import Count
from persistent import (
    InvalidPipeline,
    MemorySink,
    MemorySource,
    NonWindowState,
    PersistentTask,
    Pipeline,
    WindowState,
    then,
    tumbling,
)
from persistent.checkpoint.log import Log
from persistent.checkpoint.manifest import Manifest
from persistent.checkpoint.parts import NodeClock
from persistent.connect.source import SourcePlan, Span, Split
from persistent.driver import open_job, step_effects
from persistent.driver.open_job import Driver
from persistent.driver.options import Options
from persistent.driver.workbench import QuietWatch
from persistent.engines.embedded import Embedded
from persistent.storage import MemoryStorage
from persistent.testing import ManualClock
from persistent.testing.faults import FaultyStorage, Operations
from persistent.time.clock import Clock
from persistent.verify import verify
from tests.checkpoint.samples import body_of, manifest
from tests.faults import Killed
from tests.few import examples
from tests.single import only
from tests.topics import Topic, TopicSource

MINUTE = 60_000
YEAR_2013 = 1_387_497_600_000


class Visits(PersistentTask):
    """Visits by page and minute."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)


class Shop:
    """Rows that may grow, a checkpoint and a sink; a run follows them, and leaves when its script ends."""

    def __init__(self, *times: int, **options: Any) -> None:
        self.rows = [self.row(time) for time in times]
        self.storage, self.sink = MemoryStorage(uuid.uuid4().hex), MemorySink()
        self.options = {"quiet_after": "10 min", "task": Visits(), **options}

    @staticmethod
    def row(time: int) -> dict[str, Any]:
        return {"ts": time, "page": "a"}

    def add(self, *times: int) -> None:
        self.rows += map(self.row, times)

    def pipeline(self, **options: Any) -> Pipeline:
        source = MemorySource(self.rows, ordered=True)
        given = {"source": source, "sink": self.sink, "checkpoint": self.storage, **self.options, **options}
        return Pipeline(**given)

    def follow(self, *script: Callable[[], object], **options: Any) -> None:
        """Run, and do one thing of the script at each look that finds nothing to do."""
        pipeline, events = self.pipeline(**options), iter(script)

        def on_idle(idle: Any) -> None:
            event = next(events, None)
            (driver.stop if event is None else event)()

        given = Options(pipeline.step_rows, follow=True, on_idle=on_idle, quiet_after_ms=pipeline.quiet_after_ms)
        driver = Driver(pipeline.job(), Embedded(1), given)
        driver.run()

    @property
    def newest(self) -> Manifest:
        entry = Log(self.storage).newest()
        assert entry is not None
        return entry.manifest

    @property
    def watermark(self) -> int:
        return self.newest.clock.watermark

    def published(self) -> list[tuple[int, int]]:
        """The end of each window, in minutes since the first, and its value."""
        return [(int(row["window_end"].timestamp() * 1_000) // MINUTE, row["value"]) for row in self.sink.rows()]


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Iterator[ManualClock]:
    monkeypatch.setattr(open_job, "_POLL_SECONDS", 0.0)
    with ManualClock() as manual:
        yield manual


def passes(time: ManualClock, duration: Any) -> Callable[[], None]:
    return lambda: time.advance(duration)


def test_a_window_closes_although_the_stream_went_quiet(time: ManualClock) -> None:
    """A regression of other systems: the last window of the evening stays open until the first record of the
    morning."""
    shop = Shop(5, 70_000)
    shop.follow(*[passes(time, "1 min")] * 30, quiet_after=None)
    assert shop.published() == [(1, 1)], "without the option the clock waits for a record"
    quiet = Shop(5, 70_000)
    quiet.follow(*[passes(time, "1 min")] * 9)
    assert quiet.published() == [(1, 1)] and quiet.watermark == 70_000
    quiet.follow(*[passes(time, "1 min")] * 10)
    assert quiet.published() == [(1, 1), (2, 1)] and quiet.watermark == 70_000 + 10 * MINUTE
    assert quiet.newest.clock.closed == quiet.watermark and verify(quiet.storage).ok


def test_a_replay_of_old_data_stays_in_its_time(time: ManualClock) -> None:
    """A regression of other systems: the clock jumps to the time of day, and the rest of 2013 is late."""
    shop = Shop(YEAR_2013, YEAR_2013 + 5)
    shop.follow(passes(time, "12 min"), passes(time, "1 ms"))
    assert shop.watermark == YEAR_2013 + 5 + 12 * MINUTE
    shop.add(YEAR_2013 + 13 * MINUTE)
    shop.follow()
    assert shop.newest.accounts["memory"].late == 0


def test_a_backlog_after_a_restart_is_not_quiet(time: ManualClock) -> None:
    """A regression of other systems: hours in which no driver ran count as idle, and what waited is late."""
    shop = Shop(5, step_rows=2)
    shop.follow(passes(time, "9 min"))
    time.advance("5 h")
    shop.add(*range(10, 70_000, 10_000))
    seen: list[int] = []
    shop.follow(lambda: seen.append(shop.watermark), passes(time, "9 min"), lambda: seen.append(shop.watermark))
    assert seen == [60_010, 60_010] and shop.newest.accounts["memory"].late == 0
    assert shop.newest.nodes["Visits"].clock.quiet_ms == 0


def test_a_restart_in_the_middle_continues_without_a_jump(time: ManualClock) -> None:
    """Each driver watches anew before the clock moves; then it moves by what all of them have watched, and nothing
    else."""
    shop = Shop(5)
    shop.follow(passes(time, "12 min"), passes(time, 0))
    assert shop.watermark == 5 + 12 * MINUTE and shop.newest.nodes["Visits"].clock.quiet_ms == 12 * MINUTE
    shop.add(13 * MINUTE + 5)
    shop.follow(passes(time, "11 min"), passes(time, 0))
    assert shop.watermark == 24 * MINUTE + 5 and shop.newest.nodes["Visits"].clock.quiet_ms == 11 * MINUTE
    document = body_of(shop.newest.encode(), "m")
    assert document["nodes"]["Visits"]["clock"]["quiet_ms"] == 11 * MINUTE
    assert Manifest.decode(shop.newest.encode(), "m") == shop.newest


def test_the_time_of_several_drivers_is_added_up(time: ManualClock) -> None:
    """A window may take longer than a driver lives. The hours between them are nobody's."""
    seen: list[int] = []
    shop = Shop(5, 19 * MINUTE, task=Twice(), quiet_after="2 min")
    shop.follow(passes(time, "3 min"), passes(time, 0))
    assert shop.newest.nodes["Twice"].clock.quiet_ms == 3 * MINUTE
    time.advance("2 h")
    shop.follow(
        passes(time, "1 min"), passes(time, "16 min"), lambda: seen.append(shop.watermark), passes(time, "1 min")
    )
    assert seen == [22 * MINUTE] and shop.watermark == 40 * MINUTE
    assert shop.newest.nodes["Twice"].clock.quiet_ms == 21 * MINUTE


class Wide(Visits):
    """In windows of half an hour."""

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("30 min"))


class Twice(Visits):
    """Each visit counts in its window of twenty minutes, and in the one after it."""

    def persistent_state(self) -> Any:
        return WindowState(Count(), tumbling("20 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1)
        state.update(message.timestamp + 20 * MINUTE, 1)


def test_a_record_behind_the_clock_is_late_and_one_that_comes_begins_anew(time: ManualClock) -> None:
    """The minutes of two silences do not add up: the clock would run away from the records."""
    shop = Shop(5)
    shop.follow(
        passes(time, "12 min"),
        lambda: shop.add(30_000, 12 * MINUTE + 30_000),
        passes(time, "9 min"),
        lambda: shop.add(12 * MINUTE + 31_000),
        passes(time, "9 min"),
        passes(time, "1 min"),
        passes(time, 0),
    )
    assert shop.newest.accounts["memory"].late == 1
    assert shop.watermark == 22 * MINUTE + 31_000
    assert shop.published() == [(1, 1), (13, 2)]
    sparse = Shop(0, task=Wide())
    sparse.follow(passes(time, "40 min"), lambda: sparse.add(31 * MINUTE), passes(time, "9 min"))
    assert sparse.watermark == 40 * MINUTE, "31 minutes and 9 are not yet over it"


def test_a_clock_that_is_ahead_of_the_records_waits_for_them(time: ManualClock) -> None:
    """It moved by forty minutes; the record then says that only one has passed."""
    shop = Shop(0, quiet_after="5 min")
    shop.follow(passes(time, "40 min"), passes(time, 0), lambda: shop.add(41 * MINUTE), passes(time, "4 min"))
    assert shop.watermark == 41 * MINUTE
    back = Shop(0, task=Wide(), quiet_after="5 min")
    back.follow(passes(time, "40 min"), lambda: back.add(32 * MINUTE), passes(time, "20 min"), passes(time, 0))
    assert back.watermark == 40 * MINUTE, "32 and 20 minutes: the window is not over"
    back.follow(passes(time, "28 min"), passes(time, 0))
    assert back.watermark == 60 * MINUTE


def test_a_history_that_has_ended_does_not_hold_its_last_window_open(time: ManualClock) -> None:
    """The stream that goes on where it ends may have no record yet, and then nothing awake has a time."""
    rows = [Shop.row(minute * MINUTE) for minute in range(3)]
    source = then(MemorySource(rows), MemorySource(rows, ordered=True), at=4 * MINUTE)
    shop = Shop(source=source)
    shop.follow(passes(time, "20 min"), passes(time, 0), passes(time, "15 min"), passes(time, 0))
    assert shop.watermark == 22 * MINUTE, "the last window is over, and no other is open"
    assert len(shop.sink.rows()) == 3


def test_a_plan_that_is_found_again_moves_the_clock_equally(time: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has come since, and whatever the option says now: what the step depends on stands in its plan."""
    shop, items = Shop(5), step_effects._run_items

    def die(*arguments: Any) -> None:
        raise Killed("before the map")

    def dies() -> None:
        monkeypatch.setattr(step_effects, "_run_items", die)
        time.advance("12 min")

    with pytest.raises(Killed):
        shop.follow(dies)
    monkeypatch.setattr(step_effects, "_run_items", items)
    base = shop.newest.base
    put = Log(shop.storage).plan(base, 0)
    assert put is not None and put.quiet_ms == 12 * MINUTE
    document = body_of(put.encode(), "p")
    assert document["quiet_ms"] == put.quiet_ms
    shop.add(10, 70_000)
    shop.pipeline(quiet_after=None, step_rows=1).run(engine="embedded")
    after = Log(shop.storage).read(min(id for id in Log(shop.storage).ids() if shop_base(shop, id) > base)).manifest
    assert after.clock.watermark == 5 + put.quiet_ms
    assert shop.newest.accounts["memory"].late == 2 and verify(shop.storage).ok


def shop_base(shop: Shop, id: int) -> int:
    return Log(shop.storage).read(id).manifest.base


def test_a_run_that_does_not_wait_has_no_quiet_time(time: ManualClock) -> None:
    """A drain every hour sees nothing of what came and went between."""
    shop = Shop(5)
    for _ in range(3):
        shop.pipeline().run(engine="embedded")
        time.advance("1 h")
    assert shop.watermark == 5 and shop.published() == []


def test_nothing_is_put_while_no_window_is_over(time: ManualClock) -> None:
    """Else a quiet weekend would push every older checkpoint out of retention."""
    shop = Shop(5, 70_000)
    shop.follow(*[passes(time, "11 min")] * 4)
    steps = shop.newest.base
    shop.follow(*[passes(time, "11 min")] * 20)
    assert shop.newest.base == steps and shop.newest.clock.closed >= 2 * MINUTE
    totals = Shop(5, task=Totals())
    totals.follow(*[passes(time, "11 min")] * 4)
    assert totals.watermark == 5, "a state without windows waits for nothing"


class Totals(Visits):
    def persistent_state(self) -> Any:
        return NonWindowState(Count())


def test_every_source_has_to_be_quiet(time: ManualClock) -> None:
    """The records of the other would be late."""
    shop, other = Shop(5), [Shop.row(7)]
    sources = {"one": MemorySource(shop.rows, ordered=True), "other": MemorySource(other, ordered=True)}

    def more() -> None:
        time.advance("9 min")
        other.append(Shop.row(other[-1]["ts"] + 9_000))

    shop.follow(more, more, more, source=sources)
    assert shop.watermark == 5 and shop.published() == []
    shop.follow(passes(time, "10 min"), passes(time, 0), source=sources)
    assert shop.watermark == 5 + 10 * MINUTE, "from where the clock stands, which is the slower of the two"


def test_what_a_transaction_holds_back_is_not_quiet(time: ManualClock) -> None:
    """The records are there, and cannot be read yet."""
    topic = Topic(a=[5, 70_000])
    topic.held["a"] = 1
    shop = Shop()
    source = TopicSource(topic)
    shop.follow(*[passes(time, "11 min")] * 3, source=source)
    assert shop.watermark == 5
    topic.held.clear()
    shop.follow(*[passes(time, "11 min")] * 2, source=source)
    assert shop.newest.accounts["a"].late == 0 and shop.watermark == 70_000 + 11 * MINUTE


def test_an_idle_partition_pins_nothing_and_a_quiet_stream_moves_on_from_there(time: ManualClock) -> None:
    """A regression of other systems: one silent partition holds every window open. ``idle_timeout`` releases the
    partition, ``quiet_after`` moves on from the clock of the others."""
    topic = Topic(a=[5, 20 * MINUTE], b=[7], c=[])
    shop = Shop()
    shop.follow(*[passes(time, "4 min")] * 2, source=TopicSource(topic))
    assert shop.watermark == 0, "without a timeout the empty partition is waited for"
    shop.follow(*[passes(time, "4 min")] * 2, source=TopicSource(topic, idle_timeout_ms=3 * MINUTE))
    assert shop.watermark == 20 * MINUTE and only(shop.newest.sources).idle == ("b", "c")
    shop.follow(*[passes(time, "4 min")] * 4, source=TopicSource(topic, idle_timeout_ms=3 * MINUTE))
    assert shop.watermark == 32 * MINUTE and shop.published() == [(1, 1), (1, 1), (21, 1)]


@pytest.mark.parametrize("value", [0, "0 s", -1, "soon", 1.5])
def test_a_duration_that_makes_no_sense_is_refused(value: Any) -> None:
    """At once, every record would be late."""
    with pytest.raises(InvalidPipeline, match="quiet_after"):
        Shop(quiet_after=value).pipeline()


def test_killed_at_any_operation_a_quiet_stream_comes_to_the_same(time: ManualClock) -> None:
    """The plan of a quiet step is put, then mapped, committed and published; each window is published once."""

    def tells(shop: Shop, storage: Any) -> None:
        def more() -> None:
            shop.add(*[40 * MINUTE] * (len(shop.rows) == 2))

        while True:
            waits = [passes(time, "6 min")] * 5
            try:
                shop.follow(*waits, more, *waits, checkpoint=storage)
            except Killed:
                storage = shop.storage
            else:
                return

    operations = Operations()
    shop = Shop(5, 70_000)
    tells(shop, FaultyStorage(shop.storage, operations))
    expected = [(1, 1), (2, 1), (41, 1)]
    assert shop.published() == expected and operations.count > 50
    for death in range(0, operations.count, 5):
        shop = Shop(5, 70_000)
        tells(shop, FaultyStorage(shop.storage, Operations(at=death)))
        assert shop.published() == expected and verify(shop.storage).ok, death


# -- the watch -----------------------------------------------------------------------------------------------------


NOTHING = {"memory": SourcePlan((), {}, {})}


def look(
    watch: QuietWatch, time: ManualClock, *, took: int = 0, plan: Any = NOTHING, at: int = 0, before: int = 0
) -> None:
    """One look, which takes so long, from that position of a checkpoint whose clock has moved on by ``before``."""
    last = manifest(1, clock=Clock(0, 0))
    last = replace(
        last,
        sources={"memory": replace(only(last.sources), positions={"memory": (0, at)})},
        nodes={"Visits": replace(last.nodes["Visits"], clock=NodeClock(quiet_ms=before))},
    )
    began = time._read("perf_counter")
    time.advance(took)
    watch.saw(plan, last, began)


def test_only_time_between_looks_that_found_nothing_counts(time: ManualClock) -> None:
    """In one that waits for a server that is away, producers may have waited too."""
    watch = QuietWatch()
    assert watch.lasts_ms(0) == 0
    look(watch, time, took=5_000, before=70)
    assert (watch.lasts_ms(0), watch.lasts_ms(1)) == (70, 0)
    time.advance(300)
    look(watch, time, took=900_000)
    assert (watch.lasts_ms(300), watch.lasts_ms(301)) == (370, 0)
    time.advance(200)
    look(watch, time)
    assert watch.lasts_ms(500) == 570


@pytest.mark.parametrize(
    "plan",
    [
        SourcePlan((Split("memory", (Span(0, 0, 1),)),), {}, {}),
        SourcePlan((), {}, {}, held=True),
        SourcePlan((), {}, {}, skipped={"memory": 3}),
    ],
)
def test_a_look_that_finds_something_begins_anew(time: ManualClock, plan: SourcePlan) -> None:
    """Of any source: to read, to wait for, or gone."""
    watch = QuietWatch()
    look(watch, time)
    time.advance(300)
    look(watch, time, plan={**NOTHING, "other": plan})
    assert watch.lasts_ms(0) == 0
    time.advance(100)
    look(watch, time)
    time.advance(10)
    look(watch, time)
    assert watch.lasts_ms(0) == 10


def test_what_another_driver_has_read_meanwhile_begins_anew(time: ManualClock) -> None:
    """Two looks found nothing, before and after a takeover, and records came between them."""
    watch = QuietWatch()
    look(watch, time, before=40)
    time.advance(300)
    look(watch, time, at=9)
    assert watch.lasts_ms(0) == 0
    time.advance(20)
    look(watch, time, at=9)
    assert watch.lasts_ms(0) == 20


# -- any story -------------------------------------------------------------------------------------------------------


EVENTS = st.lists(
    st.tuples(st.sampled_from(["wait", "wait", "row", "restart"]), st.integers(0, 9)), min_size=1, max_size=14
)
AFTER = 5


def reference(events: Sequence[tuple[str, int]]) -> tuple[int, int, int]:
    """The clock, the late rows and the open windows of a story, in minutes: windows of one minute, with a row each."""
    largest = watermark = late = before = watched = recorded = 0
    windows = {0}
    for kind, minutes in events:
        if kind == "row":
            before = watched = recorded = 0
            time = max(largest + minutes - 2, 0)
            if time + 1 <= watermark:
                late += 1
            else:
                windows.add(time)
                largest = max(largest, time)
        elif kind == "restart":
            before, watched = recorded, 0
        else:
            watched += minutes
            moved = largest + before + watched
            if watched >= AFTER and moved > watermark and any(time + 1 <= moved for time in windows):
                watermark, recorded = moved, before + watched
        watermark = max(watermark, largest)
        windows = {time for time in windows if time + 1 > watermark}
    return watermark, late, len(windows)


@settings(max_examples=examples(60), deadline=None)
@given(EVENTS)
def test_any_story_comes_to_what_a_plain_clock_says(events: list[tuple[str, int]]) -> None:
    """Records in any order, silences of any length, and drivers that come and go."""
    before = open_job._POLL_SECONDS
    open_job._POLL_SECONDS = 0.0
    try:
        with ManualClock() as time:
            shop = told(time, events)
    finally:
        open_job._POLL_SECONDS = before
    watermark, late, windows = reference(events)
    assert shop.watermark == watermark * MINUTE
    assert shop.newest.accounts["memory"].late == late
    kept = sum(value for _, value in shop.published())
    assert kept + late + sum(shop.pipeline().state()["value"].to_pylist()) == len(shop.rows)
    assert shop.pipeline().state().num_rows == windows


def told(time: ManualClock, events: Sequence[tuple[str, int]]) -> Shop:
    """The shop after that story."""
    shop = Shop(0, quiet_after=f"{AFTER} min")
    script: list[Callable[[], object]] = []
    for kind, minutes in events:
        if kind == "restart":
            shop.follow(*script)
            script = []
            time.advance(minutes * MINUTE)
        elif kind == "wait":
            script.append(passes(time, minutes * MINUTE))
        else:
            script.append(
                lambda more=minutes - 2: shop.add(max(shop.newest.clock.largest["memory"] + more * MINUTE, 0))
            )
    shop.follow(*script)
    return shop


@pytest.mark.parametrize("emit", ["close", "change"])
def test_keys_expire_although_the_stream_went_quiet(emit: str, time: ManualClock) -> None:
    """A key that is silent with all others must expire too; and a sink that was told at an end before is told again."""

    class Lives(Visits):
        def persistent_state(self) -> Any:
            return NonWindowState(Count(), ttl="5 min", emit=emit)

    shop = Shop(5, 70_000, task=Lives())
    shop.pipeline().run(engine="embedded", end_of_input=True)
    assert [row["retracted"] for row in shop.sink.rows()][-1:] == [False]
    shop.follow(*[passes(time, "1 min")] * 20)
    assert shop.pipeline().state().num_rows == 0
    assert len([row for row in shop.sink.rows() if row["retracted"]]) == (emit == "change")
    shop.pipeline().run(engine="embedded", end_of_input=True)
    assert [row["retracted"] for row in shop.sink.rows()][-1:] == [True], "the sink has not learned it before"
    assert shop.pipeline().run(engine="embedded", end_of_input=True).outputs == 0
    assert verify(shop.storage).ok
