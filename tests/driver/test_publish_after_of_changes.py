"""A table that is kept as it changes is whole, whatever comes between two steps: sinks, rollbacks, other options."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monoids import Count, Max, Sum, record
from persistent import Evolution, InvalidPipeline, MemorySink, NonWindowState, PersistentTask, Retention
from persistent.checkpoint.log import Log
from persistent.engines import Embedded
from persistent.operations import compact, merge, rollback, savepoint
from persistent.sinks import SqliteSink
from persistent.storage import MemoryStorage
from persistent.time.window import sliding, tumbling
from persistent.verify import verify
from persistent.worker.job import CloseShard
from tests.changes import World, expected
from tests.crash.worlds import InTurn
from tests.faults import FaultyStorage, Killed, Operations
from tests.few import examples
from tests.late import disordered
from tests.operations.test_merging import Named
from tests.single import only
from tests.totals import One

ROWS = [{"ts": 10 + number % 7, "key": "abcd"[number % 4], "value": number} for number in range(60)]
"""All in one window: so none is lost when it closes."""

WINDOWS = (None, tumbling(100))
both = pytest.mark.parametrize("window", WINDOWS)


def world_of(window: Any, *sinks: str, **options: Any) -> World:
    return World(window, options, sinks={name: MemorySink() for name in sinks})


def totals(rows: int, window: Any = None) -> Any:
    return list(expected(ROWS[:rows], [rows], window))[-1]


def newest(world: World) -> Any:
    return Log(world.storage).newest().manifest  # type: ignore[union-attr]


class Counting(Embedded):
    """Counts the items that publish."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.closing: list[CloseShard] = []

    def map(self, function: Any, items: Any) -> Any:
        self.closing += [item for item in items if isinstance(item, CloseShard)]
        return super().map(function, items)


@both
def test_a_step_without_records_publishes_nothing(window: Any) -> None:
    """Nor does it look for anything; and the end of the input is such a step."""
    world, engine = world_of(window, "one"), Counting()
    world.run(ROWS[:3], engine=engine)
    assert len(engine.closing) == 1
    report = world.run(ROWS[:3], engine=engine, end_of_input=True)
    assert (len(engine.closing), report.outputs, report.steps) == (1, 0, 1)


def test_the_delta_is_what_is_not_published() -> None:
    """All runs before are only looked up: the price of a step would grow with the state."""
    world, engine = world_of(None, "one"), Counting()
    world.run(ROWS[:12], engine=engine)
    assert [(len(item.runs), len(item.delta)) for item in engine.closing] == [(0, 1), (1, 1), (2, 1), (3, 1)]


@both
def test_a_sink_that_joins_gets_every_key_in_the_next_step(window: Any) -> None:
    """It would lack all keys that do not change any more; the others get only what has changed."""
    world = world_of(window, "one")
    world.run(ROWS[:20])
    before = len(world.rows())
    world.sinks["two"] = MemorySink()
    report = world.run(ROWS[:21])
    assert any("'two' is new: it receives every key in the next step" in note for note in report.notes), report.notes
    assert world.table("two") == world.table() == totals(21, window)
    assert len(world.rows()) == before + 1 and len(world.rows("two")) == 4
    world.run(ROWS[:22])
    assert len(world.rows("two")) == 5


@both
def test_a_sink_that_joins_without_a_new_record_gets_every_key_at_once(window: Any) -> None:
    world = world_of(window, "one")
    world.run(ROWS[:20])
    world.sinks["two"] = MemorySink()
    assert world.run(ROWS[:20]).outputs == 4
    assert world.table("two") == totals(20, window)
    assert world.run(ROWS[:20]).steps == 0


@both
def test_the_first_sink_of_a_job_gets_every_key_at_once(window: Any) -> None:
    world = world_of(window)
    world.run(ROWS[:20], discard_closed=window is not None)
    world.sinks["one"] = MemorySink()
    assert world.run(ROWS[:20]).outputs == 4
    assert world.table() == totals(20, window)
    assert world.run(ROWS[:20]).steps == 0


@both
def test_a_sink_gets_what_has_changed_while_the_job_had_none(window: Any) -> None:
    """And nothing else: it has all that is older."""
    world = world_of(window, "one")
    world.run(ROWS[:20])
    sinks, world.sinks = world.sinks, {}
    world.run(ROWS[:22], discard_closed=True)
    world.sinks = sinks
    assert world.run(ROWS[:22]).outputs == 2
    assert world.table() == totals(22, window)


def test_a_window_that_becomes_final_is_published_to_a_sink_that_lacks_it() -> None:
    """It leaves the state with this step, and takes none of its records, although it may share a pane with others."""
    window = sliding(20, every=5)
    rows = [{"ts": time, "key": "a", "value": 1} for time in (12, 31, 13)]
    world = World(window, {}, step_rows=2, sinks={})

    def stop(report: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        world.pipeline(rows, discard_closed=True).run(engine="embedded", on_step=stop)
    world.sinks["one"] = MemorySink()
    world.run(rows)
    assert [count for count, _ in world.steps] == [1]
    assert world.table() == list(expected(rows, [2, 1], window))[-1]


@both
def test_the_sink_of_a_job_that_starts_from_a_savepoint_gets_every_key(window: Any) -> None:
    """With and without a new record; and from a job that published otherwise."""
    for count in (20, 21):
        world, other = world_of(window, "one"), world_of(window, "one")
        world.run(ROWS[:20])
        saved = savepoint(world.storage, f"s{count}")
        other.run(ROWS[:count], start_from=saved)
        assert other.table() == totals(count, window)
        assert other.run(ROWS[:count], start_from=saved).steps == 0
        third = world_of(window, "one", emit="close")
        third.run(ROWS[:count], start_from=saved, end_of_input=True)
        found = {row["key"]: row["rows"] for row in third.sinks["one"].rows()}
        assert found == {key: values[0] for (key, _), values in totals(count, window).items()}


class Renamed(PersistentTask):
    name = "changing"
    key = "key"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(record(rows=Count(), sums=Sum(), most=Max()), emit="change")

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"rows": 1, "sums": message.value["value"], "most": message.value["value"]})


def test_every_key_is_published_anew_after_an_evolution() -> None:
    """A sink would keep the values of the old task for keys that do not change any more."""
    world = world_of(None, "one")
    world.run(ROWS[:20])
    world.run(ROWS[:20], task=Renamed(), evolve=Evolution(renamed={"total": "sums"}))
    tables = list(world.sinks["one"]._published.values())
    after = {row["key"]: row["sums"] for row in tables[-1].to_pylist()}
    assert after == {key: sum(row["value"] for row in ROWS[:20] if row["key"] == key) for key in "abcd"}


@settings(max_examples=examples(15), deadline=None)
@given(
    st.sampled_from(WINDOWS),
    st.lists(
        st.tuples(st.sampled_from(["read", "join", "retract", "again", "none", "compact"]), st.integers(1, 12)),
        max_size=6,
    ),
)
def test_every_sink_shows_every_key(window: Any, events: list[tuple[str, int]]) -> None:
    """Whatever joins, and however far the job goes back meanwhile, once it has read as far again."""
    world, count = world_of(window, "one"), 3
    kept = {"retention": Retention(last=1_000)}
    world.run(ROWS[:count], **kept)
    for event, number in events:
        if event == "read":
            count = min(count + number, len(ROWS) - 1)
            world.run(ROWS[:count], **kept)
        elif event == "join":
            world.sinks[f"s{len(world.sinks)}"] = MemorySink()
        elif event == "compact":
            compact(world.pipeline(ROWS[:count]))
        elif event == "none" and newest(world).target is None:
            sinks, world.sinks = world.sinks, {}
            count = min(count + number, len(ROWS) - 1)
            world.run(ROWS[:count], **{**kept, "discard_closed": True})
            known = newest(world).sinks
            world.sinks = {name: sink for name, sink in sinks.items() if name in known}
        elif event != "none":
            manifest = newest(world)
            taken = [range(first, stop) for first, stop, _ in manifest.left]
            bases = [id for id in sorted(manifest.bases) if not any(id in some for some in taken)]
            rollback(world.storage, bases[-min(number, len(bases))], outputs=event)
    world.run(ROWS[: count + 1], **kept)
    for name in world.sinks:
        assert world.table(name) == totals(count + 1, window), name
    assert verify(world.storage).ok
    world.storage.clear()


def test_a_rollback_whose_outputs_stay_publishes_every_key_again() -> None:
    """What a sink has of the abandoned checkpoints would stay, for keys that do not change any more."""
    world = world_of(None, "one")
    world.run([{"ts": 1, "key": "a", "value": 5}])
    target = newest(world).id
    world.run([{"ts": 1, "key": "a", "value": 5}, {"ts": 2, "key": "a", "value": 9}])
    rollback(world.storage, target, outputs="again")
    world.run([{"ts": 1, "key": "a", "value": 5}, {"ts": 2, "key": "b", "value": 1}])
    assert world.table() == {("a", None): (1, 5, 5), ("b", None): (1, 1, 1)}


@both
def test_two_jobs_that_are_merged_show_their_sum(window: Any) -> None:
    one, other, into = world_of(window, "one"), world_of(window, "one"), world_of(window, "one")
    halves = {"a": ROWS[:11], "b": ROWS[11:20]}
    one.run([], source=Named({"a": halves["a"]}), end_of_input=window is None)
    other.run([], source=Named({"b": halves["b"]}), end_of_input=window is None)
    merge(one.storage, other.storage, into.storage)
    into.run([], source=Named(halves))
    assert into.table() == totals(20, window)


def test_totals_can_be_published_at_either_time() -> None:
    """From one run to the next: what is published of them is in the checkpoint."""
    world = world_of(None, "one")
    for count, emit in ((5, "close"), (9, "change"), (14, "close"), (20, "change"), (30, "close")):
        world.options = {"emit": emit}
        world.run(ROWS[:count], end_of_input=count in (14, 30))
        if emit == "change" or count in (14, 30):
            assert world.table() == totals(count), count


@pytest.mark.parametrize(
    ("window", "before", "after"),
    [
        (tumbling(100), {"emit": "close"}, {}),
        (tumbling(100), {}, {"emit": "close"}),
        (tumbling(100), {}, {"changes": "retract"}),
        (None, {"changes": "retract"}, {}),
        (None, {}, {"changes": "retract"}),
        (None, {"emit": "close"}, {"changes": "retract"}),
    ],
)
def test_another_emission_is_refused_where_rows_of_both_would_stand(window: Any, before: Any, after: Any) -> None:
    """Before anything is written; and a job from a savepoint can have it, with a sink of its own."""
    world = world_of(window, "one", **before)
    world.run(ROWS[:5])
    ids, world.options = Log(world.storage).ids(), after
    with pytest.raises(InvalidPipeline, match=r"published with .*emit.*Restore the option.*start_from="):
        world.run(ROWS[:9])
    assert Log(world.storage).ids() == ids
    other = world_of(window, "one", **after)
    other.pipeline(ROWS[:9], start_from=savepoint(world.storage, "s")).run(engine="embedded", end_of_input=True)
    assert len(other.sinks["one"].rows()) >= 4


@pytest.mark.parametrize(("first", "second"), [("close", "change"), ("change", "close")])
def test_a_plan_that_is_found_again_with_another_option_loses_nothing(first: str, second: str) -> None:
    """A run that dies anywhere, and one of the other option after it: then every key is published."""
    at, done = 0, False
    while not done:
        world = world_of(None, "one", emit=first)
        inner, operations = world.storage, Operations(at, "before")
        world.storage = FaultyStorage(inner, operations)
        try:
            world.run(ROWS[:5], engine=InTurn(1), end_of_input=True)
            done = True
        except Killed:
            pass
        world.storage, world.options = inner, {"emit": second}
        world.run(ROWS[:5], end_of_input=True)
        assert world.table() == totals(5), at
        inner.clear()
        at += 1
    assert at > 20


class Ones(PersistentTask):
    key = "key"

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(One(), emit="change")

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, message.value["value"])


def test_a_key_that_cannot_be_summed_up_is_a_dead_letter_and_the_others_are_published() -> None:
    """One value that does not fit would stop all results."""
    world = World(step_rows=2)
    given = [("a", 1), ("b", 2), ("a", 5), ("c", 3), ("b", 2), ("c", 3)]
    rows = [{"ts": 1, "key": key, "value": value} for key, value in given]
    world.run(rows, task=Ones(), on_error="dead-letter")
    shown = [(row["key"], row["value"], row["revision"]) for row in world.sinks["one"].rows() if not row["retracted"]]
    assert sorted(shown) == [("a", 1, 2), ("b", 2, 2), ("b", 2, 4), ("c", 3, 3), ("c", 3, 4)]
    assert [(row["key"], row["value"]) for row in world.sinks["one"].rows() if row["retracted"]] == [("a", 1)]
    assert world.pipeline(rows).dead_letters().num_rows == 1


def test_an_upsert_refuses_rows_that_are_taken_back() -> None:
    """It keeps one row of a key: the taken back one would stand beside the new one."""
    sink = SqliteSink("results.db", "results", mode="upsert")
    with pytest.raises(InvalidPipeline, match=r'changes="retract".*use changes="update"'):
        World(None, {"changes": "retract"}).pipeline(ROWS, sink=sink)


def test_without_a_sink_windows_that_close_are_counted() -> None:
    world = world_of(tumbling(10))
    report = world.run(disordered(1, 20, 0), discard_closed=True, end_of_input=True)
    assert report.discarded > 3 and report.outputs == 0


@both
def test_what_a_plan_and_a_checkpoint_say(window: Any) -> None:
    """Whoever goes on with it must know; other jobs say nothing of it."""
    world = world_of(window, "one")
    world.run(ROWS[:3])
    manifest = newest(world)
    assert (only(manifest.nodes).emit, only(manifest.nodes).published) == ("change", manifest.id)
    plan = Log(world.storage).plan(manifest.id - 1, 0)
    assert plan is None or only(plan.tasks).emit == "change"
    other = world_of(window, "one", emit="close")
    other.run(ROWS[:3])
    assert only(newest(other).nodes).emit is None and only(newest(other).nodes).published == 0
    assert replace(only(newest(other).nodes), emit=None) == only(newest(other).nodes)
    assert isinstance(world.storage, MemoryStorage)
