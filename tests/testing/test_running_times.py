"""User time is replaced wherever a task looks for it, and comes back."""

from __future__ import annotations

import datetime as days
import time
from datetime import UTC, date, datetime
from time import time as seconds
from typing import Any

from persistent.testing.running import user_time
from tests.testing.planted import Visits

NOW_MS = 1_600_000_000_500


class Asks(Visits):
    """Asks for the time in every way."""

    def all(self) -> list[Any]:
        return [
            time.time(),
            time.time_ns() // 1_000_000,
            seconds(),
            datetime.now(UTC).timestamp(),
            days.datetime.now(tz=UTC).timestamp(),
            date.today().isoformat(),
            days.date.today().isoformat(),
            datetime.utcnow().isoformat(),
        ]


def test_every_way_of_asking_gets_the_time_that_was_chosen() -> None:
    """A way that is left out is a mistake that is not found."""
    task = Asks()
    day = datetime.fromtimestamp(NOW_MS / 1_000).date().isoformat()
    with user_time(task, NOW_MS):
        at = NOW_MS / 1_000
        assert task.all() == [at, NOW_MS, at, at, at, day, day, "2020-09-13T12:26:40.500000"]
        assert isinstance(datetime(2020, 1, 1), datetime) and isinstance(days.datetime.now(), date)
    assert datetime is days.datetime and seconds is time.time and time.time() > 1.7e9


def test_true_times_are_times_still() -> None:
    """A task that asks whether a value is a datetime must be answered as ever."""
    true = datetime(2021, 1, 1)
    with user_time(Asks(), NOW_MS):
        assert isinstance(true, datetime) and datetime is not type(true)
