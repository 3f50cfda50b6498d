"""A step of sessions with lateness asks for the keys that may change, and does nothing where there are none."""

from __future__ import annotations

from typing import Any

import pytest

from persistent.driver import publish_after
from persistent.driver import step as steps
from persistent.testing.faults import FaultyStorage, Killed, Operations
from tests.sessions import Row, Visits, expected, held, run_of


def at(*times: int, key: str = "a") -> list[Row]:
    return [{"ts": time, "key": key, "value": time} for time in times]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the shards of each step were asked for."""
    found: list[Any] = []

    def watched(closing: Any, parallelism: int, panes: Any) -> Any:
        found.append((closing.closed, closing.close_at, closing.corrected))
        return steps.in_shards(closing, parallelism, panes)

    monkeypatch.setattr(publish_after, "in_shards", watched)
    return found


def test_a_step_with_nothing_late_that_closes_nothing_reads_no_state(asked: list[Any]) -> None:
    """The cost of a step grows with what is late and what closes, not with what is kept."""
    with run_of([*at(0), *at(5, 6, 7, 13, 14, 16, key="z")], task=Visits(allowed_lateness=100), step_rows=1) as made:
        made.run(made.rows)
        assert asked == [(7, 13, ())], "the step that closes the first session"


def test_a_late_record_is_looked_for_in_the_cells_from_its_own_on(asked: list[Any]) -> None:
    with run_of([*at(55), *at(130, 131, key="z"), *at(60)], task=Visits(allowed_lateness=100), step_rows=1) as made:
        made.run(made.rows)
        assert asked == [(55, 130, ()), (130, 131, ((1, 2),))]


def test_a_key_without_a_late_record_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred closed sessions, that of the late record."""
    found: list[int] = []
    from persistent.state import views

    fold = views.fold

    def counted(monoid: Any, parts: Any, step: int) -> Any:
        rows = fold(monoid, parts, step)
        found.append(len(rows))
        return rows

    monkeypatch.setattr(views, "fold", counted)
    rows = [
        *({"ts": 0, "key": f"k{number}", "value": 1} for number in range(100)),
        *at(30, 31, key="z"),
        *at(5, key="k7"),
    ]
    with run_of(rows, task=Visits(allowed_lateness=100), step_rows=1) as made:
        made.run(rows[:-1])
        found.clear()
        made.run(rows)
        assert found and max(found) == 1


@pytest.mark.parametrize("has_sink", [True, False])
def test_a_planned_step_has_the_lateness_of_the_run_that_commits_it(has_sink: bool) -> None:
    """It would join what the option that is gone would have left open, with a sink and without."""
    rows = [*at(0), *at(20, key="z"), *at(5), *at(60, key="z")]
    with run_of(rows, task=Visits(allowed_lateness=15), step_rows=1) as made:
        store, made.storage = made.storage, _Dying(made.storage, 3)
        with pytest.raises(Killed):
            made.run(rows)
        made.storage = store
        made.task = Visits(late="retract") if has_sink else Visits()
        options = {} if has_sink else {"sink": None, "discard_closed": True}
        report = made.run(**options)
        on_time = [*at(0), *at(20, key="z"), *at(60, key="z")]
        assert report.late == 1
        if has_sink:
            assert held(made.sink.rows()) == expected(on_time, 10, 50)
        else:
            assert report.discarded == len(expected(on_time, 10, 50)) and not made.sink.rows()


class _Dying(FaultyStorage):
    """Its process dies before the checkpoint of so many plans."""

    def __init__(self, inner: Any, plans: int) -> None:
        super().__init__(inner, Operations())
        self.plans = plans

    def put_if_absent(self, name: str, data: bytes) -> Any:
        self.plans -= name.startswith("p/")
        if not self.plans and name.startswith("m/"):
            raise Killed(name)
        return self.inner.put_if_absent(name, data)


def test_a_step_that_holds_back_asks_for_what_may_close_alone(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Early results cost a step nothing where no session closes; and where one may, the keys whose parts have ended."""
    hashes: list[int] = []
    from persistent.worker import publish_shard

    count = publish_shard.unpublished_count

    def counted(job: Any, item: Any) -> int:
        hashes.append(len(item.hashes))
        return count(job, item)

    monkeypatch.setattr(publish_shard, "unpublished_count", counted)
    rows = [*({"ts": 0, "key": f"k{number}", "value": 1} for number in range(20)), *at(1, 2, 3, 4, key="z")]
    rows += [*at(9, key="k3"), *at(10, 11, key="z")]
    with run_of(rows, task=Visits(early=1000), step_rows=1) as made:
        made.run(rows[:-2])
        assert not asked and not hashes and not made.sink.rows()
        made.run(rows)
        assert hashes == [20] and len(held(made.sink.rows())) == 21, "k3 is open still, and published with the others"


def test_a_step_of_changes_reads_the_keys_of_its_delta_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from persistent.state import views

    found: list[int] = []
    fold = views.fold

    def counted(monoid: Any, parts: Any, step: int) -> Any:
        rows = fold(monoid, parts, step)
        found.append(len(rows))
        return rows

    monkeypatch.setattr(views, "fold", counted)
    rows = [*({"ts": 0, "key": f"k{number}", "value": 1} for number in range(100)), *at(5, key="k7")]
    with run_of(rows, task=Visits(emit="change"), step_rows=100) as made:
        made.run(rows[:100])
        found.clear()
        made.run(rows)
        assert found and max(found) == 1
