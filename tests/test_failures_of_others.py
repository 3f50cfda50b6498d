"""Failures of event time that other systems are known for: each has a test here that bears its name."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from monoids import Count, Sum, record
from persistent import MemorySink, MemorySource, PersistentTask, Pipeline, WindowState, tumbling
from persistent.checkpoint.log import Log
from persistent.names import plan_name
from persistent.storage import MemoryStorage
from persistent.testing import ManualClock
from persistent.testing.running import START_MS
from persistent.verify import verify
from tests.faults import DEATHS, FaultyStorage, Killed, Operations

_QUIET = "tests/driver/test_workbench_quiet.py"
FAILURES = {
    "a window never closes when the stream goes quiet": (
        (_QUIET, "test_a_window_closes_although_the_stream_went_quiet"),
    ),
    "a poisoned watermark": (
        ("tests/test_failures_of_others.py", "test_a_poisoned_watermark"),
        ("tests/tools/cli/test_clock.py", "test_it_says_what_it_would_undo_and_asks"),
    ),
    "late data is dropped silently": (("tests/time/test_lateness.py", "test_late_data_dropped_silently"),),
    "a session loses its bridge": (
        ("tests/time/test_session_window.py", "test_a_session_that_loses_its_bridge"),
        ("tests/worker/test_merge_runs_of_sessions.py", "test_a_fold_of_some_runs_drops_no_fragment"),
    ),
    "a session is published, and then again as a part of another": (
        ("tests/time/test_session_window_lateness.py", "test_a_late_record_joins_two_published_sessions"),
        ("tests/time/test_session_window_lateness.py", "test_a_late_record_opens_a_published_session_again"),
        ("tests/crash/test_sessions_with_lateness.py", "test_a_run_killed_anywhere_equals_the_run_that_was_not"),
        ("tests/time/test_session_window_changes.py", "test_a_record_between_two_open_sessions_takes_both_back"),
    ),
    "an idle partition pins everything": (
        (_QUIET, "test_an_idle_partition_pins_nothing_and_a_quiet_stream_moves_on_from_there"),
    ),
    "a backlog counts as idle after a restart": ((_QUIET, "test_a_backlog_after_a_restart_is_not_quiet"),),
    "a replay of old data jumps to today": ((_QUIET, "test_a_replay_of_old_data_stays_in_its_time"),),
    "a state is wrong after a crash in the first step": (
        ("tests/test_failures_of_others.py", "test_a_crash_in_the_first_step"),
    ),
}
"""Each failure, and the tests that would show it."""


@pytest.mark.parametrize("failure", FAILURES)
def test_each_failure_has_its_test(failure: str) -> None:
    """A test that goes away with a module takes its failure out of sight."""
    for file, name in FAILURES[failure]:
        assert f"def {name}(" in (Path(__file__).parents[1] / file).read_text(), f"{failure}: no {name} in {file}"


class Visits(PersistentTask):
    """Visits and their sum by page and minute."""

    key = "page"

    def persistent_state(self) -> Any:
        return WindowState(record(visits=Count(), total=Sum()), tumbling("1 min"))

    def process_message(self, state: Any, message: Any) -> None:
        state.update(message.timestamp, {"visits": 1, "total": message.value["n"]})


MINUTE, DAY = 60_000, 86_400_000


def rows(*minutes: float) -> list[dict[str, Any]]:
    """A visit at each of these minutes of a day of 2030."""
    return [
        {"ts": START_MS // MINUTE * MINUTE + round(minute * MINUTE), "page": "ab"[number % 2], "n": number}
        for number, minute in enumerate(minutes)
    ]


class Shop:
    """A job over rows, run as often as one likes, each time by a new process; its steps read all that is there."""

    def __init__(self, given: list[dict[str, Any]]) -> None:
        self.rows, self.storage, self.sink = given, MemoryStorage(uuid.uuid4().hex), MemorySink()

    def run(self, operations: Operations | None = None, *, ends: bool = True, step_rows: int | None = None) -> Any:
        checkpoint = FaultyStorage(self.storage, operations) if operations else self.storage
        source = MemorySource(self.rows, ordered=True)
        pipeline = Pipeline(source=source, task=Visits(), sink=self.sink, checkpoint=checkpoint, step_rows=step_rows)
        return pipeline.run(engine="embedded", end_of_input=ends)

    def outcome(self) -> Any:
        """What is published, the account, the clock, and whether the files fit together."""
        entry = Log(self.storage).newest()
        assert entry is not None
        published = sorted((row["page"], row["window_start"], row["visits"], row["total"]) for row in self.sink.rows())
        return published, entry.manifest.accounts, entry.manifest.clock, verify(self.storage).ok


@pytest.mark.parametrize("ahead", [2 * DAY, 40 * 365 * DAY], ids=["days", "decades"])
def test_a_poisoned_watermark(ahead: int) -> None:
    """One record from the future moves the clock there, and all that come after it are late for days or for ever. It
    is a dead letter instead, and the result is that of the other records."""
    good = rows(0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5)
    with ManualClock(START_MS + 5 * MINUTE):
        clean, poisoned = Shop(good), Shop([*good[:3], {**good[0], "ts": good[0]["ts"] + ahead}, *good[3:]])
        clean.run(step_rows=3)
        report = poisoned.run(step_rows=3)
    (published, _, clock, ok), (expected, _, calm, _) = poisoned.outcome(), clean.outcome()
    assert (report.dead, report.late, ok) == (1, 0, True)
    assert (published, clock) == (expected, calm) and sum(visits for *_, visits, _ in published) == len(good)


@pytest.mark.parametrize("death", DEATHS)
def test_a_crash_in_the_first_step(death: str) -> None:
    """The next driver counts what the first step had counted in part once more; or it plans anew, over the rows that
    have come meanwhile, and what is late is another record."""
    given = rows(0, 0.5, 1, 1.5, 0.6, 2, 2.5, 3)
    with ManualClock(START_MS + 5 * MINUTE):
        at_once, by_two, operations = Shop(given), Shop(given[:3]), Operations()
        at_once.run()
        by_two.run(operations, ends=False)
        by_two.rows = given
        by_two.run()
        assert [account.late for shop in (at_once, by_two) for account in shop.outcome()[1].values()] == [0, 1]
        planned = 0
        for at in range(operations.count):
            crashed = Shop(given[:3])
            with suppress(Killed):
                crashed.run(Operations(at=at, how=death), ends=False)
            was_planned = plan_name(0, 0) in crashed.storage._files
            planned += was_planned
            crashed.rows = given
            with suppress(Killed):
                crashed.run(Operations(at=at + 3, how=death), ends=False)
            crashed.run()
            expected = (by_two if was_planned else at_once).outcome()
            assert crashed.outcome() == expected, f"{death} at {at}"
        assert 5 < planned < operations.count
