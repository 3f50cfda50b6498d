"""A board holds the newest figures of one pipeline, and keeps counting over its runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from persistent.connect.source import Reached
from persistent.driver.report import StepReport
from persistent.errors import InvalidPipeline
from persistent.metrics.board import Board, Boards, Durations
from persistent.metrics.table import BY_NAME, HISTOGRAM, METRICS
from tests.metrics.test_board_values import manifest

STEP = StepReport(1, 2_000, 0.3, 0, 0, 7, 1_000, 500, 4096, 1024, 512, 0.01, reached=Reached(3, 10, "bytes"))


def value(board: Board, name: str) -> float:
    ((_, found),) = board.values(BY_NAME[name], board.shown)
    return found


def test_each_metric_has_a_figure_from_the_beginning() -> None:
    """A scrape before the first step would fail, and the run be taken for dead."""
    board = Board("visits")
    for metric in METRICS:
        if metric.kind == HISTOGRAM:
            assert board.shown.timed[metric.name] == Durations()
        else:
            assert all(len(labels) == len(metric.labels) for labels, _ in board.values(metric, board.shown))
    assert value(board, "run.active") == 0 and value(board, "published.rows") == 0


def test_counters_go_on_in_the_next_run() -> None:
    """A second run in the process would count from zero: to a scrape, that is another process."""
    recorded: list[tuple[str, str, float]] = []
    board = Board("visits", lambda *words: recorded.append(words))
    for pauses in (3, 4):
        board.open("embedded")
        board.begin(manifest(), lambda pauses=pauses: pauses)
        board.begin(manifest(), lambda pauses=pauses: pauses)
        assert value(board, "run.active") == 1
        board.step(STEP, manifest())
        board.close()
    assert (value(board, "published.rows"), value(board, "retries"), value(board, "run.active")) == (14, 7, 0)
    assert board.shown.timed["step.duration"].buckets()[-1] == ("+Inf", 2)
    assert recorded == [("step.duration", "visits", 0.3), ("commit.duration", "visits", 0.01)] * 2
    assert value(board, "unread") == 7
    board.step(replace(STEP, reached=None), manifest())
    assert not list(board.values(BY_NAME["unread"], board.shown))


def test_a_recorder_that_fails_ends_no_run(caplog: pytest.LogCaptureFixture) -> None:
    """A committed step would be reported as failed, because nobody could be told of it."""

    def fails(*words: object) -> None:
        raise OSError("gone")

    board = Board("visits", fails)
    board.step(STEP, manifest())
    assert value(board, "published.rows") == 7
    assert "step.duration of visits was not recorded: gone" in caplog.text


def test_what_was_read_of_a_board_stays_as_it_was() -> None:
    """A scrape during a step would mix two checkpoints."""
    board = Board("visits")
    before = board.shown
    board.step(STEP, manifest())
    assert before.counted["published.rows"] == 0 and before.manifest is None


@pytest.mark.parametrize(("seconds", "first"), [(0.0, "0.001"), (0.01, "0.01"), (0.0101, "0.025"), (301.0, "+Inf")])
def test_a_duration_is_in_each_bucket_from_its_own_on(seconds: float, first: str) -> None:
    """Quantiles would be off by a bucket."""
    assert next(bound for bound, count in Durations().plus(seconds).buckets() if count) == first


def test_a_pipeline_has_one_board_and_each_a_name() -> None:
    """Two pipelines under one name are one series twice, and no scrape is read."""
    boards = Boards()
    first, second = boards.of("s3://a/visits"), boards.of("s3://b/visits")
    assert boards.of("s3://a/visits") is first
    assert [one.pipeline for one in boards.all()] == ["a-visits", "b-visits"] == [first.pipeline, second.pipeline]


def test_a_name_does_not_depend_on_what_ran_first() -> None:
    """After a restart in another order each job would go on in the series of the other."""
    urls = "/jobs/shop/checkpoint", "/jobs/visits/checkpoint"
    found = []
    for order in (urls, urls[::-1]):
        boards = Boards()
        found.append({url: boards.of(url).pipeline for url in order})
    assert found[0] == found[1] == dict(zip(urls, ("shop-checkpoint", "visits-checkpoint")))
    with pytest.raises(
        InvalidPipeline, match=r"'shop-checkpoint': give each a name of its own, Pipeline\(name="
    ) as told:
        boards.of("s3://key:hunter2@old/shop/checkpoint?x=hunter2")
    assert len(boards.all()) == 2 and "hunter2" not in str(told.value)
    assert boards.of("s3://key:hunter2@old/shop/checkpoint?x=hunter2", "old-shop").pipeline == "old-shop"
