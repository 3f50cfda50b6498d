"""A step expires what its plan says, and only then: not at the end of the input, and again only what comes back."""

from __future__ import annotations

from typing import Any

from persistent import Embedded
from persistent.checkpoint.log import Log
from persistent.driver.run_cache import LifeCache
from persistent.state.time_to_live import TimeToLive
from persistent.worker.job import CloseShard
from tests.lives import MODES, Devices, run_of
from tests.single import only


class Watched(Embedded):
    """Notes the closings of each job."""

    def __init__(self) -> None:
        super().__init__()
        self.closings: list[CloseShard] = []

    def map(self, function: Any, items: Any) -> Any:
        self.closings += [item for item in items if isinstance(item, CloseShard)]
        return super().map(function, items)


def at(*times: int, key: str = "a") -> list[dict[str, Any]]:
    return [{"ts": time, "key": key, "value": time} for time in times]


def test_a_step_in_which_no_life_may_end_closes_nothing() -> None:
    """Otherwise each step would cost what the state costs."""
    watched = Watched()
    with run_of(at(0, 5, 6, 7), task=Devices(10, MODES[0]), step_rows=1) as run:
        run.run(run.rows, engine=watched)
        assert watched.closings == []
        run.rows = at(0, 5, 6, 7, 30, 31)
        run.run(run.rows, engine=watched)
    (closing,) = watched.closings
    assert closing.counts and closing.hashes is not None and len(closing.hashes) == 1


def test_only_the_keys_that_may_have_expired_are_looked_up() -> None:
    watched = Watched()
    rows = [*({"ts": 20, "key": f"k{number}", "value": 1} for number in range(100)), *at(1), *at(25, 26, key="b")]
    with run_of(rows, task=Devices(10), step_rows=101) as run:
        run.run(rows, engine=watched)
    hashes = [len(one.hashes) for one in watched.closings if one.hashes is not None and len(one.hashes)]
    assert hashes == [1]


def test_a_key_of_which_the_sinks_do_not_know_makes_another_end() -> None:
    """The clock can move on without records, after the end of the input was published."""
    with run_of(at(0), task=Devices(10, MODES[0])) as run:
        run.run()
        state = only(Log(run.storage).newest().manifest.nodes)
        assert (state.shown_at, state.published > 0) == (0, True)
        cache = LifeCache(run.storage, TimeToLive(10))
        assert not cache.is_untold(state.runs, 0, 9) and cache.is_untold(state.runs, 0, 10)
        assert not cache.is_untold(state.runs, None, 10), "nobody has it"
        assert len(cache.due(state.runs, 0, 9)) == 0 and len(cache.due(state.runs, 0, 10)) == 1
        assert cache.is_due(state.runs, 0, 10) and not cache.is_due(state.runs, 10, 11)
        assert (cache.open_windows(state.runs, 0), cache.largest_end(state.runs, 0)) == (0, 0)


def test_what_sinks_know_is_of_what_is_published() -> None:
    with run_of(at(0), task=Devices(10, MODES[0])) as run:
        run.run(run.rows)
        fresh = only(Log(run.storage).newest().manifest.nodes)
        assert (fresh.published, fresh.shown_to(fresh.runs), fresh.shown_after(7, publishes=False)) == (0, None, None)
        assert fresh.shown_after(7, publishes=True) == 7
        run.run()
        told = only(Log(run.storage).newest().manifest.nodes)
        assert told.shown_to(told.runs) == told.shown_at == 0
        assert told.unpublished().shown_to(told.runs) == 0, "whoever goes on may have what was published"


def test_a_fold_drops_what_ended_a_time_to_live_ago_and_is_told() -> None:
    ttl = TimeToLive(10)
    assert [ttl.over(final, None) for final in (5, 10, 25)] == [0, 0, 15]
    assert [ttl.over(25, shown) for shown in (3, 15, 40)] == [3, 15, 15]
