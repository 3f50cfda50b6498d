"""Sessions that are published as they change, or early: after every step a reader holds the plain ones of the last step
that publishes, open and closed, and in the end those of all records."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from persistent import Embedded
from persistent.checkpoint.log import Log
from persistent.driver import next_step
from persistent.operations import compact
from persistent.verify import verify
from tests.few import examples
from tests.sessions import Row, Run, Session, Visits, expected, held, sessions_in, straggling
from tests.test_session_window_lateness import small_folds

SIZES = st.sampled_from(((10, 50), (1, 7), (10, 10), (7, 1000), (3, 8)))


@dataclass
class World(Run):
    """Knows the steps of all runs: how many rows of the source each has read, the time of day of its plan, and what
    the reader held then."""

    steps: list[tuple[int, int, list[Session]]] = field(default_factory=list)

    def go(self, count: int | None = None, **options: Any) -> Any:
        """A run over so many records; over all of them it ends the input."""
        engine = options.pop("engine", "embedded")

        def on_step(step: Any) -> None:
            newest = Log(self.storage).newest()
            assert newest is not None
            self.steps.append((step.rows, newest.manifest.committed_ms, held(self.sink.rows())))

        pipeline = self.pipeline(self.rows if count is None else self.rows[:count], **options)
        return pipeline.run(engine=engine, end_of_input=count is None, on_step=on_step)


def tables(made: World) -> Iterator[list[Session]]:
    """What a reader must hold after each step: twenty plain lines."""
    options, early, (gap, cut) = made.task.options, made.task.options.get("early"), (made.task.gap, made.task.cut)
    clock, passed, shown, kept, read = 0, None, list[Session](), list[Row](), 0
    for number, (count, day, _) in enumerate(made.steps):
        step = made.rows[read : read + count]
        kept += [row for row in step if row["ts"] >= clock - options.get("allowed_lateness", 0)]
        now = clock if options.get("early_by") != "processing" else max(day, passed or 0)
        is_due = early is None or (passed is not None and now // early != passed // early)
        table = expected(kept, gap, cut)
        is_closed = any(one[2] <= clock and one not in shown for one in table)
        if is_due or is_closed or number == len(made.steps) - 1:
            shown = table
        yield shown
        passed, read = now, read + count
        clock = max(clock, *(row["ts"] - made.behind for row in step), 0)


def follows_the_plain_sessions(
    seed: int, sizes: tuple[int, int], allowed: int, options: dict[str, Any], step_rows: int, stops: Sequence[int]
) -> None:
    behind = (0, 4, 30)[seed % 3]
    rows = straggling(seed, 30, behind, sizes[0], max(allowed, 5))
    made = World(rows, Visits(*sizes, allowed_lateness=allowed, **options), behind, step_rows)
    rng = random.Random(seed)
    with small_folds(seed), pytest.MonkeyPatch.context() as patch:
        patch.setattr(next_step, "wall_ms", lambda: 1_000 + rng.randrange(40) + 5 * len(made.steps))
        for number, stop in enumerate(sorted(min(stop, len(rows)) for stop in stops)):
            made.go(stop, engine=Embedded(threads=1 + number % 3))
            if number % 2:
                compact(made.pipeline())
        made.go()
        assert sum(count for count, *_ in made.steps) == len(rows)
        for number, (table, (*_, found)) in enumerate(zip(tables(made), made.steps, strict=True)):
            assert found == table, f"after step {number}"
        assert made.go().outputs == 0, "a second end publishes nothing again"
        assert verify(made.storage).ok
    made.storage.clear()


CHANGES = st.sampled_from(
    (
        {"emit": "change"},
        {"emit": "change", "changes": "retract"},
        {"early": 7},
        {"early": 30},
        {"early": 30, "late": "retract"},
        {"early": 200},
        {"early": 7, "early_by": "processing"},
        {"early": 30, "early_by": "processing"},
    )
)
DRAWN = (
    st.integers(0, 10**6),
    SIZES,
    st.sampled_from((0, 5, 30, 80, 200)),
    CHANGES,
    st.sampled_from((1, 2, 5)),
    st.lists(st.integers(1, 40), max_size=3),
)


@settings(max_examples=examples(12), deadline=None)
@given(*DRAWN)
def test_a_reader_holds_the_plain_sessions_at_every_step(
    seed: int, sizes: tuple[int, int], allowed: int, options: dict[str, Any], step_rows: int, stops: list[int]
) -> None:
    """Whatever the lateness, the disorder, the steps, the folds, the shards, and where the job restarts."""
    follows_the_plain_sessions(seed, sizes, allowed, options, step_rows, stops)


@pytest.mark.check
@settings(max_examples=examples(80), deadline=None)
@given(*DRAWN)
def test_many_readers_hold_the_plain_sessions_at_every_step(
    seed: int, sizes: tuple[int, int], allowed: int, options: dict[str, Any], step_rows: int, stops: list[int]
) -> None:
    follows_the_plain_sessions(seed, sizes, allowed, options, step_rows, stops)
