"""A run is given metrics in any form, opens them first and closes them whatever happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from persistent import InvalidPipeline, MemorySource, PrometheusMetrics
from persistent.metrics.board import Board
from persistent.metrics.table import BY_NAME
from persistent.progress import shown
from persistent.storage import LocalStorage, MemoryStorage
from persistent.testing.faults import Killed
from persistent.time import clock
from tests.metrics.scrapes import Scrape, records, scrape
from tests.visits import GOOD, pipeline_of


class Noted:
    """Notes what is asked of it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[str] = []
        self.error = error

    def open(self, url: str, engine: str, name: str | None = None) -> Board:
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


class Away(MemorySource):
    """A source whose server has to be asked twice for each plan."""

    def plan(self, state: Any, budget: Any, *, follow: bool = False) -> Any:
        clock.pause(0, "the server is away")
        return super().plan(state, budget, follow=follow)


def test_the_waits_of_a_run_are_shown() -> None:
    """A run that only waits would look like one that has nothing to do."""
    noted = Boarded()
    source = Away(GOOD, timestamp="ts")
    report = pipeline_of(source, MemoryStorage("metrics-away"), step_rows=10).run(engine="embedded", metrics=noted)
    assert report.steps == 2
    assert [value for _, value in noted.board.values(BY_NAME["retries"], noted.board.shown)] == [3]


class Boarded(Noted):
    """Has one board."""

    board = Board("visits")

    def open(self, url: str, engine: str, name: str | None = None) -> Board:
        return self.board


@pytest.mark.spark
@pytest.mark.slow
def test_the_driver_shows_the_figures_of_a_run_on_spark(spark: Any, tmp_path: Path) -> None:
    """Only runs in one process could be watched."""
    metrics, found = PrometheusMetrics("127.0.0.1:0"), list[Scrape]()
    pipeline = pipeline_of(GOOD, LocalStorage(tmp_path), step_rows=10)
    pipeline.run(spark, metrics=metrics, on_step=lambda step: found.append(scrape(metrics.url)))
    assert sum(records(found[-1]).values()) == len(GOOD)
    assert any(key[:2] == ("run_info", "spark") for key in found[-1])


@pytest.mark.parametrize("nothing", [None, [], ()])
def test_none_is_none(nothing: Any) -> None:
    """Every run would need some."""
    with shown(nothing, "x", "y") as boards:
        assert boards == ()
