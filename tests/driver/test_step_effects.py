"""A step does what it says: nothing if there is nothing to do, and only what can be read again."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Count, Sum
from persistent import (
    NonWindowState,
    PersistentTask,
    WindowState,
    tumbling,
)
from persistent.errors import InvalidPipeline
from tests.driver.shop import Shop, Visits
from tests.faults import FaultyStorage, Operations


class Totals(Visits):
    def persistent_state(self) -> Any:
        return NonWindowState(Count())


@pytest.mark.parametrize("end", [False, True])
@pytest.mark.parametrize("task", [Visits, Totals])
def test_a_run_without_anything_to_do_writes_nothing(task: type[PersistentTask], end: bool) -> None:
    """A scheduler that starts a finished job every minute would otherwise fill the log with fences."""
    shop = Shop(task=task)
    shop.run(end_of_input=end)
    operations = Operations()
    report = shop.pipeline(FaultyStorage(shop.storage, operations)).run(engine="embedded", end_of_input=end)
    assert (report.steps, report.rows) == (0, 0)
    assert {verb for verb, _, _ in operations.log} <= {"read", "list"}


def test_only_keys_updated_since_the_last_end_are_published() -> None:
    """A state of a million keys of which three changed publishes three."""
    shop = Shop(task=Totals)
    shop.run(end_of_input=True)
    shop.rows.append({"ts": 50, "page": "a", "n": 1})
    shop.run(end_of_input=True)
    rows = shop.sink.rows()
    assert [(row["page"], row["value"]) for row in rows[-1:]] == [("a", 7)]
    assert sorted((row["page"], row["value"]) for row in rows[:-1]) == [("a", 6), ("b", 6)]
    assert rows[-1]["revision"] > max(row["revision"] for row in rows[:-1])


class Weighted(Visits):
    """A state that says in its fingerprint what a checkpoint cannot hold."""

    def persistent_state(self) -> Any:
        monoid = Sum()
        monoid.parameters = lambda: {"weight": 0.5}  # type: ignore[method-assign]
        return WindowState(monoid, tumbling(10))


def test_what_could_not_be_read_again_is_not_committed() -> None:
    """A float in a manifest would be written, and refused at the next start: the checkpoint would be lost."""
    with pytest.raises(InvalidPipeline, match=r"0\.5 is a float, which a checkpoint cannot hold"):
        Shop(task=Weighted).run()
