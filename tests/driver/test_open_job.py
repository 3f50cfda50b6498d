"""A job is opened without a trace, is ours once it is taken over, and is stepped by whoever has opened it."""

from __future__ import annotations

import pytest

from persistent import Fenced, InvalidPipeline, MemorySource, Pipeline
from persistent.checkpoint.log import Log
from persistent.checkpoint.running import marks
from persistent.driver.open_job import OpenJob, open_job
from persistent.driver.options import Options
from persistent.engines.embedded import Embedded
from tests.driver.shop import Shop, Visits


def opened(shop: Shop, **options: bool) -> OpenJob:
    return open_job(shop.pipeline().job(), Embedded(threads=1), Options(step_rows=4, **options))


def test_a_look_writes_nothing_and_says_whether_there_is_anything_to_do() -> None:
    """Else every look at a job that is up to date would fence the driver that runs it."""
    shop = Shop()
    assert opened(shop).look() and not shop.storage.list("")
    shop.run()
    before = sorted(shop.storage.list(""))
    assert not opened(shop).look() and sorted(shop.storage.list("")) == before


def test_steps_by_hand_come_to_what_a_run_does() -> None:
    """What is no loop, such as a stream's batches, commits as the loop does."""
    shop, run = Shop(), Shop()
    with opened(shop, end_of_input=True) as job:
        job.take_over()
        reports = []
        while (report := job.step()) is not None:
            reports.append(report)
        assert job.step() is None and job.last.manifest.id == Log(shop.storage).ids()[-1]
    run.run(end_of_input=True)
    assert [report.rows for report in reports] == [4, 4, 4, 0]
    assert shop.counted() == run.counted() == shop.expected()


def test_a_job_that_another_has_taken_over_commits_nothing_more() -> None:
    """Two that step one job would count twice."""
    shop = Shop()
    first, second = opened(shop), opened(shop)
    first.take_over()
    assert first.step() is not None
    second.take_over()
    newest = second.last.manifest.id
    with pytest.raises(Fenced):
        first.step()
    while second.step() is not None:
        pass
    assert second.last.manifest.id > newest and sum(shop.counted().values()) > 0


def test_a_job_is_stepped_by_none_but_its_driver() -> None:
    """Without a fence, it would commit beside the driver that runs it."""
    shop = Shop()
    shop.run()
    shop.add(6)
    job, before = opened(shop), Log(shop.storage).ids()
    assert job.look()
    for act in (job.step, job.mark):
        with pytest.raises(RuntimeError, match="take it over first"):
            act()
    assert Log(shop.storage).ids() == before


class Odd(MemorySource):
    """A source that no checkpoint can name."""

    kind = "bad/kind"


def test_what_cannot_begin_is_refused_without_a_look_too() -> None:
    """A checkpoint that no run can continue would be left behind."""
    shop = Shop()
    pipeline = Pipeline(source=Odd(shop.rows), task=Visits(), sink=shop.sink, checkpoint=shop.storage)
    job = open_job(pipeline.job(), Embedded(threads=1), Options())
    with pytest.raises(InvalidPipeline, match="bad/kind"):
        job.take_over()
    assert not shop.storage.list("")


def test_the_mark_of_a_driver_goes_with_it_also_after_an_error() -> None:
    """One that stayed would make every later operation wait for a driver that is gone."""
    shop = Shop()
    with pytest.raises(ZeroDivisionError), opened(shop) as job:
        job.take_over()
        assert not list(marks(shop.storage))
        job.mark()
        assert len(list(marks(shop.storage))) == 1
        raise ZeroDivisionError
    assert not list(marks(shop.storage))
    opened(shop).close()
