"""When a state is published early: what stands in the plan and the checkpoint decides, whatever comes between."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from monoids import Count, Max, Sum, record
from persistent import Evolution, InvalidPipeline, MemorySink, PersistentTask, Retention, WindowState
from persistent.checkpoint.log import Log
from persistent.driver import next_step, step_effects
from persistent.driver.options import Options
from persistent.driver.workbench import Workbench
from persistent.engines import Embedded
from persistent.errors import LawBroken
from persistent.operations import compact, rollback, savepoint
from persistent.time.lateness import CHANGE, EARLY, Lateness
from persistent.time.window import tumbling
from persistent.verify import verify
from tests.changes import World, expected
from tests.checkpoint.samples import body_of
from tests.crash.worlds import InTurn
from tests.driver.test_publish_after_of_changes import Counting
from tests.faults import FaultyStorage, Killed, Operations
from tests.single import only

DAY = tumbling(100)
ROWS = [{"ts": 5 * number, "key": "abcd"[number % 4], "value": number} for number in range(20)]
"""All in one window."""


def world_of(*sinks: str, **options: Any) -> World:
    given = {"emit": "close", "early": 20, **options}
    return World(DAY, given, 1, sinks={name: MemorySink() for name in sinks or ("one",)})


def totals(rows: int) -> Any:
    return list(expected(ROWS[:rows], [rows], DAY))[-1]


def newest(world: World) -> Any:
    return Log(world.storage).newest().manifest  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("lateness", "before", "found"),
    [
        (Lateness(), None, (None, None)),
        (Lateness(0, "accumulate", CHANGE), None, (CHANGE, None)),
        (Lateness(early_ms=20), None, (EARLY, 45)),
        (Lateness(early_ms=20), 40, (EARLY, 45)),
        (Lateness(early_ms=20), 39, (CHANGE, 45)),
        (Lateness(early_ms=45), 44, (CHANGE, 45)),
        (Lateness(early_ms=46), 44, (EARLY, 45)),
    ],
)
def test_a_step_publishes_once_its_clock_has_passed_a_multiple(
    lateness: Lateness, before: int | None, found: Any
) -> None:
    """A clock that has moved on within a multiple is none."""
    assert lateness.planned(before, 45) == found


def test_a_step_that_reads_nothing_publishes_what_is_due() -> None:
    """A stream that pauses would be shown as it was before its last records."""
    world = world_of()
    assert world.run(ROWS[:4]).steps == 4 and world.table() == {}
    report = world.run(ROWS[:5])
    assert (report.steps, report.outputs) == (2, 4) and world.table() == totals(5)
    assert world.run(ROWS[:5]).steps == 0, "nothing has changed since"


@pytest.mark.parametrize(("clock", "emit"), [(20, CHANGE), (15, EARLY)])
def test_a_plan_that_is_found_again_publishes_as_it_would_have(
    monkeypatch: pytest.MonkeyPatch, clock: int, emit: str
) -> None:
    """The second run would publish, or not, although the plan says otherwise."""
    world, items, rows = world_of(), step_effects._run_items, ROWS[: clock // 5 + 2]

    def put() -> Any:
        return Log(world.storage).plan(newest(world).base, 0)

    def die(*arguments: Any) -> Any:
        if only(put().tasks).passed == clock:
            raise Killed("before the map")
        return items(*arguments)

    monkeypatch.setattr(step_effects, "_run_items", die)
    with pytest.raises(Killed):
        world.run(rows)
    monkeypatch.setattr(step_effects, "_run_items", items)
    assert (only(put().tasks).emit, only(put().tasks).passed) == (emit, clock)
    document = body_of(put().encode(), "p")
    assert document["tasks"]["changing"]["passed"] == clock
    tables: list[Any] = []
    world.pipeline(rows).run(engine="embedded", on_step=lambda report: tables.append(world.table()))
    assert tables[0] == (totals(len(rows)) if emit == CHANGE else {})


def test_a_sink_that_joins_gets_every_key_in_the_next_step() -> None:
    """It would lack all keys that do not change any more until the next multiple; the others get what has changed."""
    world = world_of("one")
    world.run(ROWS[:8])
    world.options["early"] = 1_000
    before = len(world.rows())
    world.sinks["two"] = MemorySink()
    report = world.run(ROWS[:9])
    assert any("'two' is new: it receives every key in the next step" in note for note in report.notes), report.notes
    assert world.table("two") == world.table() == totals(9) and len(world.rows()) == before + 3
    world.run(ROWS[:12])
    assert world.table("two") == totals(9) and len(world.rows("two")) == 4


def test_a_sink_that_joins_without_a_new_record_gets_every_key_at_once() -> None:
    world = world_of("one", early=1_000)
    world.run(ROWS[:8])
    world.sinks["two"] = MemorySink()
    world.run(ROWS[:8])
    assert world.table("two") == world.table() == totals(8)


def test_after_a_rollback_to_before_the_first_result_nothing_is_held_back() -> None:
    """The sink has nothing of the state; the next multiple may be an hour away."""
    world = world_of("one", early=70)
    world.run(ROWS[:8])
    assert world.table() == {}
    rollback(world.storage, newest(world).id - 3, outputs="retract")
    world.run(ROWS[:6])
    assert world.table() == totals(6)
    before = len(world.rows())
    world.run(ROWS[:10])
    assert len(world.rows()) == before, "once something is published, the clock decides again"
    world.run(ROWS[:16])
    assert world.table() == totals(16)


def test_without_a_sink_nothing_is_published_and_what_has_changed_is_once_there_is_one() -> None:
    """The multiples that have passed meanwhile are over."""
    world = world_of("one")
    sinks, world.sinks = world.sinks, {}
    world.run(ROWS[:8], discard_closed=True)
    world.sinks = sinks
    assert world.run(ROWS[:8]).outputs == 4 and world.table() == totals(8)


def test_a_step_that_publishes_nothing_looks_for_nothing() -> None:
    """The price of every step would be that of a publication."""
    world, engine = world_of(early=1_000), Counting()
    world.run(ROWS, engine=engine)
    assert engine.closing == []
    world.run(ROWS, engine=engine, end_of_input=True)
    assert len(engine.closing) == 1 and len(engine.closing[0].delta) >= 1 and world.table() == totals(20)


@pytest.mark.parametrize("options", [{"early": 7}, {"early": 1_000}, {"early": None}])
def test_options_that_change_lose_nothing(options: dict[str, Any]) -> None:
    """What is not published yet is, at the next occasion, or when its window closes."""
    world = world_of()
    world.run(ROWS[:9])
    emit = {"emit": "change"} if options.get("early", 1) is None else {}
    world.options = {**world.options, **options, **emit}
    world.run(ROWS[:14])
    world.options = {"emit": "close", "early": 20}
    world.run(ROWS, end_of_input=True)
    assert world.table() == totals(20) and verify(world.storage).ok


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"early": None}),
        ({"early": None}, {"early": 20}),
        ({}, {"late": "retract"}),
        ({"late": "retract"}, {"early": None, "emit": "change"}),
    ],
)
def test_another_emission_is_refused_where_rows_of_both_would_stand(before: Any, after: Any) -> None:
    """A window published early would be published again when it closes, or stay beside what takes it back."""
    world = world_of(**before)
    world.run(ROWS[:9])
    ids, world.options = Log(world.storage).ids(), {**world.options, "late": None, **after}
    with pytest.raises(InvalidPipeline, match=r"published with .*(early=, late|another emit).*Restore the option"):
        world.run(ROWS[:12])
    assert Log(world.storage).ids() == ids


@pytest.mark.parametrize("second", [{"emit": "change"}, {"emit": "close", "early": 15}])
def test_a_plan_that_is_found_again_with_another_option_loses_nothing(second: dict[str, Any]) -> None:
    """A run that dies anywhere, and one of the other option after it: then every window is published."""
    at, done = 0, False
    while not done:
        world = world_of(early=10)
        inner, operations = world.storage, Operations(at, "before")
        world.storage = FaultyStorage(inner, operations)
        try:
            world.run(ROWS[:4], engine=InTurn(1))
            done = True
        except Killed:
            pass
        world.storage, world.options = inner, second
        world.run(ROWS[:5], end_of_input=True)
        assert world.table() == totals(5), at
        inner.clear()
        at += 3
    assert at > 30


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["read", "join", "retract", "again", "none", "compact"]), st.integers(1, 9)),
        max_size=6,
    ),
    st.sampled_from((10, 40)),
)
def test_every_sink_shows_every_key_in_the_end(events: list[tuple[str, int]], early: int) -> None:
    """Whatever joins, and however far the job goes back meanwhile."""
    world, count = world_of(early=early), 3
    kept = {"retention": Retention(last=1_000)}
    world.run(ROWS[:count], **kept)
    for event, number in events:
        if event == "read":
            count = min(count + number, 19)
            world.run(ROWS[:count], **kept)
        elif event == "join":
            world.sinks[f"s{len(world.sinks)}"] = MemorySink()
        elif event == "compact":
            compact(world.pipeline(ROWS[:count]))
        elif event == "none" and newest(world).target is None:
            sinks, world.sinks = world.sinks, {}
            count = min(count + number, 19)
            world.run(ROWS[:count], **{**kept, "discard_closed": True})
            known = newest(world).sinks
            world.sinks = {name: sink for name, sink in sinks.items() if name in known}
        elif event != "none":
            before = newest(world)
            taken = [range(first, stop) for first, stop, _ in before.left]
            bases = [id for id in sorted(before.bases) if not any(id in some for some in taken)]
            rollback(world.storage, bases[-min(number, len(bases))], outputs=event)
    world.run(ROWS, end_of_input=True, **kept)
    for name in world.sinks:
        assert world.table(name) == totals(20), name
    assert verify(world.storage).ok
    world.storage.clear()


class Renamed(PersistentTask):
    name = "changing"
    key = "key"

    def persistent_state(self) -> WindowState:
        return WindowState(record(rows=Count(), sums=Sum(), most=Max()), DAY, early=1_000)

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"rows": 1, "sums": message.value["value"], "most": message.value["value"]})


def test_every_key_is_published_anew_after_an_evolution() -> None:
    """A sink would keep the values of the old task until the next multiple, which may never come."""
    world = world_of()
    world.run(ROWS[:8])
    assert world.table() == totals(6)
    world.options["early"] = 1_000
    world.run(ROWS[:8], task=Renamed(), evolve=Evolution(renamed={"total": "sums"}))
    after = {row["key"]: row["sums"] for row in list(world.sinks["one"]._published.values())[-1].to_pylist()}
    assert after == {key: sum(row["value"] for row in ROWS[:8] if row["key"] == key) for key in "abcd"}


def test_a_job_that_starts_from_a_savepoint_publishes_all() -> None:
    """What the first job has published is in its own sinks."""
    world, other = world_of(), world_of(early=20)
    world.run(ROWS[:9])
    saved = savepoint(world.storage, "s")
    other.run(ROWS[:10], start_from=saved)
    assert other.table() == totals(10)


def test_what_a_checkpoint_says() -> None:
    """Whoever goes on with it must know; other jobs say nothing of it."""
    world = world_of()
    world.run(ROWS[:3])
    document = body_of(newest(world).encode(), "m")
    state = document["nodes"]["changing"]
    assert (state["emit"], state["passed"], state["late"]) == (EARLY, 5, "accumulate")
    plain = World(DAY, {"emit": "close"}, 1)
    plain.run(ROWS[:3])
    document = body_of(newest(plain).encode(), "m")
    state = document["nodes"]["changing"]
    assert "emit" not in state and "passed" not in state


def test_a_document_that_contradicts_itself_is_refused() -> None:
    """A plan that is early by no clock would never publish again."""
    world = world_of()
    world.run(ROWS[:3])
    found = newest(world)
    wrong = replace(only(found.nodes), emit=None)
    with pytest.raises(LawBroken, match="the clock of early results, of which there are none"):
        replace(found, nodes=dict.fromkeys(found.nodes, wrong)).encode()
    step = next_step.next_step(_bench(world), Log(world.storage).newest(), 1)  # type: ignore[arg-type]
    assert step is not None
    task = replace(only(step.plan.tasks), emit=EARLY, passed=None)
    with pytest.raises(LawBroken, match="is early, and by no clock"):
        replace(step.plan, tasks={"changing": task}).encode()


def _bench(world: World) -> Any:
    return Workbench(world.pipeline(ROWS[:5]).job(), Embedded(1), Options(1))
