"""A stream of a task with several states goes quiet: the clock of each moves on, and each closes its own windows."""

from __future__ import annotations

from typing import Any

import pytest

from monoids import Count
from persistent import MemorySink, NonWindowState, PersistentTask, WindowState, tumbling
from persistent.driver import open_job
from persistent.testing import ManualClock
from tests.driver.test_workbench_quiet import MINUTE, Shop


class Twice(PersistentTask):
    """Visits by minute and by quarter of an hour, and in total."""

    key = "page"

    def persistent_state(self) -> Any:
        return {
            "minutes": WindowState(Count(), tumbling("1 min")),
            "quarters": WindowState(Count(), tumbling("15 min")),
            "total": NonWindowState(Count()),
        }

    def process_message(self, state: Any, message: Any) -> None:
        for one in state.values():
            one.update(message.timestamp, 1)


def test_each_state_closes_what_the_quiet_has_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moved for one of them alone would judge the next record for the others by another time."""
    monkeypatch.setattr(open_job, "_POLL_SECONDS", 0.0)
    sinks = {name: MemorySink() for name in ("minutes", "quarters")}
    shop = Shop(0, 30_000, task=Twice(), sink=sinks)
    found: list[tuple[int, int]] = []

    def seen() -> None:
        found.append((len(sinks["minutes"].rows()), len(sinks["quarters"].rows())))

    with ManualClock() as time:
        shop.follow(seen, lambda: time.advance("11 min"), seen, lambda: time.advance("5 min"), seen)
        assert found == [(0, 0), (1, 0), (1, 1)]
        clocks = {node.clock.watermark for node in shop.newest.nodes.values()}
        assert len(clocks) == 1 and clocks.pop() >= 15 * MINUTE
        # Late for the quarters and the minutes alike, and counted in the total.
        shop.add(20_000, 17 * MINUTE)
        shop.follow(seen)
    assert shop.pipeline().state(name="total").to_pylist() == [{"page": "a", "value": 4}]
    assert [row["reason"] for row in shop.pipeline().late().to_pylist()] == ["partly-late in minutes, quarters"]


def test_keys_of_one_state_expire_in_the_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is made for it although no window closes, and its sink is told."""

    class Lives(Twice):
        def persistent_state(self) -> Any:
            return {
                "quarters": WindowState(Count(), tumbling("15 min")),
                "lives": NonWindowState(Count(), ttl="5 min", emit="change"),
            }

    monkeypatch.setattr(open_job, "_POLL_SECONDS", 0.0)
    sinks = {name: MemorySink() for name in ("quarters", "lives")}
    shop = Shop(0, 30_000, task=Lives(), sink=sinks)
    found: list[tuple[int, list[bool]]] = []

    def seen() -> None:
        told = sorted(sinks["lives"].rows(), key=lambda row: row["revision"])
        found.append((len(sinks["quarters"].rows()), [row["retracted"] for row in told]))

    with ManualClock() as time:
        shop.follow(seen, *[lambda: time.advance("1 min")] * 12, seen, lambda: time.advance("15 min"), seen)
    assert found == [(0, [False]), (0, [False, True]), (1, [False, True])]
    assert shop.pipeline().state(name="lives").num_rows == 0
