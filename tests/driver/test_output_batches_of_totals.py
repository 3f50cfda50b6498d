"""A sink of totals has all totals, whenever it joins: a key that does not change would never come."""

from __future__ import annotations

import uuid
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Sum
from persistent import MemorySink, MemorySource, NonWindowState, Pipeline, Retention
from persistent.checkpoint.log import Log
from persistent.operations import rollback, savepoint
from persistent.verify import verify
from tests.driver.visits import Visits
from tests.few import examples

ROWS = [{"ts": number, "page": "abcd"[number % 4]} for number in range(60)]


class Failing(Visits):
    """The totals of two records or more leave their range, and are no result."""

    def persistent_state(self) -> NonWindowState:
        return NonWindowState(Sum())

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, 1 << 62)


class World:
    """A job with sinks in memory that join one by one."""

    def __init__(self, *sinks: str) -> None:
        self.url, self.sinks = f"memory://{uuid.uuid4().hex}", {name: MemorySink() for name in sinks}

    def of(self, rows: int, **options: Any) -> Pipeline:
        given: dict[str, Any] = {"sink": self.sinks or None, "step_rows": 3, "task": Visits()}
        source, retention = MemorySource(ROWS[:rows], timestamp="ts"), Retention(last=1_000)
        return Pipeline(source=source, checkpoint=self.url, retention=retention, **{**given, **options})

    def run(self, rows: int, *, ends: bool = True, **options: Any) -> Any:
        return self.of(rows, **options).run(engine="embedded", end_of_input=ends)

    def shown(self, sink: str) -> dict[str, int]:
        return latest(self.sinks[sink])


def latest(sink: MemorySink) -> dict[str, int]:
    rows = sorted(sink.rows(), key=lambda row: row["revision"])
    return {row["page"]: row["value"] for row in rows}


def totals(rows: int) -> dict[str, int]:
    pages = [row["page"] for row in ROWS[:rows]]
    return {page: pages.count(page) for page in pages}


def test_a_sink_that_joins_gets_every_key_and_the_others_those_that_changed() -> None:
    """It would lack all keys that do not change any more."""
    world = World("x")
    world.run(20)
    before = len(world.sinks["x"].rows())
    world.sinks["y"] = MemorySink()
    report = world.run(21)
    assert "the sink 'y' is new: it receives every key at the next end of the input" in report.notes
    assert world.shown("y") == world.shown("x") == totals(21)
    assert len(world.sinks["y"].rows()) == 4 and len(world.sinks["x"].rows()) == before + 1
    world.run(22)
    assert len(world.sinks["y"].rows()) == 5 and world.shown("y") == totals(22)


def test_a_sink_that_joins_after_the_end_gets_every_key_at_once() -> None:
    """It would stay empty until a record comes, though the run was told that the input is complete."""
    world = World("x")
    world.run(20)
    world.sinks["y"] = MemorySink()
    assert world.run(20).outputs == 4
    assert world.shown("y") == totals(20)
    assert world.run(20).steps == 0


def test_a_sink_of_a_job_that_had_none_gets_every_key_at_once() -> None:
    """As above, for the first sink."""
    world = World()
    world.run(20)
    world.sinks["x"] = MemorySink()
    world.run(20)
    assert world.shown("x") == totals(20)
    assert world.run(20).steps == 0


def test_a_rollback_to_an_end_before_a_sink_came_gives_it_every_key_again() -> None:
    """All that it was given is taken back, and the input has ended already."""
    world = World()
    world.run(20)
    before = Log(world.of(20).storage).newest().manifest.id  # type: ignore[union-attr]
    world.sinks["x"] = MemorySink()
    world.run(20)
    rollback(world.of(20).storage, before, outputs="retract")
    world.run(20)
    assert world.shown("x") == totals(20)
    assert world.run(20).steps == 0


def test_a_sink_that_joins_between_two_ends_gets_every_key_at_the_second() -> None:
    """The checkpoint knows it by then, and it has none."""
    world = World("x")
    world.run(20)
    world.sinks["y"] = MemorySink()
    world.run(24, ends=False)
    assert not world.sinks["y"].rows()
    world.run(25)
    assert world.shown("y") == world.shown("x") == totals(25)


def test_the_sink_of_a_job_that_starts_from_a_savepoint_gets_every_key() -> None:
    """It is another place, or one where the old job has stopped."""
    for rows in (20, 21):
        world, other = World("x"), World("z")
        world.run(20)
        saved = savepoint(world.of(20).storage, f"s{rows}")
        other.run(rows, start_from=saved)
        assert other.shown("z") == totals(rows)
        assert other.run(rows, start_from=saved).steps == 0


def test_a_key_that_fails_for_a_new_sink_is_one_dead_letter() -> None:
    """It is looked at for each sink; and a sink that gets nothing must not end the input again and again."""

    world = World("x")
    world.run(20, task=Failing(), on_error="dead-letter")
    before = world.of(20).dead_letters().num_rows
    world.sinks["y"] = MemorySink()
    world.run(20, task=Failing(), on_error="dead-letter")
    assert before == 4 and world.of(20).dead_letters().num_rows == 8
    assert world.run(20, task=Failing(), on_error="dead-letter").steps == 0


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(st.sampled_from(["read", "end", "join", "retract", "again"]), st.integers(1, 15)), max_size=8)
)
def test_every_sink_has_every_total_at_the_end(events: list[tuple[str, int]]) -> None:
    """Whatever joins, and however far the job goes back meanwhile."""
    world, rows = World("x"), 3
    world.run(rows)
    for event, number in events:
        if event in ("read", "end"):
            rows = min(rows + number, len(ROWS) - 1)
            world.run(rows, ends=event == "end")
        elif event == "join":
            world.sinks[f"s{len(world.sinks)}"] = MemorySink()
        else:
            bases = sorted(Log(world.of(rows).storage).newest().manifest.bases)  # type: ignore[union-attr]
            taken = Log(world.of(rows).storage).newest().manifest.left  # type: ignore[union-attr]
            bases = [id for id in bases if not any(first <= id < stop for first, stop, _ in taken)]
            rollback(world.of(rows).storage, bases[-min(number, len(bases))], outputs=event)
    world.run(rows + 1)
    for name in world.sinks:
        assert world.shown(name) == totals(rows + 1), name
    assert verify(world.of(rows).storage).ok


def test_a_sink_that_comes_back_for_a_rollback_gets_every_key() -> None:
    """All that it had was taken back, and it would get only the keys that change."""
    world = World("a")
    world.run(6)
    target = Log(world.of(6).storage).newest().manifest.id  # type: ignore[union-attr]
    world.sinks["b"] = MemorySink()
    world.run(7)
    world.run(8, ends=False)
    both, world.sinks = world.sinks, {"a": world.sinks["a"]}
    world.run(9)
    rollback(world.url, target, outputs="retract")
    world.sinks = both
    world.run(9)
    assert world.shown("a") == world.shown("b") == totals(9)


def test_a_sink_that_joins_in_a_step_that_reads_nothing_gets_every_key() -> None:
    """It is listed, so it is no longer new, and the input has ended: nothing would be published to it."""
    world = World("a")

    def run(lag: int, *, ends: bool) -> Any:
        source = MemorySource(ROWS[:6], timestamp="ts", ordered=True, max_out_of_orderness=lag)
        job = Pipeline(source=source, task=Visits(), checkpoint=world.url, sink=world.sinks)
        return job.run(engine="embedded", end_of_input=ends)

    run(1, ends=True)
    world.sinks["b"] = MemorySink()
    assert run(0, ends=False).steps == 1, "the clock moves"
    run(0, ends=True)
    assert world.shown("b") == totals(6)
    assert run(0, ends=True).steps == 0
