"""A run is given metrics in any form, opens them first and closes them whatever happens."""

from __future__ import annotations

from typing import Any

import pytest

from persistent import InvalidPipeline
from persistent.metrics.board import Board
from persistent.metrics.protocol import shown
from persistent.storage import MemoryStorage
from persistent.testing.faults import Killed
from tests.visits import GOOD, pipeline_of


class Noted:
    """Notes what is asked of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.error = error

    def open(self, url: str, engine: str) -> Board:
        self.asked.append(f"open {url} {engine}")
        if self.error is not None:
            raise self.error
        return Board("visits")

    def close(self, board: Board) -> None:
        self.asked.append("close")


def test_all_are_opened_before_the_run_and_closed_after_it() -> None:
    """An endpoint would outlive its run, or a run begin without one."""
    first, second = Noted(), Noted()
    storage = MemoryStorage("metrics-given")

    def die(step: Any) -> None:
        raise Killed

    with pytest.raises(Killed):
        pipeline_of(GOOD, storage).run(engine="embedded", metrics=[first, second], on_step=die)
    assert first.asked == second.asked == ["open memory://metrics-given embedded", "close"]
    third = Noted(InvalidPipeline("taken"))
    other = MemoryStorage("metrics-refused")
    with pytest.raises(InvalidPipeline, match="taken"):
        pipeline_of(GOOD, other).run(engine="embedded", metrics=(first, third))
    assert first.asked[2:] == ["open memory://metrics-refused embedded", "close"] and not other.list("")


@pytest.mark.parametrize("wrong", [7, [None], {"a": 1}, True])
def test_what_is_no_metrics_is_refused(wrong: Any) -> None:
    """A run would go on without."""
    with pytest.raises(InvalidPipeline, match=r"give HOST:PORT, PrometheusMetrics\(...\)"), shown(wrong, "x", "y"):
        pass


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_none_is_none(nothing: Any) -> None:
    """Every run would need some."""
    with shown(nothing, "x", "y") as boards:
        assert boards == ()
