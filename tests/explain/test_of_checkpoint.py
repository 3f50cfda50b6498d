"""An explanation says where the next run goes on, and whether it can."""

from __future__ import annotations

from monoids import Count, Max
from persistent import Evolution, WindowState, tumbling
from persistent.storage import MemoryStorage
from tests.explain.test_of_job_and_of_states_and_explanation import pipeline_of, words
from tests.visits import run


def test_it_continues_at_the_newest_checkpoint() -> None:
    """It would say what the first run did."""
    storage = MemoryStorage("explain-again")
    pipeline = pipeline_of(WindowState(Count(), tumbling("1 min")), "again", checkpoint=storage)
    run(pipeline)
    before = storage.list("")
    text = words(pipeline, "pipeline")
    assert "continues at checkpoint " in text and "with 20 records read" in text
    assert "1 partition." in words(pipeline, "reads")
    assert pipeline.explain()["memory"].facts["row_bytes_from"] == {"Visits": "measured"}
    assert storage.list("") == before


def test_a_checkpoint_that_does_not_fit_is_told() -> None:
    """It would say that a run goes on which is refused."""
    storage = MemoryStorage("explain-fit")
    run(pipeline_of(WindowState(Count(), tumbling("1 min")), "fit", checkpoint=storage))
    other = WindowState(Max(int), tumbling("1 min"))
    refused = pipeline_of(other, "fit", checkpoint=storage).explain()["pipeline"]
    assert "The next run is refused: " in " ".join(refused.lines) and "Count() -> Max(int)" in refused.facts["refused"]
    evolves = pipeline_of(
        other, "fit", checkpoint=storage, evolve=Evolution(before=Count(), change=lambda count: count)
    )
    assert "The next run migrates the state to the task as it is now." in evolves.explain()["pipeline"].lines
    heir = pipeline_of(WindowState(Count(), tumbling("1 min")), "fit-heir", start_from=storage)
    assert words(heir, "pipeline").endswith("which begins as a copy of memory://explain-fit.")
