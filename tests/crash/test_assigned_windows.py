"""A job whose windows only its assigner knows, killed at any storage operation and resumed, equals the run that was
not."""

from __future__ import annotations

from pathlib import Path

from monoids import Count, Sum, record
from persistent import WindowState, assigned
from tests.crash.sweep import Deaths, anywhere, survives
from tests.crash.test_late import ROWS
from tests.crash.worlds import CrashJob, Visits
from tests.time.test_assigned_window import Cycle


class Shift(Visits):
    """Visits by windows of unequal lengths, which take late records and are published again."""

    def persistent_state(self) -> WindowState:
        monoid = record(visits=Count(), total=Sum())
        return WindowState(monoid, assigned(Cycle(8, 2, 14)), allowed_lateness=15, late="retract")


JOB = CrashJob("shifts", Shift, ROWS, 2)


@anywhere
def test_a_run_killed_anywhere_equals_the_run_that_was_not(deaths: Deaths, folder: Path) -> None:
    """A driver that takes over would close other windows than the one that was killed."""
    assert any("True" in row for row in survives(JOB, folder, deaths).outcome.published)
