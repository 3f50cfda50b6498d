"""Early totals: after every step the table is the plain one of the last step that publishes, and in the end that of all
records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monoids import Count
from persistent import InvalidPipeline, MemorySink, NonWindowState
from persistent.checkpoint.log import Log
from persistent.driver import step
from persistent.engines import Embedded
from persistent.operations import compact, rollback
from persistent.testing import ManualClock
from persistent.time.lateness import EARLY, Lateness
from persistent.verify import verify
from tests.changes import Row, Table, World, expected
from tests.driver.test_publish_after_of_changes import Counting
from tests.few import examples
from tests.late import disordered

ROWS = [{"ts": 5 * number, "key": "abcd"[number % 4], "value": number} for number in range(20)]


def early_totals(rows: Sequence[Row], counts: Sequence[int], early: int, ends: Sequence[int]) -> Iterator[Table]:
    """What the table must be after each step: plain lines. ``ends``: the steps in which the input ends."""
    clock = read = 0
    passed, shown = None, dict[Any, Any]()
    for number, (count, table) in enumerate(zip(counts, expected(rows, counts), strict=True)):
        if (passed is not None and clock // early != passed // early) or number in ends:
            shown = table
        yield shown
        passed, clock = clock, max([clock, *(row["ts"] for row in rows[read : read + count])])
        read += count


DRAWN = (
    st.integers(0, 10**6),
    st.sampled_from(("update", "retract")),
    st.sampled_from((1, 7, 30)),
    st.sampled_from((1, 2, 5)),
    st.integers(1, 24),
    st.booleans(),
)


@settings(max_examples=examples(20), deadline=None)
@given(*DRAWN)
def test_the_table_is_that_of_the_last_publication(
    seed: int, changes: str, early: int, step_rows: int, stops: int, ends: bool
) -> None:
    """Whatever the steps, and where the job restarts, perhaps after an end that was none."""
    follows_the_plain_table(seed, changes, early, step_rows, stops, ends)


@pytest.mark.check
@settings(max_examples=examples(150), deadline=None)
@given(*DRAWN)
def test_many_tables_are_those_of_the_last_publication(
    seed: int, changes: str, early: int, step_rows: int, stops: int, ends: bool
) -> None:
    follows_the_plain_table(seed, changes, early, step_rows, stops, ends)


def follows_the_plain_table(seed: int, changes: str, early: int, step_rows: int, stops: int, ends: bool) -> None:
    rows = disordered(seed, 25, (0, 10, 60)[seed % 3])
    options = {"emit": "close", "changes": changes, "early": early}
    world = World(None, options, step_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "SHARD_ROWS", 0)
        world.run(rows[:stops], engine=Embedded(threads=1 + seed % 3), end_of_input=ends)
        at_end = [len(world.steps) - 1] if ends else []
        world.run(rows, engine=Embedded(threads=1), end_of_input=True)
    counts = [count for count, _ in world.steps]
    found = early_totals(rows, counts, early, [*at_end, len(counts) - 1])
    assert sum(counts) == len(rows) and [table for _, table in world.steps] == list(found)
    assert verify(world.storage).ok
    world.storage.clear()


def world_of(*sinks: str, **options: Any) -> World:
    given = {"emit": "close", "early": 20, **options}
    return World(None, given, 1, sinks={name: MemorySink() for name in sinks or ("one",)})


def totals(rows: int) -> Any:
    return list(expected(ROWS[:rows], [rows]))[-1]


def newest(world: World) -> Any:
    return Log(world.storage).newest().manifest  # type: ignore[union-attr]


def test_a_step_that_publishes_nothing_reads_no_state() -> None:
    """Nothing is published between two multiples, and nothing is looked up for it."""
    world, engine = world_of(), Counting()
    world.run(ROWS[:4], engine=engine)
    assert world.table() == {} and not engine.closing
    world.run(ROWS[:5], engine=engine)
    assert world.table() == totals(5) and len(engine.closing) == 1


def test_the_end_of_the_input_publishes_the_rest_once() -> None:
    """As without early results, and not what has been published since it changed."""
    world = world_of()
    world.run(ROWS[:7], end_of_input=True)
    assert world.table() == totals(7)
    report = world.run(ROWS[:8], end_of_input=True)
    assert report.outputs == 1 and world.table() == totals(8)
    assert world.run(ROWS[:8], end_of_input=True).steps == 0


def test_a_sink_that_joins_gets_every_key_at_once() -> None:
    """It would have only what changes from then on."""
    world = world_of()
    world.run(ROWS[:7], end_of_input=True)
    world.sinks["two"] = MemorySink()
    world.run(ROWS[:7])
    assert world.table("two") == totals(7) == world.table()


@pytest.mark.parametrize("first", [{"emit": "change", "early": None}, {"early": None}, {"early": 7}])
def test_the_option_can_change_between_runs(first: Any) -> None:
    """What is not published yet is published by whatever comes next, once."""
    world = world_of(**first)
    world.run(ROWS[:7])
    world.options = {"emit": "close", "early": 20}
    world.run(ROWS[:8])
    world.run(ROWS[:20], end_of_input=True)
    assert world.table() == totals(20)
    world.options = {"emit": "close", **first}
    world.run([*ROWS, {"ts": 101, "key": "a", "value": 1}], end_of_input=True)
    assert world.table()["a", None][0] == 6 and verify(world.storage).ok


def test_totals_that_are_taken_back_keep_their_option() -> None:
    """A row that only its retraction takes away would stay."""
    world = world_of(changes="retract")
    world.run(ROWS[:7], end_of_input=True)
    for options in ({"early": 20}, {"emit": "close"}):
        world.options = {"emit": "close", **options}
        with pytest.raises(InvalidPipeline, match=r'published with early=, changes="retract", and now has'):
            world.run(ROWS[:8])


def test_a_rollback_and_a_compaction_change_nothing_of_it() -> None:
    """What was published since is taken back, and published when its clock comes again."""
    world = world_of()
    world.run(ROWS[:6])
    target = newest(world).base
    world.run(ROWS[:12])
    rollback(world.storage, target, outputs="retract")
    compact(world.pipeline(ROWS))
    world.run(ROWS[:20], end_of_input=True)
    assert world.table() == totals(20) and verify(world.storage).ok


def test_a_quiet_stream_is_published_once_the_clock_has_passed_a_multiple() -> None:
    """The last changes would wait for a record that does not come; and no look at the stream puts a checkpoint more."""
    import signal

    world = world_of()
    looks = 0

    def look(idle: Any) -> None:
        nonlocal looks
        looks += 1
        time.advance("1 s")
        if looks > 20:
            signal.raise_signal(signal.SIGTERM)

    with ManualClock() as time:
        steps: list[Any] = []
        world.pipeline(ROWS[:3], quiet_after="2 s").run(
            engine=Embedded(threads=1), follow=True, on_idle=look, on_step=steps.append
        )
    assert world.table() == totals(3) and len(steps) == 3 + 2


def test_the_report_says_what_early_totals_wait_for() -> None:
    """Somebody who sees nothing asks why."""
    text = str(world_of().run(ROWS[:3]))
    assert "published early once the clock has passed a multiple; if the input is complete" in text


def test_its_options_are_those_of_lateness() -> None:
    """Those that contradict each other are refused."""
    state = NonWindowState(Count(), early="10 s", changes="retract")
    assert state.lateness == Lateness(0, "retract", "close", 10_000) and state.lateness.of_changes == EARLY
    assert NonWindowState(Count(), early=70).bare == {"early": 70}
    for options, words in (
        ({"early": "10 s", "emit": "change"}, "publishes each change in its step"),
        ({"early": 0}, "at least 1 ms"),
        ({"changes": "retract"}, "says how a change is published"),
    ):
        with pytest.raises(ValueError, match=words):
            NonWindowState(Count(), **options)  # type: ignore[arg-type]
